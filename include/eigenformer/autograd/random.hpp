#pragma once

#include <algorithm>
#include <bit>
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
/// values for an idle generator. Throws ValueError unless low <= high and both are finite.
template <class T = float>
[[nodiscard]] Tensor<T> uniform(const Shape& shape, RandomGenerator& rng, double low = 0, double high = 1) {
  if (!(low <= high) || !std::isfinite(high - low)) {
    throw ValueError("uniform", {"needs finite low <= high, got ", low, " and ", high});
  }
  Tensor<T> t(shape);
  detail::kernels::random_uniform(rng, t.data(), t.numel(), low, high);
  return t;
}

/// Normal numbers, drawn in row-major order. Undefined values for an idle generator. Throws ValueError unless
/// both parameters are finite and the deviation is not negative.
template <class T = float>
[[nodiscard]] Tensor<T> normal(const Shape& shape, RandomGenerator& rng, double mean = 0,
                               double standard_deviation = 1) {
  if (!std::isfinite(mean) || !(standard_deviation >= 0) || !std::isfinite(standard_deviation)) {
    throw ValueError("normal", {"needs a finite mean and a finite deviation of at least 0, got ", mean,
                                " and ", standard_deviation});
  }
  Tensor<T> t(shape);
  detail::kernels::random_normal(rng, t.data(), t.numel(), mean, standard_deviation);
  return t;
}

namespace detail {

// x between a and b at which the normal distribution truncated to [a, b] reaches u. Far from the mean, where
// the distribution function is 0 in doubles, that of x's Rayleigh tail (Marsaglia 1964), within 1/a^2 of it.
inline double truncated_quantile(double a, double b, double u) {
  // The left tail keeps its digits, the right one does not.
  if (a > 30) return std::min(b, std::sqrt(a * a - 2 * std::log1p(u * std::expm1((a * a - b * b) / 2))));
  if (a > 0 || b < -30) return -truncated_quantile(-b, -a, 1 - u);
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
/// ValueError unless low <= high, the mean is finite and the deviation finite and positive.
template <class T = float>
[[nodiscard]] Tensor<T> truncated_normal(const Shape& shape, RandomGenerator& rng, double mean = 0,
                                         double standard_deviation = 1, double low = -2, double high = 2) {
  if (!(low <= high) || !std::isfinite(mean) || !(standard_deviation > 0) ||
      !std::isfinite(standard_deviation)) {
    throw ValueError("truncated_normal",
                     {"needs low <= high, a finite mean and a finite positive deviation, got ", low, ", ",
                      high, ", ", mean, " and ", standard_deviation});
  }
  Tensor<T> t = uniform<T>(shape, rng);
  const double a = (low - mean) / standard_deviation, b = (high - mean) / standard_deviation;
  T* x = t.data();
  detail::parallel_each(t.numel(), 256, [=](index_t i) {
    x[i] = static_cast<T>(mean +
                          standard_deviation * detail::truncated_quantile(a, b, static_cast<double>(x[i])));
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
  // Sums of the weights of pairs, of pairs of pairs, ..., so that taking an index out costs log n; sums[1] is
  // that of all. Each is computed from its parts anew: a difference would not be exactly 0 without weights.
  const auto leaves = std::bit_ceil(static_cast<std::size_t>(std::max<index_t>(n, 1)));
  std::vector<double> sums(2 * leaves);
  for (index_t row = 0; row < weights.shape().rows(); ++row) {
    index_t positive = 0;
    for (index_t i = 0; i < n; ++i) {
      const double x = static_cast<double>(weights.data()[row * n + i]);
      if (!(x >= 0) || !std::isfinite(x)) {
        throw ValueError("multinomial", {"weight ", x, " of index ", i, " must be finite and not negative"});
      }
      sums[leaves + static_cast<std::size_t>(i)] = x;
      positive += x > 0;
    }
    for (std::size_t i = leaves - 1; i > 0; --i) sums[i] = sums[2 * i] + sums[2 * i + 1];
    if (!std::isfinite(sums[1])) throw ValueError("multinomial", {"the sum of the weights is not finite"});
    if (count > 0 && (positive == 0 || (!replacement && positive < count))) {
      throw ValueError("multinomial",
                       {count, " indices cannot be drawn from ", positive, " with a positive weight"});
    }
    for (index_t k = 0; k < count; ++k) {
      double x = rng.uniform() * sums[1];
      std::size_t at = 1;
      while (at < leaves) {
        at *= 2;
        if (x >= sums[at] && sums[at + 1] > 0) x -= sums[at++];
      }
      drawn.data()[row * count + k] = static_cast<std::int64_t>(at - leaves);
      if (replacement) continue;
      sums[at] = 0;
      while (at /= 2) sums[at] = sums[2 * at] + sums[2 * at + 1];
    }
  }
  return drawn;
}

}  // namespace eigenformer
