#pragma once

#include <numbers>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/map.hpp"

namespace eigenformer {

namespace detail {

// What the gradient of map() reads.
enum class Saves { x, y };

// y = f(x), element by element: dx = slope(x or y, dy). Both are formulas of Packs.
template <class T, Saves saves, class F, class D>
Var<T> map(const char* op, const Var<T>& x, const F& f, const D& slope) {
  const OpScope scope(Runtime::instance().profiler(), op);
  require_defined(op, x);
  Tensor<T> y(x.shape());
  kernels::map<T, 1>(f, {x.value().data()}, y.data(), T(0), x.numel());
  if (not_recorded<T>(y, x)) return Var<T>(std::move(y));
  const Tensor<T> saved = saves == Saves::y ? y : x.value();
  return record(op, std::move(y), {x}, SavedTensors(saved), [saved, slope](Backward<T>& back) {
    if (const auto dx = back.grad(0)) {
      kernels::map<T, 2>(slope, {saved.data(), back.dy().data()}, dx.data, dx.beta, saved.numel());
    }
  });
}

}  // namespace detail

/// Absolute value, element by element; the gradient at 0 is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> abs(const X& x) {
  // dx = sign(x) dy.
  return detail::unary<element_t<X>>("abs", kernels::UnaryOp::absolute, x, true, false);
}

/// 1 / x, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> reciprocal(const X& x) {
  // dx = -y^2 dy.
  return detail::unary<element_t<X>>("reciprocal", kernels::UnaryOp::reciprocal, x, false, true);
}

/// The error function, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> erf(const X& x) {
  // dx = 2 / sqrt(pi) exp(-x^2) dy.
  return detail::unary<element_t<X>>("erf", kernels::UnaryOp::erf, x, true, false);
}

/// -1, 0 or 1 by the sign of x, 0 for NaN; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sign(const X& x) {
  using T = element_t<X>;
  // dx = 0.
  return detail::map<T, detail::Saves::x>(
      "sign", x,
      [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return select(v > 0, 1, select(v < 0, -1, 0)); },
      [](const auto&, const auto&) EIGENFORMER_INLINE_LAMBDA { return T(0); });
}

/// The largest whole number that is not above x; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> floor(const X& x) {
  using T = element_t<X>;
  // dx = 0.
  return detail::map<T, detail::Saves::x>(
      "floor", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return floor(v); },
      [](const auto&, const auto&) EIGENFORMER_INLINE_LAMBDA { return T(0); });
}

/// The smallest whole number that is not below x; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> ceil(const X& x) {
  using T = element_t<X>;
  // dx = 0.
  return detail::map<T, detail::Saves::x>(
      "ceil", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return ceil(v); },
      [](const auto&, const auto&) EIGENFORMER_INLINE_LAMBDA { return T(0); });
}

/// The nearest whole number, of two the even one; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> round(const X& x) {
  using T = element_t<X>;
  // dx = 0.
  return detail::map<T, detail::Saves::x>(
      "round", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return round(v); },
      [](const auto&, const auto&) EIGENFORMER_INLINE_LAMBDA { return T(0); });
}

/// The whole number next to x in the direction of 0; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> trunc(const X& x) {
  using T = element_t<X>;
  // dx = 0.
  return detail::map<T, detail::Saves::x>(
      "trunc", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return trunc(v); },
      [](const auto&, const auto&) EIGENFORMER_INLINE_LAMBDA { return T(0); });
}

/// 2 to the power x, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> exp2(const X& x) {
  using T = element_t<X>;
  // dx = ln(2) y dy.
  return detail::map<T, detail::Saves::y>(
      "exp2", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return exp2(v); },
      [](const auto& y, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g * y * std::numbers::ln2_v<T>; });
}

/// exp(x) - 1, exact near 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> expm1(const X& x) {
  using T = element_t<X>;
  // dx = (y + 1) dy.
  return detail::map<T, detail::Saves::y>(
      "expm1", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return expm1(v); },
      [](const auto& y, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g * (y + 1); });
}

/// log(1 + x), exact near 0: -inf at -1, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log1p(const X& x) {
  using T = element_t<X>;
  // dx = dy / (1 + x).
  return detail::map<T, detail::Saves::x>(
      "log1p", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return log1p(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g / (1 + v); });
}

/// Logarithm to base 2, element by element: -inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log2(const X& x) {
  using T = element_t<X>;
  // dx = dy / (x ln(2)).
  return detail::map<T, detail::Saves::x>(
      "log2", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return log2(v); },
      [](const auto& v, const auto& g)
          EIGENFORMER_INLINE_LAMBDA { return g / (v * std::numbers::ln2_v<T>); });
}

/// Logarithm to base 10, element by element: -inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log10(const X& x) {
  using T = element_t<X>;
  // dx = dy / (x ln(10)).
  return detail::map<T, detail::Saves::x>(
      "log10", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return log10(v); },
      [](const auto& v, const auto& g)
          EIGENFORMER_INLINE_LAMBDA { return g / (v * std::numbers::ln10_v<T>); });
}

/// 1 / sqrt(x), element by element: inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> rsqrt(const X& x) {
  using T = element_t<X>;
  // dx = -y^3 / 2 dy.
  return detail::map<T, detail::Saves::y>(
      "rsqrt", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return 1 / sqrt(v); },
      [](const auto& y, const auto& g) EIGENFORMER_INLINE_LAMBDA { return T(-0.5) * g * y * y * y; });
}

/// Sine, element by element, of radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sin(const X& x) {
  using T = element_t<X>;
  // dx = cos(x) dy.
  return detail::map<T, detail::Saves::x>(
      "sin", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return sin(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g * cos(v); });
}

/// Cosine, element by element, of radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cos(const X& x) {
  using T = element_t<X>;
  // dx = -sin(x) dy.
  return detail::map<T, detail::Saves::x>(
      "cos", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return cos(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return -g * sin(v); });
}

/// Tangent, element by element, of radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> tan(const X& x) {
  using T = element_t<X>;
  // dx = (1 + y^2) dy.
  return detail::map<T, detail::Saves::y>(
      "tan", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return tan(v); },
      [](const auto& y, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g * (1 + y * y); });
}

/// Arcsine in radians: NaN outside [-1, 1].
template <Operand X>
[[nodiscard]] Var<element_t<X>> asin(const X& x) {
  using T = element_t<X>;
  // dx = dy / sqrt(1 - x^2).
  return detail::map<T, detail::Saves::x>(
      "asin", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return asin(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g / sqrt(1 - v * v); });
}

/// Arccosine in radians: NaN outside [-1, 1].
template <Operand X>
[[nodiscard]] Var<element_t<X>> acos(const X& x) {
  using T = element_t<X>;
  // dx = -dy / sqrt(1 - x^2).
  return detail::map<T, detail::Saves::x>(
      "acos", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return acos(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return -g / sqrt(1 - v * v); });
}

/// Arctangent in radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> atan(const X& x) {
  using T = element_t<X>;
  // dx = dy / (1 + x^2).
  return detail::map<T, detail::Saves::x>(
      "atan", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return atan(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g / (1 + v * v); });
}

/// Hyperbolic sine, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sinh(const X& x) {
  using T = element_t<X>;
  // dx = cosh(x) dy.
  return detail::map<T, detail::Saves::x>(
      "sinh", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return sinh(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g * cosh(v); });
}

/// Hyperbolic cosine, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cosh(const X& x) {
  using T = element_t<X>;
  // dx = sinh(x) dy.
  return detail::map<T, detail::Saves::x>(
      "cosh", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return cosh(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g * sinh(v); });
}

/// Inverse hyperbolic sine, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> asinh(const X& x) {
  using T = element_t<X>;
  // dx = dy / sqrt(x^2 + 1).
  return detail::map<T, detail::Saves::x>(
      "asinh", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return asinh(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g / sqrt(v * v + 1); });
}

/// Inverse hyperbolic cosine: NaN below 1.
template <Operand X>
[[nodiscard]] Var<element_t<X>> acosh(const X& x) {
  using T = element_t<X>;
  // dx = dy / sqrt(x^2 - 1).
  return detail::map<T, detail::Saves::x>(
      "acosh", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return acosh(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g / sqrt(v * v - 1); });
}

/// Inverse hyperbolic tangent: NaN outside [-1, 1].
template <Operand X>
[[nodiscard]] Var<element_t<X>> atanh(const X& x) {
  using T = element_t<X>;
  // dx = dy / (1 - x^2).
  return detail::map<T, detail::Saves::x>(
      "atanh", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return atanh(v); },
      [](const auto& v, const auto& g) EIGENFORMER_INLINE_LAMBDA { return g / (1 - v * v); });
}

/// 1 - erf(x), exact where erf(x) is near 1.
template <Operand X>
[[nodiscard]] Var<element_t<X>> erfc(const X& x) {
  using T = element_t<X>;
  // dx = -2 / sqrt(pi) exp(-x^2) dy.
  return detail::map<T, detail::Saves::x>(
      "erfc", x, [](const auto& v) EIGENFORMER_INLINE_LAMBDA { return erfc(v); },
      [](const auto& v, const auto& g)
          EIGENFORMER_INLINE_LAMBDA { return -2 * std::numbers::inv_sqrtpi_v<T> * exp(-v * v) * g; });
}

}  // namespace eigenformer
