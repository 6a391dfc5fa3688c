#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"

namespace eigenformer {

namespace detail {

/// Options of batch_norm(), with PyTorch's defaults.
struct BatchNormOp {
  bool training = false;  ///< normalise by the statistics of the batch, and update the running ones
  double momentum = 0.1;  ///< how much of a batch's statistics goes into the running ones
  double eps = 1e-5;      ///< added to the variance
};

/// The planes of images (N, C, plane...) in the sets that are normalised together: those of a channel
/// (groups 0), or those of a group of channels of one image.
struct PlaneSets {
  index_t images = 1, channels = 1, plane = 1, groups = 0;

  index_t planes() const noexcept { return images * channels; }
  index_t sets() const noexcept { return groups == 0 ? channels : images * groups; }
  index_t planes_of_set() const noexcept { return groups == 0 ? images : channels / groups; }
  index_t elements() const noexcept { return planes_of_set() * plane; }
  index_t set_of(index_t p) const noexcept { return groups == 0 ? p % channels : p / planes_of_set(); }
  index_t plane_of(index_t set, index_t i) const noexcept {
    return groups == 0 ? i * channels + set : set * planes_of_set() + i;
  }
  index_t grain(index_t elements) const noexcept { return (1 << 14) / std::max<index_t>(1, elements); }
};

// Calls use(plane, set) for all planes in parallel.
template <class F>
void for_each_plane(const PlaneSets& s, const F& use) {
  parallel_each(s.planes(), s.grain(s.plane), [&](index_t p) { use(p, s.set_of(p)); });
}

// The sum of term(i) for i in 0 .. n-1: short sums in T, their sum in double.
template <class T, class F>
EIGENFORMER_ALWAYS_INLINE double sum_of(index_t n, const F& term) {
  double total = 0;
  for (index_t first = 0; first < n; first += 1024) {
    const index_t end = std::min<index_t>(n, first + 1024);
    std::array<T, 8> chain{};
    index_t i = first;
    for (; i + 8 <= end; i += 8) {
      for (index_t c = 0; c < 8; ++c) chain[static_cast<std::size_t>(c)] += term(i + c);
    }
    for (; i < end; ++i) chain[0] += term(i);
    for (const T c : chain) total += static_cast<double>(c);
  }
  return total;
}

// The variance of each set; `mean` receives its mean.
template <class T>
EIGENFORMER_NOINLINE Tensor<T> set_statistics(const PlaneSets& s, const Tensor<T>& x, Tensor<T>& mean) {
  Tensor<T> var(Shape{s.sets()});
  mean = Tensor<T>(var.shape());
  const double n = static_cast<double>(s.elements());
  parallel_each(s.sets(), s.grain(s.elements()), [&](index_t set) {
    double sum = 0, squares = 0;
    for (index_t i = 0; i < s.planes_of_set(); ++i) {
      const T* from = x.data() + s.plane_of(set, i) * s.plane;
      sum += sum_of<T>(s.plane, [&](index_t k) { return from[k]; });
    }
    const T m = mean.data()[set] = static_cast<T>(sum / n);
    for (index_t i = 0; i < s.planes_of_set(); ++i) {
      const T* from = x.data() + s.plane_of(set, i) * s.plane;
      squares += sum_of<T>(s.plane, [&](index_t k) { return (from[k] - m) * (from[k] - m); });
    }
    var.data()[set] = static_cast<T>(squares / n);
  });
  return var;
}

/// What the backward of a normalisation reads. `fixed`: mean and rstd are constants.
template <class T>
struct PlaneNorm {
  PlaneSets s;
  bool fixed = false;
  Tensor<T> x, weight, mean, rstd;

  T gain(index_t p) const { return weight.defined() ? weight.data()[p % s.channels] : T(1); }

  EIGENFORMER_NOINLINE void forward(const Tensor<T>& bias, T* y) const {
    for_each_plane(s, [&](index_t p, index_t set) {
      const T* from = x.data() + p * s.plane;
      T* to = y + p * s.plane;
      const T m = mean.data()[set], a = rstd.data()[set] * gain(p);
      const T b = bias.defined() ? bias.data()[p % s.channels] : T(0);
      for (index_t k = 0; k < s.plane; ++k) to[k] = (from[k] - m) * a + b;
    });
  }

  // With h = (x - mean) rstd and y = w h + b: db = the sum of dy, dw = the sum of dy h, and over the n
  // elements of a set dx = rstd (w dy - sum(w dy) / n - h sum(w dy h) / n); with constant statistics
  // dx = rstd w dy.
  EIGENFORMER_NOINLINE void backward(Backward<T>& back) const {
    const T* dy = back.dy().data();
    std::vector<double> sums(static_cast<std::size_t>(2 * s.planes()));
    double* shift = sums.data();
    double* slope = shift + s.planes();
    for_each_plane(s, [&](index_t p, index_t set) {
      const T* g = dy + p * s.plane;
      const T* from = x.data() + p * s.plane;
      const T m = mean.data()[set], r = rstd.data()[set];
      shift[p] = sum_of<T>(s.plane, [&](index_t k) { return g[k]; });
      slope[p] = sum_of<T>(s.plane, [&](index_t k) { return g[k] * ((from[k] - m) * r); });
    });
    if (const auto dx = back.grad(0)) {
      std::vector<double> of_set(static_cast<std::size_t>(2 * s.sets()));
      for (index_t p = 0; p < (fixed ? 0 : s.planes()); ++p) {
        const auto at = static_cast<std::size_t>(2 * s.set_of(p));
        const double w = static_cast<double>(gain(p)) / static_cast<double>(s.elements());
        of_set[at] += w * shift[p];
        of_set[at + 1] += w * slope[p];
      }
      for_each_plane(s, [&](index_t p, index_t set) {
        const T* g = dy + p * s.plane;
        const T* from = x.data() + p * s.plane;
        T* to = dx.data + p * s.plane;
        const T m = mean.data()[set], r = rstd.data()[set], w = gain(p);
        const T a = static_cast<T>(of_set[static_cast<std::size_t>(2 * set)]);
        const T b = static_cast<T>(of_set[static_cast<std::size_t>(2 * set + 1)]);
        for (index_t k = 0; k < s.plane; ++k) {
          const T d = r * (w * g[k] - a - (from[k] - m) * r * b);
          to[k] = dx.beta == T(0) ? d : to[k] + d;
        }
      });
    }
    for (const std::size_t input : {1, 2}) {
      const auto d = back.grad(input);
      if (!d) continue;
      for (index_t c = 0; c < s.channels; ++c) {
        double sum = d.beta == T(0) ? 0 : static_cast<double>(d.data[c]);
        for (index_t i = 0; i < s.images; ++i) sum += (input == 1 ? slope : shift)[i * s.channels + c];
        d.data[c] = static_cast<T>(sum);
      }
    }
  }
};

// The planes of x (N, C, ...). Throws ShapeError for operands that do not fit, ValueError for an eps that is
// negative or not finite.
template <class T>
EIGENFORMER_NOINLINE PlaneSets plane_sets(const char* op, const Shape& x,
                                          std::initializer_list<const Tensor<T>*> vectors, double eps) {
  if (!(eps >= 0) || std::isinf(eps)) {
    throw ValueError(op, {"eps is ", eps, ", must be finite and not negative"});
  }
  if (x.rank() < 2) throw ShapeError(op, {"input of shape ", x.str(), " must be (N, C, ...)"}, {x});
  for (const Tensor<T>* v : vectors) {
    require_defined_or_absent(op, *v);
    if (v->defined() && v->shape() != Shape{x[1]}) {
      throw ShapeError(op,
                       {"an operand of shape ", v->shape(), " must have one number for each of the ", x[1],
                        " channels of the input of shape ", x.str()},
                       {x, v->shape()});
    }
  }
  PlaneSets s{x[0], x[1], 1, 0};
  for (index_t d = 2; d < x.rank(); ++d) s.plane *= x[d];
  return s;
}

template <class T>
Tensor<T> reciprocal_deviation(const Tensor<T>& var, double eps) {
  Tensor<T> r(var.shape());
  for (index_t i = 0; i < r.numel(); ++i) {
    r.data()[i] = T(1) / std::sqrt(var.data()[i] + static_cast<T>(eps));
  }
  return r;
}

template <class T>
Var<T> finish_norm(const char* op, PlaneNorm<T> norm, const Var<T>& x, const Var<T>& weight,
                   const Var<T>& bias) {
  norm.x = x.value();
  norm.weight = weight.value();
  Tensor<T> y(x.shape());
  norm.forward(bias.value(), y.data());
  if (not_recorded(y, x, weight, bias)) return y;
  return record(op, std::move(y), {x, weight, bias}, SavedTensors(x).add_if(x.recorded(), weight),
                [norm](Backward<T>& back) { norm.backward(back); });
}

}  // namespace detail

/// Normalises each channel to mean 0 and variance 1, then scales and shifts it.
///
/// x: (N, C, ...); weight, bias: (C), or undefined for 1 and 0. With op.training the statistics are those of
/// the batch, without a gradient of their own copies in running_mean and running_var, which become (1 -
/// momentum) * themselves + momentum * the batch's mean and unbiased variance; otherwise they are
/// running_mean and running_var. Both: (C); undefined ones are neither read nor written, and without them the
/// statistics are always the batch's. Throws ShapeError when shapes do not fit, ValueError for a channel of
/// fewer than two elements in training and for an eps that is negative or not finite. Ioffe and Szegedy 2015.
template <class X, class W = Var<element_t<X>>, class B = Var<element_t<X>>>
requires Operands<X, W, B>
[[nodiscard]] Var<element_t<X>> batch_norm(const X& x, Tensor<element_t<X>>& running_mean,
                                           Tensor<element_t<X>>& running_var, const W& weight = {},
                                           const B& bias = {}, const detail::BatchNormOp& op = {}) {
  using T = element_t<X>;
  const Var<T>&v = x, &w = weight, &b = bias;
  const OpScope scope = detail::scope_of("batch_norm", v);
  detail::PlaneNorm<T> norm;
  norm.s = detail::plane_sets<T>("batch_norm", v.shape(),
                                 {&w.value(), &b.value(), &running_mean, &running_var}, op.eps);
  norm.fixed = !op.training && running_mean.defined() && running_var.defined();
  if (norm.fixed) {
    norm.mean = running_mean.clone();
    norm.rstd = detail::reciprocal_deviation(running_var, op.eps);
    return detail::finish_norm("batch_norm", std::move(norm), v, w, b);
  }
  const index_t n = norm.s.elements();
  if (op.training && n < 2) {
    throw ValueError("batch_norm", {"input of shape ", v.shape(), " has ", n,
                                    " elements per channel, training needs two or more"});
  }
  const Tensor<T> var = detail::set_statistics(norm.s, v.value(), norm.mean);
  norm.rstd = detail::reciprocal_deviation(var, op.eps);
  const auto update = [&](Tensor<T>& running, const Tensor<T>& batch, double factor) {
    if (!op.training || !running.defined()) return;
    for (index_t c = 0; c < running.numel(); ++c) {
      T& r = running.data()[c];
      r = static_cast<T>((1 - op.momentum) * static_cast<double>(r) +
                         op.momentum * factor * static_cast<double>(batch.data()[c]));
    }
    running.mark_changed();
  };
  update(running_mean, norm.mean, 1);
  update(running_var, var, static_cast<double>(n) / static_cast<double>(n - 1));
  return detail::finish_norm("batch_norm", std::move(norm), v, w, b);
}

/// Normalises each group of channels of each image to mean 0 and variance 1, then scales and shifts each
/// channel.
///
/// x: (N, C, ...); weight, bias: (C), or undefined for 1 and 0. Throws ShapeError when shapes do not fit,
/// ValueError when num_groups does not divide C and for an eps that is negative or not finite. Wu and He
/// 2018.
template <class X, class W = Var<element_t<X>>, class B = Var<element_t<X>>>
requires Operands<X, W, B>
[[nodiscard]] Var<element_t<X>> group_norm(const X& x, index_t num_groups, const W& weight = {},
                                           const B& bias = {}, double eps = 1e-5) {
  using T = element_t<X>;
  const Var<T>&v = x, &w = weight, &b = bias;
  const OpScope scope = detail::scope_of("group_norm", v);
  detail::PlaneNorm<T> norm;
  norm.s = detail::plane_sets<T>("group_norm", v.shape(), {&w.value(), &b.value()}, eps);
  if (num_groups < 1 || norm.s.channels % num_groups != 0) {
    throw ValueError("group_norm", {"num_groups is ", num_groups, ", must divide the ", norm.s.channels,
                                    " channels of the input"});
  }
  norm.s.groups = num_groups;
  norm.rstd = detail::reciprocal_deviation(detail::set_statistics(norm.s, v.value(), norm.mean), eps);
  return detail::finish_norm("group_norm", std::move(norm), v, w, b);
}

}  // namespace eigenformer
