#pragma once

#include <cmath>
#include <string>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/tensor.hpp"

/// Initial values of parameters. All draw from the given generator in order, so a seed determines a model.
namespace eigenformer::init {

/// A tensor with values uniform in [low, high).
template <class T>
[[nodiscard]] Tensor<T> uniform(const Shape& shape, RandomGenerator& rng, double low, double high) {
  Tensor<T> t(shape);
  rng.fill_uniform(t.data(), t.numel(), low, high);
  return t;
}

/// A tensor with values from a normal distribution.
template <class T>
[[nodiscard]] Tensor<T> normal(const Shape& shape, RandomGenerator& rng, double mean = 0,
                               double standard_deviation = 1) {
  Tensor<T> t(shape);
  rng.fill_normal(t.data(), t.numel(), mean, standard_deviation);
  return t;
}

/// A tensor of shape (fan_out, fan_in) with values uniform in +-gain sqrt(6 / (fan_in + fan_out)). Throws
/// ShapeError unless the rank is 2. Glorot and Bengio 2010, eq. 16.
template <class T>
[[nodiscard]] Tensor<T> xavier_uniform(const Shape& shape, RandomGenerator& rng, double gain = 1) {
  if (shape.rank() != 2) {
    throw ShapeError("xavier_uniform", "weight of shape " + shape.str() + " must be (out, in)", {shape});
  }
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(shape[0] + shape[1]));
  return uniform<T>(shape, rng, -bound, bound);
}

}  // namespace eigenformer::init
