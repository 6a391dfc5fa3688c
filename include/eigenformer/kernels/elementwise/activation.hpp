#pragma once

#include <array>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// Functions applied to each element between linear layers.
enum class Activation {
  none,          ///< x
  relu,          ///< max(x, 0); NaN stays NaN
  gelu,          ///< x * Phi(x), with erf: Hendrycks and Gimpel 2016
  gelu_tanh,     ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): the same paper's approximation
  silu,          ///< x * sigmoid(x)
  sigmoid,       ///< 1 / (1 + exp(-x))
  tanh,          ///< tanh(x)
  relu_squared,  ///< max(x, 0)^2: So et al. 2021 (Primer)
  elu_plus_one,  ///< x + 1 where x > 0, exp(x) elsewhere: the feature map of Katharopoulos et al. 2020
};

namespace detail {

// In the order of the enum's values.
inline constexpr std::array activation_names = {"none",    "relu", "gelu",         "gelu_tanh",   "silu",
                                                "sigmoid", "tanh", "relu_squared", "elu_plus_one"};

}  // namespace detail

}  // namespace eigenformer

namespace eigenformer::detail::kernels {

/// Whether activation_backward needs the output y (relu, sigmoid, tanh, elu_plus_one) or the input x (gelu,
/// gelu_tanh, silu, relu_squared). relu accepts the input as well; `none` reads neither.
constexpr bool activation_backward_takes_output(Activation activation) noexcept {
  return activation == Activation::relu || activation == Activation::sigmoid ||
         activation == Activation::tanh || activation == Activation::elu_plus_one ||
         activation == Activation::none;
}

/// y = f(x) over n elements; y may be x.
template <class T>
void activation_forward(Activation activation, const T* x, T* y, index_t n);

/// dx = beta * dx + f'(x) * dy over n elements. x_or_y: see activation_backward_takes_output. beta 0 does not
/// read dx, which may be dy.
template <class T>
void activation_backward(Activation activation, const T* x_or_y, const T* dy, T* dx, T beta, index_t n);

/// y = f(x + bias) on a tile of rows x cols, rows ldx and ldy elements apart; bias: (cols) or nullptr; pre,
/// when given, receives x + bias (rows ldy apart) for activation_backward. y or pre may be x. Runs on the
/// calling thread: for the epilogue of a matrix product.
template <class T>
void activation_tile(Activation activation, const T* x, index_t ldx, const T* bias, T* pre, T* y, index_t ldy,
                     index_t rows, index_t cols);

/// activation_backward on a tile of rows x cols; x_or_y's rows are ldx apart, those of dy and dx ldd. On the
/// calling thread.
template <class T>
void activation_backward_tile(Activation activation, const T* x_or_y, index_t ldx, const T* dy, T* dx,
                              index_t ldd, T beta, index_t rows, index_t cols);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/elementwise/activation-inl.hpp"
#endif
