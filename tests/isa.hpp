#pragma once

#include <doctest/doctest.h>

#include <string>

#include "eigenformer/kernels/simd/simd.hpp"

namespace eigenformer::testing {

inline constexpr kernels::Isa all_isas[] = {kernels::Isa::baseline, kernels::Isa::avx2, kernels::Isa::avx512};

/// Forces an instruction set (or the next lower one that the CPU has) while it lives; then the one before is
/// in use again.
class WithIsa {
 public:
  explicit WithIsa(kernels::Isa isa) : before_(kernels::isa()) { kernels::set_isa_for_testing(isa); }
  ~WithIsa() { kernels::set_isa_for_testing(before_); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;

 private:
  kernels::Isa before_;
};

/// Calls f on every instruction set that the CPU has; ctest's entries "isa/..." say which those are.
template <class F>
void for_each_isa(F&& f) {
  for (const kernels::Isa isa : all_isas) {
    const WithIsa with(isa);
    if (kernels::isa() != isa) continue;
    INFO("instruction set: ", std::string(kernels::isa_name(isa)));
    f();
  }
}

}  // namespace eigenformer::testing
