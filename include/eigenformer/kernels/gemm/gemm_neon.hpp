#pragma once

#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"

#if EIGENFORMER_ARM64
#include <arm_neon.h>

// The tiles of float products for ARM with 64 bits. They are tested under an emulator; their speed on a CPU
// was not measured.

namespace eigenformer::kernels::detail {

/// A tile of Rows x 8 floats: the elements of A, four to a register, multiply by element (fmla). 12 rows take
/// 24 of the 32 registers for sums, 3 for A and 2 for B. The tile's tails and end, and the order of every
/// sum, are those of gemm_micro.hpp. Tiles of all heights are these, so that all round alike.
template <int Rows>
struct GemmMicroNeon {
  static_assert(Rows % 4 != 3);
  using Float = GemmMicro<float, 16, Rows>;
  using V = typename Float::V;
  using RowSequence = typename Float::RowSequence;

  // (Intrinsics that are macros, as these are in clang, do not work in a fold expression.)
  template <int Lane>
  static EIGENFORMER_ALWAYS_INLINE void add(V& sum, float32x4_t b, float32x4_t a) {
    sum = (V)vfmaq_laneq_f32((float32x4_t)sum, b, a, Lane);
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void step(V (&x)[Rows], V (&y)[Rows], const float* a, const float* b,
                                             std::integer_sequence<int, R...>) {
    float32x4_t four[(Rows + 3) / 4];
    for (int i = 0; i < Rows / 4; ++i) four[i] = vld1q_f32(a + 4 * i);
    if constexpr (Rows % 4 == 1) four[Rows / 4] = vld1q_dup_f32(a + Rows - 1);
    if constexpr (Rows % 4 == 2)
      four[Rows / 4] = vcombine_f32(vld1_f32(a + Rows - 2), vld1_f32(a + Rows - 2));
    const float32x4_t b0 = vld1q_f32(b), b1 = vld1q_f32(b + 4);
    ((add<R % 4>(x[R], b0, four[R / 4]), add<R % 4>(y[R], b1, four[R / 4])), ...);
  }

  static void run(index_t steps, const float* a, const float* b, const float* next, float* c, index_t ldc,
                  float alpha, bool accumulate, const float* bias, index_t rows, index_t cols) {
    typename Float::Output out;
    out.begin(c, ldc, accumulate, bias, rows, cols);
    V x[Rows], y[Rows];
    Float::clear(x, y, RowSequence{});
    for (index_t p = 0; p < steps; ++p) {
      step(x, y, a, b, RowSequence{});
      __builtin_prefetch(next, 0, 2);
      a += Rows;
      b += Float::columns;
      next += Float::lanes;
    }
    out.end(x, y, alpha, accumulate);
  }
};

}  // namespace eigenformer::kernels::detail
#endif
