#pragma once

#include <numbers>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/map.hpp"

namespace eigenformer {

namespace detail {

// y = f.value(x), element by element: dx = f.slope(x or y, dy). A formula is of Packs, and depends on no more
// than T: one for each type of operand would be compiled for each of them.
template <class T, Saves saves, class F>
Var<T> map(const char* op, const Var<T>& x, const F& f) {
  return elementwise(
      op, x, saves,
      [f](const T* from, T* to, index_t n) {
        kernels::map<T, 1>([f](const auto& v) EIGENFORMER_INLINE_LAMBDA { return f.value(v); }, {from}, to,
                           T(0), n);
      },
      [f](const T* saved, const T* dy, T* dx, T beta, index_t n) {
        kernels::map<T, 2>([f](const auto& v, const auto& g)
                               EIGENFORMER_INLINE_LAMBDA { return f.slope(v, g); },
                           {saved, dy}, dx, beta, n);
      });
}

namespace formula {

struct ZeroSlope {
  // dx = 0.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto&, const auto&) { return 0.0f; }
};

struct Sign : ZeroSlope {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) {
    return select(v > 0, 1, select(v < 0, -1, 0));
  }
};

struct Floor : ZeroSlope {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return floor(v); }
};

struct Ceil : ZeroSlope {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return ceil(v); }
};

struct Round : ZeroSlope {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return round(v); }
};

struct Trunc : ZeroSlope {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return trunc(v); }
};

template <class T>
struct Exp2 {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return exp2(v); }
  // dx = ln(2) y dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& y, const auto& g) {
    return g * y * std::numbers::ln2_v<T>;
  }
};

struct Expm1 {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return expm1(v); }
  // dx = (y + 1) dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& y, const auto& g) { return g * (y + 1); }
};

struct Log1p {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return log1p(v); }
  // dx = dy / (1 + x).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g / (1 + v); }
};

template <class T>
struct Log2 {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return log2(v); }
  // dx = dy / (x ln(2)).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) {
    return g / (v * std::numbers::ln2_v<T>);
  }
};

template <class T>
struct Log10 {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return log10(v); }
  // dx = dy / (x ln(10)).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) {
    return g / (v * std::numbers::ln10_v<T>);
  }
};

template <class T>
struct Rsqrt {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return 1 / sqrt(v); }
  // dx = -y^3 / 2 dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& y, const auto& g) {
    return T(-0.5) * g * y * y * y;
  }
};

struct Sin {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return sin(v); }
  // dx = cos(x) dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g * cos(v); }
};

struct Cos {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return cos(v); }
  // dx = -sin(x) dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return -g * sin(v); }
};

struct Tan {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return tan(v); }
  // dx = (1 + y^2) dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& y, const auto& g) { return g * (1 + y * y); }
};

struct Asin {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return asin(v); }
  // dx = dy / sqrt(1 - x^2).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g / sqrt(1 - v * v); }
};

struct Acos {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return acos(v); }
  // dx = -dy / sqrt(1 - x^2).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return -g / sqrt(1 - v * v); }
};

struct Atan {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return atan(v); }
  // dx = dy / (1 + x^2).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g / (1 + v * v); }
};

struct Sinh {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return sinh(v); }
  // dx = cosh(x) dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g * cosh(v); }
};

struct Cosh {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return cosh(v); }
  // dx = sinh(x) dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g * sinh(v); }
};

struct Asinh {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return asinh(v); }
  // dx = dy / sqrt(x^2 + 1).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g / sqrt(v * v + 1); }
};

struct Acosh {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return acosh(v); }
  // dx = dy / sqrt(x^2 - 1).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g / sqrt(v * v - 1); }
};

struct Atanh {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return atanh(v); }
  // dx = dy / (1 - x^2).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g / (1 - v * v); }
};

template <class T>
struct Erfc {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return erfc(v); }
  // dx = -2 / sqrt(pi) exp(-x^2) dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) {
    return -2 * std::numbers::inv_sqrtpi_v<T> * exp(-v * v) * g;
  }
};

}  // namespace formula

}  // namespace detail

/// Absolute value, element by element; the gradient at 0 is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> abs(const X& x) {
  // dx = sign(x) dy.
  return detail::unary<element_t<X>>("abs", detail::kernels::UnaryOp::absolute, x, detail::Saves::x);
}

/// 1 / x, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> reciprocal(const X& x) {
  // dx = -y^2 dy.
  return detail::unary<element_t<X>>("reciprocal", detail::kernels::UnaryOp::reciprocal, x, detail::Saves::y);
}

/// The error function, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> erf(const X& x) {
  // dx = 2 / sqrt(pi) exp(-x^2) dy.
  return detail::unary<element_t<X>>("erf", detail::kernels::UnaryOp::erf, x, detail::Saves::x);
}

/// -1, 0 or 1 by the sign of x, 0 for NaN; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sign(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("sign", x, detail::formula::Sign());
}

/// The largest whole number that is not above x; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> floor(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("floor", x, detail::formula::Floor());
}

/// The smallest whole number that is not below x; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> ceil(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("ceil", x, detail::formula::Ceil());
}

/// The nearest whole number, of two the even one; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> round(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("round", x, detail::formula::Round());
}

/// The whole number next to x in the direction of 0; the gradient is 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> trunc(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("trunc", x, detail::formula::Trunc());
}

/// 2 to the power x, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> exp2(const X& x) {
  return detail::map<element_t<X>, detail::Saves::y>("exp2", x, detail::formula::Exp2<element_t<X>>());
}

/// exp(x) - 1, exact near 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> expm1(const X& x) {
  return detail::map<element_t<X>, detail::Saves::y>("expm1", x, detail::formula::Expm1());
}

/// log(1 + x), exact near 0: -inf at -1, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log1p(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("log1p", x, detail::formula::Log1p());
}

/// Logarithm to base 2, element by element: -inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log2(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("log2", x, detail::formula::Log2<element_t<X>>());
}

/// Logarithm to base 10, element by element: -inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log10(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("log10", x, detail::formula::Log10<element_t<X>>());
}

/// 1 / sqrt(x), element by element: inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> rsqrt(const X& x) {
  return detail::map<element_t<X>, detail::Saves::y>("rsqrt", x, detail::formula::Rsqrt<element_t<X>>());
}

/// Sine, element by element, of radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sin(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("sin", x, detail::formula::Sin());
}

/// Cosine, element by element, of radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cos(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("cos", x, detail::formula::Cos());
}

/// Tangent, element by element, of radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> tan(const X& x) {
  return detail::map<element_t<X>, detail::Saves::y>("tan", x, detail::formula::Tan());
}

/// Arcsine in radians: NaN outside [-1, 1].
template <Operand X>
[[nodiscard]] Var<element_t<X>> asin(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("asin", x, detail::formula::Asin());
}

/// Arccosine in radians: NaN outside [-1, 1].
template <Operand X>
[[nodiscard]] Var<element_t<X>> acos(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("acos", x, detail::formula::Acos());
}

/// Arctangent in radians.
template <Operand X>
[[nodiscard]] Var<element_t<X>> atan(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("atan", x, detail::formula::Atan());
}

/// Hyperbolic sine, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sinh(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("sinh", x, detail::formula::Sinh());
}

/// Hyperbolic cosine, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cosh(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("cosh", x, detail::formula::Cosh());
}

/// Inverse hyperbolic sine, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> asinh(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("asinh", x, detail::formula::Asinh());
}

/// Inverse hyperbolic cosine: NaN below 1.
template <Operand X>
[[nodiscard]] Var<element_t<X>> acosh(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("acosh", x, detail::formula::Acosh());
}

/// Inverse hyperbolic tangent: NaN outside [-1, 1].
template <Operand X>
[[nodiscard]] Var<element_t<X>> atanh(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("atanh", x, detail::formula::Atanh());
}

/// 1 - erf(x), exact where erf(x) is near 1.
template <Operand X>
[[nodiscard]] Var<element_t<X>> erfc(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("erfc", x, detail::formula::Erfc<element_t<X>>());
}

}  // namespace eigenformer
