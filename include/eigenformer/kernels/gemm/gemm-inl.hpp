#pragma once

#include <algorithm>
#include <string>

#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/tensor/shape.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
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
  if (gemm_backend() == GemmBackend::eigen) {
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
