#pragma once

#include <utility>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"

namespace eigenformer {

namespace detail {

// y = f(x): dx = f'(x) dy, with f' from y where f allows it and from x otherwise.
template <class T>
Var<T> activation(const char* op, Activation f, const Var<T>& x) {
  const OpScope scope(Runtime::instance().profiler(), op);
  require_defined(op, x);
  Tensor<T> y(x.shape());
  kernels::activation_forward<T>(f, x.value().data(), y.data(), x.numel());
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  const Tensor<T> saved = kernels::activation_backward_takes_output(f) ? y : x.value();
  return record(op, std::move(y), {x}, SavedTensors(saved), [f, saved](Backward<T>& back) {
    if (const auto dx = back.grad(0)) {
      kernels::activation_backward<T>(f, saved.data(), back.dy().data(), dx.data, dx.beta, saved.numel());
    }
  });
}

}  // namespace detail

/// max(x, 0), element by element; the gradient at 0 is 0. Nair and Hinton 2010.
template <Operand X>
[[nodiscard]] Var<element_t<X>> relu(const X& x) {
  // dx = dy where y > 0, 0 elsewhere.
  return detail::activation<element_t<X>>("relu", Activation::relu, x);
}

/// x * Phi(x), Phi being the standard normal's distribution function, with erf. Hendrycks and Gimpel 2016.
template <Operand X>
[[nodiscard]] Var<element_t<X>> gelu(const X& x) {
  // dx = (Phi(x) + x phi(x)) dy, phi being the standard normal's density.
  return detail::activation<element_t<X>>("gelu", Activation::gelu, x);
}

/// 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3): the approximation of gelu in the same paper.
template <Operand X>
[[nodiscard]] Var<element_t<X>> gelu_tanh(const X& x) {
  // dx = 0.5 (1 + t + x (1 - t^2) u') dy with t = tanh(u), u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
  return detail::activation<element_t<X>>("gelu_tanh", Activation::gelu_tanh, x);
}

/// x * sigmoid(x), also called swish. Elfwing et al. 2017.
template <Operand X>
[[nodiscard]] Var<element_t<X>> silu(const X& x) {
  // dx = s (1 + x (1 - s)) dy with s = sigmoid(x).
  return detail::activation<element_t<X>>("silu", Activation::silu, x);
}

/// 1 / (1 + exp(-x)), element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sigmoid(const X& x) {
  // dx = y (1 - y) dy.
  return detail::activation<element_t<X>>("sigmoid", Activation::sigmoid, x);
}

/// Hyperbolic tangent, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> tanh(const X& x) {
  // dx = (1 - y^2) dy.
  return detail::activation<element_t<X>>("tanh", Activation::tanh, x);
}

/// max(x, 0)^2, element by element. So et al. 2021 (Primer).
template <Operand X>
[[nodiscard]] Var<element_t<X>> relu_squared(const X& x) {
  // dx = 2 max(x, 0) dy.
  return detail::activation<element_t<X>>("relu_squared", Activation::relu_squared, x);
}

/// elu(x) + 1: x + 1 where x > 0, exp(x) elsewhere, so always positive. Katharopoulos et al. 2020, eq. 7.
template <Operand X>
[[nodiscard]] Var<element_t<X>> elu_plus_one(const X& x) {
  // dx = min(y, 1) dy.
  return detail::activation<element_t<X>>("elu_plus_one", Activation::elu_plus_one, x);
}

/// Applies the function of an option; Activation::none returns x.
template <Operand X>
[[nodiscard]] Var<element_t<X>> activate(const X& given, Activation activation) {
  decltype(auto) x = detail::operand<element_t<X>>(given);  // evaluates an Eigen expression once
  detail::require_defined("activate", x);
  switch (activation) {
    case Activation::relu:
      return relu(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::silu:
      return silu(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::tanh:
      return tanh(x);
    case Activation::relu_squared:
      return relu_squared(x);
    case Activation::elu_plus_one:
      return elu_plus_one(x);
    case Activation::none:
      break;
  }
  return x;
}

}  // namespace eigenformer
