#pragma once

#include <atomic>
#include <type_traits>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/kernels/gemm/gemm_driver.hpp"
#include "eigenformer/kernels/gemm/gemm_types.hpp"

#if defined(EIGENFORMER_WITH_ONEDNN)
#include <dnnl.h>
#endif
#if defined(EIGENFORMER_WITH_BLAS)
#include <cblas.h>
#endif

namespace eigenformer::kernels {

/// Who multiplies matrices in gemm() and gemm_batched().
enum class GemmBackend {
  own,  ///< this library: the default, and the one whose results do not depend on batch or threads bit by bit
  onednn,  ///< dnnl_sgemm, for float; needs EIGENFORMER_WITH_ONEDNN and -ldnnl
  blas     ///< cblas_sgemm and cblas_dgemm; needs EIGENFORMER_WITH_BLAS and a CBLAS library
};

namespace detail {

inline std::atomic<GemmBackend>& gemm_backend_slot() {
  static std::atomic<GemmBackend> slot{GemmBackend::own};
  return slot;
}

}  // namespace detail

/// Chooses the backend for the whole process; a yardstick and an alternative. bfloat16 products, packed
/// weights and types that a backend lacks stay with the library. The backend brings its own threads: set
/// their number there. Throws ValueError for one that this program was compiled without.
inline void set_gemm_backend(GemmBackend backend) {
#if !defined(EIGENFORMER_WITH_ONEDNN)
  if (backend == GemmBackend::onednn) {
    throw ValueError("set_gemm_backend",
                     "oneDNN was not compiled in, expected EIGENFORMER_WITH_ONEDNN to be defined");
  }
#endif
#if !defined(EIGENFORMER_WITH_BLAS)
  if (backend == GemmBackend::blas) {
    throw ValueError("set_gemm_backend",
                     "BLAS was not compiled in, expected EIGENFORMER_WITH_BLAS to be defined");
  }
#endif
  detail::gemm_backend_slot().store(backend, std::memory_order_relaxed);
}

/// The backend in use.
inline GemmBackend gemm_backend() { return detail::gemm_backend_slot().load(std::memory_order_relaxed); }

namespace detail {

/// C = alpha op(A) op(B) + beta C by the chosen backend; false where the library has to do it.
template <class T>
bool multiply_in_backend([[maybe_unused]] const GemmProblem<T>& g, [[maybe_unused]] GemmBackend backend) {
#if defined(EIGENFORMER_WITH_ONEDNN)
  if constexpr (std::is_same_v<T, float>) {
    if (backend == GemmBackend::onednn) {
      return dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, g.alpha, g.a,
                        g.lda, g.b, g.ldb, g.beta, g.c, g.ldc) == dnnl_success;
    }
  }
#endif
#if defined(EIGENFORMER_WITH_BLAS)
  if (backend == GemmBackend::blas) {
    const auto size = [](index_t n) { return static_cast<int>(n); };
    const auto order = [](bool transpose) { return transpose ? CblasTrans : CblasNoTrans; };
    const auto call = [&](auto function) {
      function(CblasRowMajor, order(g.transpose_a), order(g.transpose_b), size(g.m), size(g.n), size(g.k),
               g.alpha, g.a, size(g.lda), g.b, size(g.ldb), g.beta, g.c, size(g.ldc));
    };
    if constexpr (std::is_same_v<T, float>) {
      call(cblas_sgemm);
    } else {
      call(cblas_dgemm);
    }
    return true;
  }
#endif
  return false;
}

/// Runs a whole product, epilogue included, in the chosen backend; false where the library has to do it.
template <class T>
bool gemm_in_backend(const GemmProblem<T>& g, GemmPrecision precision) {
  const GemmBackend backend = gemm_backend();
  if (backend == GemmBackend::own || g.m == 0 || g.n == 0 || g.k == 0) return false;
  if (std::is_same_v<T, float> && precision == GemmPrecision::bf16) return false;
  if (!multiply_in_backend(g, backend)) return false;
  if (g.epilogue.bias != nullptr) {
    for (index_t i = 0; i < g.m; ++i) {
      for (index_t j = 0; j < g.n; ++j) g.c[i * g.ldc + j] += g.epilogue.bias[j];
    }
  }
  if (g.epilogue.apply != nullptr) g.epilogue.apply(g.epilogue.context, g.c, g.ldc, 0, g.m, 0, g.n);
  return true;
}

}  // namespace detail
}  // namespace eigenformer::kernels
