#include <doctest/doctest.h>

#include "eigenformer/nn/layers/linear.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("linear agrees with PyTorch", T, float, double) {
  RandomGenerator rng(1);
  Linear<T> layer({.in_features = D, .out_features = F}, rng);
  check_parity<T>(Fixture("layers/linear"), layer, {"x"}, {L, L},
                  [&](const Context<T>& ctx, const auto& x) { return layer(ctx, x[0]); });
}

TEST_CASE("linear starts with zero bias, random weight, and PyTorch's names") {
  RandomGenerator rng(1);
  const Linear<float> layer({.in_features = D, .out_features = F}, rng);
  CHECK(names_of(layer) == std::vector<std::string>{"weight (20, 12)", "bias (20,)"});
  CHECK(values(layer.bias.value()) == std::vector<float>(F, 0.0F));
  CHECK(layer.weight.value().at({0, 0}) != layer.weight.value().at({1, 0}));
  const Linear<float> plain({.in_features = D, .out_features = F, .bias = false}, rng);
  CHECK(names_of(plain) == std::vector<std::string>{"weight (20, 12)"});
  CHECK(plain(Context<float>::inference(), Tensor<float>::zeros({3, D})).shape() == Shape{3, F});
}

TEST_CASE("linear refuses other shapes and impossible options") {
  RandomGenerator rng(1);
  const Linear<float> layer({.in_features = 5, .out_features = 10}, rng);
  CHECK(message_of<ShapeError>([&] {
          (void)layer(Context<float>::inference(), Tensor<float>::zeros({2, 4}));
        }) == "[linear] last dimension of input (2, 4) must be 5, to match 'weight' of shape (10, 5)");
  CHECK(message_of<ValueError>([&] { Linear<float>({.in_features = 5}, rng); }) ==
        "[linear] out_features is 0, must be positive");
  CHECK(message_of<ValueError>([&] { Linear<float>({.in_features = -3, .out_features = 2}, rng); }) ==
        "[linear] in_features is -3, must be positive");
}
