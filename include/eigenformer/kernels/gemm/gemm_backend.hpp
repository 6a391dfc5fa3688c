#pragma once

#include <atomic>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

namespace eigenformer::kernels {

/// Who multiplies matrices: in gemm(), gemm_batched() and gemm_packed(), and in attention.
enum class GemmBackend {
  own,   ///< this library's register tiles: the default where there are instruction sets of our own (x86)
  eigen  ///< Eigen's products: the default elsewhere
};

namespace detail {

inline std::atomic<GemmBackend>& gemm_backend_slot() {
  static std::atomic<GemmBackend> slot{forced_isa_name() == eigen_isa_name ||
                                               (!EIGENFORMER_X86 && forced_isa_name().empty())
                                           ? GemmBackend::eigen
                                           : GemmBackend::own};
  return slot;
}

}  // namespace detail

/// Chooses the backend for the whole process; the environment's EIGENFORMER_ISA=eigen chooses Eigen at the
/// start. Weights that are packed already serve both. Eigen adds up in its own order, so results differ from
/// the library's by rounding; int8 products are the same bit by bit.
inline void set_gemm_backend(GemmBackend backend) {
  detail::gemm_backend_slot().store(backend, std::memory_order_relaxed);
}

/// The backend in use.
inline GemmBackend gemm_backend() { return detail::gemm_backend_slot().load(std::memory_order_relaxed); }

}  // namespace eigenformer::kernels
