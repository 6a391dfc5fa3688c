#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"

namespace eigenformer::detail::kernels {

/// C (m, n) = alpha * op(A) (m, k) op(B) (k, n) + beta * C + bias, all row-major. A is stored as (k, m) if
/// transpose_a, B as (n, k) if transpose_b. Leading dimensions (lda, ldb, ldc) count elements.
///
/// beta = 0 does not read C; k = 0 gives beta * C + bias. An element of C depends on its row of op(A) and on
/// B alone: results are bit-identical for one row and for many, and for any number of threads. bf16 rounds
/// the inputs of a float product; double ignores it. Throws ShapeError for negative sizes.
template <class T>
void gemm(bool transpose_a, bool transpose_b, index_t m, index_t n, index_t k, T alpha, const T* a,
          index_t lda, const T* b, index_t ldb, T beta, T* c, index_t ldc,
          const GemmEpilogue<T>& epilogue = {}, GemmPrecision precision = GemmPrecision::full);

/// The left or right operands of a batch of products: number i begins at data + i * stride.
template <class T>
struct GemmOperands {
  const T* data = nullptr;  ///< of the first one
  index_t ld = 0;           ///< elements between rows
  index_t stride = 0;       ///< elements between operands; 0: all products share one
  bool transpose = false;   ///< stored with rows and columns exchanged
};

/// `count` products of the same sizes, as gemm() computes them: C (m, n) = op(A) (m, k) op(B) (k, n) + beta *
/// C.
template <class T>
struct GemmBatch {
  index_t count = 1;     ///< number of products
  index_t m = 0;         ///< rows of each C
  index_t n = 0;         ///< columns of each C
  index_t k = 0;         ///< terms of each sum
  GemmOperands<T> a;     ///< the left operands
  GemmOperands<T> b;     ///< the right operands
  T* c = nullptr;        ///< the first result
  index_t ldc = 0;       ///< elements between rows of C
  index_t stride_c = 0;  ///< elements between results
  T beta = T(0);         ///< 0: C is not read
};

/// Runs a batch, on several threads if it is large. Throws ShapeError for negative sizes.
template <class T>
void gemm_batched(const GemmBatch<T>& batch);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>

#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/kernels/gemm/gemm_driver.hpp"
#include "eigenformer/kernels/gemm/gemm_eigen.hpp"

namespace eigenformer::detail::kernels {
namespace detail {

inline void check_gemm_sizes(index_t m, index_t n, index_t k) {
  if (m < 0 || n < 0 || k < 0) {
    throw ShapeError("gemm", {"sizes m = ", m, ", n = ", n, ", k = ", k, " must not be negative"});
  }
}

}  // namespace detail

template <class T>
void gemm(bool transpose_a, bool transpose_b, index_t m, index_t n, index_t k, T alpha, const T* a,
          index_t lda, const T* b, index_t ldb, T beta, T* c, index_t ldc, const GemmEpilogue<T>& epilogue,
          GemmPrecision precision) {
  detail::check_gemm_sizes(m, n, k);
  eigenformer::detail::count_product(m, n, k);
  const detail::GemmProblem<T> problem{transpose_a, transpose_b, m,   n,    k, alpha, a,
                                       lda,         b,           ldb, beta, c, ldc,   epilogue};
  if (multiplies_by_eigen()) {
    detail::eigen_gemm(problem, std::is_same_v<T, float> && precision == GemmPrecision::bf16);
    return;
  }
  detail::gemm_run(problem, detail::gemm_kernels_for<T>(precision, isa()));
}

template <class T>
void gemm_batched(const GemmBatch<T>& p) {
  detail::check_gemm_sizes(p.m, p.n, p.k);
  const auto one = [&](index_t i) {
    gemm(p.a.transpose, p.b.transpose, p.m, p.n, p.k, T(1), p.a.data + i * p.a.stride, p.a.ld,
         p.b.data + i * p.b.stride, p.b.ld, p.beta, p.c + i * p.stride_c, p.ldc);
  };
  // Threads take whole products if there are enough of them; otherwise each product is divided.
  if (p.count < 2 * detail::gemm_threads(p.count * p.m, p.n, p.k)) {
    for (index_t i = 0; i < p.count; ++i) one(i);
    return;
  }
  const double work =
      std::max(1.0, static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k));
  const auto grain = static_cast<index_t>(std::max(1.0, 100000.0 / work));
  // Each thread counts its own work; the caller's counter stands for all of it.
  const auto counted = eigenformer::detail::work_counter();
  parallel_each(p.count, grain, one);
  eigenformer::detail::work_counter() = counted;
  eigenformer::detail::count_product(p.m, p.n, p.k, p.count);
}

EIGENFORMER_KERNEL(gemm)
EIGENFORMER_KERNEL(gemm_batched)

}  // namespace eigenformer::detail::kernels
#endif
