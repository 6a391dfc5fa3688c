#pragma once

#include <algorithm>

#include "eigenformer/kernels/attention/attention_product.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/kernels/gemm/gemm_eigen.hpp"

// The products of attention's tiles by Eigen, in place of the bodies of attention_product.hpp.

namespace eigenformer::detail::kernels::detail {

inline bool multiplies_by_eigen() { return gemm_backend() == GemmBackend::eigen; }

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
void row_scores_by_eigen(const T* query, index_t n, const T* keys, index_t stride, const index_t* rows,
                         index_t columns, T* out, bool more) {
  const auto q = eigen_rows(query, 1, columns, columns);
  for (index_t j = 0; j < n; ++j) {
    const auto key = eigen_rows(keys + (rows != nullptr ? rows[j] : j) * stride, 1, columns, columns);
    const T dot = q.cwiseProduct(key).sum();
    out[j] = more ? out[j] + dot : dot;
  }
  std::fill(out + n, out + attention_width, T(0));
}

/// AttentionRowProduct by Eigen.
template <class T>
void row_product_by_eigen(const T* weights, index_t n, const T* b, index_t stride, const index_t* rows,
                          index_t columns, T* c, T scale, ProductMode mode) {
  begin_product(c, attention_width, 1, columns, &scale, mode);
  for (index_t j = 0; j < n; ++j) {
    if (weights[j] == T(0)) continue;
    eigen_rows(c, 1, columns, columns) +=
        weights[j] * eigen_rows(b + (rows != nullptr ? rows[j] : j) * stride, 1, columns, columns);
  }
}

}  // namespace eigenformer::detail::kernels::detail
