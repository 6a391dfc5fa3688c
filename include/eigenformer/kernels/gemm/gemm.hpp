#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/kernels/gemm/gemm_types.hpp"

namespace eigenformer::kernels {

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

/// `batch` products, operand i at base + i * stride; a stride of 0 for A or B shares that operand. The
/// epilogue's rows and columns count within a product.
template <class T>
void gemm_batched(bool transpose_a, bool transpose_b, index_t batch, index_t m, index_t n, index_t k, T alpha,
                  const T* a, index_t lda, index_t stride_a, const T* b, index_t ldb, index_t stride_b,
                  T beta, T* c, index_t ldc, index_t stride_c, const GemmEpilogue<T>& epilogue = {},
                  GemmPrecision precision = GemmPrecision::full);

}  // namespace eigenformer::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/gemm/gemm-inl.hpp"
#endif
