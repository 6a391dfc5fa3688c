#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

// The register tiles of a matrix product and the packing for them, written once with vector types and
// compiled for each instruction set. An element of C is a chain of multiply-adds over k, one lane of one
// register; every tile size, tail and layout keeps that chain, so an element's bits never depend on its
// neighbours.

namespace eigenformer::detail::kernels::detail {

/// dst (steps of k, width) <- `rows` rows of k elements, zero for rows up to `width` and for a step's missing
/// elements. A step of k has the size of one T: it is an element, or two of bfloat16. Both layouts of a
/// source have this signature.
template <class T>
using PackFunction = void (*)(index_t k, index_t rows, index_t width, const T* src, index_t ld, T* dst);

/// C (rows, cols) = [C +] alpha * A B [+ bias]; a: (steps, tile rows), b: (steps, tile columns). Each step
/// brings the memory at `next` into the second-level cache, which is `stride` elements further in the next.
template <class T>
using MicroFunction = void (*)(index_t steps, const T* a, const T* b, const T* next, index_t stride, T* c,
                               index_t ldc, T alpha, bool accumulate, const T* bias, index_t rows,
                               index_t cols);

template <class T, int Bytes, int Rows>
struct GemmMicro {
  using W = Simd<T, Bytes>;
  using V = typename W::V;
  static constexpr int lanes = W::lanes;
  static constexpr int columns = 2 * lanes;
  using RowSequence = std::make_integer_sequence<int, Rows>;

  // Indices are template constants, so that the accumulators are in registers at any optimisation level.
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void clear(V (&x)[Rows], V (&y)[Rows], std::integer_sequence<int, R...>) {
    ((x[R] = V{}, y[R] = V{}), ...);
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void step(V (&x)[Rows], V (&y)[Rows], const T* a, const V& b0, const V& b1,
                                             std::integer_sequence<int, R...>) {
    ((x[R] += a[R] * b0, y[R] += a[R] * b1), ...);
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void prefetch(const T* c, index_t ldc, std::integer_sequence<int, R...>) {
    ((__builtin_prefetch(c + R * ldc, 1), __builtin_prefetch(c + R * ldc + columns - 1, 1)), ...);
  }
  // x *= alpha, rounded. The detour through memory keeps the compiler from fusing the product with a later
  // sum, which it would do in some tiles and not in others.
  static EIGENFORMER_ALWAYS_INLINE void scale(V& x, T alpha) {
    V product = x * alpha;
    __asm__("" : "+m"(product));
    x = product;
  }
  // Finishes half of a tile's columns: [C +] alpha * x [+ bias].
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void finish(V (&x)[Rows], T* c, index_t ldc, T alpha, bool accumulate,
                                               const T* bias, std::integer_sequence<int, R...>) {
    if (alpha != T(1)) (scale(x[R], alpha), ...);
    if (accumulate) ((x[R] = x[R] + W::at(c + R * ldc).v), ...);
    if (bias != nullptr) {
      const V b = W::at(bias).v;
      ((x[R] += b), ...);
    }
    ((W::at(c + R * ldc).v = x[R]), ...);
  }

  // The destination of a tile: C, or at the edge of C a buffer of full size, so that the same instructions
  // finish it.
  struct Output {
    alignas(64) T tile[Rows * columns];
    alignas(64) T tile_bias[columns];
    T* c;
    index_t ldc, rows, cols;
    const T* bias;
    bool partial;

    EIGENFORMER_ALWAYS_INLINE void begin(T* c_, index_t ldc_, bool accumulate, const T* bias_, index_t rows_,
                                         index_t cols_) {
      c = c_;
      ldc = ldc_;
      rows = rows_;
      cols = cols_;
      bias = bias_;
      partial = rows < Rows || cols < columns;
      if (!partial) {
        prefetch(c, ldc, RowSequence{});
        return;
      }
      if (accumulate) {
        for (index_t r = 0; r < rows; ++r) {
          std::memcpy(tile + r * columns, c + r * ldc, static_cast<std::size_t>(cols) * sizeof(T));
        }
      }
      if (bias != nullptr) {
        std::memcpy(tile_bias, bias, static_cast<std::size_t>(cols) * sizeof(T));
        bias = tile_bias;
      }
    }

    // The first columns (half 0), then the others (half 1), which also copies a partial tile to C.
    template <int half>
    EIGENFORMER_ALWAYS_INLINE void end(V (&x)[Rows], T alpha, bool accumulate) {
      constexpr index_t at = half * lanes;
      finish(x, (partial ? tile : c) + at, partial ? columns : ldc, alpha, accumulate, shifted(bias, at),
             RowSequence{});
      if constexpr (half == 1) {
        for (index_t r = 0; partial && r < rows; ++r)
          std::memcpy(c + r * ldc, tile + r * columns, static_cast<std::size_t>(cols) * sizeof(T));
      }
    }
    EIGENFORMER_ALWAYS_INLINE void end(V (&x)[Rows], V (&y)[Rows], T alpha, bool accumulate) {
      end<0>(x, alpha, accumulate);
      end<1>(y, alpha, accumulate);
    }
  };

  EIGENFORMER_ALWAYS_INLINE static void run(index_t steps, const T* a, const T* b, const T* next,
                                            index_t stride, T* c, index_t ldc, T alpha, bool accumulate,
                                            const T* bias, index_t rows, index_t cols) {
    Output out;
    out.begin(c, ldc, accumulate, bias, rows, cols);
    V x[Rows], y[Rows];
    clear(x, y, RowSequence{});
    for (index_t p = 0; p < steps; ++p) {
      const V b0 = W::at(b).v, b1 = W::at(b + lanes).v;
      step(x, y, a, b0, b1, RowSequence{});
      __builtin_prefetch(next, 0, 2);
      a += Rows;
      b += columns;
      next += stride;
    }
    out.end(x, y, alpha, accumulate);
  }
};

/// Source with the panel's rows side by side: element (row i, step p) at src[p * ld + i].
template <class T, int Bytes>
struct PackAdjacent {
  EIGENFORMER_ALWAYS_INLINE static void run(index_t k, index_t rows, index_t width, const T* src, index_t ld,
                                            T* dst) {
    using W = Simd<T, Bytes>;
    // The steps of a wide matrix are on different pages, which the hardware does not prefetch.
    constexpr index_t ahead = 16;
    for (index_t p = 0; p < k; ++p) {
      const T* s = src + p * ld;
      T* d = dst + p * width;
      __builtin_prefetch(s + ahead * ld);
      __builtin_prefetch(s + ahead * ld + rows - 1);
      index_t i = 0;
      for (; i + W::lanes <= rows; i += W::lanes) W::at(d + i).v = W::at(s + i).v;
      // The width of a tile of A is not a multiple of a vector's. The next step overwrites the surplus.
      if (i < rows && p + 1 < k && W::lanes <= ld && i + W::lanes <= 2 * width) {
        W::at(d + i).v = W::at(s + i).v;
        i = rows;
      }
      for (; i < rows; ++i) d[i] = s[i];
      for (; i < width; ++i) d[i] = T(0);
    }
  }
};

/// Source with the steps of k side by side: element (row i, step p) at src[i * ld + p]. A tile of
/// one row is copied; otherwise `lanes` steps of four rows, or of `lanes` rows, are interleaved in registers.
/// Writes up to `lanes - 1` elements behind the panel, which the next panel overwrites: buffers keep that
/// much slack.
template <class T, int Bytes>
struct PackTransposed {
  using W = Simd<T, Bytes>;
  using V = typename W::V;
  static constexpr int lanes = W::lanes;
  using Sequence = std::make_integer_sequence<int, lanes>;

  EIGENFORMER_ALWAYS_INLINE static void run(index_t k, index_t rows, index_t width, const T* src, index_t ld,
                                            T* dst) {
    if (width == 1) {
      std::memcpy(dst, src, static_cast<std::size_t>(k) * sizeof(T));
      return;
    }
    if constexpr (lanes > 4) {
      if (width == 4) return interleave<4>(k, rows, width, src, ld, dst);
    }
    interleave<lanes>(k, rows, width, src, ld, dst);
  }

  /// Makes rows of a square of lanes x lanes elements its columns.
  static EIGENFORMER_ALWAYS_INLINE void transpose(V (&v)[lanes]) { merge<lanes>(v); }

  /// Loads the first `lanes` elements of N rows; those from `rows` on are zero.
  template <int N, int... R>
  static EIGENFORMER_ALWAYS_INLINE void load(V (&v)[N], const T* src, index_t ld, index_t rows,
                                             std::integer_sequence<int, R...>) {
    // Each row is a separate stream, and there are more of them than the hardware tracks.
    ((R < rows ? (__builtin_prefetch(src + R * ld + 4 * lanes),
                  static_cast<void>(std::memcpy(&v[R], src + R * ld, sizeof(V))))
               : static_cast<void>(v[R] = V{})),
     ...);
  }

 private:
  /// out = the first or second half of two vectors, element by element.
  template <bool Second, int... J>
  static EIGENFORMER_ALWAYS_INLINE void zip(const V& a, const V& b, V& out,
                                            std::integer_sequence<int, J...>) {
#if defined(__clang__)
    out = __builtin_shufflevector(a, b, (J / 2 + J % 2 * lanes + (Second ? lanes / 2 : 0))...);
#else
    out = __builtin_shuffle(a, b, typename W::I{(J / 2 + J % 2 * lanes + (Second ? lanes / 2 : 0))...});
#endif
  }
  /// Merges N rows of `lanes` steps to one sequence in which the N elements of a step are adjacent. Each
  /// stage merges the first half of the rows with the second.
  template <int N, int Stage = N>
  static EIGENFORMER_ALWAYS_INLINE void merge(V (&v)[N]) {
    if constexpr (Stage > 1) {
      merge_halves(v, std::make_integer_sequence<int, N / 2>{});
      merge<N, Stage / 2>(v);
    }
  }
  template <int N, int... R>
  static EIGENFORMER_ALWAYS_INLINE void merge_halves(V (&v)[N], std::integer_sequence<int, R...>) {
    V out[N];
    ((zip<false>(v[R], v[R + N / 2], out[2 * R], Sequence{}),
      zip<true>(v[R], v[R + N / 2], out[2 * R + 1], Sequence{})),
     ...);
    ((v[2 * R] = out[2 * R], v[2 * R + 1] = out[2 * R + 1]), ...);
  }
  template <int N, int... R>
  static EIGENFORMER_ALWAYS_INLINE void store(const V (&v)[N], T* dst, index_t distance,
                                              std::integer_sequence<int, R...>) {
    (std::memcpy(dst + R * distance, &v[R], sizeof(V)), ...);
  }

  /// N: rows at a time, `width` or `lanes`.
  template <int N>
  static EIGENFORMER_ALWAYS_INLINE void interleave(index_t k, index_t rows, index_t width, const T* src,
                                                   index_t ld, T* dst) {
    using Rows = std::make_integer_sequence<int, N>;
    index_t p = 0;
    for (; p + lanes <= k; p += lanes) {
      // The last group first: its surplus lanes fall on the start of the next step, which is written later.
      for (index_t i = (width - 1) / N * N; i >= 0; i -= N) {
        V v[N];
        load(v, src + i * ld + p, ld, rows - i, Rows{});
        merge<N>(v);
        store(v, dst + p * width + i, lanes / N * width, Rows{});
      }
    }
    for (; p < k; ++p) {
      for (index_t i = 0; i < rows; ++i) dst[p * width + i] = src[i * ld + p];
      for (index_t i = rows; i < width; ++i) dst[p * width + i] = T(0);
    }
  }
};

/// c = [c +] sum [+ bias] for one row of a tile.
EIGENFORMER_ALWAYS_INLINE void finish_row(const float* sum, bool accumulate, const float* bias, float* c,
                                          index_t cols) {
  for (index_t j = 0; j < cols; ++j) {
    float x = sum[j];
    if (accumulate) x += c[j];
    c[j] = bias != nullptr ? x + bias[j] : x;
  }
}

/// x rounded to bfloat16 (nearest even; NaN stays NaN).
EIGENFORMER_ALWAYS_INLINE float rounded_to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
  return std::bit_cast<float>((u & 0x7fffffffu) > 0x7f800000u ? (u | 0x00400000u) & 0xffff0000u : rounded);
}

/// Rounds n numbers to bfloat16 in place, for bfloat16 products on CPUs without an instruction for them.
struct RoundToBf16 {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(float* x, index_t n) {
    for (index_t i = 0; i < n; ++i) x[i] = rounded_to_bf16(x[i]);
  }
};

}  // namespace eigenformer::detail::kernels::detail
