#pragma once

#include <utility>
#include <vector>

namespace eigenformer::detail {

/// A sub-module that may be absent, such as a stack's final norm. Its parameters are listed under the name of
/// the OptionalModule.
///
/// It reads like std::optional, but keeps the module on the heap: compilers cannot track an optional's flag
/// through the module's shared pointers and warn of uninitialised memory.
///
///     ef::OptionalModule<ef::Norm<float>> norm;
///     norm.emplace(ef::NormOptions{.size = 12});
///     if (norm) y = (*norm)(ctx, y);
template <class M>
class OptionalModule {
 public:
  /// Absent.
  OptionalModule() noexcept = default;
  /// Holds a module, moved in. Implicit, as for std::optional.
  OptionalModule(M module) { held_.push_back(std::move(module)); }  // NOLINT(google-explicit-constructor)

  /// Constructs the module in place, replaces the one it may hold, and returns it.
  template <class... Args>
  M& emplace(Args&&... args) {
    held_.clear();
    return held_.emplace_back(std::forward<Args>(args)...);
  }

  /// Whether there is a module.
  explicit operator bool() const noexcept { return !held_.empty(); }
  /// The module. There must be one, which is not checked.
  M& operator*() noexcept { return held_.front(); }
  /// The module, likewise.
  const M& operator*() const noexcept { return held_.front(); }
  /// The module, likewise.
  M* operator->() noexcept { return &held_.front(); }
  /// The module, likewise.
  const M* operator->() const noexcept { return &held_.front(); }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    if (self) visit("", *self);
  }

 private:
  std::vector<M> held_;
};

}  // namespace eigenformer::detail
