#include "eigenformer/nn/layers/convolution.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("Conv2d and Conv1d have PyTorch's names, shapes and first values") {
  RandomGenerator rng(1);
  const Conv2d<float> image({.in_channels = 6,
                             .out_channels = 40,
                             .kernel_size = {3, 5},
                             .stride = {1, 2},
                             .padding = 1,
                             .groups = 2},
                            rng);
  CHECK(names_of(image) == std::vector<std::string>{"weight (40, 3, 3, 5)", "bias (40,)"});
  const double bound = 1 / std::sqrt(45.0);
  for (const auto* p : {&image.weight, &image.bias}) {
    double largest = 0;
    for (const float x : p->value().span()) largest = std::max(largest, std::abs(static_cast<double>(x)));
    CHECK(largest < bound);
    CHECK(largest > 0.8 * bound);
  }
  const Tensor<float> x = Tensor<float>::ones({2, 6, 7, 8});
  const auto y = image(Context<float>::inference(), x);
  CHECK(y.shape() == Shape{2, 40, 7, 3});
  CHECK(values(y.value()) == values(conv2d(x, image.weight.value(), image.bias.value(),
                                           {.stride = {1, 2}, .padding = 1, .groups = 2})
                                        .value()));

  const Conv1d<double> signal(
      {.in_channels = 3, .out_channels = 4, .kernel_size = 5, .dilation = 2, .bias = false}, rng);
  CHECK(names_of(signal) == std::vector<std::string>{"weight (4, 3, 5)"});
  CHECK(signal(Context<double>::inference(), Tensor<double>::ones({2, 3, 11})).shape() == Shape{2, 4, 3});
}

TEST_CASE("Conv2d: gradients of weight and bias") {
  RandomGenerator rng(1);
  Conv2d<double> layer({.in_channels = 2, .out_channels = 3, .kernel_size = 2}, rng);
  const auto report = grad_check(
      [&](Tape<double>& tape, const auto& v) { return layer(Context<double>::checking(tape), v[0]); },
      {init::normal<double>({2, 2, 3, 4}, rng)}, parameters(layer));
  CHECK_MESSAGE(report.ok, report.str());
}

TEST_CASE("Conv2d and Conv1d refuse impossible options") {
  RandomGenerator rng(1);
  CHECK(message_of<ValueError>([&] { Conv2d<float>({.in_channels = 3, .kernel_size = 3}, rng); }) ==
        "[conv2d] out_channels is 0, must be positive");
  CHECK(message_of<ValueError>([&] { Conv1d<float>({.in_channels = 3, .out_channels = 2}, rng); }) ==
        "[conv1d] kernel_size is 0, must be positive");
  CHECK(message_of<ValueError>([&] {
          Conv2d<float>({.in_channels = 3, .out_channels = 4, .kernel_size = 1, .groups = 2}, rng);
        }) == "[conv2d] groups is 2, must divide in_channels 3 and out_channels 4");
}
