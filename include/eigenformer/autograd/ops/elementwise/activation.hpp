#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/unary.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"

namespace eigenformer {

namespace detail {

// y = f(x): dx = f'(x) dy, with f' from y where f allows it and from x otherwise.
template <class T>
Var<T> activation(Activation f, const Var<T>& x) {
  return elementwise(
      activation_names[static_cast<std::size_t>(f)], x,
      kernels::activation_backward_takes_output(f) ? Saves::y : Saves::x,
      [f](const T* from, T* to, index_t n) { kernels::activation_forward<T>(f, from, to, n); },
      [f](const T* saved, const T* dy, T* dx, T beta, index_t n) {
        kernels::activation_backward<T>(f, saved, dy, dx, beta, n);
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
  const Var<element_t<X>>& x = given;  // evaluates an Eigen expression once
  detail::require_defined("activate", x);
  if (activation == Activation::none) return x;
  return detail::activation(activation, x);
}

namespace detail {

// v in [low, high]; NaN stays.
template <class P>
EIGENFORMER_ALWAYS_INLINE P limited(const P& v, const std::type_identity_t<P>& low,
                                    const std::type_identity_t<P>& high) {
  return select(v < low, low, select(v > high, high, v));
}

// tanh(softplus(v)): (e^2 + 2 e) / (e^2 + 2 e + 2) of e = exp(v), 1 in floating point from 20 on.
template <class P>
EIGENFORMER_ALWAYS_INLINE P tanh_softplus(const P& v) {
  const P e = exp(v), n = e * (e + 2);
  return select(v > 20, 1, n / (n + 2));
}

}  // namespace detail

namespace detail::formula {

template <class T>
struct Clip {
  T low, high;
  EIGENFORMER_ALWAYS_INLINE auto value(const auto& v) const { return limited(v, low, high); }
  // dx = dy where min <= x <= max, 0 elsewhere.
  EIGENFORMER_ALWAYS_INLINE auto slope(const auto& v, const auto& g) const {
    return select((v >= low) & (v <= high), g, 0);
  }
};

template <class T>
struct Softplus {
  T b, limit;
  EIGENFORMER_ALWAYS_INLINE auto value(const auto& v) const {
    return select(v * b > limit, v, log1p(exp(v * b)) / b);
  }
  // dx = sigmoid(beta x) dy, dy where beta x > threshold.
  EIGENFORMER_ALWAYS_INLINE auto slope(const auto& v, const auto& g) const {
    return select(v * b > limit, g, g / (1 + exp(-v * b)));
  }
};

struct Mish {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return v * tanh_softplus(v); }
  // dx = (t + x sigmoid(x) (1 - t^2)) dy with t = tanh(softplus(x)).
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) {
    const auto t = tanh_softplus(v);
    return g * (t + v * (1 - t * t) / (1 + exp(-v)));
  }
};

template <class T>
struct HardTanh {
  T low, high;
  EIGENFORMER_ALWAYS_INLINE auto value(const auto& v) const { return limited(v, low, high); }
  // dx = dy where min < x < max, 0 elsewhere.
  EIGENFORMER_ALWAYS_INLINE auto slope(const auto& v, const auto& g) const {
    return select((v > low) & (v < high), g, 0);
  }
};

struct HardSigmoid {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return limited(v + 3, 0, 6) / 6; }
  // dx = dy / 6 where -3 < x < 3, 0 elsewhere.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) {
    return select((v > -3) & (v < 3), g / 6, 0);
  }
};

template <class T>
struct HardSwish {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return v * limited(v + 3, 0, 6) / 6; }
  // dx = 0 up to -3, dy from 3, (x / 3 + 1/2) dy between.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) {
    return select(v <= -3, 0, select(v >= 3, g, g * (v / 3 + T(0.5))));
  }
};

template <class T>
struct LeakyRelu {
  T below;
  EIGENFORMER_ALWAYS_INLINE auto value(const auto& v) const { return select(v > 0, v, below * v); }
  // dx = dy where x > 0, negative_slope dy elsewhere.
  EIGENFORMER_ALWAYS_INLINE auto slope(const auto& v, const auto& g) const {
    return select(v > 0, g, below * g);
  }
};

template <class T>
struct Elu {
  T scale, a;
  EIGENFORMER_ALWAYS_INLINE auto value(const auto& v) const {
    if (!any(~(v > 0))) return scale * v;
    return select(v > 0, scale * v, a * expm1(v));
  }
  // dx = scale dy where x > 0, a exp(x) dy elsewhere.
  EIGENFORMER_ALWAYS_INLINE auto slope(const auto& v, const auto& g) const {
    if (!any(~(v > 0))) return scale * g;
    return select(v > 0, scale * g, a * exp(v) * g);
  }
};

template <class T>
struct Threshold {
  T limit, other;
  EIGENFORMER_ALWAYS_INLINE auto value(const auto& v) const { return select(v <= limit, other, v); }
  // dx = dy where x > threshold, 0 elsewhere.
  EIGENFORMER_ALWAYS_INLINE auto slope(const auto& v, const auto& g) const {
    return select(v <= limit, 0, g);
  }
};

struct Softsign {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) { return v / (1 + abs(v)); }
  // dx = dy / (1 + |x|)^2.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) {
    return g / ((1 + abs(v)) * (1 + abs(v)));
  }
};

struct Logsigmoid {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& v) {
    return select(v > 0, 0, v) - log1p(exp(-abs(v)));
  }
  // dx = sigmoid(-x) dy.
  EIGENFORMER_ALWAYS_INLINE static auto slope(const auto& v, const auto& g) { return g / (1 + exp(v)); }
};

template <class T>
struct NanToNum {
  T none, high, low;
  EIGENFORMER_ALWAYS_INLINE auto value(const auto& v) const {
    return select(isnan(v), none, select(isfinite(v), v, select(v > 0, high, low)));
  }
  // dx = dy where x is finite, 0 elsewhere.
  EIGENFORMER_ALWAYS_INLINE auto slope(const auto& v, const auto& g) const {
    return select(isfinite(v), g, 0);
  }
};

}  // namespace detail::formula

/// x limited to [min, max]; std::nullopt is no limit, and max wins where min is above it. NaN stays. The
/// gradient is 0 outside. Throws ValueError without any limit.
template <Operand X>
[[nodiscard]] Var<element_t<X>> clip(const X& x, std::optional<double> min,
                                     std::optional<double> max = std::nullopt) {
  using T = element_t<X>;
  if (!min && !max) throw ValueError("clip", "min and max are both absent, expected at least one of them");
  const T inf = std::numeric_limits<T>::infinity();
  const T low = min ? static_cast<T>(*min) : -inf, high = max ? static_cast<T>(*max) : inf;
  return detail::map<T, detail::Saves::x>("clip", x, detail::formula::Clip<T>{low, high});
}

/// log(1 + exp(beta x)) / beta, and x where beta x > threshold. Dugas et al. 2001.
template <Operand X>
[[nodiscard]] Var<element_t<X>> softplus(const X& x, double beta = 1, double threshold = 20) {
  using T = element_t<X>;
  return detail::map<T, detail::Saves::x>("softplus", x, detail::formula::Softplus<T>{T(beta), T(threshold)});
}

/// x tanh(softplus(x)). Misra 2019.
template <Operand X>
[[nodiscard]] Var<element_t<X>> mish(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("mish", x, detail::formula::Mish());
}

/// x limited to [min, max], with a gradient of 0 at the limits.
template <Operand X>
[[nodiscard]] Var<element_t<X>> hard_tanh(const X& x, double min = -1, double max = 1) {
  using T = element_t<X>;
  return detail::map<T, detail::Saves::x>("hard_tanh", x, detail::formula::HardTanh<T>{T(min), T(max)});
}

/// x / 6 + 1/2 limited to [0, 1]. Courbariaux et al. 2015.
template <Operand X>
[[nodiscard]] Var<element_t<X>> hard_sigmoid(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("hard_sigmoid", x, detail::formula::HardSigmoid());
}

/// x hard_sigmoid(x). Howard et al. 2019.
template <Operand X>
[[nodiscard]] Var<element_t<X>> hard_swish(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("hard_swish", x,
                                                     detail::formula::HardSwish<element_t<X>>());
}

/// x where x > 0, negative_slope x elsewhere. Maas et al. 2013.
template <Operand X>
[[nodiscard]] Var<element_t<X>> leaky_relu(const X& x, double negative_slope = 0.01) {
  using T = element_t<X>;
  return detail::map<T, detail::Saves::x>("leaky_relu", x, detail::formula::LeakyRelu<T>{T(negative_slope)});
}

/// x where x > 0, alpha (exp(x) - 1) elsewhere. Clevert et al. 2016.
template <Operand X>
[[nodiscard]] Var<element_t<X>> elu(const X& x, double alpha = 1) {
  using T = element_t<X>;
  return detail::map<T, detail::Saves::x>("elu", x, detail::formula::Elu<T>{T(1), T(alpha)});
}

/// scale elu(x, alpha) with the constants that keep mean 0 and variance 1. Klambauer et al. 2017.
template <Operand X>
[[nodiscard]] Var<element_t<X>> selu(const X& x) {
  using T = element_t<X>;
  const T scale = static_cast<T>(1.0507009873554804934193349852946);
  const T a = static_cast<T>(1.0507009873554804934193349852946 * 1.6732632423543772848170429916717);
  return detail::map<T, detail::Saves::x>("selu", x, detail::formula::Elu<T>{scale, a});
}

/// x where x > threshold, value elsewhere; NaN stays.
template <Operand X>
[[nodiscard]] Var<element_t<X>> threshold(const X& x, double threshold, double value) {
  using T = element_t<X>;
  return detail::map<T, detail::Saves::x>("threshold", x,
                                          detail::formula::Threshold<T>{T(threshold), T(value)});
}

/// x / (1 + |x|). Turian et al. 2009.
template <Operand X>
[[nodiscard]] Var<element_t<X>> softsign(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("softsign", x, detail::formula::Softsign());
}

/// log(sigmoid(x)), finite where sigmoid(x) is 0 in floating point.
template <Operand X>
[[nodiscard]] Var<element_t<X>> logsigmoid(const X& x) {
  return detail::map<element_t<X>, detail::Saves::x>("logsigmoid", x, detail::formula::Logsigmoid());
}

/// x with NaN replaced by `nan` and infinities by posinf and neginf, the largest finite numbers by default.
template <Operand X>
[[nodiscard]] Var<element_t<X>> nan_to_num(const X& x, double nan = 0,
                                           std::optional<double> posinf = std::nullopt,
                                           std::optional<double> neginf = std::nullopt) {
  using T = element_t<X>;
  const T none = static_cast<T>(nan);
  const T high = posinf ? static_cast<T>(*posinf) : std::numeric_limits<T>::max();
  const T low = neginf ? static_cast<T>(*neginf) : std::numeric_limits<T>::lowest();
  return detail::map<T, detail::Saves::x>("nan_to_num", x, detail::formula::NanToNum<T>{none, high, low});
}

}  // namespace eigenformer
