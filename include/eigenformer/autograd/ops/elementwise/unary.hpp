#pragma once

#include <cmath>
#include <numbers>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"

namespace eigenformer {

namespace detail {

// What the gradient of map() reads.
enum class Saves { x, y };

// y = f(x), element by element: dx = slope(x or y, dy).
template <class T, Saves saves, class F, class D>
Var<T> map(const char* op, const Var<T>& x, F f, D slope) {
  const OpScope scope(Runtime::instance().profiler(), op);
  require_defined(op, x);
  Tensor<T> y(x.shape());
  const T* from = x.value().data();
  T* to = y.data();
  parallel_for(x.numel(), index_t{1} << 12, [=](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) to[i] = f(from[i]);
  });
  if (not_recorded<T>(y, x)) return Var<T>(std::move(y));
  const Tensor<T> saved = saves == Saves::y ? y : x.value();
  return record(op, std::move(y), {x}, SavedTensors(saved), [saved, slope](Backward<T>& back) {
    const auto dx = back.grad(0);
    if (!dx) return;
    const T* s = saved.data();
    const T* g = back.dy().data();
    T* out = dx.data;
    const T beta = dx.beta;
    parallel_for(saved.numel(), index_t{1} << 12, [=](index_t begin, index_t end) {
      if (beta == T(0)) {
        for (index_t i = begin; i < end; ++i) out[i] = slope(s[i], g[i]);
      } else {
        for (index_t i = begin; i < end; ++i) out[i] += slope(s[i], g[i]);
      }
    });
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
      "sign", x, [](T v) { return T((v > 0) - (v < 0)); }, [](T, T) { return T(0); });
}

/// The largest whole number that is not above x; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> floor(const X& x) {
  using T = element_t<X>;
  // dx = 0.
  return detail::map<T, detail::Saves::x>(
      "floor", x, [](T v) { return T(std::floor(v)); }, [](T, T) { return T(0); });
}

/// The smallest whole number that is not below x; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> ceil(const X& x) {
  using T = element_t<X>;
  // dx = 0.
  return detail::map<T, detail::Saves::x>(
      "ceil", x, [](T v) { return T(std::ceil(v)); }, [](T, T) { return T(0); });
}

/// The nearest whole number, of two the even one; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> round(const X& x) {
  using T = element_t<X>;
  // dx = 0.
  return detail::map<T, detail::Saves::x>(
      "round", x, [](T v) { return T(std::nearbyint(v)); }, [](T, T) { return T(0); });
}

/// The whole number next to x in the direction of 0; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> trunc(const X& x) {
  using T = element_t<X>;
  // dx = 0.
  return detail::map<T, detail::Saves::x>(
      "trunc", x, [](T v) { return T(std::trunc(v)); }, [](T, T) { return T(0); });
}

/// 2 to the power x, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> exp2(const X& x) {
  using T = element_t<X>;
  // dx = ln(2) y dy.
  return detail::map<T, detail::Saves::y>(
      "exp2", x, [](T v) { return T(std::exp2(v)); },
      [](T y, T g) { return T(g * y * std::numbers::ln2_v<T>); });
}

/// exp(x) - 1, exact near 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> expm1(const X& x) {
  using T = element_t<X>;
  // dx = (y + 1) dy.
  return detail::map<T, detail::Saves::y>(
      "expm1", x, [](T v) { return T(std::expm1(v)); }, [](T y, T g) { return T(g * (y + 1)); });
}

/// log(1 + x), exact near 0: -inf at -1, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log1p(const X& x) {
  using T = element_t<X>;
  // dx = dy / (1 + x).
  return detail::map<T, detail::Saves::x>(
      "log1p", x, [](T v) { return T(std::log1p(v)); }, [](T v, T g) { return T(g / (1 + v)); });
}

/// Logarithm to base 2, element by element: -inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log2(const X& x) {
  using T = element_t<X>;
  // dx = dy / (x ln(2)).
  return detail::map<T, detail::Saves::x>(
      "log2", x, [](T v) { return T(std::log2(v)); },
      [](T v, T g) { return T(g / (v * std::numbers::ln2_v<T>)); });
}

/// Logarithm to base 10, element by element: -inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log10(const X& x) {
  using T = element_t<X>;
  // dx = dy / (x ln(10)).
  return detail::map<T, detail::Saves::x>(
      "log10", x, [](T v) { return T(std::log10(v)); },
      [](T v, T g) { return T(g / (v * std::numbers::ln10_v<T>)); });
}

/// 1 / sqrt(x), element by element: inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> rsqrt(const X& x) {
  using T = element_t<X>;
  // dx = -y^3 / 2 dy.
  return detail::map<T, detail::Saves::y>(
      "rsqrt", x, [](T v) { return T(1 / std::sqrt(v)); },
      [](T y, T g) { return T(T(-0.5) * g * y * y * y); });
}

/// Sine, element by element, of radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sin(const X& x) {
  using T = element_t<X>;
  // dx = cos(x) dy.
  return detail::map<T, detail::Saves::x>(
      "sin", x, [](T v) { return T(std::sin(v)); }, [](T v, T g) { return T(g * std::cos(v)); });
}

/// Cosine, element by element, of radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cos(const X& x) {
  using T = element_t<X>;
  // dx = -sin(x) dy.
  return detail::map<T, detail::Saves::x>(
      "cos", x, [](T v) { return T(std::cos(v)); }, [](T v, T g) { return T(-g * std::sin(v)); });
}

/// Tangent, element by element, of radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> tan(const X& x) {
  using T = element_t<X>;
  // dx = (1 + y^2) dy.
  return detail::map<T, detail::Saves::y>(
      "tan", x, [](T v) { return T(std::tan(v)); }, [](T y, T g) { return T(g * (1 + y * y)); });
}

/// Arcsine in radians: NaN outside [-1, 1].
template <Operand X>
[[nodiscard]] Var<element_t<X>> asin(const X& x) {
  using T = element_t<X>;
  // dx = dy / sqrt(1 - x^2).
  return detail::map<T, detail::Saves::x>(
      "asin", x, [](T v) { return T(std::asin(v)); }, [](T v, T g) { return T(g / std::sqrt(1 - v * v)); });
}

/// Arccosine in radians: NaN outside [-1, 1].
template <Operand X>
[[nodiscard]] Var<element_t<X>> acos(const X& x) {
  using T = element_t<X>;
  // dx = -dy / sqrt(1 - x^2).
  return detail::map<T, detail::Saves::x>(
      "acos", x, [](T v) { return T(std::acos(v)); }, [](T v, T g) { return T(-g / std::sqrt(1 - v * v)); });
}

/// Arctangent in radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> atan(const X& x) {
  using T = element_t<X>;
  // dx = dy / (1 + x^2).
  return detail::map<T, detail::Saves::x>(
      "atan", x, [](T v) { return T(std::atan(v)); }, [](T v, T g) { return T(g / (1 + v * v)); });
}

/// Hyperbolic sine, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sinh(const X& x) {
  using T = element_t<X>;
  // dx = cosh(x) dy.
  return detail::map<T, detail::Saves::x>(
      "sinh", x, [](T v) { return T(std::sinh(v)); }, [](T v, T g) { return T(g * std::cosh(v)); });
}

/// Hyperbolic cosine, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cosh(const X& x) {
  using T = element_t<X>;
  // dx = sinh(x) dy.
  return detail::map<T, detail::Saves::x>(
      "cosh", x, [](T v) { return T(std::cosh(v)); }, [](T v, T g) { return T(g * std::sinh(v)); });
}

/// Inverse hyperbolic sine, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> asinh(const X& x) {
  using T = element_t<X>;
  // dx = dy / sqrt(x^2 + 1).
  return detail::map<T, detail::Saves::x>(
      "asinh", x, [](T v) { return T(std::asinh(v)); }, [](T v, T g) { return T(g / std::sqrt(v * v + 1)); });
}

/// Inverse hyperbolic cosine: NaN below 1.
template <Operand X>
[[nodiscard]] Var<element_t<X>> acosh(const X& x) {
  using T = element_t<X>;
  // dx = dy / sqrt(x^2 - 1).
  return detail::map<T, detail::Saves::x>(
      "acosh", x, [](T v) { return T(std::acosh(v)); }, [](T v, T g) { return T(g / std::sqrt(v * v - 1)); });
}

/// Inverse hyperbolic tangent: NaN outside [-1, 1].
template <Operand X>
[[nodiscard]] Var<element_t<X>> atanh(const X& x) {
  using T = element_t<X>;
  // dx = dy / (1 - x^2).
  return detail::map<T, detail::Saves::x>(
      "atanh", x, [](T v) { return T(std::atanh(v)); }, [](T v, T g) { return T(g / (1 - v * v)); });
}

/// 1 - erf(x), exact where erf(x) is near 1.
template <Operand X>
[[nodiscard]] Var<element_t<X>> erfc(const X& x) {
  using T = element_t<X>;
  // dx = -2 / sqrt(pi) exp(-x^2) dy.
  return detail::map<T, detail::Saves::x>(
      "erfc", x, [](T v) { return T(std::erfc(v)); },
      [](T v, T g) { return T(-2 * std::numbers::inv_sqrtpi_v<T> * std::exp(-v * v) * g); });
}

}  // namespace eigenformer
