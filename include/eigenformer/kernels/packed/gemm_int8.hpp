#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_kernels.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

// Products of int8 weights and inputs quantised to 8 bits. Inputs are stored as q + 128 (unsigned, which is
// what vpdpbusd multiplies), so a sum is sum(q w) + 128 sum(w); the second part is known per output and
// subtracted. The integers are exact in 32 bits, so every path gives the same sums.

namespace eigenformer::detail::kernels::detail {

/// Four consecutive elements of k, 8 bits each, the first in the lowest byte.
using Int8Four = std::uint32_t;

inline constexpr index_t int8_columns = 32;

/// The output side of an int8 tile: c = [c +] (sum - offset) * scale * row_scale [+ bias].
struct Int8Output {
  const std::int32_t* offset;  ///< per column
  const float* scale;          ///< per column
  const float* row_scale;      ///< per row
  float* c;
  index_t ldc;
  const float* bias;  ///< per column or nullptr
  index_t rows, cols;
  bool accumulate;
};

/// Finishes a tile from its sums, 32 a row.
EIGENFORMER_ALWAYS_INLINE void finish_int8(const std::int32_t* sums, bool with_offset,
                                           const Int8Output& out) {
  for (index_t r = 0; r < out.rows; ++r) {
    float value[int8_columns];
    const std::int32_t* sum = sums + r * int8_columns;
    for (index_t j = 0; j < int8_columns; ++j) {
      value[j] =
          static_cast<float>(sum[j] - (with_offset ? out.offset[j] : 0)) * out.scale[j] * out.row_scale[r];
    }
    // Keeps the products above from being fused with the sums below in some tiles and not in others.
    __asm__ volatile("" : : "r"(value) : "memory");
    finish_row(value, out.accumulate, out.bias, out.c + r * out.ldc, out.cols);
  }
}

/// a: (steps, tile rows), b: (steps, 32).
using Int8Function = void (*)(index_t steps, const Int8Four* a, const Int8Four* b, const Int8Output* out);

}  // namespace eigenformer::detail::kernels::detail

#if EIGENFORMER_X86
#include <immintrin.h>

#define EIGENFORMER_TARGET_AVX_VNNI __attribute__((target("avx,avx2,fma,f16c,avxvnni")))
#define EIGENFORMER_TARGET_AVX512_VNNI \
  __attribute__((target("avx,avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

// The tiles of int8 products for x86.

namespace eigenformer::detail::kernels::detail {

/// The common part of the tiles with vectors of 32 bytes: the sums of Rows rows of 32 columns.
template <int Rows>
struct Int8Sums256 {
  static constexpr int vectors = int8_columns / 8;
  using RowSequence = std::make_integer_sequence<int, Rows>;
  using Sums = __m256i[Rows][vectors];

  EIGENFORMER_TARGET_AVX2 static EIGENFORMER_ALWAYS_INLINE __m256i weights(const Int8Four* b, int v) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + v * 8));
  }
  template <int... R>
  EIGENFORMER_TARGET_AVX2 static EIGENFORMER_ALWAYS_INLINE void clear(Sums& sum,
                                                                      std::integer_sequence<int, R...>) {
    ((sum[R][0] = sum[R][1] = sum[R][2] = sum[R][3] = _mm256_setzero_si256()), ...);
  }
  EIGENFORMER_TARGET_AVX2 static EIGENFORMER_ALWAYS_INLINE void store(const __m256i& v, std::int32_t* to) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), v);
  }
  template <int... R>
  EIGENFORMER_TARGET_AVX2 static EIGENFORMER_ALWAYS_INLINE void finish(const Sums& sum, bool with_offset,
                                                                       const Int8Output& out,
                                                                       std::integer_sequence<int, R...>) {
    alignas(32) std::int32_t total[Rows][int8_columns];
    ((store(sum[R][0], total[R]), store(sum[R][1], total[R] + 8), store(sum[R][2], total[R] + 16),
      store(sum[R][3], total[R] + 24)),
     ...);
    finish_int8(total[0], with_offset, out);
  }
};

/// AVX2: even and odd bytes of four are widened to 16 bits and multiplied and added in pairs (vpmaddwd).
template <int Rows>
struct Int8Avx2 {
  using Shared = Int8Sums256<Rows>;
  using RowSequence = typename Shared::RowSequence;

  EIGENFORMER_TARGET_AVX2 static EIGENFORMER_ALWAYS_INLINE void widen(__m256i& even, __m256i& odd,
                                                                      Int8Four four) {
    const __m256i q = _mm256_set1_epi32(static_cast<int>(four)), offset = _mm256_set1_epi16(128);
    even = _mm256_sub_epi16(_mm256_and_si256(q, _mm256_set1_epi16(255)), offset);
    odd = _mm256_sub_epi16(_mm256_srli_epi16(q, 8), offset);
  }
  template <int V, int... R>
  EIGENFORMER_TARGET_AVX2 static EIGENFORMER_ALWAYS_INLINE void step(typename Shared::Sums& sum,
                                                                     const __m256i (&even)[Rows],
                                                                     const __m256i (&odd)[Rows],
                                                                     const Int8Four* b,
                                                                     std::integer_sequence<int, R...>) {
    const __m256i w = Shared::weights(b, V);
    const __m256i w_even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8), w_odd = _mm256_srai_epi16(w, 8);
    ((sum[R][V] = _mm256_add_epi32(
          sum[R][V], _mm256_add_epi32(_mm256_madd_epi16(w_even, even[R]), _mm256_madd_epi16(w_odd, odd[R])))),
     ...);
  }
  template <int... R>
  EIGENFORMER_TARGET_AVX2 static EIGENFORMER_ALWAYS_INLINE void step(typename Shared::Sums& sum,
                                                                     const Int8Four* a, const Int8Four* b,
                                                                     std::integer_sequence<int, R...> rows) {
    __m256i even[Rows], odd[Rows];
    (widen(even[R], odd[R], a[R]), ...);
    step<0>(sum, even, odd, b, rows);
    step<1>(sum, even, odd, b, rows);
    step<2>(sum, even, odd, b, rows);
    step<3>(sum, even, odd, b, rows);
  }

  EIGENFORMER_TARGET_AVX2 static void run(index_t steps, const Int8Four* a, const Int8Four* b,
                                          const Int8Output* out) {
    typename Shared::Sums sum;
    Shared::clear(sum, RowSequence{});
    for (index_t s = 0; s < steps; ++s) step(sum, a + s * Rows, b + s * int8_columns, RowSequence{});
    // The inputs were widened to signed numbers: these sums have no offset.
    Shared::finish(sum, false, *out, RowSequence{});
  }
};

/// AVX-VNNI: vpdpbusd on 32 bytes. 3 rows take 12 of the 16 registers for sums, 3 for inputs, 1 for weights.
/// (The tests of all paths cover it, but have not run on a CPU with AVX-VNNI yet.)
template <int Rows>
struct Int8AvxVnni {
  using Shared = Int8Sums256<Rows>;
  using RowSequence = typename Shared::RowSequence;

  template <int V, int... R>
  EIGENFORMER_TARGET_AVX_VNNI static EIGENFORMER_ALWAYS_INLINE void step(typename Shared::Sums& sum,
                                                                         const __m256i (&q)[Rows],
                                                                         const Int8Four* b,
                                                                         std::integer_sequence<int, R...>) {
    const __m256i w = Shared::weights(b, V);
    ((sum[R][V] = _mm256_dpbusd_avx_epi32(sum[R][V], q[R], w)), ...);
  }
  template <int... R>
  EIGENFORMER_TARGET_AVX_VNNI static EIGENFORMER_ALWAYS_INLINE void step(
      typename Shared::Sums& sum, const Int8Four* a, const Int8Four* b,
      std::integer_sequence<int, R...> rows) {
    const __m256i q[Rows] = {_mm256_set1_epi32(static_cast<int>(a[R]))...};
    step<0>(sum, q, b, rows);
    step<1>(sum, q, b, rows);
    step<2>(sum, q, b, rows);
    step<3>(sum, q, b, rows);
  }

  EIGENFORMER_TARGET_AVX_VNNI static void run(index_t steps, const Int8Four* a, const Int8Four* b,
                                              const Int8Output* out) {
    typename Shared::Sums sum;
    Shared::clear(sum, RowSequence{});
    for (index_t s = 0; s < steps; ++s) step(sum, a + s * Rows, b + s * int8_columns, RowSequence{});
    Shared::finish(sum, true, *out, RowSequence{});
  }
};

/// avx512_vnni: vpdpbusd multiplies and adds four steps of k in each 32-bit lane.
template <int Rows>
struct Int8Vnni {
  using Float = GemmMicro<float, 64, Rows>;
  using V = typename Float::V;
  using RowSequence = typename Float::RowSequence;
  typedef std::int32_t I __attribute__((vector_size(64)));

  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void clear(I (&x)[Rows], I (&y)[Rows], std::integer_sequence<int, R...>) {
    ((x[R] = I{}, y[R] = I{}), ...);
  }
  template <int... R>
  EIGENFORMER_TARGET_AVX512_VNNI static EIGENFORMER_ALWAYS_INLINE void step(
      I (&x)[Rows], I (&y)[Rows], const Int8Four* a, const Int8Four* b, std::integer_sequence<int, R...>) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
    if constexpr (Rows > 4) {  // the weights may be in the slowest cache
      constexpr index_t ahead = 24 * int8_columns;
      __builtin_prefetch(b + ahead);
      __builtin_prefetch(b + ahead + 16);
    }
    ((x[R] = (I)_mm512_dpbusd_epi32((__m512i)x[R], _mm512_set1_epi32(static_cast<int>(a[R])), b0),
      y[R] = (I)_mm512_dpbusd_epi32((__m512i)y[R], _mm512_set1_epi32(static_cast<int>(a[R])), b1)),
     ...);
  }
  EIGENFORMER_TARGET_AVX512_VNNI static EIGENFORMER_ALWAYS_INLINE void keep_product(V& x) {
    __asm__("" : "+v"(x));
  }
  template <int... R>
  EIGENFORMER_TARGET_AVX512_VNNI static EIGENFORMER_ALWAYS_INLINE void scale(
      const I (&sum)[Rows], V (&x)[Rows], const std::int32_t* offset, const float* scale,
      const float* row_scale, index_t rows, std::integer_sequence<int, R...>) {
    I o;
    V s;
    std::memcpy(&o, offset, sizeof(I));
    std::memcpy(&s, scale, sizeof(V));
    ((x[R] = __builtin_convertvector(sum[R] - o, V) * s * row_scale[R < rows ? R : 0]), ...);
    // As above: keeps the product from being fused with the sum.
    (keep_product(x[R]), ...);
  }

  EIGENFORMER_TARGET_AVX512_VNNI static void run(index_t steps, const Int8Four* a, const Int8Four* b,
                                                 const Int8Output* out) {
    typename Float::Output tile;
    tile.begin(out->c, out->ldc, out->accumulate, out->bias, out->rows, out->cols);
    I p[Rows], q[Rows];
    clear(p, q, RowSequence{});
    for (index_t s = 0; s < steps; ++s) {
      step(p, q, a, b, RowSequence{});
      a += Rows;
      b += int8_columns;
    }
    // One half after the other: registers hold the sums of one and the floats of the other.
    V x[Rows];
    scale(p, x, out->offset, out->scale, out->row_scale, out->rows, RowSequence{});
    tile.template end<0>(x, 1.0f, out->accumulate);
    scale(q, x, out->offset + 16, out->scale + 16, out->row_scale, out->rows, RowSequence{});
    tile.template end<1>(x, 1.0f, out->accumulate);
  }
};

}  // namespace eigenformer::detail::kernels::detail
#endif

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

namespace eigenformer::detail::kernels::detail {

/// The bits of the largest magnitude of k floats: as integers, magnitudes are ordered like floats, and NaN is
/// above all.
EIGENFORMER_ALWAYS_INLINE std::int32_t largest_magnitude(index_t k, const float* x) {
  std::int32_t largest = 0;
  for (index_t p = 0; p < k; ++p) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(x[p]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

/// One row of k floats to bytes q + 128 and its scale, which is NaN if a value is not finite. step 0: one for
/// this row; otherwise values beyond 127 steps are taken as 127. The bytes of the last step behind k are
/// those of zero.
struct QuantizeRow {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(index_t k, const float* x, float step, std::uint8_t* q,
                                            float* scale) {
    const std::int32_t largest = largest_magnitude(k, x);
    const float maximum = std::bit_cast<float>(largest);
    const bool finite = largest<0x7f800000, given = step> 0;
    *scale = !finite ? std::numeric_limits<float>::quiet_NaN() : given ? step : maximum / 127.0f;
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    constexpr float magic = 12582912.0f;
    if (given) {
      const float inverse = 1.0f / step;
      for (index_t p = 0; p < k; ++p) {
        const float steps = x[p] * inverse;
        const float below = steps < 127.0f ? steps : 127.0f;
        const float within = below > -127.0f ? below : -127.0f;
        q[p] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(within + magic) + 128u);
      }
    } else {
      const float inverse = finite && maximum > 1e-30f ? 127.0f / maximum : 0.0f;
      for (index_t p = 0; p < k; ++p) {
        q[p] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(x[p] * inverse + magic) + 128u);
      }
    }
    for (index_t p = k; p % 4 != 0; ++p) q[p] = 128;
  }
};

/// Plain loops, for any instruction set.
struct Int8Plain {
  static constexpr index_t tile_rows = 4;

  EIGENFORMER_ALWAYS_INLINE static void run(index_t steps, const Int8Four* a, const Int8Four* b,
                                            const Int8Output* out) {
    std::int32_t sum[tile_rows][int8_columns] = {};
    for (index_t s = 0; s < steps; ++s) {
      const auto* w = reinterpret_cast<const std::int8_t*>(b + s * int8_columns);
      for (index_t r = 0; r < tile_rows; ++r) {
        const auto* q = reinterpret_cast<const std::uint8_t*>(a + s * tile_rows + r);
        const std::int32_t q0 = q[0], q1 = q[1], q2 = q[2], q3 = q[3];
        for (index_t j = 0; j < int8_columns; ++j) {
          sum[r][j] += q0 * w[4 * j] + q1 * w[4 * j + 1] + q2 * w[4 * j + 2] + q3 * w[4 * j + 3];
        }
      }
    }
    finish_int8(sum[0], true, *out);
  }
};

/// The int8 tiles for a set of features.
struct Int8Kernels : TileTable<Int8Function, gemm_max_rows> {
  /// The tiles of Tile<Rows>, by rising Rows.
  template <template <int> class Tile, int... Rows>
  static const Int8Kernels& of() {
    static const Int8Kernels kernels = [] {
      Int8Kernels k;
      k.add<Tile, Rows...>();
      return k;
    }();
    return kernels;
  }

  static const Int8Kernels& get([[maybe_unused]] Isa isa) {
#if EIGENFORMER_X86
    if (isa.has(IsaFeature::avx512_vnni)) return of<Int8Vnni, 1, 2, 4, 8, 14>();
    if (isa.has(IsaFeature::avx_vnni)) return of<Int8AvxVnni, 1, 2, 3>();
    if (isa.has(IsaFeature::avx2)) return of<Int8Avx2, 2>();
#elif EIGENFORMER_ARM64
    if (isa.has(IsaFeature::neon_dotprod)) return of<Int8NeonDot, 1, 2, 4, 6>();
    if (isa.has(IsaFeature::neon)) return of<Int8Neon, 1, 2, 4>();
#endif
    static const Int8Kernels plain = [] {
      Int8Kernels k;
      k.add(Int8Plain::tile_rows, body_for<Int8Plain, 16>());
      return k;
    }();
    return plain;
  }
};

}  // namespace eigenformer::detail::kernels::detail
