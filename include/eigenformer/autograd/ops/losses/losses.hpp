#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/rows.hpp"
#include "eigenformer/autograd/ops/reduction/statistics.hpp"
#include "eigenformer/autograd/ops/shape/rearrange.hpp"
#include "eigenformer/autograd/ops/shape/reduce.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"

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

[[noreturn]] EIGENFORMER_NOINLINE inline void refuse_loss(const char* op, const std::string& what) {
  throw ValueError(op, what);
}

// Losses f(a, b, c) of two operands, of which c is a constant weight. The derivatives are those with respect
// to a and b.
template <class T>
struct SquaredLoss {
  T value(T a, T b, T) const { return (a - b) * (a - b); }
  T first(T a, T b, T) const { return 2 * (a - b); }
  T second(T a, T b, T) const { return 2 * (b - a); }
};

// inner * d^2 / 2 up to |d| = edge, from there outer * (|d| - edge / 2).
template <class T>
struct AbsoluteLoss {
  T edge = T(0), inner = T(0), outer = T(1);
  T value(T a, T b, T) const {
    const T d = std::abs(a - b);
    return d < edge ? T(0.5) * inner * d * d : outer * (d - T(0.5) * edge);
  }
  T first(T a, T b, T) const {
    const T d = a - b;
    if (std::abs(d) < edge) return inner * d;
    return d > T(0) ? outer : d < T(0) ? -outer : d;  // 0 or NaN
  }
  T second(T a, T b, T) const { return first(b, a, T(1)); }
};

// Of probabilities a; logarithms are at least -100, and 1e-12 is a float, as in PyTorch.
template <class T>
struct ProbabilityLoss {
  static T log_one(T a) { return std::max(std::log1p(-a), T(-100)); }
  static T log_of(T a) { return std::max(std::log(a), T(-100)); }
  T value(T a, T b, T) const { return (b - T(1)) * log_one(a) - b * log_of(a); }
  T first(T a, T b, T) const { return (a - b) / std::max((T(1) - a) * a, T(1e-12f)); }
  T second(T a, T, T) const { return log_one(a) - log_of(a); }
};

// Of logits a, with the weight c of positive targets.
template <class T>
struct LogitLoss {
  static T softplus(T a) { return std::max(a, T(0)) + std::log1p(std::exp(-std::abs(a))); }
  static T sigmoid(T a) {
    const T e = std::exp(-std::abs(a));
    return (a >= T(0) ? T(1) : e) / (T(1) + e);
  }
  T value(T a, T b, T c) const { return (T(1) - b) * a + (T(1) + (c - T(1)) * b) * softplus(-a); }
  T first(T a, T b, T c) const { return T(1) - b - (T(1) + (c - T(1)) * b) * sigmoid(-a); }
  T second(T a, T, T c) const { return (c - T(1)) * softplus(-a) - a; }
};

// b log(b) - b a of log-probabilities a and probabilities b; 0 log(0) is 0.
template <class T>
struct DivergenceLoss {
  T value(T a, T b, T) const { return (b == T(0) ? T(0) : b * std::log(b)) - b * a; }
  T first(T, T b, T) const { return -b; }
  T second(T a, T b, T) const { return std::log(b) + T(1) - a; }
};
// The same of log-probabilities b.
template <class T>
struct LogDivergenceLoss {
  T value(T a, T b, T) const { return std::exp(b) * (b - a); }
  T first(T, T b, T) const { return -std::exp(b); }
  T second(T a, T b, T) const { return std::exp(b) * (b - a + T(1)); }
};

// The factor of the sum of n elements.
inline double reduction_scale(const char* op, LossReduction r, index_t n) {
  if (r == LossReduction::batchmean) refuse_loss(op, "the reduction batchmean is that of kl_div alone");
  return r == LossReduction::mean ? 1 / static_cast<double>(n) : 1;
}

template <class T>
Tensor<T> broadcast_whole(const Tensor<T>& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Tensor<T> y(shape);
  kernels::broadcast_to<T>(x.data(), x.shape(), y.data(), shape, T(1), T(0));
  return y;
}

// Adds dy * scale * derivative(i) to a gradient, whose operand may have been broadcast to n elements; dy
// has one element, or as many.
template <class T, class F>
void add_derivative(const GradientSlot<T>& slot, const Tensor<T>& dy, const Shape& shape, T scale,
                    const F& derivative) {
  Tensor<T> whole;
  const bool direct = slot.shape == shape;
  if (!direct) whole = Tensor<T>(shape);
  T* to = direct ? slot.data : whole.data();
  const T* g = dy.data();
  const T beta = direct ? slot.beta : T(0);
  const bool each = dy.shape() == shape;
  parallel_for(shape.numel(), 1 << 13, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      const T value = scale * g[each ? i : 0] * derivative(i);
      to[i] = beta == T(0) ? value : beta * to[i] + value;
    }
  });
  if (!direct) sum_into(slot, whole);
}

// The loss f of every pair of elements, reduced in the same loop: not at all, or to scale times the sum.
template <class T, class F>
Var<T> pair_loss(const char* op, const F& f, const Var<T>& x, const Var<T>& target, const Tensor<T>& weight,
                 bool reduces, double scale) {
  const OpScope scope(Runtime::instance().profiler(), op);
  require_defined(op, x, target);
  const Shape shape = kernels::broadcast_shape(op, x.shape(), target.shape());
  const Tensor<T> a = broadcast_whole(x.value(), shape), b = broadcast_whole(target.value(), shape);
  const Tensor<T> c = weight.defined() ? broadcast_whole(weight, shape) : weight;
  const index_t n = shape.numel();
  const auto value = [f, pa = a.data(), pb = b.data(), pc = c.data()](index_t i) {
    return f.value(pa[i], pb[i], pc == nullptr ? T(1) : pc[i]);
  };
  Tensor<T> y(reduces ? Shape{} : shape);
  if (reduces) {
    Tensor<double> sum(Shape{1});
    fold_rows(
        a.data(), 1, n, sum.data(),
        [&value, start = a.data()](const T* part, index_t count) {
          std::array<double, 4> chain{};  // that do not wait for each other
          const index_t first = part - start;
          index_t i = 0;
          for (; i + 4 <= count; i += 4) {
            for (index_t k = 0; k < 4; ++k) {
              chain[static_cast<std::size_t>(k)] += static_cast<double>(value(first + i + k));
            }
          }
          for (; i < count; ++i) chain[0] += static_cast<double>(value(first + i));
          return (chain[0] + chain[1]) + (chain[2] + chain[3]);
        },
        [](double left, double right) { return left + right; });
    y.data()[0] = static_cast<T>(sum.data()[0] * scale);
  } else {
    T* to = y.data();
    parallel_for(n, 1 << 13, [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) to[i] = value(i);
    });
  }
  if (not_recorded<T>(y, x, target)) return Var<T>(std::move(y));
  // dx = scale * dy * df/da, dtarget = scale * dy * df/db, each summed over the dimensions in which it was
  // broadcast.
  return record(op, std::move(y), {x, target}, SavedTensors(x, target, weight),
                [f, a, b, c, shape, factor = static_cast<T>(reduces ? scale : 1)](Backward<T>& back) {
                  const T *pa = a.data(), *pb = b.data(), *pc = c.data();
                  if (const auto dx = back.grad(0)) {
                    add_derivative(dx, back.dy(), shape, factor, [&](index_t i) {
                      return f.first(pa[i], pb[i], pc == nullptr ? T(1) : pc[i]);
                    });
                  }
                  if (const auto dt = back.grad(1)) {
                    add_derivative(dt, back.dy(), shape, factor, [&](index_t i) {
                      return f.second(pa[i], pb[i], pc == nullptr ? T(1) : pc[i]);
                    });
                  }
                });
}

// The loss f of every pair of elements, reduced.
template <class T, class F>
Var<T> reduced_loss(const char* op, const F& f, const Var<T>& x, const Var<T>& target, LossReduction r) {
  require_defined(op, x, target);
  const index_t n = kernels::broadcast_shape(op, x.shape(), target.shape()).numel();
  return pair_loss<T>(op, f, x, target, Tensor<T>(), r != LossReduction::none, reduction_scale(op, r, n));
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
      refuse_loss(op, "the input has an element " + std::to_string(p) + ", must be probabilities in [0, 1]");
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
  if (not_recorded<T>(y, x)) return Var<T>(std::move(y));
  // dx = -scale * dy at the target of each row, 0 elsewhere.
  return record(op, std::move(y), {x}, SavedTensors(),
                [places, reduces, scale = static_cast<T>(scale)](Backward<T>& back) {
                  const auto dx = back.grad(0);
                  if (!dx) return;
                  if (dx.beta == T(0)) std::fill_n(dx.data, dx.shape.numel(), T(0));
                  for (index_t i = 0; i < places.numel(); ++i) {
                    const index_t at = places.data()[i];
                    if (at >= 0) dx.data[at] -= scale * back.dy().data()[reduces ? 0 : i];
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
  using T = element_t<A, B>;
  return detail::reduced_loss<T>("mse_loss", detail::SquaredLoss<T>{}, detail::operand<T>(x),
                                 detail::operand<T>(target), reduction);
}

/// |x - target|, with a gradient of 0 where it is 0. Operands, reductions and errors as for mse_loss().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> l1_loss(const A& x, const B& target,
                                           LossReduction reduction = LossReduction::mean) {
  using T = element_t<A, B>;
  return detail::reduced_loss<T>("l1_loss", detail::AbsoluteLoss<T>{}, detail::operand<T>(x),
                                 detail::operand<T>(target), reduction);
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
    detail::refuse_loss("smooth_l1_loss", "beta is " + std::to_string(beta) + ", must be at least 0");
  }
  const detail::AbsoluteLoss<T> f{static_cast<T>(beta), static_cast<T>(beta > 0 ? 1 / beta : 0), T(1)};
  return detail::reduced_loss<T>("smooth_l1_loss", f, detail::operand<T>(x), detail::operand<T>(target),
                                 reduction);
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
    detail::refuse_loss("huber_loss", "delta is " + std::to_string(delta) + ", must be positive");
  }
  const detail::AbsoluteLoss<T> f{static_cast<T>(delta), T(1), static_cast<T>(delta)};
  return detail::reduced_loss<T>("huber_loss", f, detail::operand<T>(x), detail::operand<T>(target),
                                 reduction);
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
  const Var<T>& v = detail::operand<T>(x);
  detail::require_defined("binary_cross_entropy", v);
  detail::require_probabilities("binary_cross_entropy", v);
  return detail::weighted_loss<T>("binary_cross_entropy", detail::ProbabilityLoss<T>{}, v,
                                  detail::operand<T>(target), reduction, weight, {});
}

/// binary_cross_entropy(sigmoid(x), target) of logits x, without overflow. `weight` and the weight of
/// positive targets `pos_weight` are constants that broadcast to x's shape. Throws as binary_cross_entropy().
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A, B>> binary_cross_entropy_with_logits(
    const A& x, const B& target, LossReduction reduction = LossReduction::mean,
    const Tensor<element_t<A, B>>& weight = {}, const Tensor<element_t<A, B>>& pos_weight = {}) {
  using T = element_t<A, B>;
  return detail::weighted_loss<T>("binary_cross_entropy_with_logits", detail::LogitLoss<T>{},
                                  detail::operand<T>(x), detail::operand<T>(target), reduction, weight,
                                  pos_weight);
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
  double scale = 1;
  if (reduction == LossReduction::batchmean) {
    if (a.rank() == 0) throw ShapeError(op, "batchmean of a scalar, must have a batch axis", {a.shape()});
    scale = 1 / static_cast<double>(std::max<index_t>(1, a.dim(0)));
  } else {
    scale =
        detail::reduction_scale(op, reduction, kernels::broadcast_shape(op, a.shape(), b.shape()).numel());
  }
  const bool reduces = reduction != LossReduction::none;
  if (log_target) return detail::pair_loss<T>(op, detail::LogDivergenceLoss<T>{}, a, b, {}, reduces, scale);
  return detail::pair_loss<T>(op, detail::DivergenceLoss<T>{}, a, b, {}, reduces, scale);
}

/// Minus the log-probability of each target: nll_loss(log_softmax(x), targets) is cross_entropy(x, targets).
///
/// x: (..., V); targets: int32 or int64 (...), each in 0 .. V-1 or ignore_index. The mean is that of the
/// targets that are not ignored, 0 if there is none. Throws ShapeError when the shapes do not fit, IndexError
/// for a target out of range, ValueError for batchmean.
template <Operand X, IndexNumber I>
[[nodiscard]] Var<element_t<X>> nll_loss(const X& x, const Tensor<I>& targets,
                                         LossReduction reduction = LossReduction::mean,
                                         index_t ignore_index = -100) {
  using T = element_t<X>;
  return detail::negative_log_likelihood<T>(detail::operand<T>(x), targets, ignore_index, reduction);
}

/// The cosine of the angle between a and b along an axis, which goes; norms below eps count as eps. a and b
/// broadcast. Throws ShapeError when they do not, IndexError for an axis outside the rank.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A, B>> cosine_similarity(const A& a, const B& b, index_t axis = 1,
                                                     double eps = 1e-8) {
  using T = element_t<A, B>;
  const Var<T>& va = detail::operand<T>(a);
  const Var<T>& vb = detail::operand<T>(b);
  detail::require_defined("cosine_similarity", va, vb);
  const Shape shape = kernels::broadcast_shape("cosine_similarity", va.shape(), vb.shape());
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
