#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/simd/isa.hpp"

namespace eigenformer {

/// The precision of the inputs of a float product; sums are in float.
enum class GemmPrecision {
  full,  ///< inputs as they are
  bf16   ///< inputs rounded to bfloat16, to nearest, ties to even
};

namespace detail::kernels {

/// Work on the tiles of a product while they are in the cache.
template <class T>
struct GemmEpilogue {
  /// (n), added to each row of the finished sum; nullptr for none.
  const T* bias = nullptr;
  /// Called for each finished tile (all of k summed, beta and bias applied): rows [row, row + rows) and
  /// columns [col, col + cols) of C, `c` at the tile's first element. Several threads at once, on disjoint
  /// tiles, which cover C exactly once.
  void (*apply)(const void* context, T* c, index_t ldc, index_t row, index_t rows, index_t col,
                index_t cols) = nullptr;
  /// The first argument of `apply`.
  const void* context = nullptr;
};

/// Whether matrix products are Eigen's: those of gemm(), gemm_batched(), gemm_packed() and attention.
inline bool multiplies_by_eigen() { return isa().has(IsaFeature::eigen); }

}  // namespace detail::kernels

/// Has Eigen multiply matrices in the whole process, or the library's own register tiles, which are the
/// default on x86 and ARM with 64 bits and in WebAssembly; the environment variable EIGENFORMER_ISA=eigen
/// selects Eigen at the start. Packed weights work with both. Eigen sums in its own order, so results differ
/// by rounding; int8 products are bit-identical.
inline void set_eigen_products(bool on) {
  const Isa own = isa().without(IsaFeature::eigen);
  detail::kernels::isa_slot().store(on ? own.with(IsaFeature::eigen) : own, std::memory_order_relaxed);
}

/// Whether products of bfloat16 are faster than those of floats, by the features in use: those of a CPU with
/// AMX's or with an instruction of full rate (AMD's vdpbf16ps). Intel's vdpbf16ps has half the rate of its
/// multiply-add of floats, and elsewhere inputs are rounded and multiplied as floats.
inline bool bf16_products_pay() {
  return !detail::kernels::multiplies_by_eigen() &&
         (isa().has(IsaFeature::amx_bf16) || isa().has(IsaFeature::avx512_bf16));
}

namespace detail::kernels {

/// `wanted` if bf16_products_pay(), else full precision: the precision of training and decoding. gemm()
/// itself uses the precision that it is given.
inline GemmPrecision faster_precision(GemmPrecision wanted) {
  return bf16_products_pay() ? wanted : GemmPrecision::full;
}

}  // namespace detail::kernels

}  // namespace eigenformer
