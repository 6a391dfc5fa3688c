#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_types.hpp"
#include "eigenformer/kernels/simd/isa.hpp"

namespace eigenformer {

/// The implementation of matrix products: of gemm(), gemm_batched(), gemm_packed() and attention.
enum class GemmBackend {
  own,   ///< this library's register tiles: the default on x86 and ARM with 64 bits and in WebAssembly
  eigen  ///< Eigen's products: the default elsewhere
};

/// Sets the backend of the whole process; the environment variable EIGENFORMER_ISA=eigen selects Eigen at the
/// start. Packed weights work with both. Eigen sums in its own order, so results differ by rounding; int8
/// products are bit-identical.
inline void set_gemm_backend(GemmBackend backend) {
  const Isa own = isa().without(IsaFeature::eigen);
  detail::kernels::isa_slot().store(backend == GemmBackend::eigen ? own.with(IsaFeature::eigen) : own,
                                    std::memory_order_relaxed);
}

/// The backend in use.
inline GemmBackend gemm_backend() {
  return isa().has(IsaFeature::eigen) ? GemmBackend::eigen : GemmBackend::own;
}

/// Whether products of bfloat16 are faster than those of floats, by the features in use: those of a CPU with
/// AMX's or with an instruction of full rate (AMD's vdpbf16ps). Intel's vdpbf16ps has half the rate of its
/// multiply-add of floats, and elsewhere inputs are rounded and multiplied as floats.
inline bool bf16_products_pay() {
  return gemm_backend() == GemmBackend::own &&
         (isa().has(IsaFeature::amx_bf16) || isa().has(IsaFeature::avx512_bf16));
}

}  // namespace eigenformer

namespace eigenformer::detail::kernels {

/// `wanted` if bf16_products_pay(), else full precision: the precision of training and decoding. gemm()
/// itself uses the precision that it is given.
inline GemmPrecision faster_precision(GemmPrecision wanted) {
  return bf16_products_pay() ? wanted : GemmPrecision::full;
}

}  // namespace eigenformer::detail::kernels
