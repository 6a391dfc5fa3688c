#pragma once

#include <cmath>
#include <string>

#include "eigenformer/core/tensor/creation.hpp"

/// Initial values of parameters. All draw from the given generator in order, so a seed determines a model.
namespace eigenformer::init {

using eigenformer::normal;
using eigenformer::uniform;

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
