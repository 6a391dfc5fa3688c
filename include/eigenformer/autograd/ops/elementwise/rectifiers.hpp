#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "eigenformer/autograd/ops/elementwise/unary.hpp"

namespace eigenformer {

/// x limited to [min, max]; std::nullopt is no limit, and max wins where min is above it. NaN stays. The
/// gradient is 0 outside. Throws ValueError without any limit.
template <Operand X>
[[nodiscard]] Var<element_t<X>> clip(const X& x, std::optional<double> min,
                                     std::optional<double> max = std::nullopt) {
  using T = element_t<X>;
  if (!min && !max) throw ValueError("clip", "min and max are both absent, expected at least one of them");
  const T inf = std::numeric_limits<T>::infinity();
  const T low = min ? static_cast<T>(*min) : -inf, high = max ? static_cast<T>(*max) : inf;
  // dx = dy where min <= x <= max, 0 elsewhere.
  return detail::map<T, detail::Saves::x>(
      "clip", x, [=](T v) { return std::min(std::max(v, low), high); },
      [=](T v, T g) { return v >= low && v <= high ? g : T(0); });
}

/// log(1 + exp(beta x)) / beta, and x where beta x > threshold. Dugas et al. 2001.
template <Operand X>
[[nodiscard]] Var<element_t<X>> softplus(const X& x, double beta = 1, double threshold = 20) {
  using T = element_t<X>;
  const T b = static_cast<T>(beta);
  const T limit = static_cast<T>(threshold);
  // dx = sigmoid(beta x) dy, dy where beta x > threshold.
  return detail::map<T, detail::Saves::x>(
      "softplus", x, [b, limit](T v) { return T(v * b > limit ? v : std::log1p(std::exp(v * b)) / b); },
      [b, limit](T v, T g) { return T(v * b > limit ? g : g / (1 + std::exp(-v * b))); });
}

/// x tanh(softplus(x)). Misra 2019.
template <Operand X>
[[nodiscard]] Var<element_t<X>> mish(const X& x) {
  using T = element_t<X>;
  // dx = (t + x sigmoid(x) (1 - t^2)) dy with t = tanh(softplus(x)).
  return detail::map<T, detail::Saves::x>(
      "mish", x, [](T v) { return T(v * std::tanh(v > 20 ? v : std::log1p(std::exp(v)))); },
      [](T v, T g) {
        return T([&] {
          const T t = std::tanh(v > 20 ? v : std::log1p(std::exp(v)));
          return g * (t + v * (1 - t * t) / (1 + std::exp(-v)));
        }());
      });
}

/// x limited to [min, max], with a gradient of 0 at the limits.
template <Operand X>
[[nodiscard]] Var<element_t<X>> hard_tanh(const X& x, double min = -1, double max = 1) {
  using T = element_t<X>;
  const T low = static_cast<T>(min);
  const T high = static_cast<T>(max);
  // dx = dy where min < x < max, 0 elsewhere.
  return detail::map<T, detail::Saves::x>(
      "hard_tanh", x, [low, high](T v) { return T(std::min(std::max(v, low), high)); },
      [low, high](T v, T g) { return T(v > low && v < high ? g : T(0)); });
}

/// x / 6 + 1/2 limited to [0, 1]. Courbariaux et al. 2015.
template <Operand X>
[[nodiscard]] Var<element_t<X>> hard_sigmoid(const X& x) {
  using T = element_t<X>;
  // dx = dy / 6 where -3 < x < 3, 0 elsewhere.
  return detail::map<T, detail::Saves::x>(
      "hard_sigmoid", x, [](T v) { return T(std::min(std::max(v + 3, T(0)), T(6)) / 6); },
      [](T v, T g) { return T(v > -3 && v < 3 ? g / 6 : T(0)); });
}

/// x hard_sigmoid(x). Howard et al. 2019.
template <Operand X>
[[nodiscard]] Var<element_t<X>> hard_swish(const X& x) {
  using T = element_t<X>;
  // dx = 0 up to -3, dy from 3, (x / 3 + 1/2) dy between.
  return detail::map<T, detail::Saves::x>(
      "hard_swish", x, [](T v) { return T(v * std::min(std::max(v + 3, T(0)), T(6)) / 6); },
      [](T v, T g) {
        return T(v <= -3 ? T(0) : v >= 3 ? g : g * (v / 3 + T(0.5)));
      });
}

/// x where x > 0, negative_slope x elsewhere. Maas et al. 2013.
template <Operand X>
[[nodiscard]] Var<element_t<X>> leaky_relu(const X& x, double negative_slope = 0.01) {
  using T = element_t<X>;
  const T slope = static_cast<T>(negative_slope);
  // dx = dy where x > 0, negative_slope dy elsewhere.
  return detail::map<T, detail::Saves::x>(
      "leaky_relu", x, [slope](T v) { return T(v > 0 ? v : slope * v); },
      [slope](T v, T g) { return T(v > 0 ? g : slope * g); });
}

/// x where x > 0, alpha (exp(x) - 1) elsewhere. Clevert et al. 2016.
template <Operand X>
[[nodiscard]] Var<element_t<X>> elu(const X& x, double alpha = 1) {
  using T = element_t<X>;
  const T a = static_cast<T>(alpha);
  // dx = dy where x > 0, alpha exp(x) dy elsewhere.
  return detail::map<T, detail::Saves::x>(
      "elu", x, [a](T v) { return T(v > 0 ? v : a * std::expm1(v)); },
      [a](T v, T g) { return T(v > 0 ? g : a * std::exp(v) * g); });
}

/// scale elu(x, alpha) with the constants that keep mean 0 and variance 1. Klambauer et al. 2017.
template <Operand X>
[[nodiscard]] Var<element_t<X>> selu(const X& x) {
  using T = element_t<X>;
  const T scale = static_cast<T>(1.0507009873554804934193349852946);
  const T a = static_cast<T>(1.0507009873554804934193349852946 * 1.6732632423543772848170429916717);
  // dx = scale dy where x > 0, scale alpha exp(x) dy elsewhere.
  return detail::map<T, detail::Saves::x>(
      "selu", x, [scale, a](T v) { return T(v > 0 ? scale * v : a * std::expm1(v)); },
      [scale, a](T v, T g) { return T(v > 0 ? scale * g : a * std::exp(v) * g); });
}

/// x where x > threshold, value elsewhere; NaN stays.
template <Operand X>
[[nodiscard]] Var<element_t<X>> threshold(const X& x, double threshold, double value) {
  using T = element_t<X>;
  const T limit = static_cast<T>(threshold);
  const T other = static_cast<T>(value);
  // dx = dy where x > threshold, 0 elsewhere.
  return detail::map<T, detail::Saves::x>(
      "threshold", x, [limit, other](T v) { return T(v <= limit ? other : v); },
      [limit](T v, T g) { return T(v <= limit ? T(0) : g); });
}

/// x / (1 + |x|). Turian et al. 2009.
template <Operand X>
[[nodiscard]] Var<element_t<X>> softsign(const X& x) {
  using T = element_t<X>;
  // dx = dy / (1 + |x|)^2.
  return detail::map<T, detail::Saves::x>(
      "softsign", x, [](T v) { return T(v / (1 + std::abs(v))); },
      [](T v, T g) { return T(g / ((1 + std::abs(v)) * (1 + std::abs(v)))); });
}

/// log(sigmoid(x)), finite where sigmoid(x) is 0 in floating point.
template <Operand X>
[[nodiscard]] Var<element_t<X>> logsigmoid(const X& x) {
  using T = element_t<X>;
  // dx = sigmoid(-x) dy.
  return detail::map<T, detail::Saves::x>(
      "logsigmoid", x, [](T v) { return T(std::min(v, T(0)) - std::log1p(std::exp(-std::abs(v)))); },
      [](T v, T g) { return T(g / (1 + std::exp(v))); });
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
  // dx = dy where x is finite, 0 elsewhere.
  return detail::map<T, detail::Saves::x>(
      "nan_to_num", x, [=](T v) { return std::isnan(v)   ? none
                                         : std::isinf(v) ? (v > 0 ? high : low)
                                                         : v; },
      [](T v, T g) { return std::isfinite(v) ? g : T(0); });
}

}  // namespace eigenformer
