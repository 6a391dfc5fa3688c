#pragma once

#include <cmath>

#include "eigenformer/autograd/ops/elementwise/compare.hpp"

namespace eigenformer {

namespace detail {

template <class X, class F>
Tensor<bool> test_elements(const char* op, const X& given, F f) {
  const auto& x = tensor_of(given);
  require_defined(op, x);
  Tensor<bool> y(x.shape());
  const auto* from = x.data();
  bool* to = y.data();
  parallel_for(x.numel(), index_t{1} << 14, [=](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) to[i] = f(from[i]);
  });
  return y;
}

}  // namespace detail

/// Whether both are true, element by element, with broadcasting. Throws ShapeError when the shapes do not
/// broadcast.
[[nodiscard]] inline Tensor<bool> logical_and(const Tensor<bool>& a, const Tensor<bool>& b) {
  return detail::test_pairs("logical_and", a, b, [](bool u, bool v) { return u && v; });
}

/// Whether at least one is true, element by element, with broadcasting. Throws ShapeError when the shapes do
/// not broadcast.
[[nodiscard]] inline Tensor<bool> logical_or(const Tensor<bool>& a, const Tensor<bool>& b) {
  return detail::test_pairs("logical_or", a, b, [](bool u, bool v) { return u || v; });
}

/// Whether exactly one is true, element by element, with broadcasting. Throws ShapeError when the shapes do
/// not broadcast.
[[nodiscard]] inline Tensor<bool> logical_xor(const Tensor<bool>& a, const Tensor<bool>& b) {
  return detail::test_pairs("logical_xor", a, b, [](bool u, bool v) { return u != v; });
}

/// Whether the element is false.
[[nodiscard]] inline Tensor<bool> logical_not(const Tensor<bool>& x) {
  return detail::test_elements("logical_not", x, [](bool v) { return !v; });
}

/// Whether the element is NaN.
template <Operand X>
[[nodiscard]] Tensor<bool> isnan(const X& x) {
  return detail::test_elements("isnan", x, [](element_t<X> v) { return std::isnan(v); });
}

/// Whether the element is an infinity.
template <Operand X>
[[nodiscard]] Tensor<bool> isinf(const X& x) {
  return detail::test_elements("isinf", x, [](element_t<X> v) { return std::isinf(v); });
}

/// Whether the element is neither NaN nor an infinity.
template <Operand X>
[[nodiscard]] Tensor<bool> isfinite(const X& x) {
  return detail::test_elements("isfinite", x, [](element_t<X> v) { return std::isfinite(v); });
}

/// Whether |a - b| <= atol + rtol |b|, element by element, with broadcasting; equal infinities are close, and
/// NaNs with equal_nan. Throws ShapeError when the shapes do not broadcast, ValueError for a negative or NaN
/// rtol or atol.
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Tensor<bool> isclose(const A& a, const B& b, double rtol = 1e-5, double atol = 1e-8,
                                   bool equal_nan = false) {
  using T = element_t<A, B>;
  if (!(rtol >= 0) || !(atol >= 0)) {
    throw ValueError("isclose",
                     {"rtol is ", rtol, " and atol ", atol, ", expected numbers that are not negative"});
  }
  decltype(auto) x = detail::operand<T>(a);
  decltype(auto) y = detail::operand<T>(b);
  return detail::test_pairs("isclose", x.value(), y.value(), [=](T u, T v) {
    if (u == v || (equal_nan && std::isnan(u) && std::isnan(v))) return true;
    return std::isfinite(u) && std::isfinite(v) &&
           std::abs(u - v) <= static_cast<T>(atol) + std::abs(static_cast<T>(rtol) * v);
  });
}

}  // namespace eigenformer
