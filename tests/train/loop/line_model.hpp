#pragma once

#include <cstdint>
#include <vector>

#include "eigenformer/autograd/ops.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/nn/module/module.hpp"

namespace eigenformer::testing {

/// Points of a plane.
struct Points {
  std::vector<double> x, y;
};

/// y = slope x + offset: a model that is not a Transformer.
struct Line {
  using value_type = double;
  Parameter<double> slope{Tensor<double>::scalar(0.5)};
  Parameter<double> offset{Tensor<double>::scalar(-1)};

  Line() { name_parameters(*this); }

  Var<double> errors(const Context<double>& ctx, const Points& points) const {
    const auto column = [](const std::vector<double>& values) {
      return Var<double>(Tensor<double>::from({static_cast<index_t>(values.size())}, values));
    };
    return add(multiply(column(points.x), ctx.use(slope)), subtract(ctx.use(offset), column(points.y)));
  }
  /// The mean square of the errors.
  Var<double> loss(const Context<double>& ctx, const Points& points) const {
    const Var<double> error = errors(ctx, points);
    return mean(multiply(error, error));
  }
  static void fields(auto& self, auto&& visit) {
    visit("slope", self.slope);
    visit("offset", self.offset);
  }
};

/// Points on y = 3 x - 2 with a little noise, `count` batches of unequal size.
inline std::vector<Points> batches_of_points(index_t count, std::uint64_t seed = 1) {
  RandomGenerator rng(seed);
  std::vector<Points> batches;
  for (index_t k = 0; k < count; ++k) {
    Points points;
    for (index_t i = 0; i < 3 + k % 4; ++i) {
      points.x.push_back(rng.normal());
      points.y.push_back(3 * points.x.back() - 2 + 0.1 * rng.normal());
    }
    batches.push_back(points);
  }
  return batches;
}

inline auto loss_of(const Line& line) {
  return [&line](const Context<double>& ctx, const Points& points) { return line.loss(ctx, points); };
}

}  // namespace eigenformer::testing
