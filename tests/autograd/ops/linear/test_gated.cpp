#include "eigenformer/autograd/ops/linear/feed_forward.hpp"

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/autograd/ops/elementwise/dropout.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

constexpr Activation gates[] = {Activation::sigmoid, Activation::gelu,         Activation::gelu_tanh,
                                Activation::silu,    Activation::relu_squared, Activation::relu,
                                Activation::tanh,    Activation::none};

Parameter<double> parameter(const Shape& shape, std::uint64_t seed, const char* name) {
  Parameter<double> p(random(shape, seed));
  p.set_name(name);
  return p;
}

}  // namespace

TEST_CASE("glu: gradients and values for every gate") {
  const Tensor<double> x = away_from_zero({2, 5, 14}, 1, 0.05, 3.0);
  for (const Activation gate : gates) {
    CAPTURE(static_cast<int>(gate));
    check_op([&](const Vars& v) { return glu(v[0], gate); }, {x});
    const Tensor<double> y = glu(Var<double>(x), gate).value();
    const Tensor<double> f = activate(Var<double>(x), gate).value();
    CHECK(y.shape() == Shape{2, 5, 7});
    for (index_t r = 0; r < 10; ++r) {
      for (index_t i = 0; i < 7; ++i) {
        CHECK(y.data()[r * 7 + i] == doctest::Approx(x.data()[r * 14 + i] * f.data()[r * 14 + 7 + i]));
      }
    }
  }
  CHECK(message_of<ShapeError>([] {
          (void)glu(Var<double>(Tensor<double>::zeros({2, 5})));
        }) == "[glu] last dimension of input (2, 5) must be even");
}

TEST_CASE("the gated feed-forward op has the values and gradients of its parts") {
  const auto w1 = parameter({11, 6}, 1, "w1"), b1 = parameter({11}, 2, "b1"),
             w3 = parameter({11, 6}, 3, "w3"), b3 = parameter({11}, 4, "b3"),
             w2 = parameter({5, 11}, 5, "w2"), b2 = parameter({5}, 6, "b2");
  const std::vector<ParameterHandle<double>> handles = {w1.handle(), b1.handle(), w3.handle(),
                                                        b3.handle(), w2.handle(), b2.handle()};
  const Tensor<double> x = random({2, 3, 6}, 7);
  const detail::DropoutKey key{1, 2, 3};
  for (const Activation gate : gates) {
    for (const double rate : {0.0, 0.3}) {
      CAPTURE(static_cast<int>(gate));
      CAPTURE(rate);
      const auto fused = [&](Tape<double>& tape, const Vars& v) {
        return gated_feed_forward(Context<double>::training(tape, key), v[0], w1, b1, w3, b3, w2, b2, gate,
                                  rate);
      };
      check_op(fused, {x}, handles);
      Tape<double> tape;
      const auto ctx = Context<double>::training(tape, key);
      const auto hidden =
          multiply(activate(linear(ctx, Var<double>(x), w1, b1), gate), linear(ctx, Var<double>(x), w3, b3));
      const auto parts = linear(ctx, dropout(ctx, hidden, rate), w2, b2);
      CHECK(worst_difference(fused(tape, {Var<double>(x)}).value(), parts.value()) < 1e-12);
      if (rate > 0) continue;
      const auto inferred = gated_feed_forward(Context<double>::inference(), Var<double>(x), w1, b1, w3, b3,
                                               w2, b2, gate, rate);
      CHECK(worst_difference(inferred.value(), parts.value()) < 1e-12);
    }
  }
  const Parameter<double> absent;
  check_op(
      [&](Tape<double>& tape, const Vars& v) {
        return gated_feed_forward(Context<double>::checking(tape), v[0], w1, absent, w3, absent, w2, absent,
                                  Activation::silu, 0.0);
      },
      {x}, {w1.handle(), w3.handle(), w2.handle()});
}

TEST_CASE("the gated feed-forward op refuses what does not fit, by name") {
  const auto w1 = parameter({20, 12}, 1, "linear1.weight"), w3 = parameter({19, 12}, 3, "linear3.weight"),
             w2 = parameter({7, 20}, 5, "linear2.weight");
  const auto up = parameter({20, 12}, 7, "linear3.weight"), narrow = parameter({6}, 8, "narrow.bias");
  const Parameter<double> absent;
  for (const auto& [gate_bias, up_bias, out_bias, expected] :
       {std::tuple(narrow, absent, absent, "must be (20,), to match 'linear1.weight'"),
        std::tuple(absent, narrow, absent, "must be (20,), to match 'linear3.weight'"),
        std::tuple(absent, absent, narrow, "must be (7,), to match 'linear2.weight'")}) {
    const std::string message =
        message_of<ShapeError>([&, &gate = gate_bias, &third = up_bias, &out = out_bias] {
          (void)gated_feed_forward(Context<double>::inference(), Var<double>(Tensor<double>::zeros({2, 12})),
                                   w1, gate, up, third, w2, out, Activation::silu, 0.0);
        });
    CHECK(contains(message, "bias 'narrow.bias' of shape (6,)"));
    CHECK(contains(message, expected));
  }
  const auto run = [&](const Shape& shape) {
    (void)gated_feed_forward(Context<double>::inference(), Var<double>(Tensor<double>::zeros(shape)), w1,
                             absent, w3, absent, w2, absent, Activation::silu, 0.0);
  };
  CHECK(contains(message_of<ShapeError>([&] {
                   run({2, 11});
                 }),
                 "last dimension of input (2, 11) must be 12, to match 'linear1.weight'"));
  CHECK(contains(message_of<ShapeError>([&] {
                   run({2, 12});
                 }),
                 "'linear3.weight' of shape (19, 12) must have the shape of 'linear1.weight'"));
}
