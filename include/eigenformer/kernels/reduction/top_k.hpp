#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail::kernels {

/// log(sum(exp(logits))) of each row, sums: (rows). logits: (rows, n), rows `ld` elements apart. A row with
/// NaN or +inf, or of nothing but -inf, gives NaN.
template <class T>
void log_sum_exp(const T* logits, index_t ld, index_t rows, index_t n, T* sums);

/// The k largest entries of each row, largest first, the lower id first among equals.
///
/// x: (rows, n), rows `ld` elements apart; values, ids: (rows, k); sums: (rows), receives log_sum_exp() in
/// the same pass, or nullptr. NaN is ignored. A row with fewer than k entries above -inf is filled up with
/// -inf and ids below k. Throws ValueError unless 1 <= k <= n.
template <class T>
void top_k(const T* x, index_t ld, index_t rows, index_t n, index_t k, T* values, std::int32_t* ids,
           T* sums = nullptr);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/reduction/top_k-inl.hpp"
#endif
