#pragma once

#include <numbers>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/compare.hpp"
#include "eigenformer/kernels/elementwise/map.hpp"

namespace eigenformer {

namespace detail {

// y = f.value(a, b) with broadcasting: da = f.first(a, b, dy), db = f.second(a, b, dy), each summed over the
// dimensions in which the operand was broadcast. `as` and `bs` are the operands' shapes for broadcasting.
template <class T, class F>
Var<T> map_pairs(const char* op, const Var<T>& a, const Shape& as, const Var<T>& b, const Shape& bs, F f) {
  const OpScope scope = scope_of(op, a, b);
  Tensor<T> y(kernels::broadcast_shape(op, as, bs));
  kernels::map_pairs<T>([f](const auto& u, const auto& v) EIGENFORMER_INLINE_LAMBDA { return f.value(u, v); },
                        y.shape(), a.value().data(), as, b.value().data(), bs, y.data());
  if (not_recorded(y, a, b)) return y;
  return record(op, std::move(y), {a, b}, SavedTensors(a, b),
                [a = a.value(), b = b.value(), as, bs, f](Backward<T>& back) {
                  const Tensor<T>& dy = back.dy();
                  const auto pass = [&](std::size_t i, const Shape& shape, const auto& slope) {
                    const auto slot = back.grad(i);
                    if (!slot) return;
                    const bool direct = shape == dy.shape();
                    Tensor<T> g = direct ? Tensor<T>() : Tensor<T>(dy.shape());
                    kernels::map_pairs_slope<T>(slope, dy.shape(), a.data(), as, b.data(), bs, dy.data(),
                                                direct ? slot.data : g.data(), direct ? slot.beta : T(0));
                    if (!direct)
                      kernels::reduce_to_shape<T>(g.data(), g.shape(), slot.data, shape, T(1), slot.beta);
                  };
                  pass(0, as, [f](const auto& u, const auto& v, const auto& dz) EIGENFORMER_INLINE_LAMBDA {
                    return f.first(u, v, dz);
                  });
                  pass(1, bs, [f](const auto& u, const auto& v, const auto& dz) EIGENFORMER_INLINE_LAMBDA {
                    return f.second(u, v, dz);
                  });
                });
}

// The same for operands as the user gives them.
template <class A, class B, class F>
auto map_pair(const char* op, const A& a, const B& b, F f) {
  using T = element_t<A, B>;
  decltype(auto) x = operand<T>(a);
  decltype(auto) y = operand<T>(b);
  return map_pairs<T>(op, x, x.shape(), y, y.shape(), f);
}

namespace formula {

struct Pow {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& u, const auto& v) { return pow(u, v); }
  // da = b a^(b - 1) dy, 0 where b = 0; db = y log(a) dy, 0 where a = 0 and b >= 0.
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto& u, const auto& v, const auto& g) {
    return select(v == 0, 0, g * v * pow(u, v - 1));
  }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& u, const auto& v, const auto& g) {
    return select((u == 0) & (v >= 0), 0, g * pow(u, v) * log(u));
  }
};

struct Maximum {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& u, const auto& v) {
    return select((u > v) | isnan(u), u, v);
  }
  // da = dy where a > b, half of it where a = b, 0 where a < b; db alike.
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto& u, const auto& v, const auto& g) {
    return select(u < v, 0, select(u == v, g / 2, g));
  }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& u, const auto& v, const auto& g) {
    return first(v, u, g);
  }
};

struct Minimum {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& u, const auto& v) {
    return select((u < v) | isnan(u), u, v);
  }
  // da = dy where a < b, half of it where a = b, 0 where a > b; db alike.
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto& u, const auto& v, const auto& g) {
    return Maximum::second(u, v, g);
  }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& u, const auto& v, const auto& g) {
    return Maximum::first(u, v, g);
  }
};

struct Atan2 {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& u, const auto& v) { return atan2(u, v); }
  // da = b / (a^2 + b^2) dy, db = -a / (a^2 + b^2) dy.
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto& u, const auto& v, const auto& g) {
    return g * v / (u * u + v * v);
  }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& u, const auto& v, const auto& g) {
    return -g * u / (u * u + v * v);
  }
};

template <class T>
struct Logaddexp {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& u, const auto& v) {
    return select(u == v, u + std::numbers::ln2_v<T>,
                  select(isnan(u) | isnan(v), u + v, select(u > v, u, v) + log1p(exp(-abs(u - v)))));
  }
  // da = dy / (1 + exp(b - a)), db = dy / (1 + exp(a - b)), half of dy where a = b.
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto& u, const auto& v, const auto& g) {
    return select(u == v, g / 2, g / (1 + exp(v - u)));
  }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& u, const auto& v, const auto& g) {
    return first(v, u, g);
  }
};

struct Remainder {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& u, const auto& v) { return floor_mod(u, v); }
  // da = dy, db = -floor(a / b) dy. Of an infinite b with the other sign the remainder is b, and the floor
  // -1.
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto&, const auto&, const auto& g) { return g; }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& u, const auto& v, const auto& g) {
    const auto r = floor_mod(u, v);
    return select(isfinite(r) | isnan(r), -g * round((u - r) / v), g);
  }
};

struct Prelu {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& u, const auto& v) {
    return select(u > 0, u, v * u);
  }
  // dx = dy where x > 0, weight dy elsewhere; dweight = 0 where x > 0, x dy elsewhere, summed.
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto& u, const auto& v, const auto& g) {
    return select(u > 0, g, v * g);
  }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& u, const auto&, const auto& g) {
    return select(u > 0, 0, u * g);
  }
};

}  // namespace formula

}  // namespace detail

/// a to the power b, element by element. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> pow(const A& a, const B& b) {
  return detail::map_pair("pow", a, b, detail::formula::Pow());
}

/// The larger of a and b, element by element; NaN if either is NaN. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> maximum(const A& a, const B& b) {
  return detail::map_pair("maximum", a, b, detail::formula::Maximum());
}

/// The smaller of a and b, element by element; NaN if either is NaN. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> minimum(const A& a, const B& b) {
  return detail::map_pair("minimum", a, b, detail::formula::Minimum());
}

/// The angle in (-pi, pi] of the point (b, a), element by element. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> atan2(const A& a, const B& b) {
  return detail::map_pair("atan2", a, b, detail::formula::Atan2());
}

/// log(exp(a) + exp(b)), element by element, without overflow. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> logaddexp(const A& a, const B& b) {
  using T = element_t<A, B>;
  return detail::map_pair("logaddexp", a, b, detail::formula::Logaddexp<T>());
}

/// a - b floor(a / b), element by element: the sign is that of b, as in Python; NaN where b is 0. Operands
/// and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> remainder(const A& a, const B& b) {
  return detail::map_pair("remainder", a, b, detail::formula::Remainder());
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
  return detail::map_pairs<T>("prelu", x, x.shape(), weight, channels, detail::formula::Prelu());
}

}  // namespace eigenformer
