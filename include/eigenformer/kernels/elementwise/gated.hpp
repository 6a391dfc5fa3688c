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
#include <algorithm>

#include "eigenformer/kernels/elementwise/elementwise.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// Columns of a strip: activations of it are kept on the stack, so that a loop for each activation need not
/// be compiled once more for gates.
inline constexpr index_t gated_strip = 256;

/// dup = beta * dup + dy * value and dvalue = dy * up for one row.
template <class T>
struct GatedProductBackward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* value, const T* up, const T* dy, T beta, T* dup,
                                            T* dvalue, index_t n) {
    using W = Simd<T, Bytes>;
    for (index_t i = 0; i < n; i += W::lanes) {
      typename W::V v, u, d;
      W::load(v, value + i, n - i);
      W::load(u, up + i, n - i);
      W::load(d, dy + i, n - i);
      v *= d;
      d *= u;
      W::store(dvalue + i, n - i, d);
      W::store_sum(dup + i, n - i, v, beta);
    }
  }
};

}  // namespace detail

template <class T>
void gated_tile(Activation activation, const T* gate, index_t ld_gate, const T* up, index_t ld_up, T* y,
                index_t ld_y, index_t rows, index_t cols) {
  alignas(64) T value[detail::gated_strip];
  for (index_t r = 0; r < rows; ++r) {
    for (index_t c = 0; c < cols; c += detail::gated_strip) {
      const index_t n = std::min(detail::gated_strip, cols - c);
      activation_tile<T>(activation, gate + r * ld_gate + c, 0, nullptr, nullptr, value, 0, 1, n);
      dispatch<detail::LinearCombination<T>>(T(1), static_cast<const T*>(value), up + r * ld_up + c, T(0),
                                             y + r * ld_y + c, n);
    }
  }
}

template <class T>
void gated_backward_tile(Activation activation, const T* gate, const T* up, index_t ld, const T* dy,
                         index_t ld_dy, T beta, T* dgate, index_t ld_dgate, T* dup, index_t ld_dup,
                         index_t rows, index_t cols) {
  alignas(64) T value[detail::gated_strip], dvalue[detail::gated_strip];
  for (index_t r = 0; r < rows; ++r) {
    for (index_t c = 0; c < cols; c += detail::gated_strip) {
      const index_t n = std::min(detail::gated_strip, cols - c);
      const T* const g = gate + r * ld + c;
      activation_tile<T>(activation, g, 0, nullptr, nullptr, value, 0, 1, n);
      dispatch<detail::GatedProductBackward<T>>(static_cast<const T*>(value), up + r * ld + c,
                                                dy + r * ld_dy + c, beta, dup + r * ld_dup + c,
                                                static_cast<T*>(dvalue), n);
      const T* const kept = activation_backward_takes_output(activation) ? value : g;
      activation_backward_tile<T>(activation, kept, 0, static_cast<const T*>(dvalue),
                                  dgate + r * ld_dgate + c, 0, beta, 1, n);
    }
  }
}

EIGENFORMER_KERNEL(gated_tile)
EIGENFORMER_KERNEL(gated_backward_tile)

}  // namespace eigenformer::detail::kernels
#endif
