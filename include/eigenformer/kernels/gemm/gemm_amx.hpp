#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"
#include "eigenformer/kernels/simd/amx.hpp"

#if EIGENFORMER_X86
#include <immintrin.h>
#endif

// The bfloat16 product of amx_bf16. B's panels are those of avx512_bf16, which tiles load as they are: a row
// is one pair of steps for each of 16 columns. A's rows are packed in blocks of 16 pairs.
//
// tdpbf16ps has its own order of summation: of each block of 16 pairs, the first elements and the second
// elements are two chains of multiply-adds from zero; the sum of both is added to C; denormal numbers count
// as zero. For fewer rows than tiles need, vectors sum in that order, so that a row's bits do not depend on
// the other rows.

namespace eigenformer::detail::kernels::detail {

struct TileDotBf16 {
  template <class Tiles, int C, int A, int B>
  static EIGENFORMER_ALWAYS_INLINE void run() {
    Tiles::template dot_bf16<C, A, B>();
  }
};

/// C = [C +] alpha * sums [+ bias]; sums: (rows, 32), overwritten.
EIGENFORMER_ALWAYS_INLINE void finish_bf16(float* sums, float alpha, bool accumulate, const float* bias,
                                           float* c, index_t ldc, index_t rows, index_t cols) {
  if (alpha != 1.0f) {
    for (index_t i = 0; i < rows * amx_columns; ++i) sums[i] *= alpha;
    // Keeps the product from being fused with a later sum in some tiles and not in others.
    __asm__ volatile("" : : "r"(sums) : "memory");
  }
  for (index_t r = 0; r < rows; ++r) {
    finish_row(sums + r * amx_columns, accumulate, bias, c + r * ldc, cols);
  }
}

/// A tile of 16 * Groups rows (MicroFunction). a: blocks of 16 pairs of all rows.
template <class Tiles, int Groups>
struct GemmMicroAmx {
  static constexpr index_t rows_held = Groups * amx_rows;

  EIGENFORMER_ALWAYS_INLINE static void run(index_t steps, const float* a, const float* b, const float* next,
                                            index_t stride, float* c, index_t ldc, float alpha,
                                            bool accumulate, const float* bias, index_t rows, index_t cols) {
    if (stride != 0) {
      for (index_t s = 0; s < steps; ++s) __builtin_prefetch(next + s * stride, 0, 2);
    }
    alignas(64) float sums[rows_held * amx_columns];
    const TileTail tail(b, steps);
    tile_sums<Tiles, TileDotBf16, Groups>(steps, {a, amx_row_bytes, rows_held * amx_row_bytes}, b, tail);
    store_tile_sums<Tiles, Groups>(sums);
    finish_bf16(sums, alpha, accumulate, bias, c, ldc, rows, cols);
  }
};

#if EIGENFORMER_X86
/// Denormal numbers count as zero and become zero in the calling thread's vectors, as in tiles, while it
/// lives. (Assembly, so that no arithmetic moves across.)
class FlushDenormals {
 public:
  EIGENFORMER_ALWAYS_INLINE FlushDenormals() {
    __asm__ volatile("stmxcsr %0" : "=m"(before_) : : "memory");
    load(before_ | 0x8040u);  // FTZ and DAZ
  }
  EIGENFORMER_ALWAYS_INLINE ~FlushDenormals() { load(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static EIGENFORMER_ALWAYS_INLINE void load(std::uint32_t control) {
    __asm__ volatile("ldmxcsr %0" : : "m"(control) : "memory");
  }
  std::uint32_t before_;
};

/// A tile of Rows rows by AVX2, in the order of summation of tiles (MicroFunction).
template <int Rows>
struct GemmMicroAmxOrder {
  /// Part rows at a time, and as many vectors of 8 columns as make eight chains of them.
  template <int Part>
  EIGENFORMER_TARGET_AVX2 static EIGENFORMER_ALWAYS_INLINE void block(index_t steps, const std::uint32_t* a,
                                                                      const std::uint32_t* b, float* sums) {
    constexpr int vectors = Part >= 3 ? 1 : Part == 2 ? 2 : 4;
    for (index_t j = 0; j < amx_columns; j += 8 * vectors) {
      __m256 first[Part][vectors], second[Part][vectors];
      for (int r = 0; r < Part; ++r) {
        for (int v = 0; v < vectors; ++v) first[r][v] = second[r][v] = _mm256_setzero_ps();
      }
      for (index_t s = 0; s < steps; ++s) {
        __m256 low[vectors], high[vectors];
        for (int v = 0; v < vectors; ++v) {
          const __m256i pairs =
              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + s * amx_columns + j + 8 * v));
          low[v] = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
          high[v] =
              _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
        }
        for (int r = 0; r < Part; ++r) {
          const std::uint32_t pair = a[r * amx_steps + s];
          const __m256 x = _mm256_set1_ps(std::bit_cast<float>(pair << 16));
          const __m256 y = _mm256_set1_ps(std::bit_cast<float>(pair & 0xffff0000u));
          for (int v = 0; v < vectors; ++v) {
            first[r][v] = _mm256_fmadd_ps(x, low[v], first[r][v]);
            second[r][v] = _mm256_fmadd_ps(y, high[v], second[r][v]);
          }
        }
      }
      for (int r = 0; r < Part; ++r) {
        for (int v = 0; v < vectors; ++v) {
          float* const to = sums + r * amx_columns + j + 8 * v;
          _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), _mm256_add_ps(first[r][v], second[r][v])));
        }
      }
    }
  }

  EIGENFORMER_TARGET_AVX2 static void run(index_t steps, const float* a, const float* b, const float* next,
                                          index_t stride, float* c, index_t ldc, float alpha, bool accumulate,
                                          const float* bias, index_t rows, index_t cols) {
    typedef std::uint32_t Pair __attribute__((may_alias));
    const auto* pairs_a = reinterpret_cast<const Pair*>(a);
    const auto* pairs_b = reinterpret_cast<const Pair*>(b);
    alignas(64) float sums[Rows * amx_columns] = {};
    {
      const FlushDenormals flush;
      for (index_t s = 0; s < steps; s += amx_steps) {
        const index_t count = std::min(amx_steps, steps - s);
        for (index_t p = 0; p < count; ++p) __builtin_prefetch(next + (s + p) * stride, 0, 2);
        const Pair* rows_a = pairs_a + s * Rows;
        for (int r = 0; r + 4 <= Rows; r += 4) {
          block<4>(count, rows_a + r * amx_steps, pairs_b + s * amx_columns, sums + r * amx_columns);
        }
        if constexpr (Rows % 4 != 0) {
          constexpr int r = Rows / 4 * 4;
          block<Rows % 4>(count, rows_a + r * amx_steps, pairs_b + s * amx_columns, sums + r * amx_columns);
        }
      }
    }
    finish_bf16(sums, alpha, accumulate, bias, c, ldc, rows, cols);
  }
};
#endif

/// Packs rows for tiles (PackFunction): blocks of 16 pairs, in each all `width` rows. Steps lie side by side
/// in the source.
struct PackAmxTransposed {
  EIGENFORMER_ALWAYS_INLINE static void run(index_t k, index_t rows, index_t width, const float* src,
                                            index_t ld, float* dst) {
    constexpr index_t elements = 2 * amx_steps;
    for (index_t p = 0; p < k; p += elements) {
      for (index_t i = 0; i < width; ++i) {
        std::uint16_t block[elements] = {};
        const float* s = src + i * ld + p;
        const index_t count = i < rows ? std::min(elements, k - p) : 0;
        if (count == elements) {
          for (index_t l = 0; l < elements; ++l) block[l] = bits(s[l]);
        } else {
          for (index_t l = 0; l < count; ++l) block[l] = bits(s[l]);
        }
        std::memcpy(dst + p / 2 * width + i * amx_steps, block, sizeof(block));
      }
    }
  }

  static EIGENFORMER_ALWAYS_INLINE std::uint16_t bits(float x) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded_to_bf16(x)) >> 16);
  }
};

/// The same where rows lie side by side in the source: pairs of steps are transposed in registers.
template <int Bytes>
struct PackAmxAdjacent {
  using Pack = PackTransposed<float, Bytes>;
  using V = typename Pack::V;
  using U = typename Simd<float, Bytes>::U;
  static constexpr index_t lanes = Pack::lanes;

  /// n floats, at most a vector of them, rounded to bfloat16; zeros behind them.
  static EIGENFORMER_ALWAYS_INLINE void load(U& u, const float* from, index_t n) {
    float some[lanes] = {};
    if (n < lanes) std::copy_n(from, n, some);
    std::memcpy(&u, n < lanes ? some : from, sizeof(U));
    const U nan = (U)((u & 0x7fffffffu) > 0x7f800000u);
    u = (((u + 0x7fffu + ((u >> 16) & 1u)) & ~nan) | ((u | 0x00400000u) & nan)) & 0xffff0000u;
  }

  EIGENFORMER_ALWAYS_INLINE static void run(index_t k, index_t rows, index_t width, const float* src,
                                            index_t ld, float* dst) {
    for (index_t p = 0; p < k; p += 2 * amx_steps) {
      for (index_t i = 0; i < width; i += lanes) {
        const index_t valid = std::clamp<index_t>(rows - i, 0, lanes);
        for (index_t q = 0; q < amx_steps; q += lanes) {
          V v[lanes];
          for (index_t l = 0; l < lanes; ++l) {
            const index_t step = p + 2 * (q + l);
            U first, second;
            load(first, src + step * ld + i, step < k ? valid : 0);
            load(second, src + (step + 1) * ld + i, step + 1 < k ? valid : 0);
            first = (first >> 16) | second;
            std::memcpy(&v[l], &first, sizeof(V));
          }
          Pack::transpose(v);
          float* const to = dst + p / 2 * width + i * amx_steps + q;
          for (index_t l = 0; l < std::min(lanes, width - i); ++l) {
            std::memcpy(to + l * amx_steps, &v[l], sizeof(V));
          }
        }
      }
    }
  }
};

}  // namespace eigenformer::detail::kernels::detail
