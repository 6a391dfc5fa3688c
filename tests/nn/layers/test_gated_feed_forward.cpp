#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/nn/layers/feed_forward.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

FeedForwardOptions gated(Activation activation, bool bias = true) {
  return {.d_model = D, .dim_feedforward = F, .activation = activation, .bias = bias, .gated = true};
}

}  // namespace

TEST_CASE_TEMPLATE("GLU, GEGLU and SwiGLU networks agree with PyTorch", T, float, double) {
  const auto check = [](const char* name, Activation activation) {
    RandomGenerator rng(1);
    FeedForward<T> network(gated(activation), rng);
    check_parity<T>(Fixture(name), network, {"x"}, {L, L},
                    [&](const Context<T>& ctx, const auto& x) { return network(ctx, x[0]); });
  };
  check("layers/gated_feed_forward_glu", Activation::sigmoid);
  check("layers/gated_feed_forward_geglu", Activation::gelu);
  check("layers/gated_feed_forward_swiglu", Activation::silu);
}

TEST_CASE_TEMPLATE("glu and relu_squared agree with PyTorch", T, float, double) {
  const Fixture fixture("ops/glu");
  const auto check = [&](const std::string& key, auto&& f) {
    Tape<T> tape;
    const Var<T> x = tape.variable(fixture.get<T>("in.x"));
    const Var<T> y = f(x);
    check_close(y.value(), fixture.get<T>("out." + key), output_tolerance<T>, key);
    Gradients<T> none;
    tape.backward(y, fixture.get<T>("in.cotangent"), none);
    check_close(tape.gradient(x), fixture.get<T>("grad_in." + key), gradient_tolerance<T>, key);
  };
  check("glu", [](const Var<T>& x) { return glu(x); });
  check("relu_squared", [](const Var<T>& x) { return relu_squared(slice(x, -1, 0, F)); });
}

TEST_CASE("a gated network is linear2(activation(linear1(x)) * linear3(x)), forward and backward") {
  const auto x = random_tensor<double>({B, L, D}, 1);
  for (const auto activation :
       {Activation::sigmoid, Activation::gelu_tanh, Activation::silu, Activation::none}) {
    RandomGenerator rng(2);
    FeedForward<double> network(gated(activation), rng);
    randomise(network, 3);
    check_backward(network, {x},
                   [&](const Context<double>& ctx, const auto& in) { return network(ctx, in[0]); });
    const auto y = network(Context<double>::inference(), x).value();
    double expected = network.linear2.bias.value().at({4});
    for (index_t f = 0; f < F; ++f) {
      double gate = network.linear1.bias.value().at({f}), up = network.linear3->bias.value().at({f});
      for (index_t d = 0; d < D; ++d) {
        gate += network.linear1.weight.value().at({f, d}) * x.at({1, 3, d});
        up += network.linear3->weight.value().at({f, d}) * x.at({1, 3, d});
      }
      detail::kernels::activation_forward(activation, &gate, &gate, 1);
      expected += network.linear2.weight.value().at({4, f}) * gate * up;
    }
    CHECK(y.at({1, 3, 4}) == doctest::Approx(expected));
  }
}

TEST_CASE("a gated network has a third layer, drawn after the two that every network has") {
  RandomGenerator rng(1), same(1);
  const FeedForward<float> plain({.d_model = D, .dim_feedforward = F}, rng);
  const FeedForward<float> network(gated(Activation::silu, false), same);
  CHECK(names_of(network) == std::vector<std::string>{"linear1.weight (20, 12)", "linear2.weight (12, 20)",
                                                      "linear3.weight (20, 12)"});
  CHECK(values(network.linear1.weight.value()) == values(plain.linear1.weight.value()));
  CHECK(values(network.linear2.weight.value()) == values(plain.linear2.weight.value()));
}
