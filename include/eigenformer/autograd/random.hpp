#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/elementwise/random.hpp"

namespace eigenformer {

/// Numbers uniform in [low, high), drawn in row-major order; they depend on the generator alone. Undefined
/// values for an idle generator.
template <class T = float>
[[nodiscard]] Tensor<T> uniform(const Shape& shape, RandomGenerator& rng, double low = 0, double high = 1) {
  Tensor<T> t(shape);
  detail::kernels::random_uniform(rng, t.data(), t.numel(), low, high);
  return t;
}

/// Normal numbers, drawn in row-major order. Undefined values for an idle generator.
template <class T = float>
[[nodiscard]] Tensor<T> normal(const Shape& shape, RandomGenerator& rng, double mean = 0,
                               double standard_deviation = 1) {
  Tensor<T> t(shape);
  detail::kernels::random_normal(rng, t.data(), t.numel(), mean, standard_deviation);
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
  Tensor<T> t = uniform<T>(shape, rng);
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

/// Integers uniform in low .. high - 1, without bias. Throws ValueError unless low < high, and for a range
/// that the type, or 63 bits, cannot count.
template <class I = std::int64_t>
[[nodiscard]] Tensor<I> randint(index_t low, index_t high, const Shape& shape, RandomGenerator& rng) {
  if (low >= high) {
    throw ValueError("randint",
                     {"there is no integer from ", low, " to ", high, " - 1, expected low < high"});
  }
  const auto count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  if (!std::in_range<I>(low) || !std::in_range<I>(high - 1) || !std::in_range<index_t>(count)) {
    throw ValueError("randint", {low, " to ", high,
                                 " - 1 are more numbers than the type of the result, or 63 bits, hold"});
  }
  Tensor<I> t(shape);
  for (I& x : t.span()) x = static_cast<I>(low + rng.uniform_int(high - low));
  return t;
}

/// The numbers 0 .. n - 1 in random order. Throws ShapeError for a negative n, ValueError for numbers that
/// the type cannot hold.
template <class I = std::int64_t>
[[nodiscard]] Tensor<I> permutation(index_t n, RandomGenerator& rng) {
  if (n > 0 && !std::in_range<I>(n - 1)) {
    throw ValueError("permutation", {n - 1, " does not fit the type of the result"});
  }
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
