#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/simd/isa.hpp"

namespace eigenformer::kernels {

/// Who multiplies matrices: in gemm(), gemm_batched() and gemm_packed(), and in attention.
enum class GemmBackend {
  own,   ///< this library's register tiles: the default on x86 and ARM with 64 bits
  eigen  ///< Eigen's products: the default elsewhere
};

/// Chooses the backend for the whole process; the environment's EIGENFORMER_ISA=eigen chooses Eigen at the
/// start. Weights that are packed already serve both. Eigen adds up in its own order, so results differ from
/// the library's by rounding; int8 products are the same bit by bit.
inline void set_gemm_backend(GemmBackend backend) {
  const Isa own = isa().without(IsaFeature::eigen);
  detail::isa_slot().store(backend == GemmBackend::eigen ? own.with(IsaFeature::eigen) : own,
                           std::memory_order_relaxed);
}

/// The backend in use.
inline GemmBackend gemm_backend() {
  return isa().has(IsaFeature::eigen) ? GemmBackend::eigen : GemmBackend::own;
}

}  // namespace eigenformer::kernels
