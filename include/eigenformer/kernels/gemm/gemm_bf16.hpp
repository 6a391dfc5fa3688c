#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"

#if EIGENFORMER_X86
#include <immintrin.h>

#define EIGENFORMER_TARGET_AVX512_BF16 \
  __attribute__((target("avx,avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

// The bfloat16 product of avx512_bf16 (vdpbf16ps): a 32-bit lane holds two steps of k, both are multiplied
// and added to a float sum in one instruction. The tile, its tails and its end are those of gemm_micro.hpp.

namespace eigenformer::kernels::detail {

/// Two consecutive elements of k as bfloat16, the first in the lower half. Packed operands are stored as
/// floats of these bits. (The attribute lets both types access the same memory.)
using Bf16Pair = std::uint32_t __attribute__((may_alias));

// Bodies below are compiled for AVX-512 with bfloat16 only, so their helpers carry that target themselves.
template <int Rows>
struct GemmMicroBf16 {
  using Float = GemmMicro<float, 64, Rows>;
  using V = typename Float::V;
  using RowSequence = typename Float::RowSequence;

  template <int... R>
  EIGENFORMER_TARGET_AVX512_BF16 static EIGENFORMER_ALWAYS_INLINE void step(
      V (&x)[Rows], V (&y)[Rows], const Bf16Pair* a, const Bf16Pair* b, std::integer_sequence<int, R...>) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
    ((x[R] = _mm512_dpbf16_ps(x[R], (__m512bh)_mm512_set1_epi32(static_cast<int>(a[R])), (__m512bh)b0),
      y[R] = _mm512_dpbf16_ps(y[R], (__m512bh)_mm512_set1_epi32(static_cast<int>(a[R])), (__m512bh)b1)),
     ...);
  }

  EIGENFORMER_TARGET_AVX512_BF16 static void run(index_t steps, const float* pairs_a, const float* pairs_b,
                                                 const float* next, float* c, index_t ldc, float alpha,
                                                 bool accumulate, const float* bias, index_t rows,
                                                 index_t cols) {
    const auto* a = reinterpret_cast<const Bf16Pair*>(pairs_a);
    const auto* b = reinterpret_cast<const Bf16Pair*>(pairs_b);
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

struct PackBf16 {
  /// The mask of the first n of 16 lanes; n may be outside 0 .. 16.
  static __mmask16 first_lanes(index_t n) {
    return static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
  }

  /// Steps side by side in the source: 16 rows of 16 pairs are rounded and transposed in registers. Writes up
  /// to 15 pairs behind the panel, as PackTransposed does.
  EIGENFORMER_TARGET_AVX512_BF16 static void transposed(index_t k, index_t rows, index_t width,
                                                        const float* src, index_t ld, float* dst) {
    using Pack = PackTransposed<float, 64>;
    using Sequence = Pack::Sequence;
    for (index_t p = 0; p < k; p += 32) {
      const index_t left = k - p;
      const __mmask16 low = first_lanes(left), high = first_lanes(left - 16);
      for (index_t i = (width - 1) / 16 * 16; i >= 0; i -= 16) {
        Pack::V v[16];
        for (index_t r = 0; r < 16; ++r) {
          const float* s = src + (i + r) * ld + p;
          __m512i pairs = _mm512_setzero_si512();
          if (i + r < rows) {
            pairs = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, high != 0 ? s + 16 : s),
                                                 _mm512_maskz_loadu_ps(low, s));
          }
          v[r] = _mm512_castsi512_ps(pairs);
        }
        Pack::stage<1>(v, Sequence{});
        Pack::stage<2>(v, Sequence{});
        Pack::stage<4>(v, Sequence{});
        Pack::stage<8>(v, Sequence{});
        const index_t steps = left >= 32 ? 16 : (left + 1) / 2;
        for (index_t r = 0; r < steps; ++r) _mm512_storeu_ps(dst + (p / 2 + r) * width + i, v[r]);
      }
    }
  }

  /// Rows side by side in the source: two steps are rounded and interleaved.
  EIGENFORMER_TARGET_AVX512_BF16 static void adjacent(index_t k, index_t rows, index_t width,
                                                      const float* src, index_t ld, float* dst) {
    alignas(64) std::uint16_t order[32];
    for (std::uint16_t i = 0; i < 32; ++i) order[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 16);
    const __m512i interleave = _mm512_load_si512(order);
    constexpr index_t ahead = 16;
    for (index_t p = 0; p < k; p += 2) {
      const float* s = src + p * ld;
      float* d = dst + p / 2 * width;
      const bool both = p + 1 < k;
      for (index_t i = 0; i < width; i += 16) {
        const index_t left = rows - i, room = width - i;
        const __mmask16 mask = first_lanes(left), keep = first_lanes(room);
        __builtin_prefetch(s + ahead * ld + i);
        __builtin_prefetch(s + (ahead + 1) * ld + i);
        const float* at = left > 0 ? s + i : s;
        const __m512 first = _mm512_maskz_loadu_ps(mask, at);
        const __m512 second = both ? _mm512_maskz_loadu_ps(mask, at + ld) : _mm512_setzero_ps();
        const __m512i pairs =
            _mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(second, first));
        _mm512_mask_storeu_epi32(d + i, keep, pairs);
      }
    }
  }
};

}  // namespace eigenformer::kernels::detail
#endif
