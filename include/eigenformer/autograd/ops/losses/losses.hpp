#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/ops/shape/rearrange.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/map.hpp"

// Losses of PyTorch's torch.nn.functional beside cross_entropy().

namespace eigenformer {

/// How a loss reduces its elements, as PyTorch's `reduction`.
enum class LossReduction {
  none,      ///< not at all: the result has their shape
  mean,      ///< to their mean; NaN over no elements
  sum,       ///< to their sum
  batchmean  ///< of kl_div() alone: to their sum, divided by the size of the first axis
};

namespace detail {

// Losses f(a, b, c) of two operands, of which c is a constant weight, as formulas of Packs. The derivatives
// are those with respect to a and b.
struct SquaredLoss {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& a, const auto& b, const auto&) {
    return (a - b) * (a - b);
  }
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto& a, const auto& b, const auto&) {
    return 2 * (a - b);
  }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& a, const auto& b, const auto&) {
    return 2 * (b - a);
  }
};

// inner * d^2 / 2 up to |d| = edge, from there outer * (|d| - edge / 2).
template <class T>
struct AbsoluteLoss {
  T edge = T(0), inner = T(0), outer = T(1);
  EIGENFORMER_ALWAYS_INLINE auto value(const auto& a, const auto& b, const auto&) const {
    const auto d = abs(a - b);
    return select(d < edge, T(0.5) * inner * d * d, outer * (d - T(0.5) * edge));
  }
  EIGENFORMER_ALWAYS_INLINE auto first(const auto& a, const auto& b, const auto&) const {
    const auto d = a - b;
    const std::remove_const_t<decltype(d)> none = T(0), level = edge > T(0) ? d : none;  // at 0 and NaN
    return select(abs(d) < edge, inner * d, select(d > 0, outer, select(d < 0, -outer, level)));
  }
  EIGENFORMER_ALWAYS_INLINE auto second(const auto& a, const auto& b, const auto& c) const {
    return first(b, a, c);
  }
};

// Of probabilities a; logarithms are at least -100, and 1e-12 is a float, as in PyTorch.
struct ProbabilityLoss {
  template <class P>
  EIGENFORMER_ALWAYS_INLINE static P above(const P& x, float least) {
    return select(x < least, least, x);
  }
  EIGENFORMER_ALWAYS_INLINE static auto log_one(const auto& a) { return above(log1p(-a), -100.0f); }
  EIGENFORMER_ALWAYS_INLINE static auto log_of(const auto& a) { return above(log(a), -100.0f); }
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& a, const auto& b, const auto&) {
    return (b - 1) * log_one(a) - b * log_of(a);
  }
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto& a, const auto& b, const auto&) {
    return (a - b) / above((1 - a) * a, 1e-12f);
  }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& a, const auto&, const auto&) {
    return log_one(a) - log_of(a);
  }
};

// Of logits a, with the weight c of positive targets.
struct LogitLoss {
  EIGENFORMER_ALWAYS_INLINE static auto softplus(const auto& a) {
    return select(a < 0, 0, a) + log1p(exp(-abs(a)));
  }
  EIGENFORMER_ALWAYS_INLINE static auto sigmoid(const auto& a) {
    const auto e = exp(-abs(a));
    return select(a >= 0, 1, e) / (1 + e);
  }
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& a, const auto& b, const auto& c) {
    return (1 - b) * a + (1 + (c - 1) * b) * softplus(-a);
  }
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto& a, const auto& b, const auto& c) {
    return 1 - b - (1 + (c - 1) * b) * sigmoid(-a);
  }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& a, const auto&, const auto& c) {
    return (c - 1) * softplus(-a) - a;
  }
};

// b log(b) - b a of log-probabilities a and probabilities b; 0 log(0) is 0.
struct DivergenceLoss {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& a, const auto& b, const auto&) {
    return select(b == 0, 0, b * log(b)) - b * a;
  }
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto&, const auto& b, const auto&) { return -b; }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& a, const auto& b, const auto&) {
    return log(b) + 1 - a;
  }
};
// The same of log-probabilities b.
struct LogDivergenceLoss {
  EIGENFORMER_ALWAYS_INLINE static auto value(const auto& a, const auto& b, const auto&) {
    return exp(b) * (b - a);
  }
  EIGENFORMER_ALWAYS_INLINE static auto first(const auto&, const auto& b, const auto&) { return -exp(b); }
  EIGENFORMER_ALWAYS_INLINE static auto second(const auto& a, const auto& b, const auto&) {
    return exp(b) * (b - a + 1);
  }
};

// The factor of the sum of n elements. Throws ValueError for batchmean.
inline double reduction_scale(const char* op, LossReduction r, index_t n) {
  if (r == LossReduction::batchmean) throw ValueError(op, "the reduction batchmean is that of kl_div alone");
  return r == LossReduction::mean ? 1 / static_cast<double>(n) : 1;
}

template <class T>
Tensor<T> broadcast_whole(const Tensor<T>& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Tensor<T> y(shape);
  kernels::broadcast_to<T>(x.data(), x.shape(), y.data(), shape, T(1), T(0));
  return y;
}

// Adds dy * scale * derivative(a, b, c) to a gradient, whose operand may have been broadcast to their shape;
// dy has one element, or as many as they. A null c is all 1.
template <class T, class F>
void add_derivative(const GradientSlot<T>& slot, const Tensor<T>& dy, const Shape& shape, T scale,
                    const std::array<const T*, 3>& operands, const F& derivative) {
  const bool direct = slot.shape == shape, each = dy.shape() == shape;
  Tensor<T> whole = direct ? Tensor<T>() : Tensor<T>(shape);
  const T factor = each ? scale : scale * dy.data()[0];
  kernels::map<T, 4>([factor, derivative](const auto& a, const auto& b, const auto& c, const auto& g)
                         EIGENFORMER_INLINE_LAMBDA { return derivative(a, b, c) * (g * factor); },
                     {operands[0], operands[1], operands[2], each ? dy.data() : nullptr},
                     direct ? slot.data : whole.data(), direct ? slot.beta : T(0), shape.numel());
  if (!direct) sum_into(slot, whole);
}

// The loss f of every pair of elements, reduced in the same loop: not at all, or to scale times the sum.
template <class T, class F>
Var<T> pair_loss(const char* op, const F& f, const Var<T>& x, const Var<T>& target, const Tensor<T>& weight,
                 bool reduces, double scale) {
  const OpScope scope = scope_of(op, x, target);
  const Shape shape = kernels::broadcast_shape(op, x.shape(), target.shape());
  const Tensor<T> a = broadcast_whole(x.value(), shape), b = broadcast_whole(target.value(), shape);
  const Tensor<T> c = weight.defined() ? broadcast_whole(weight, shape) : weight;
  const index_t n = shape.numel();
  const std::array<const T*, 3> given{a.data(), b.data(), c.data()};
  const auto value = [f](const auto& u, const auto& v, const auto& w)
                         EIGENFORMER_INLINE_LAMBDA { return f.value(u, v, w); };
  Tensor<T> y(reduces ? Shape{} : shape);
  if (reduces) {
    Tensor<double> sum(Shape{1});
    fold_rows(
        a.data(), 1, n, sum.data(),
        [&](const T* part, index_t count) {
          constexpr index_t block = 512;
          std::array<T, block> losses;
          std::array<double, 8> chain{};  // that do not wait for each other
          for (index_t done = 0; done < count; done += block) {
            const index_t now = std::min(block, count - done);
            std::array<const T*, 3> from = given;
            for (const T*& p : from) p = p == nullptr ? p : p + (part - given[0]) + done;
            kernels::map<T, 3>(value, from, losses.data(), T(0), now);
            std::fill(losses.begin() + now, losses.end(), T(0));
            for (std::size_t i = 0; i < losses.size(); i += chain.size()) {
              for (std::size_t k = 0; k < chain.size(); ++k) chain[k] += static_cast<double>(losses[i + k]);
            }
          }
          return std::accumulate(chain.begin(), chain.end(), 0.0);
        },
        [](double left, double right) { return left + right; });
    y.data()[0] = static_cast<T>(sum.data()[0] * scale);
  } else {
    kernels::map<T, 3>(value, given, y.data(), T(0), n);
  }
  if (not_recorded(y, x, target)) return y;
  // dx = scale * dy * df/da, dtarget = scale * dy * df/db, each summed over the dimensions in which it was
  // broadcast.
  return record(op, std::move(y), {x, target}, SavedTensors(x, target, weight),
                [f, a, b, c, shape, factor = static_cast<T>(reduces ? scale : 1)](Backward<T>& back) {
                  const std::array<const T*, 3> operands{a.data(), b.data(), c.data()};
                  if (const auto dx = back.grad(0)) {
                    add_derivative(dx, back.dy(), shape, factor, operands,
                                   [f](const auto& u, const auto& v, const auto& w)
                                       EIGENFORMER_INLINE_LAMBDA { return f.first(u, v, w); });
                  }
                  if (const auto dt = back.grad(1)) {
                    add_derivative(dt, back.dy(), shape, factor, operands,
                                   [f](const auto& u, const auto& v, const auto& w)
                                       EIGENFORMER_INLINE_LAMBDA { return f.second(u, v, w); });
                  }
                });
}

// The loss f of every pair of elements of operands as the user gives them, reduced.
template <class A, class B, class F>
auto reduced_loss(const char* op, const F& f, const A& given, const B& given_target, LossReduction r) {
  using T = element_t<A, B>;
  const Var<T>& x = operand<T>(given);
  const Var<T>& target = operand<T>(given_target);
  require_defined(op, x, target);
  const index_t n = kernels::broadcast_shape(op, x.shape(), target.shape()).numel();
  return pair_loss<T>(op, f, x, target, {}, r != LossReduction::none, reduction_scale(op, r, n));
}

// The same with a factor for each element of x, whose shape the target has.
template <class T, class F>
Var<T> weighted_loss(const char* op, const F& f, const Var<T>& x, const Var<T>& target, LossReduction r,
                     const Tensor<T>& weight, const Tensor<T>& positive) {
  require_defined(op, x, target);
  require_defined_or_absent(op, weight, positive);
  if (target.shape() != x.shape()) {
    throw ShapeError(op, {"target of shape ", target.shape(), " must have the input's shape ", x.shape()},
                     {target.shape(), x.shape()});
  }
  for (const Tensor<T>* w : {&weight, &positive}) {
    if (w->defined() && kernels::broadcast_shape(op, w->shape(), x.shape()) != x.shape()) {
      throw ShapeError(op,
                       {"weight of shape ", w->shape(), " must broadcast to the input's shape ", x.shape()},
                       {w->shape(), x.shape()});
    }
  }
  const double scale = reduction_scale(op, r, x.numel());
  const bool reduces = r != LossReduction::none;
  if (!weight.defined()) return pair_loss<T>(op, f, x, target, positive, reduces, scale);
  const Var<T> each = multiply_vars<T>(pair_loss<T>(op, f, x, target, positive, false, 1), Var<T>(weight));
  if (!reduces) return each;
  return scaled_sum<T>(op, each, {}, false, r == LossReduction::mean);
}

template <class T>
void require_probabilities(const char* op, const Var<T>& x) {
  for (const T p : x.value().span()) {
    if (!(p >= T(0) && p <= T(1))) {
      throw ValueError(op, {"the input has an element ", p, ", must be probabilities in [0, 1]"});
    }
  }
}

// The Euclidean norm along an axis, at least eps; the gradient is that of the norm, as in PyTorch.
template <class T>
Var<T> norm_at_least(const Var<T>& x, index_t axis, double eps) {
  const Var<T> y = norm_over<T>(x, {axis}, true, 2);
  Tensor<T> lift(y.shape());
  const T least = static_cast<T>(eps);
  for (index_t i = 0; i < lift.numel(); ++i) {
    const T v = y.value().data()[i];
    lift.data()[i] = v < least ? least - v : T(0);
  }
  return add_vars<T>(y, Var<T>(std::move(lift)));
}

template <class T, class I>
Var<T> negative_log_likelihood(const Var<T>& x, const Tensor<I>& targets, index_t ignore_index,
                               LossReduction reduction) {
  constexpr const char* op = "nll_loss";
  require_defined(op, x, targets);
  if (x.rank() < 1 || x.shape().without(-1) != targets.shape()) {
    throw ShapeError(op,
                     {"targets of shape ", targets.shape(), " must be the input's shape ", x.shape(),
                      " without the classes"},
                     {x.shape(), targets.shape()});
  }
  const index_t classes = x.dim(-1), rows = targets.numel();
  const bool reduces = reduction != LossReduction::none;
  Tensor<index_t> places(Shape{rows});  // in x; -1 for targets that are ignored
  Tensor<T> y(reduces ? Shape{} : targets.shape());
  index_t counted = 0;
  double sum = 0;
  for (index_t i = 0; i < rows; ++i) {
    const auto t = static_cast<index_t>(targets.data()[i]);
    const bool ignored = t == ignore_index;
    if (!ignored && (t < 0 || t >= classes)) {
      throw IndexError(op, {"target ", t, " is outside ", classes, " classes"});
    }
    const T loss = ignored ? T(0) : -x.value().data()[i * classes + t];
    places.data()[i] = ignored ? -1 : i * classes + t;
    counted += ignored ? 0 : 1;
    sum += static_cast<double>(loss);
    if (!reduces) y.data()[i] = loss;
  }
  // 0 when all targets are ignored: as in cross_entropy().
  const double scale = reduction_scale(op, reduction, std::max<index_t>(1, counted));
  if (reduces) y.data()[0] = static_cast<T>(sum * scale);
  if (not_recorded(y, x)) return y;
  // dx = -scale * dy at the target of each row, 0 elsewhere.
  return record_one(op, std::move(y), x, SavedTensors(),
                    [places, reduces, scale = static_cast<T>(scale)](const auto& dx, const Tensor<T>& dy) {
                      dx.start_sum();
                      for (index_t i = 0; i < places.numel(); ++i) {
                        const index_t at = places.data()[i];
                        if (at >= 0) dx.data[at] -= scale * dy.data()[reduces ? 0 : i];
                      }
                    });
}

}  // namespace detail

/// (x - target)^2. The operands broadcast, and one may be a number, as in the losses below, which also have
/// gradients for both and the same reductions. Throws ShapeError when the shapes do not broadcast, ValueError
/// for batchmean.
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> mse_loss(const A& x, const B& target,
                                            LossReduction reduction = LossReduction::mean) {
  return detail::reduced_loss("mse_loss", detail::SquaredLoss{}, x, target, reduction);
}

/// |x - target|, with a gradient of 0 where it is 0. Operands, reductions and errors as for mse_loss().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> l1_loss(const A& x, const B& target,
                                           LossReduction reduction = LossReduction::mean) {
  return detail::reduced_loss("l1_loss", detail::AbsoluteLoss<element_t<A, B>>{}, x, target, reduction);
}

/// d^2 / (2 beta) where d = |x - target| is below beta, else d - beta / 2: l1_loss() for beta 0. Operands,
/// reductions and errors as for mse_loss(), and ValueError for a negative beta. Girshick 2015.
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> smooth_l1_loss(const A& x, const B& target,
                                                  LossReduction reduction = LossReduction::mean,
                                                  double beta = 1) {
  using T = element_t<A, B>;
  if (!(beta >= 0)) {
    throw ValueError("smooth_l1_loss", {"beta is ", beta, ", must be at least 0"});
  }
  const detail::AbsoluteLoss<T> f{static_cast<T>(beta), static_cast<T>(beta > 0 ? 1 / beta : 0), T(1)};
  return detail::reduced_loss("smooth_l1_loss", f, x, target, reduction);
}

/// d^2 / 2 where d = |x - target| is below delta, else delta (d - delta / 2). Operands, reductions and errors
/// as for mse_loss(), and ValueError unless delta is positive. Huber 1964.
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> huber_loss(const A& x, const B& target,
                                              LossReduction reduction = LossReduction::mean,
                                              double delta = 1) {
  using T = element_t<A, B>;
  if (!(delta > 0)) {
    throw ValueError("huber_loss", {"delta is ", delta, ", must be positive"});
  }
  const detail::AbsoluteLoss<T> f{static_cast<T>(delta), T(1), static_cast<T>(delta)};
  return detail::reduced_loss("huber_loss", f, x, target, reduction);
}

/// -(target log(x) + (1 - target) log(1 - x)) of probabilities x, with logarithms of at least -100, times
/// `weight`, a constant that broadcasts to x's shape. Gradients for both. Throws ShapeError unless the target
/// has x's shape and the weight fits, ValueError for an x outside [0, 1] and for batchmean.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A, B>> binary_cross_entropy(const A& x, const B& target,
                                                        LossReduction reduction = LossReduction::mean,
                                                        const Tensor<element_t<A, B>>& weight = {}) {
  using T = element_t<A, B>;
  const Var<T>& v = x;
  detail::require_defined("binary_cross_entropy", v);
  detail::require_probabilities("binary_cross_entropy", v);
  return detail::weighted_loss<T>("binary_cross_entropy", detail::ProbabilityLoss{}, v, target, reduction,
                                  weight, {});
}

/// binary_cross_entropy(sigmoid(x), target) of logits x, without overflow. `weight` and the weight of
/// positive targets `pos_weight` are constants that broadcast to x's shape. Throws as binary_cross_entropy().
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A, B>> binary_cross_entropy_with_logits(
    const A& x, const B& target, LossReduction reduction = LossReduction::mean,
    const Tensor<element_t<A, B>>& weight = {}, const Tensor<element_t<A, B>>& pos_weight = {}) {
  return detail::weighted_loss<element_t<A, B>>("binary_cross_entropy_with_logits", detail::LogitLoss{}, x,
                                                target, reduction, weight, pos_weight);
}

/// The Kullback-Leibler divergence of log-probabilities x from a target: target (log(target) - x), of which
/// `log_target` says that it is log-probabilities, too. Its mean is that over elements, as PyTorch's; the
/// divergence itself is batchmean. Operands and errors as for mse_loss(), and ShapeError for batchmean of a
/// scalar. Kullback and Leibler 1951.
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> kl_div(const A& x, const B& target,
                                          LossReduction reduction = LossReduction::mean,
                                          bool log_target = false) {
  using T = element_t<A, B>;
  constexpr const char* op = "kl_div";
  const Var<T>& a = detail::operand<T>(x);
  const Var<T>& b = detail::operand<T>(target);
  detail::require_defined(op, a, b);
  const auto loss = [&](const auto& f) -> Var<T> {
    if (reduction != LossReduction::batchmean) return detail::reduced_loss(op, f, a, b, reduction);
    if (a.rank() == 0) throw ShapeError(op, "batchmean of a scalar, must have a batch axis", {a.shape()});
    return detail::pair_loss<T>(op, f, a, b, {}, true,
                                1 / static_cast<double>(std::max<index_t>(1, a.dim(0))));
  };
  return log_target ? loss(detail::LogDivergenceLoss{}) : loss(detail::DivergenceLoss{});
}

/// Minus the log-probability of each target: nll_loss(log_softmax(x), targets) is cross_entropy(x, targets).
///
/// x: (..., V); targets: int32 or int64 (...), each in 0 .. V-1 or ignore_index. The mean is that of the
/// targets that are not ignored, 0 if there is none. Throws ShapeError when the shapes do not fit, IndexError
/// for a target out of range, ValueError for batchmean.
template <Operand X, detail::IndexNumber I>
[[nodiscard]] Var<element_t<X>> nll_loss(const X& x, const Tensor<I>& targets,
                                         LossReduction reduction = LossReduction::mean,
                                         index_t ignore_index = -100) {
  return detail::negative_log_likelihood<element_t<X>>(x, targets, ignore_index, reduction);
}

/// The cosine of the angle between a and b along an axis, which goes; norms below eps count as eps. a and b
/// broadcast. Throws ShapeError when they do not, IndexError for an axis outside the rank.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A, B>> cosine_similarity(const A& a, const B& b, index_t axis = 1,
                                                     double eps = 1e-8) {
  using T = element_t<A, B>;
  const Var<T>& va = a;
  const Var<T>& vb = b;
  detail::require_defined("cosine_similarity", va, vb);
  const Shape shape = detail::kernels::broadcast_shape("cosine_similarity", va.shape(), vb.shape());
  const index_t d = detail::axis_of("cosine_similarity", axis, shape);
  const Var<T> x = va.shape() == shape ? va : broadcast_to(va, shape);
  const Var<T> y = vb.shape() == shape ? vb : broadcast_to(vb, shape);
  const Var<T> product = detail::scaled_sum<T>("sum", detail::multiply_vars<T>(x, y), {d}, true, false);
  const Var<T> cosine =
      detail::divide_vars<T>(detail::divide_vars<T>(product, detail::norm_at_least<T>(x, d, eps)),
                             detail::norm_at_least<T>(y, d, eps));
  return detail::reshaped("cosine_similarity", cosine, shape.without(d));
}

}  // namespace eigenformer
