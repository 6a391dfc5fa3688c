#pragma once

#include <doctest/doctest.h>

#include <string>

#include "eigenformer/kernels/simd/isa.hpp"

namespace eigenformer::testing {

/// Puts a set of features in use (those of it that the CPU has) while it lives; then the one before is in use
/// again.
class WithIsa {
 public:
  explicit WithIsa(Isa isa) : before_(eigenformer::isa()) { detail::kernels::set_isa_for_testing(isa); }
  ~WithIsa() { detail::kernels::set_isa_for_testing(before_); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;

 private:
  Isa before_;
};

/// Whether all features of a path are here.
inline bool path_is_here(const detail::kernels::IsaPath& path) {
  return detail::kernels::available_isa().contains(path.isa);
}

/// Calls f on every path (detail::kernels::isa_paths) that is here; ctest's entries "isa/..." tell which
/// those are, and skip the others by name.
template <class F>
void for_each_isa(F&& f) {
  for (const detail::kernels::IsaPath& path : detail::kernels::isa_paths) {
    if (!path_is_here(path)) continue;
    const WithIsa with(path.isa);
    INFO("path: ", std::string(path.name));
    f();
  }
}

}  // namespace eigenformer::testing
