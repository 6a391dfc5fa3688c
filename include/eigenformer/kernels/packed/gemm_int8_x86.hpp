#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"
#include "eigenformer/kernels/packed/gemm_int8_tile.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

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
    V x[Rows], y[Rows];
    scale(p, x, out->offset, out->scale, out->row_scale, out->rows, RowSequence{});
    scale(q, y, out->offset + 16, out->scale + 16, out->row_scale, out->rows, RowSequence{});
    tile.end(x, y, 1.0f, out->accumulate);
  }
};

}  // namespace eigenformer::detail::kernels::detail
#endif
