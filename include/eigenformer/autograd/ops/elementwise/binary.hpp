#pragma once

#include <cmath>
#include <numbers>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/compare.hpp"

namespace eigenformer {

namespace detail {

// y = f(a, b) with broadcasting: da = fa(a, b, dy), db = fb(a, b, dy), each summed over the dimensions in
// which the operand was broadcast. `as` and `bs` are the operands' shapes for broadcasting.
template <class T, class F, class FA, class FB>
Var<T> map_pairs(const char* op, const Var<T>& a, const Shape& as, const Var<T>& b, const Shape& bs, F f,
                 FA fa, FB fb) {
  const OpScope scope(Runtime::instance().profiler(), op);
  require_defined(op, a, b);
  Tensor<T> y(kernels::broadcast_shape(op, as, bs));
  T* out = y.data();
  for_pairs(y.shape(), a.value().data(), as, b.value().data(), bs,
            [=](index_t i, T u, T v) { out[i] = f(u, v); });
  if (not_recorded<T>(y, a, b)) return Var<T>(std::move(y));
  return record(op, std::move(y), {a, b}, SavedTensors(a, b),
                [a = a.value(), b = b.value(), as, bs, fa, fb](Backward<T>& back) {
                  const T* dy = back.dy().data();
                  const auto pass = [&](std::size_t i, const Shape& shape, auto slope) {
                    const auto slot = back.grad(i);
                    if (!slot) return;
                    Tensor<T> g(back.dy().shape());
                    T* to = g.data();
                    for_pairs(g.shape(), a.data(), as, b.data(), bs,
                              [=](index_t k, T u, T v) { to[k] = slope(u, v, dy[k]); });
                    kernels::reduce_to_shape<T>(to, g.shape(), slot.data, shape, T(1), slot.beta);
                  };
                  pass(0, as, fa);
                  pass(1, bs, fb);
                });
}

// The same for operands as the user gives them.
template <class A, class B, class F, class FA, class FB>
auto map_pair(const char* op, const A& a, const B& b, F f, FA fa, FB fb) {
  using T = element_t<A, B>;
  decltype(auto) x = operand<T>(a);
  decltype(auto) y = operand<T>(b);
  return map_pairs<T>(op, x, x.shape(), y, y.shape(), f, fa, fb);
}

// a modulo b with the sign of b.
template <class T>
T floor_mod(T a, T b) {
  const T r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

}  // namespace detail

/// a to the power b, element by element. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> pow(const A& a, const B& b) {
  using T = element_t<A, B>;
  // da = b a^(b - 1) dy, 0 where b = 0; db = y log(a) dy, 0 where a = 0 and b >= 0.
  return detail::map_pair(
      "pow", a, b, [](T u, T v) { return T(std::pow(u, v)); },
      [](T u, T v, T g) { return T(v == 0 ? T(0) : g * v * std::pow(u, v - 1)); },
      [](T u, T v, T g) { return T(u == 0 && v >= 0 ? T(0) : g * std::pow(u, v) * std::log(u)); });
}

/// The larger of a and b, element by element; NaN if either is NaN. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> maximum(const A& a, const B& b) {
  using T = element_t<A, B>;
  // da = dy where a > b, half of it where a = b, 0 where a < b; db alike.
  return detail::map_pair(
      "maximum", a, b, [](T u, T v) { return T(u > v || std::isnan(u) ? u : v); },
      [](T u, T v, T g) {
        return T(u < v ? T(0) : u == v ? g / 2 : g);
      },
      [](T u, T v, T g) {
        return T(v < u ? T(0) : u == v ? g / 2 : g);
      });
}

/// The smaller of a and b, element by element; NaN if either is NaN. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> minimum(const A& a, const B& b) {
  using T = element_t<A, B>;
  // da = dy where a < b, half of it where a = b, 0 where a > b; db alike.
  return detail::map_pair(
      "minimum", a, b, [](T u, T v) { return T(u < v || std::isnan(u) ? u : v); },
      [](T u, T v, T g) {
        return T(u > v ? T(0) : u == v ? g / 2 : g);
      },
      [](T u, T v, T g) {
        return T(v > u ? T(0) : u == v ? g / 2 : g);
      });
}

/// The angle in (-pi, pi] of the point (b, a), element by element. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> atan2(const A& a, const B& b) {
  using T = element_t<A, B>;
  // da = b / (a^2 + b^2) dy, db = -a / (a^2 + b^2) dy.
  return detail::map_pair(
      "atan2", a, b, [](T u, T v) { return T(std::atan2(u, v)); },
      [](T u, T v, T g) { return T(g * v / (u * u + v * v)); },
      [](T u, T v, T g) { return T(-g * u / (u * u + v * v)); });
}

/// log(exp(a) + exp(b)), element by element, without overflow. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> logaddexp(const A& a, const B& b) {
  using T = element_t<A, B>;
  // da = dy / (1 + exp(b - a)), db = dy / (1 + exp(a - b)), half of dy where a = b.
  return detail::map_pair(
      "logaddexp", a, b,
      [](T u, T v) {
        return T(u == v                           ? u + std::numbers::ln2_v<T>
                 : std::isnan(u) || std::isnan(v) ? u + v
                                                  : (u > v ? u : v) + std::log1p(std::exp(-std::abs(u - v))));
      },
      [](T u, T v, T g) { return T(u == v ? g / 2 : g / (1 + std::exp(v - u))); },
      [](T u, T v, T g) { return T(u == v ? g / 2 : g / (1 + std::exp(u - v))); });
}

/// a - b floor(a / b), element by element: the sign is that of b, as in Python; NaN where b is 0. Operands
/// and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> remainder(const A& a, const B& b) {
  using T = element_t<A, B>;
  // da = dy, db = -floor(a / b) dy.
  return detail::map_pair(
      "remainder", a, b, [](T u, T v) { return T(detail::floor_mod(u, v)); }, [](T, T, T g) { return T(g); },
      [](T u, T v, T g) { return T(-g * std::nearbyint((u - detail::floor_mod(u, v)) / v)); });
}

/// x where x > 0, weight x elsewhere, of a weight with one element or one per channel (axis 1 of x). Throws
/// ShapeError for any other weight. He et al. 2015.
template <class A, class B>
requires detail::OperandPair<A, B> && Operand<A>
[[nodiscard]] Var<element_t<A, B>> prelu(const A& given, const B& given_weight) {
  using T = element_t<A, B>;
  decltype(auto) x = detail::operand<T>(given);
  decltype(auto) weight = detail::operand<T>(given_weight);
  const Shape& ws = weight.shape();
  if (ws.rank() > 1 || (weight.numel() != 1 && (x.rank() < 2 || weight.numel() != x.dim(1)))) {
    throw ShapeError("prelu",
                     {"weight has shape ", ws.str(), " beside x of shape ", x.shape(),
                      ", expected one element or one for each entry of axis 1"},
                     {x.shape(), ws});
  }
  Shape channels;
  if (weight.numel() != 1) {
    channels = x.shape();
    for (index_t i = 0; i < x.rank(); ++i) channels = channels.with(i, i == 1 ? weight.numel() : 1);
  }
  // dx = dy where x > 0, weight dy elsewhere; dweight = 0 where x > 0, x dy elsewhere, summed.
  return detail::map_pairs<T>(
      "prelu", x, x.shape(), weight, channels, [](T u, T v) { return u > 0 ? u : v * u; },
      [](T u, T v, T g) { return u > 0 ? g : v * g; }, [](T u, T, T g) { return u > 0 ? T(0) : u * g; });
}

}  // namespace eigenformer
