#pragma once

#include <algorithm>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/attention/attention_blocks.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/kernels/gemm/gemm_eigen.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"

// The matrix work of attention on one tile of scores: packing, products and storing, each a hot loop compiled
// for every instruction set. The arithmetic of a row does not depend on other rows.

namespace eigenformer::detail::kernels::detail {

/// Number of panels of a matrix with n columns.
inline index_t attention_panels(index_t n) { return (n + attention_width - 1) / attention_width; }

/// c (m, n) = A b, or row_scale[i] * c + A b, or c + A b (Mode). A is (m, k), given as a, or as its
/// transpose; b (k, n).
///
/// Up to 3 rows after the m-th and the columns up to a whole vector are written too. An element is a chain of
/// multiply-adds over k in one lane, for all m and n.
enum class ProductMode { overwrite, accumulate, rescale };

template <class T, bool Transposed>
struct AttentionProduct {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* a, const T* b, T* c, index_t m, index_t n, index_t k,
                                            const T* row_scale, ProductMode mode) {
    constexpr int tall = Bytes == 64 ? 8 : 4;
    constexpr index_t step = Transposed ? 1 : attention_width;
    index_t i = 0;
    for (; i + tall <= m; i += tall)
      row_block<Bytes, tall, 2>(a + i * step, b, c + i * attention_width, n, k, shifted(row_scale, i), mode);
    if constexpr (tall > 4) {
      for (; i + 1 < m; i += 4)
        row_block<Bytes, 4, 2>(a + i * step, b, c + i * attention_width, n, k, shifted(row_scale, i), mode);
    }
    for (; i < m; ++i)
      row_block<Bytes, 1, 4>(a + i * step, b, c + i * attention_width, n, k, shifted(row_scale, i), mode);
  }

 private:
  template <int Bytes, int Rows, int Vectors>
  EIGENFORMER_ALWAYS_INLINE static void row_block(const T* a, const T* b, T* c, index_t n, index_t k,
                                                  const T* row_scale, ProductMode mode) {
    constexpr index_t lanes = Simd<T, Bytes>::lanes;
    index_t j = 0;
    for (; j + (Vectors - 1) * lanes < n; j += Vectors * lanes) {
      block<Bytes, Rows, Vectors>(a, b + j, c + j, k, row_scale, mode,
                                  std::make_integer_sequence<int, Rows * Vectors>{},
                                  std::make_integer_sequence<int, Vectors>{});
    }
    for (; j < n; j += lanes) {
      block<Bytes, Rows, 1>(a, b + j, c + j, k, row_scale, mode, std::make_integer_sequence<int, Rows>{},
                            std::make_integer_sequence<int, 1>{});
    }
  }

  // Indices are template constants, so that the accumulators are in registers at any optimisation level.
  template <int Bytes, int Rows, int Vectors, int... E, int... J>
  EIGENFORMER_ALWAYS_INLINE static void block(const T* a, const T* b, T* c, index_t k, const T* row_scale,
                                              ProductMode mode, std::integer_sequence<int, E...>,
                                              std::integer_sequence<int, J...>) {
    using S = Simd<T, Bytes>;
    constexpr index_t next_row = Transposed ? 1 : attention_width;
    constexpr index_t next_k = Transposed ? attention_width : 1;
    typename S::V x[Rows * Vectors];
    if (mode == ProductMode::overwrite) {
      ((x[E] = typename S::V{}), ...);
    } else {
      ((x[E] = S::at(c + (E / Vectors) * attention_width + (E % Vectors) * S::lanes).v), ...);
      if (mode == ProductMode::rescale) ((x[E] *= row_scale[E / Vectors]), ...);
    }
    for (index_t p = 0; p < k; ++p) {
      typename S::V y[Vectors];
      ((y[J] = S::at(b + J * S::lanes).v), ...);
      ((x[E] += a[(E / Vectors) * next_row] * y[E % Vectors]), ...);
      a += next_k;
      b += attention_width;
    }
    ((S::at(c + (E / Vectors) * attention_width + (E % Vectors) * S::lanes).v = x[E]), ...);
  }
};

/// The rows of a matrix, `stride` elements apart: row r is at data + r * stride, or where there is a list of
/// row numbers, at data + numbers[r] * stride.
template <class T>
struct AttentionRows {
  const T* data;
  index_t stride;
  const index_t* numbers;

  EIGENFORMER_ALWAYS_INLINE const T* operator[](index_t r) const {
    return data + (numbers != nullptr ? numbers[r] : r) * stride;
  }
  /// Rows r to r + 3; the last of n in place of those behind it.
  EIGENFORMER_ALWAYS_INLINE void four(index_t r, index_t n, const T* (&rows)[4]) const {
    for (index_t l = 0; l < 4; ++l) rows[l] = (*this)[std::min(r + l, n - 1)];
  }
  /// The rows from `row` on, without the columns before `column`.
  EIGENFORMER_ALWAYS_INLINE AttentionRows from(index_t row, index_t column) const {
    return {data + column + (numbers != nullptr ? 0 : row * stride), stride, shifted(numbers, row)};
  }
};

/// Packs n rows of `columns` elements into panels (each panel `panel` elements after the one before), times
/// scale; columns up to a whole vector become zero. Clears *finite when an element is infinite or NaN.
///
/// Rows lie far apart, so that the hardware does not prefetch them. The next head, which is usually packed
/// next, is behind this one in the same rows; here and in AttentionPackTransposed it is read ahead.
template <class T>
struct AttentionPack {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(AttentionRows<T> rows, index_t n, index_t columns, T scale,
                                            T* dst, index_t panel, bool* finite) {
    using S = Simd<T, Bytes>;
    typename S::V check{};
    for (index_t r = 0; r < n; ++r) {
      const T* from = rows[r];
      for (index_t c = 0; c < columns; c += S::lanes) {
        typename S::V x;
        __builtin_prefetch(from + columns + c);
        S::load(x, from + c, columns - c);
        check += x * T(0);
        S::at(dst + (c / attention_width) * panel + r * attention_width + c % attention_width).v = x * scale;
      }
    }
    if (S::sum(check) != T(0)) *finite = false;
  }
};

/// The interleaving of two vectors of four that transposes four by four.
template <class T>
struct Transpose4 {
  using S = Simd<T, 4 * static_cast<int>(sizeof(T))>;
  using V = typename S::V;

  EIGENFORMER_ALWAYS_INLINE static void run(V& a, V& b, V& c, V& d) {
#if defined(__clang__)
    const V ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
            ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const V cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
            cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
#else
    using I = typename S::I;
    const V ab_low = __builtin_shuffle(a, b, I{0, 4, 1, 5}), ab_high = __builtin_shuffle(a, b, I{2, 6, 3, 7});
    const V cd_low = __builtin_shuffle(c, d, I{0, 4, 1, 5}), cd_high = __builtin_shuffle(c, d, I{2, 6, 3, 7});
    a = __builtin_shuffle(ab_low, cd_low, I{0, 1, 4, 5});
    b = __builtin_shuffle(ab_low, cd_low, I{2, 3, 6, 7});
    c = __builtin_shuffle(ab_high, cd_high, I{0, 1, 4, 5});
    d = __builtin_shuffle(ab_high, cd_high, I{2, 3, 6, 7});
#endif
  }
};

/// dst (columns, n) = the transpose of n rows of `columns` elements; columns n up to a whole vector become
/// zero.
template <class T>
struct AttentionPackTransposed {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(AttentionRows<T> rows, index_t n, index_t columns, T* dst) {
    constexpr index_t lanes = Simd<T, Bytes>::lanes;
    const index_t padded = (n + lanes - 1) / lanes * lanes;
    for (index_t r = 0; r < padded; r += 4) {
      const T* p[4];
      rows.four(r, n, p);
      for (index_t c = 0; c < columns; c += lanes) {
        for (const T* row : p) __builtin_prefetch(row + columns + c);
      }
      if (n - r >= 4) {  // without conditions
        four(p, 4, columns, dst + r);
      } else {
        four(p, n - r, columns, dst + r);
      }
    }
  }

 private:
  /// Four rows become four columns; rows from `there` on become zero.
  EIGENFORMER_ALWAYS_INLINE static void four(const T* const (&p)[4], index_t there, index_t columns, T* dst) {
    using S4 = typename Transpose4<T>::S;
    index_t c = 0;
    for (; c + 4 <= columns; c += 4, dst += 4 * attention_width) {
      typename S4::V a{}, b{}, d{}, e{};
      if (there > 0) a = S4::at(p[0] + c).v;
      if (there > 1) b = S4::at(p[1] + c).v;
      if (there > 2) d = S4::at(p[2] + c).v;
      if (there > 3) e = S4::at(p[3] + c).v;
      Transpose4<T>::run(a, b, d, e);
      S4::at(dst).v = a;
      S4::at(dst + attention_width).v = b;
      S4::at(dst + 2 * attention_width).v = d;
      S4::at(dst + 3 * attention_width).v = e;
    }
    for (; c < columns; ++c, dst += attention_width) {
      for (index_t l = 0; l < 4; ++l) dst[l] = l < there ? p[l][c] : T(0);
    }
  }
};

/// out[j] = the dot product of one query (columns) and key j of n; keys are read without packing: for a
/// single query transposing them would cost several times the product. The elements after the n-th, up to a
/// whole vector, become zero. Sums by lanes, so its last bits are not those of AttentionProduct.
template <class T>
struct AttentionRowScores {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* query, index_t n, AttentionRows<T> keys, index_t columns,
                                            T* out, bool more) {
    using S = Simd<T, Bytes>;
    using V = typename S::V;
    const index_t padded = (n + S::lanes - 1) / S::lanes * S::lanes;
    for (index_t j = 0; j < padded; j += 4) {
      const T* p[4];
      keys.four(j, n, p);
      V a{}, b{}, c{}, d{};
      for (index_t i = 0; i < columns; i += S::lanes) {
        V q, x;
        S::load(q, query + i, columns - i);
        S::load(x, p[0] + i, columns - i);
        a += q * x;
        S::load(x, p[1] + i, columns - i);
        b += q * x;
        S::load(x, p[2] + i, columns - i);
        c += q * x;
        S::load(x, p[3] + i, columns - i);
        d += q * x;
      }
      using Four = typename Transpose4<T>::S;
      typename Four::V total;
      fold<S>(a, b, c, d, total);
      if (more) total = total + Four::at(out + j).v;
      for (index_t l = n - j; l < 4; ++l) {
        if (l >= 0) total[l] = T(0);
      }
      Four::at(out + j).v = total;
    }
  }

 private:
  /// The sums of four vectors' lanes.
  template <class S>
  EIGENFORMER_ALWAYS_INLINE static void fold(const typename S::V& a, const typename S::V& b,
                                             const typename S::V& c, const typename S::V& d,
                                             typename Transpose4<T>::V& total) {
    using Four = typename Transpose4<T>::S;
    using V4 = typename Four::V;
    if constexpr (S::lanes >= 4) {
      alignas(64) T lanes[4 * S::lanes];
      S::at(lanes).v = a;
      S::at(lanes + S::lanes).v = b;
      S::at(lanes + 2 * S::lanes).v = c;
      S::at(lanes + 3 * S::lanes).v = d;
      V4 x[4];
      for (int r = 0; r < 4; ++r) {
        x[r] = Four::at(lanes + r * S::lanes).v;
        for (int i = 4; i < S::lanes; i += 4) x[r] = x[r] + Four::at(lanes + r * S::lanes + i).v;
      }
      Transpose4<T>::run(x[0], x[1], x[2], x[3]);
      total = (x[0] + x[2]) + (x[1] + x[3]);
    } else {
      total = V4{S::sum(a), S::sum(b), S::sum(c), S::sum(d)};
    }
  }
};

/// c (columns) = [scale *] c + weights B for one row of n weights, B (n, columns) read without packing: for a
/// single query packing would cost more than the product. The same chain as AttentionProduct's; rows of B
/// whose weight is zero have no effect, even NaN.
template <class T>
struct AttentionRowProduct {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* weights, index_t n, AttentionRows<T> b, index_t columns,
                                            T* c, T scale, ProductMode mode) {
    using S = Simd<T, Bytes>;
    for (index_t done = 0; done < columns; done += 2 * S::lanes) {
      const index_t left = columns - done, second = left - S::lanes;
      typename S::V x{}, y{};
      if (mode == ProductMode::rescale) {
        x = S::at(c + done).v * scale;
        if (second > 0) y = S::at(c + done + S::lanes).v * scale;
      }
      for (index_t j = 0; j < n; ++j) {
        const T w = weights[j];
        if (w == T(0)) continue;
        const T* row = b[j] + done;
        typename S::V u, v{};
        S::load(u, row, left);
        if (second > 0) S::load(v, row + S::lanes, second);
        x += w * u;
        y += w * v;
      }
      S::at(c + done).v = x;
      if (second > 0) S::at(c + done + S::lanes).v = y;
    }
  }
};

/// dst (m, n) = beta * dst + row_scale[i] * scale * panels, from panels `panel` elements apart to rows
/// `stride` apart; row_scale may be null, beta 0 does not read dst.
template <class T>
struct AttentionStore {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* src, index_t panel, index_t m, index_t n,
                                            const T* row_scale, T scale, T* dst, index_t stride, T beta) {
    using S = Simd<T, Bytes>;
    for (index_t i = 0; i < m; ++i) {
      const T factor = row_scale != nullptr ? scale * row_scale[i] : scale;
      T* to = dst + i * stride;
      for (index_t c = 0; c < n; c += S::lanes) {
        const T* from = src + (c / attention_width) * panel + i * attention_width + c % attention_width;
        S::store_sum(to + c, n - c, S::at(from).v * factor, beta);
      }
    }
  }
};

/// out[i] = the dot product of row i of a and row i of b, both (m, n).
template <class T>
struct AttentionDots {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* a, index_t a_stride, const T* b, index_t b_stride,
                                            index_t m, index_t n, T* out) {
    for (index_t i = 0; i < m; ++i)
      out[i] = RowReduction<T, Bytes>::dot(a + i * a_stride, b + i * b_stride, n);
  }
};

// The products of attention's tiles by Eigen, in place of the bodies of attention_product.hpp.

/// c (m, n), rows `stride` apart, prepared for a product: zero, unchanged, or times row_scale.
template <class T>
void begin_product(T* c, index_t stride, index_t m, index_t n, const T* row_scale, ProductMode mode) {
  for (index_t i = 0; i < m; ++i) {
    T* row = c + i * stride;
    if (mode == ProductMode::overwrite) std::fill_n(row, n, T(0));
    if (mode == ProductMode::rescale) eigen_rows(row, 1, n, n) *= row_scale[i];
  }
}

/// AttentionProduct by Eigen.
template <class T, bool Transposed>
void attention_product_by_eigen(const T* a, const T* b, T* c, index_t m, index_t n, index_t k,
                                const T* row_scale, ProductMode mode) {
  begin_product(c, attention_width, m, n, row_scale, mode);
  index_t lda = attention_width;
  const GemmScratch<0> memory;
  if constexpr (Transposed) {
    T* const copy = memory->template reserve<T>(m * k);
    eigen_copy(a, attention_width, true, m, k, false, copy);
    a = copy;
    lda = k;
  }
  eigen_product(m, n, k, T(1), a, lda, b, attention_width, c, attention_width);
}

/// AttentionRowScores by Eigen.
template <class T>
void row_scores_by_eigen(const T* query, index_t n, AttentionRows<T> keys, index_t columns, T* out,
                         bool more) {
  const auto q = eigen_rows(query, 1, columns, columns);
  for (index_t j = 0; j < n; ++j) {
    const T dot = q.cwiseProduct(eigen_rows(keys[j], 1, columns, columns)).sum();
    out[j] = more ? out[j] + dot : dot;
  }
  std::fill(out + n, out + attention_width, T(0));
}

/// AttentionRowProduct by Eigen.
template <class T>
void row_product_by_eigen(const T* weights, index_t n, AttentionRows<T> b, index_t columns, T* c, T scale,
                          ProductMode mode) {
  begin_product(c, attention_width, 1, columns, &scale, mode);
  for (index_t j = 0; j < n; ++j) {
    if (weights[j] == T(0)) continue;
    eigen_rows(c, 1, columns, columns) += weights[j] * eigen_rows(b[j], 1, columns, columns);
  }
}

}  // namespace eigenformer::detail::kernels::detail
