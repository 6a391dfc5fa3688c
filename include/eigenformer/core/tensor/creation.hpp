#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

/// The matrix (rows, cols), square without cols, with ones on diagonal k (above the main one if positive) and
/// zeros elsewhere. Throws ShapeError for a negative size.
template <class T = float>
[[nodiscard]] Tensor<T> eye(index_t rows, index_t cols = -1, index_t k = 0) {
  Tensor<T> t = Tensor<T>::zeros({rows, cols < 0 ? rows : cols});
  for (index_t i = std::max<index_t>(0, -k); i < t.dim(0) && i + k < t.dim(1); ++i) {
    t.data()[i * t.dim(1) + i + k] = T(1);
  }
  return t;
}

/// The matrix (rows, cols), square without cols, with ones on and below diagonal k and zeros above it. Throws
/// ShapeError for a negative size.
template <class T = float>
[[nodiscard]] Tensor<T> tri(index_t rows, index_t cols = -1, index_t k = 0) {
  Tensor<T> t(Shape{rows, cols < 0 ? rows : cols});
  for (index_t i = 0, at = 0; i < t.dim(0); ++i) {
    for (index_t j = 0; j < t.dim(1); ++j, ++at) t.data()[at] = T(j <= i + k ? 1 : 0);
  }
  return t;
}

/// `count` numbers at equal distances from start to stop, which is the last one. Throws ShapeError for a
/// negative count.
template <class T = float>
[[nodiscard]] Tensor<T> linspace(double start, double stop, index_t count) {
  Tensor<T> t(Shape{count});
  const double step = count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0;
  for (index_t i = 0; i < count; ++i) {
    // From the nearer end, so that both ends are exact.
    const double x = i < (count + 1) / 2 ? start + step * static_cast<double>(i)
                                         : stop - step * static_cast<double>(count - 1 - i);
    t.data()[i] = static_cast<T>(x);
  }
  return t;
}

/// The numbers start, start + step, ... before stop, ceil((stop - start) / step) of them;
/// Tensor<T>::arange(n) begins at 0. Integers are exact. Throws ValueError for a step of zero and for a
/// number that is not finite.
template <class T = float, class A, class B, class C = int>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>&& std::is_arithmetic_v<C>)
    [[nodiscard]] Tensor<T> arange(A start, B stop, C step = C(1)) {
  using N = std::common_type_t<A, B, C>;
  if (step == C(0)) throw ValueError("arange", "the step is 0, must not be");
  const double n =
      std::ceil((static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step));
  if (!(std::abs(n) < 0x1p58)) throw ValueError("arange", "start, stop and step must be finite");
  Tensor<T> t(Shape{n < 0 ? 0 : static_cast<index_t>(n)});
  for (index_t i = 0; i < t.numel(); ++i) {
    t.data()[i] = static_cast<T>(static_cast<N>(start) + static_cast<N>(i) * static_cast<N>(step));
  }
  return t;
}

/// The numbers 0, 1, ... n - 1: Tensor<T>::arange(n). Throws ShapeError for a negative n.
template <class T = float>
[[nodiscard]] Tensor<T> arange(index_t n) {
  return Tensor<T>::arange(n);
}

/// A new tensor of x's shape and type with every element set to `value`. x: a Tensor or a Var.
template <class X>
requires requires(const X& x) { x.shape(); }
[[nodiscard]] Tensor<typename X::value_type> full_like(const X& x, typename X::value_type value) {
  return Tensor<typename X::value_type>::full(x.shape(), value);
}
/// A new tensor of zeros of x's shape and type.
template <class X>
[[nodiscard]] auto zeros_like(const X& x) {
  return full_like(x, typename X::value_type(0));
}
/// A new tensor of ones of x's shape and type.
template <class X>
[[nodiscard]] auto ones_like(const X& x) {
  return full_like(x, typename X::value_type(1));
}

/// For each index a row of zeros with a one in its place: indices (...) to (..., classes). Without `classes`
/// there is one more than the largest index. Throws IndexError for an index outside 0 .. classes - 1.
template <class T = float, detail::IndexNumber I>
[[nodiscard]] Tensor<T> one_hot(const Tensor<I>& indices, index_t classes = -1) {
  if (classes < 0) {
    classes = 0;
    for (const I i : indices.span()) classes = std::max<index_t>(classes, static_cast<index_t>(i) + 1);
  }
  Tensor<T> t = Tensor<T>::zeros(indices.shape().inserted(indices.rank(), classes));
  for (index_t r = 0; r < indices.numel(); ++r) {
    const index_t i = indices.data()[r];
    if (i < 0 || i >= classes) {
      throw IndexError("one_hot", {"index ", i, " is outside 0 .. ", classes - 1});
    }
    t.data()[r * classes + i] = T(1);
  }
  return t;
}

/// The coordinates of a grid: tensor k of the result has the shape (size of the first axis, of the second,
/// ...) and repeats axis k's values along the other dimensions, as PyTorch does and NumPy with
/// indexing="ij". Throws ShapeError for an axis whose rank is not 1.
template <class T>
[[nodiscard]] std::vector<Tensor<T>> meshgrid(const std::vector<Tensor<T>>& axes) {
  std::vector<index_t> sizes;
  for (const Tensor<T>& axis : axes) {
    if (axis.rank() != 1) {
      throw ShapeError("meshgrid", {"an axis of shape ", axis.shape(), " must have rank 1"}, {axis.shape()});
    }
    sizes.push_back(axis.numel());
  }
  const Shape shape{std::span<const index_t>(sizes)};
  std::vector<Tensor<T>> grid;
  for (std::size_t k = 0; k < axes.size(); ++k) {
    Tensor<T> t(shape);
    detail::StridedView view{shape, {}, 0};
    view.strides[k] = 1;
    detail::for_each_pair(t.data(), detail::whole_view(shape), axes[k].data(), view,
                          [](T& to, const T& from) { to = from; });
    grid.push_back(std::move(t));
  }
  return grid;
}

/// Numbers uniform in [low, high), drawn in row-major order; they depend on the generator alone. Undefined
/// values for an idle generator.
template <class T = float>
[[nodiscard]] Tensor<T> uniform(const Shape& shape, RandomGenerator& rng, double low = 0, double high = 1) {
  Tensor<T> t(shape);
  rng.fill_uniform(t.data(), t.numel(), low, high);
  return t;
}

/// Normal numbers, drawn in row-major order. Undefined values for an idle generator.
template <class T = float>
[[nodiscard]] Tensor<T> normal(const Shape& shape, RandomGenerator& rng, double mean = 0,
                               double standard_deviation = 1) {
  Tensor<T> t(shape);
  rng.fill_normal(t.data(), t.numel(), mean, standard_deviation);
  return t;
}

namespace detail {

// x between a and b, a <= b <= or around 0, at which the normal distribution truncated to [a, b] reaches u.
inline double truncated_quantile(double a, double b, double u) {
  // The left tail keeps its digits, the right one does not.
  if (a > 0) return -truncated_quantile(-b, -a, 1 - u);
  const auto below = [](double x) { return std::erfc(-x * 0.7071067811865476) / 2; };
  const double target = below(a) + u * (below(b) - below(a));
  double low = std::max(a, -40.0), high = std::max(low, std::min(b, 40.0));
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (below(middle) < target ? low : high) = middle;
  }
  return std::clamp((low + high) / 2, a, b);
}

}  // namespace detail

/// Normal numbers between low and high (which are values, not standard deviations), as PyTorch's
/// nn.init.trunc_normal_: by the inverse of the distribution function, one uniform number each. Throws
/// ValueError unless low <= high and the deviation is positive.
template <class T = float>
[[nodiscard]] Tensor<T> truncated_normal(const Shape& shape, RandomGenerator& rng, double mean = 0,
                                         double standard_deviation = 1, double low = -2, double high = 2) {
  if (!(low <= high) || !(standard_deviation > 0)) {
    throw ValueError("truncated_normal", {"needs low <= high and a positive deviation, got ", low, ", ", high,
                                          " and ", standard_deviation});
  }
  Tensor<T> t(shape);
  rng.fill_uniform(t.data(), t.numel(), 0, 1);
  const double a = (low - mean) / standard_deviation, b = (high - mean) / standard_deviation;
  T* x = t.data();
  parallel_for(t.numel(), 256, [=](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      x[i] = static_cast<T>(mean +
                            standard_deviation * detail::truncated_quantile(a, b, static_cast<double>(x[i])));
    }
  });
  return t;
}

/// True with probability p, element by element. Throws ValueError for a p outside 0 .. 1.
[[nodiscard]] EIGENFORMER_NOINLINE inline Tensor<bool> bernoulli(const Shape& shape, RandomGenerator& rng,
                                                                 double p = 0.5) {
  if (!(p >= 0 && p <= 1)) throw ValueError("bernoulli", {"probability ", p, " is outside 0 .. 1"});
  Tensor<bool> t(shape);
  for (bool& x : t.span()) x = rng.uniform() < p;
  return t;
}

/// Integers uniform in low .. high - 1, without bias. Throws ValueError unless low < high.
template <class I = std::int64_t>
[[nodiscard]] Tensor<I> randint(index_t low, index_t high, const Shape& shape, RandomGenerator& rng) {
  if (low >= high) {
    throw ValueError("randint",
                     {"there is no integer from ", low, " to ", high, " - 1, expected low < high"});
  }
  Tensor<I> t(shape);
  for (I& x : t.span()) x = static_cast<I>(low + rng.uniform_int(high - low));
  return t;
}

/// The numbers 0 .. n - 1 in random order. Throws ShapeError for a negative n.
template <class I = std::int64_t>
[[nodiscard]] Tensor<I> permutation(index_t n, RandomGenerator& rng) {
  Tensor<I> t = Tensor<I>::arange(n);
  rng.shuffle(t.span());
  return t;
}

/// Indices drawn with probabilities proportional to `weights`, which are finite, not negative and not all
/// zero: weights (n) to (count), (m, n) to (m, count). Without replacement no index is drawn twice from one
/// row, as if drawn one after the other. Throws ShapeError for another rank, ValueError for other weights and
/// when fewer than `count` are positive.
template <class T>
[[nodiscard]] Tensor<std::int64_t> multinomial(const Tensor<T>& weights, index_t count, RandomGenerator& rng,
                                               bool replacement = false) {
  if (weights.rank() < 1 || weights.rank() > 2) {
    throw ShapeError("multinomial", {"weights of shape ", weights.shape(), " must have rank 1 or 2"},
                     {weights.shape()});
  }
  const index_t n = weights.dim(-1);
  Tensor<std::int64_t> drawn(weights.shape().with(-1, count));
  std::vector<double> sums(static_cast<std::size_t>(n)), w(sums.size());
  for (index_t row = 0; row < weights.shape().rows(); ++row) {
    index_t positive = 0;
    double total = 0;
    for (index_t i = 0; i < n; ++i) {
      const double x = w[static_cast<std::size_t>(i)] = static_cast<double>(weights.data()[row * n + i]);
      if (!(x >= 0) || !std::isfinite(total += x)) {
        throw ValueError("multinomial", {"weight ", x, " of index ", i,
                                         " must be finite and not negative, their sum finite"});
      }
      positive += x > 0;
    }
    if (count > 0 && (positive == 0 || (!replacement && positive < count))) {
      throw ValueError("multinomial",
                       {count, " indices cannot be drawn from ", positive, " with a positive weight"});
    }
    for (index_t k = 0; k < count; ++k) {
      if (k == 0 || !replacement) {
        total = 0;
        for (std::size_t i = 0; i < w.size(); ++i) sums[i] = total += w[i];
      }
      // The first sum above the number, so an index without weight is never drawn.
      auto at = std::upper_bound(sums.begin(), sums.end(), rng.uniform() * total);
      if (at == sums.end()) at = std::lower_bound(sums.begin(), sums.end(), total);
      const auto i = at - sums.begin();
      drawn.data()[row * count + k] = i;
      w[static_cast<std::size_t>(i)] = replacement ? w[static_cast<std::size_t>(i)] : 0;
    }
  }
  return drawn;
}

}  // namespace eigenformer
