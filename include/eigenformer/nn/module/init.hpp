#pragma once

#include <algorithm>
#include <cmath>

#include "eigenformer/autograd/random.hpp"

/// Initial values of parameters. All draw from the given generator in order, so a seed determines a model.
namespace eigenformer::init {

using eigenformer::normal;
using eigenformer::uniform;

/// A tensor of shape (fan_out, fan_in) with values uniform in +-gain sqrt(6 / (fan_in + fan_out)). Throws
/// ShapeError unless the rank is 2. Glorot and Bengio 2010, eq. 16.
template <class T>
[[nodiscard]] Tensor<T> xavier_uniform(const Shape& shape, RandomGenerator& rng, double gain = 1) {
  if (shape.rank() != 2) {
    throw ShapeError("xavier_uniform", {"weight of shape ", shape, " must be (out, in)"}, {shape});
  }
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(shape[0] + shape[1]));
  return uniform<T>(shape, rng, -bound, bound);
}

/// A tensor (fan_out, ...) with values uniform in +-sqrt(6 / ((1 + a^2) fan_in)), fan_in being the number of
/// elements for each of the fan_out: PyTorch's kaiming_uniform_ for leaky ReLUs of negative slope a. Throws
/// ShapeError for a rank below 2. He et al. 2015.
template <class T>
[[nodiscard]] Tensor<T> kaiming_uniform(const Shape& shape, RandomGenerator& rng, double a = 0) {
  if (shape.rank() < 2) {
    throw ShapeError("kaiming_uniform", {"weight of shape ", shape, " must be (out, in, ...)"}, {shape});
  }
  index_t fan_in = 1;
  for (index_t d = 1; d < shape.rank(); ++d) fan_in *= shape[d];
  const double bound = std::sqrt(6.0 / ((1 + a * a) * static_cast<double>(std::max<index_t>(1, fan_in))));
  return uniform<T>(shape, rng, -bound, bound);
}

}  // namespace eigenformer::init
