#include <doctest/doctest.h>

#include <cmath>

#include "eigenformer/nn/layers/feed_forward.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("the feed-forward network is linear2(activation(linear1(x))), forward and backward") {
  const auto x = random_tensor<double>({B, L, D}, 1);
  for (const auto activation :
       {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    RandomGenerator rng(2);
    FeedForward<double> network({.d_model = D, .dim_feedforward = F, .activation = activation}, rng);
    randomise(network, 3);
    check_backward(network, {x},
                   [&](const Context<double>& ctx, const auto& in) { return network(ctx, in[0]); });
    const auto y = network(Context<double>::inference(), x).value();
    const auto& w1 = network.linear1.weight.value();
    const auto& w2 = network.linear2.weight.value();
    double expected = network.linear2.bias.value().at({4});
    for (index_t f = 0; f < F; ++f) {
      double h = network.linear1.bias.value().at({f});
      for (index_t d = 0; d < D; ++d) h += w1.at({f, d}) * x.at({1, 3, d});
      detail::kernels::activation_forward(activation, &h, &h, 1);
      expected += w2.at({4, f}) * h;
    }
    CHECK(y.at({1, 3, 4}) == doctest::Approx(expected));
  }
}

TEST_CASE(
    "dropout inside the network keeps the mean, differs from pass to pass, and is off outside training") {
  RandomGenerator rng(4);
  const FeedForward<double> network({.d_model = D, .dim_feedforward = F, .dropout = 0.4}, rng);
  const auto x = random_tensor<double>({1, D}, 5);
  const auto expected = network(Context<double>::inference(), x).value();
  constexpr int passes = 4000;
  std::vector<double> mean(D, 0.0), square(D, 0.0);
  RandomGenerator masks(6);
  for (int i = 0; i < passes; ++i) {
    Tape<double> tape;
    const auto y = network(Context<double>::training(tape, masks), x).value();
    for (std::size_t j = 0; j < D; ++j) {
      mean[j] += y.data()[j] / passes;
      square[j] += y.data()[j] * y.data()[j] / passes;
    }
  }
  for (std::size_t j = 0; j < D; ++j) {
    const double deviation = std::sqrt(square[j] - mean[j] * mean[j]);
    CHECK(deviation > 0.01);
    CHECK(std::abs(mean[j] - expected.data()[j]) < 4.5 * deviation / std::sqrt(passes));
  }
  Tape<double> tape;
  CHECK(values(network(Context<double>::checking(tape), x).value()) == values(expected));
}

TEST_CASE("the feed-forward network refuses impossible options") {
  RandomGenerator rng(1);
  CHECK(message_of<ValueError>([&] { FeedForward<float>({.d_model = D, .dim_feedforward = 0}, rng); }) ==
        "[feed_forward] dim_feedforward is 0, must be positive");
  CHECK(contains(message_of<ValueError>([&] { FeedForward<float>({.d_model = D, .dropout = 1.0}, rng); }),
                 "dropout is 1, must be in [0, 1)"));
  const FeedForward<float> network({.d_model = 5, .dim_feedforward = 7}, rng);
  CHECK(message_of<ShapeError>([&] {
          (void)network(Context<float>::inference(), Tensor<float>::zeros({2, 4}));
        }) == "[linear] last dimension of input (2, 4) must be 5, to match 'linear1.weight' of shape (7, 5)");
}
