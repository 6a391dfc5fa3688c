#pragma once

#include <utility>
#include <vector>

namespace eigenformer {

/// A sub-module that may be absent, such as a stack's final norm; its parameters are listed under its own
/// name.
///
/// Reads like std::optional, but keeps the module on the heap: compilers cannot follow an optional's flag
/// through the module's shared pointers, and warn of uninitialised memory where there is none.
template <class M>
class OptionalModule {
 public:
  OptionalModule() noexcept = default;
  OptionalModule(M module) { held_.push_back(std::move(module)); }  // NOLINT(google-explicit-constructor)

  template <class... Args>
  M& emplace(Args&&... args) {
    held_.clear();
    return held_.emplace_back(std::forward<Args>(args)...);
  }
  void reset() noexcept { held_.clear(); }

  explicit operator bool() const noexcept { return !held_.empty(); }
  bool has_value() const noexcept { return !held_.empty(); }
  /// The module; there must be one.
  M& operator*() noexcept { return held_.front(); }
  const M& operator*() const noexcept { return held_.front(); }
  M* operator->() noexcept { return &held_.front(); }
  const M* operator->() const noexcept { return &held_.front(); }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    if (self) visit("", *self);
  }

 private:
  std::vector<M> held_;
};

}  // namespace eigenformer
