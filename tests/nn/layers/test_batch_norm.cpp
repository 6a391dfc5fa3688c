#include "eigenformer/nn/layers/batch_norm.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("BatchNorm: training contexts update the statistics, others use them") {
  RandomGenerator rng(1);
  BatchNorm<double> norm({.num_features = 3, .momentum = 0.5});
  CHECK(names_of(norm) ==
        std::vector<std::string>{"weight (3,)", "bias (3,)", "running_mean (3,)", "running_var (3,)"});
  CHECK(count_parameters(norm) == 6);
  const Tensor<double> x({2, 3, 2}, {1, 3, 5, 5, 0, 0, 3, 1, 5, 5, 0, 4});
  Tape<double> tape;
  (void)norm(Context<double>::checking(tape), x);
  CHECK(values(norm.running_mean.value) == std::vector<double>{0, 0, 0});
  const auto y = norm(Context<double>::training(tape, rng), x).value();
  CHECK(y.at({0, 0, 0}) == doctest::Approx(-1).epsilon(1e-4));
  CHECK(values(norm.running_mean.value) == std::vector<double>{1, 2.5, 0.5});
  CHECK(norm.running_var.value.at({0}) == doctest::Approx(0.5 + 0.5 * 4 / 3.0));
  const auto z = norm(Context<double>::inference(), x).value();
  CHECK(z.at({0, 1, 0}) == doctest::Approx(2.5 / std::sqrt(0.5 + 1e-5)));
  CHECK(values(norm.running_mean.value) == std::vector<double>{1, 2.5, 0.5});

  // Copies have statistics of their own; a state dict has them, too.
  const BatchNorm<double> copy(norm);
  BatchNorm<double> assigned({.num_features = 3}), loaded({.num_features = 3});
  assigned = norm;
  load_state_dict(loaded, state_dict(norm));
  norm.running_mean.value.fill(7);
  CHECK(values(copy.running_mean.value) == std::vector<double>{1, 2.5, 0.5});
  CHECK(values(assigned.running_mean.value) == std::vector<double>{1, 2.5, 0.5});
  CHECK(values(loaded.running_mean.value) == std::vector<double>{1, 2.5, 0.5});
  CHECK(values(loaded(Context<double>::inference(), x).value()) == values(z));
}

TEST_CASE("BatchNorm and GroupNorm: parameters, gradients and errors") {
  RandomGenerator rng(1);
  GroupNorm<double> group({.num_groups = 2, .num_channels = 4});
  CHECK(names_of(group) == std::vector<std::string>{"weight (4,)", "bias (4,)"});
  BatchNorm<double> batch({.num_features = 4});
  auto all = parameters(group);
  for (const auto& p : parameters(batch)) all.push_back(p);
  const auto report = grad_check(
      [&](Tape<double>& tape, const auto& v) {
        const auto ctx = Context<double>::checking(tape);
        return batch(ctx, group(ctx, v[0]));
      },
      {init::normal<double>({2, 4, 3}, rng)}, all);
  CHECK_MESSAGE(report.ok, report.str());
  CHECK(names_of(GroupNorm<float>({.num_groups = 1, .num_channels = 4, .affine = false})).empty());
  CHECK(names_of(BatchNorm<float>({.num_features = 4, .affine = false})).size() == 2);
  CHECK(message_of<ValueError>([&] { BatchNorm<float>({}); }) ==
        "[batch_norm] num_features is 0, must be positive");
  CHECK(message_of<ValueError>([&] { GroupNorm<float>({.num_groups = 3, .num_channels = 4}); }) ==
        "[group_norm] num_groups is 3, must divide num_channels 4");
}
