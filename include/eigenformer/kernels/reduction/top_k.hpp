#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::kernels {

/// The k largest entries of each row as log-probabilities, without writing the other ones: what a beam search
/// asks of its logits.
///
/// logits: (rows, n), rows `ld` elements apart; values, ids: (rows, k), largest first, the lower id first
/// among equals; values[i] = logit - log(sum(exp(logits))). Throws ValueError unless 1 <= k <= n. A row of
/// nothing but -inf or with NaN gives ids of entries that are there, and NaN.
template <class T>
void log_softmax_top_k(const T* logits, index_t ld, index_t rows, index_t n, index_t k, T* values,
                       std::int32_t* ids);

}  // namespace eigenformer::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/reduction/top_k-inl.hpp"
#endif
