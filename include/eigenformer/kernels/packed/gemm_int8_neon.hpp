#pragma once

#include <cstdint>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/packed/gemm_int8_tile.hpp"

#if EIGENFORMER_ARM64
#include <arm_neon.h>

// The tiles of int8 products for ARM with 64 bits. They are tested under an emulator; how fast they are on a
// CPU was not measured.

namespace eigenformer::kernels::detail {

/// sum[j] += the products of column j's four weights with the four inputs in lane Lane of q, for four
/// columns.
struct DotBySdot {
  template <int Lane>
  static EIGENFORMER_ALWAYS_INLINE void add(int32x4_t& sum, int8x16_t w, int32x4_t q) {
    // As assembly, because clang 14 has the intrinsic only where the whole file is compiled for it.
    __asm__(".arch_extension dotprod\n\tsdot %0.4s, %1.16b, %2.4b[%c3]"
            : "+w"(sum)
            : "w"(w), "w"(q), "i"(Lane));
  }
};

/// The same without sdot. Two products of bytes fit in 16 bits: no weight or input is -128 but in a row of
/// NaN.
struct DotByWidening {
  template <int Lane>
  static EIGENFORMER_ALWAYS_INLINE void add(int32x4_t& sum, int8x16_t w, int32x4_t q) {
    const int8x16_t four = vreinterpretq_s8_s32(vdupq_laneq_s32(q, Lane));
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(four)), high = vmull_high_s8(w, four);
    sum = vpadalq_s16(sum, vpaddq_s16(low, high));
  }
};

/// A tile of Rows x 32 sums, as many columns at a time as leave their sums in registers. Inputs, held as
/// q + 128, become signed by their highest bit: these sums have no offset. (Indices are template constants,
/// so that the sums live in registers at any optimisation level.)
template <class Dot, int Rows>
struct Int8TileNeon {
  static_assert(Rows % 4 != 3);
  static constexpr int vectors = Rows > 2 ? 4 : 8;  // of four columns
  static constexpr int fours = (Rows + 3) / 4;
  using RowSequence = std::make_integer_sequence<int, Rows>;
  using VectorSequence = std::make_integer_sequence<int, vectors>;
  using Sums = int32x4_t[vectors][Rows];

  template <int... F>
  static EIGENFORMER_ALWAYS_INLINE void load(int32x4_t (&q)[fours], const Int8Four* a,
                                             std::integer_sequence<int, F...>) {
    const auto* p = reinterpret_cast<const std::int32_t*>(a);
    ((q[F] = vld1q_s32(p + 4 * F)), ...);
    if constexpr (Rows % 4 == 1) q[Rows / 4] = vld1q_dup_s32(p + Rows - 1);
    if constexpr (Rows % 4 == 2) q[Rows / 4] = vcombine_s32(vld1_s32(p + Rows - 2), vld1_s32(p + Rows - 2));
  }
  static EIGENFORMER_ALWAYS_INLINE void make_signed(int32x4_t& q) {
    q = vreinterpretq_s32_u8(veorq_u8(vreinterpretq_u8_s32(q), vdupq_n_u8(128)));
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void clear(int32x4_t (&sum)[Rows], std::integer_sequence<int, R...>) {
    ((sum[R] = vdupq_n_s32(0)), ...);
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void add(int32x4_t (&sum)[Rows], const int32x4_t (&q)[fours],
                                            const std::int8_t* b, std::integer_sequence<int, R...>) {
    const int8x16_t w = vld1q_s8(b);
    (Dot::template add<R % 4>(sum[R], w, q[R / 4]), ...);
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void store(const int32x4_t (&sum)[Rows], std::int32_t* total,
                                              std::integer_sequence<int, R...>) {
    (vst1q_s32(total + R * int8_columns, sum[R]), ...);
  }

  template <int... V>
  static EIGENFORMER_ALWAYS_INLINE void columns(index_t steps, const Int8Four* a, const Int8Four* b,
                                                std::int32_t* total, std::integer_sequence<int, V...>) {
    Sums sum;
    (clear(sum[V], RowSequence{}), ...);
    for (index_t s = 0; s < steps; ++s) {
      int32x4_t q[fours];
      load(q, a + s * Rows, std::make_integer_sequence<int, Rows / 4>{});
      make_signed(q[0]);
      if constexpr (fours == 2) make_signed(q[1]);
      const auto* w = reinterpret_cast<const std::int8_t*>(b + s * int8_columns);
      (add(sum[V], q, w + 16 * V, RowSequence{}), ...);
    }
    (store(sum[V], total + 4 * V, RowSequence{}), ...);
  }

  static void run(index_t steps, const Int8Four* a, const Int8Four* b, const Int8Output* out) {
    alignas(16) std::int32_t total[Rows * int8_columns];
    for (int j = 0; j < int8_columns; j += 4 * vectors) columns(steps, a, b + j, total + j, VectorSequence{});
    finish_int8(total, false, *out);
  }
};

template <int Rows>
using Int8Neon = Int8TileNeon<DotByWidening, Rows>;
template <int Rows>
using Int8NeonDot = Int8TileNeon<DotBySdot, Rows>;

}  // namespace eigenformer::kernels::detail
#endif
