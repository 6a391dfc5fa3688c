#pragma once

#include <cstddef>
#include <utility>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"

namespace eigenformer {

namespace detail {

// y = f(x): dx = f'(x) dy, with f' from y where f allows it and from x otherwise.
template <class T>
Var<T> activation(Activation f, const Var<T>& x) {
  const char* const op = activation_names[static_cast<std::size_t>(f)];
  const OpScope scope = scope_of(op, x);
  Tensor<T> y(x.shape());
  kernels::activation_forward<T>(f, x.value().data(), y.data(), x.numel());
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  const Tensor<T> saved = kernels::activation_backward_takes_output(f) ? y : x.value();
  return record_one(
      op, std::move(y), x, SavedTensors(saved), [f, saved](const auto& dx, const Tensor<T>& dy) {
        kernels::activation_backward<T>(f, saved.data(), dy.data(), dx.data, dx.beta, saved.numel());
      });
}

}  // namespace detail

/// max(x, 0), element by element; the gradient at 0 is 0. Nair and Hinton 2010.
template <Operand X>
[[nodiscard]] Var<element_t<X>> relu(const X& x) {
  // dx = dy where y > 0, 0 elsewhere.
  return detail::activation<element_t<X>>(Activation::relu, x);
}

/// x * Phi(x), Phi being the standard normal's distribution function, with erf. Hendrycks and Gimpel 2016.
template <Operand X>
[[nodiscard]] Var<element_t<X>> gelu(const X& x) {
  // dx = (Phi(x) + x phi(x)) dy, phi being the standard normal's density.
  return detail::activation<element_t<X>>(Activation::gelu, x);
}

/// 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3): the approximation of gelu in the same paper.
template <Operand X>
[[nodiscard]] Var<element_t<X>> gelu_tanh(const X& x) {
  // dx = 0.5 (1 + t + x (1 - t^2) u') dy with t = tanh(u), u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
  return detail::activation<element_t<X>>(Activation::gelu_tanh, x);
}

/// x * sigmoid(x), also called swish. Elfwing et al. 2017.
template <Operand X>
[[nodiscard]] Var<element_t<X>> silu(const X& x) {
  // dx = s (1 + x (1 - s)) dy with s = sigmoid(x).
  return detail::activation<element_t<X>>(Activation::silu, x);
}

/// 1 / (1 + exp(-x)), element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sigmoid(const X& x) {
  // dx = y (1 - y) dy.
  return detail::activation<element_t<X>>(Activation::sigmoid, x);
}

/// Hyperbolic tangent, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> tanh(const X& x) {
  // dx = (1 - y^2) dy.
  return detail::activation<element_t<X>>(Activation::tanh, x);
}

/// max(x, 0)^2, element by element. So et al. 2021 (Primer).
template <Operand X>
[[nodiscard]] Var<element_t<X>> relu_squared(const X& x) {
  // dx = 2 max(x, 0) dy.
  return detail::activation<element_t<X>>(Activation::relu_squared, x);
}

/// elu(x) + 1: x + 1 where x > 0, exp(x) elsewhere, so always positive. Katharopoulos et al. 2020, eq. 7.
template <Operand X>
[[nodiscard]] Var<element_t<X>> elu_plus_one(const X& x) {
  // dx = min(y, 1) dy.
  return detail::activation<element_t<X>>(Activation::elu_plus_one, x);
}

/// Applies the function of an option; Activation::none returns x.
template <Operand X>
[[nodiscard]] Var<element_t<X>> activate(const X& given, Activation activation) {
  decltype(auto) x = detail::operand<element_t<X>>(given);  // evaluates an Eigen expression once
  detail::require_defined("activate", x);
  if (activation == Activation::none) return x;
  return detail::activation(activation, x);
}

}  // namespace eigenformer
