#include "eigenformer/nn/layers/sequential.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("Sequential calls modules and functions in order, under PyTorch's names") {
  RandomGenerator rng(1);
  Sequential net([](const auto& x) { return negate(x); },
                 Linear<double>({.in_features = 3, .out_features = 4}, rng),
                 [](const auto& x) { return relu(x); }, Dropout<double>(0.5),
                 Sequential(Linear<double>({.in_features = 4, .out_features = 2, .bias = false}, rng)));
  CHECK(names_of(net) == std::vector<std::string>{"1.weight (4, 3)", "1.bias (4,)", "4.0.weight (2, 4)"});
  const auto& first = std::get<1>(net.layers);
  CHECK(first.weight.name() == "1.weight");
  const auto ctx = Context<double>::inference();
  const Tensor<double> x({2, 3}, {1, -2, 3, -4, 5, -6});
  CHECK(values(net(ctx, x).value()) ==
        values(std::get<4>(net.layers)(ctx, relu(first(ctx, negate(x)))).value()));
  Tape<double> tape;
  const auto dropped = net(Context<double>::training(tape, rng), x).value();
  CHECK(values(dropped) != values(net(ctx, x).value()));
  auto moved = std::move(net);
  CHECK(parameters(moved).size() == 3);
  auto copy = moved;
  std::get<1>(copy.layers).weight.value().fill(0);
  CHECK(std::get<1>(moved.layers).weight.value().at({0, 0}) != 0);
  CHECK(message_of<ValueError>([] { Dropout<float>(1.0); }) ==
        "[dropout] dropout rate is 1, must be in [0, 1)");
}
