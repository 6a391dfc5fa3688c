#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"

namespace eigenformer::detail::kernels {

/// y = f(gate) * up on a tile of rows x cols: gated linear units. Dauphin et al. 2017; Shazeer 2020.
///
/// gate, up, y: the tile's first elements, their rows ld_gate, ld_up and ld_y apart; y may be gate or up.
/// Runs on the calling thread: for the epilogue of a matrix product.
template <class T>
void gated_tile(Activation activation, const T* gate, index_t ld_gate, const T* up, index_t ld_up, T* y,
                index_t ld_y, index_t rows, index_t cols);

/// dgate = beta * dgate + f'(gate) * up * dy and dup = beta * dup + f(gate) * dy on a tile of rows x cols.
///
/// gate and up are gated_tile's inputs, rows ld apart; rows of dy, dgate and dup are ld_dy, ld_dgate and
/// ld_dup apart. beta 0 does not read the gradients; dgate or dup may then be dy.
template <class T>
void gated_backward_tile(Activation activation, const T* gate, const T* up, index_t ld, const T* dy,
                         index_t ld_dy, T beta, T* dgate, index_t ld_dgate, T* dup, index_t ld_dup,
                         index_t rows, index_t cols);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/elementwise/gated-inl.hpp"
#endif
