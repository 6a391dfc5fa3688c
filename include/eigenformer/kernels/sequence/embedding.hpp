#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail::kernels {

/// y[r] = scale * table[ids[r]]. table: (vocab, d), ids: (rows), y: (rows, d). Throws IndexError for an id
/// outside 0 .. vocab - 1, naming it, its position and the vocabulary's size.
template <class T>
void embedding_forward(const T* table, index_t vocab, index_t d, const std::int32_t* ids, index_t rows,
                       T scale, T* y);

/// dtable = beta * dtable + scale * sum of dy[r] over the rows r with each id, in the order of the rows. dy:
/// (rows, d), ids: (rows), dtable: (vocab, d). Rows with padding_index (-1: none) contribute nothing. beta is
/// 0 (all of dtable is written) or 1. Throws IndexError as embedding_forward.
template <class T>
void embedding_backward(const T* dy, const std::int32_t* ids, index_t rows, std::int32_t padding_index,
                        T scale, T* dtable, T beta, index_t vocab, index_t d);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/sequence/embedding-inl.hpp"
#endif
