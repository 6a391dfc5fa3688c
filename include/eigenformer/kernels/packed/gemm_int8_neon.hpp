#pragma once

#include <cstdint>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/packed/gemm_int8_tile.hpp"

#if EIGENFORMER_ARM64
#include <arm_neon.h>

#if defined(__clang__)
#define EIGENFORMER_TARGET_DOTPROD __attribute__((target("dotprod")))
#else
#define EIGENFORMER_TARGET_DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

// The tiles of int8 products for ARM with 64 bits. They are tested under an emulator; their speed on a CPU
// was not measured.

namespace eigenformer::detail::kernels::detail {

/// The common part of both tiles: the sums of Rows rows of 32 columns, 4 * vectors columns at a time, as many
/// as fit in registers. Inputs, stored as q + 128, become signed by their highest bit, so these sums have no
/// offset. (Indices are template constants, so that registers hold the sums at any optimisation level.)
template <int Rows>
struct Int8SumsNeon {
  static_assert(Rows % 4 != 3);
  static constexpr int vectors = Rows > 2 ? 4 : 8;
  static constexpr int fours = (Rows + 3) / 4;
  using RowSequence = std::make_integer_sequence<int, Rows>;
  using VectorSequence = std::make_integer_sequence<int, vectors>;
  using Column = int32x4_t[Rows];  // four columns of each row
  using Inputs = int32x4_t[fours];

  // (Intrinsics that are macros, as these are in clang, do not work in a fold expression.)
  static EIGENFORMER_ALWAYS_INLINE void load_four(int32x4_t& q, const std::int32_t* a) { q = vld1q_s32(a); }
  static EIGENFORMER_ALWAYS_INLINE void store_four(std::int32_t* to, int32x4_t sum) { vst1q_s32(to, sum); }
  static EIGENFORMER_ALWAYS_INLINE void make_signed(int32x4_t& q) {
    q = vreinterpretq_s32_u8(veorq_u8(vreinterpretq_u8_s32(q), vdupq_n_u8(128)));
  }
  template <int... F>
  static EIGENFORMER_ALWAYS_INLINE void load(Inputs& q, const std::int32_t* a,
                                             std::integer_sequence<int, F...>) {
    (load_four(q[F], a + 4 * F), ...);
    if constexpr (Rows % 4 == 1) q[Rows / 4] = vld1q_dup_s32(a + Rows - 1);
    if constexpr (Rows % 4 == 2) q[Rows / 4] = vcombine_s32(vld1_s32(a + Rows - 2), vld1_s32(a + Rows - 2));
    make_signed(q[0]);
    if constexpr (fours == 2) make_signed(q[1]);
  }
  static EIGENFORMER_ALWAYS_INLINE void load(Inputs& q, const Int8Four* a) {
    load(q, reinterpret_cast<const std::int32_t*>(a), std::make_integer_sequence<int, Rows / 4>{});
  }
  static EIGENFORMER_ALWAYS_INLINE int8x16_t weights(const Int8Four* b, int v) {
    return vld1q_s8(reinterpret_cast<const std::int8_t*>(b + 4 * v));
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void clear(Column& sum, std::integer_sequence<int, R...>) {
    ((sum[R] = vdupq_n_s32(0)), ...);
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void store(const Column& sum, std::int32_t* total,
                                              std::integer_sequence<int, R...>) {
    (store_four(total + R * int8_columns, sum[R]), ...);
  }
};

/// Any CPU: bytes are multiplied to 16 bits (smull), and neighbours added (addp, sadalp). Two products fit in
/// 16 bits, because an input is at least -127 (but in a row of NaN).
template <int Rows>
struct Int8Neon {
  using Shared = Int8SumsNeon<Rows>;
  using RowSequence = typename Shared::RowSequence;

  template <int Lane>
  static EIGENFORMER_ALWAYS_INLINE void add(int32x4_t& sum, int8x16_t w, int32x4_t q) {
    const int8x16_t four = vreinterpretq_s8_s32(vdupq_laneq_s32(q, Lane));
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(four)), high = vmull_high_s8(w, four);
    sum = vpadalq_s16(sum, vpaddq_s16(low, high));
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void step(typename Shared::Column& sum, const typename Shared::Inputs& q,
                                             int8x16_t w, std::integer_sequence<int, R...>) {
    (add<R % 4>(sum[R], w, q[R / 4]), ...);
  }
  template <int... V>
  static EIGENFORMER_ALWAYS_INLINE void columns(index_t steps, const Int8Four* a, const Int8Four* b,
                                                std::int32_t* total, std::integer_sequence<int, V...>) {
    typename Shared::Column sum[sizeof...(V)];
    (Shared::clear(sum[V], RowSequence{}), ...);
    for (index_t s = 0; s < steps; ++s) {
      typename Shared::Inputs q;
      Shared::load(q, a + s * Rows);
      (step(sum[V], q, Shared::weights(b + s * int8_columns, V), RowSequence{}), ...);
    }
    (Shared::store(sum[V], total + 4 * V, RowSequence{}), ...);
  }

  static void run(index_t steps, const Int8Four* a, const Int8Four* b, const Int8Output* out) {
    alignas(16) std::int32_t total[Rows * int8_columns];
    for (int j = 0; j < int8_columns; j += 4 * Shared::vectors) {
      columns(steps, a, b + j, total + j, typename Shared::VectorSequence{});
    }
    finish_int8(total, false, *out);
  }
};

/// neon_dotprod: sdot multiplies and adds four steps of k in each 32-bit lane. Its functions carry the target
/// themselves.
template <int Rows>
struct Int8NeonDot {
  using Shared = Int8SumsNeon<Rows>;
  using RowSequence = typename Shared::RowSequence;

  template <int Lane>
  EIGENFORMER_TARGET_DOTPROD static EIGENFORMER_ALWAYS_INLINE void add(int32x4_t& sum, int8x16_t w,
                                                                       int32x4_t q) {
    // As assembly, because clang 14 has the intrinsic only where the whole file is compiled for it.
    __asm__("sdot %0.4s, %1.16b, %2.4b[%c3]" : "+w"(sum) : "w"(w), "w"(q), "i"(Lane));
  }
  template <int... R>
  EIGENFORMER_TARGET_DOTPROD static EIGENFORMER_ALWAYS_INLINE void step(typename Shared::Column& sum,
                                                                        const typename Shared::Inputs& q,
                                                                        int8x16_t w,
                                                                        std::integer_sequence<int, R...>) {
    (add<R % 4>(sum[R], w, q[R / 4]), ...);
  }
  template <int... V>
  EIGENFORMER_TARGET_DOTPROD static EIGENFORMER_ALWAYS_INLINE void columns(index_t steps, const Int8Four* a,
                                                                           const Int8Four* b,
                                                                           std::int32_t* total,
                                                                           std::integer_sequence<int, V...>) {
    typename Shared::Column sum[sizeof...(V)];
    (Shared::clear(sum[V], RowSequence{}), ...);
    for (index_t s = 0; s < steps; ++s) {
      typename Shared::Inputs q;
      Shared::load(q, a + s * Rows);
      (step(sum[V], q, Shared::weights(b + s * int8_columns, V), RowSequence{}), ...);
    }
    (Shared::store(sum[V], total + 4 * V, RowSequence{}), ...);
  }

  EIGENFORMER_TARGET_DOTPROD static void run(index_t steps, const Int8Four* a, const Int8Four* b,
                                             const Int8Output* out) {
    alignas(16) std::int32_t total[Rows * int8_columns];
    for (int j = 0; j < int8_columns; j += 4 * Shared::vectors) {
      columns(steps, a, b + j, total + j, typename Shared::VectorSequence{});
    }
    finish_int8(total, false, *out);
  }
};

}  // namespace eigenformer::detail::kernels::detail
#endif
