#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/linear/feed_forward.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/tape/grad_check.hpp"
#include "eigenformer/core/base/random.hpp"

using namespace eigenformer;

namespace {

Parameter<double> random_parameter(const Shape& shape, RandomGenerator& rng, const char* name) {
  Parameter<double> p{Tensor<double>(shape)};
  rng.fill_normal(p.value().data(), p.value().numel(), 0, 0.5);
  p.set_name(name);
  return p;
}

}  // namespace

TEST_CASE("the fused feed-forward op has the values and gradients of its parts") {
  RandomGenerator rng(3);
  const auto w1 = random_parameter({20, 12}, rng, "w1"), b1 = random_parameter({20}, rng, "b1");
  const auto w2 = random_parameter({7, 20}, rng, "w2"), b2 = random_parameter({7}, rng, "b2");
  Tensor<double> x(Shape{2, 5, 12});
  rng.fill_normal(x.data(), x.numel(), 0, 1);
  const detail::DropoutKey key{1, 2, 3};
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu,
        Activation::sigmoid, Activation::tanh, Activation::relu_squared}) {
    for (const double rate : {0.0, 0.3}) {
      CAPTURE(static_cast<int>(activation));
      CAPTURE(rate);
      const auto fused = [&](Tape<double>& tape, const Var<double>& input) {
        return feed_forward(Context<double>::training(tape, key), input, w1, b1, w2, b2, activation, rate);
      };
      const auto result =
          grad_check([&](Tape<double>& tape, const std::vector<Var<double>>& v) { return fused(tape, v[0]); },
                     {x}, {w1.handle(), b1.handle(), w2.handle(), b2.handle()});
      CHECK_MESSAGE(result.ok, result.str());

      Tape<double> tape;
      const auto ctx = Context<double>::training(tape, key);
      const auto parts = linear(ctx, linear(ctx, Var<double>(x), w1, b1, activation, rate), w2, b2);
      const auto whole = fused(tape, Var<double>(x));
      for (index_t i = 0; i < whole.numel(); ++i) CHECK(whole.value().data()[i] == parts.value().data()[i]);
    }
  }
}

TEST_CASE("the feed-forward op refuses inputs that do not fit, by name") {
  RandomGenerator rng(3);
  const auto w1 = random_parameter({20, 12}, rng, "layer.linear1.weight");
  const auto w2 = random_parameter({7, 20}, rng, "layer.linear2.weight");
  Tape<double> tape;
  const auto ctx = Context<double>::checking(tape);
  CHECK_THROWS_WITH_AS(
      (void)feed_forward(ctx, Var<double>(Tensor<double>::zeros({2, 11})), w1, {}, w2, {}, Activation::relu,
                         0.0),
      doctest::Contains("last dimension of input (2, 11) must be 12, to match 'layer.linear1.weight'"),
      ShapeError);
  const Var<double> x(Tensor<double>::zeros({2, 12}));
  const auto narrow = random_parameter({6}, rng, "layer.narrow.bias");
  CHECK_THROWS_WITH_AS((void)feed_forward(ctx, x, w1, narrow, w2, {}, Activation::relu, 0.0),
                       doctest::Contains("bias 'layer.narrow.bias' of shape (6,) must be (20,), to match "
                                         "'layer.linear1.weight' of shape (20, 12)"),
                       ShapeError);
  CHECK_THROWS_WITH_AS((void)feed_forward(ctx, x, w1, {}, w2, narrow, Activation::relu, 0.0),
                       doctest::Contains("bias 'layer.narrow.bias' of shape (6,) must be (7,)"), ShapeError);
}

TEST_CASE("the fused feed-forward op has the gradients of its parts in every block of many rows") {
  RandomGenerator rng(4);
  const auto w1 = random_parameter({300, 40}, rng, "w1"), b1 = random_parameter({300}, rng, "b1");
  const auto w2 = random_parameter({30, 300}, rng, "w2"), b2 = random_parameter({30}, rng, "b2");
  Tensor<double> x(Shape{520, 40});
  rng.fill_normal(x.data(), x.numel(), 0, 1);
  const auto gradients_of = [&](Activation activation, bool fused) {
    Tape<double> tape;
    const auto ctx = Context<double>::training(tape, detail::DropoutKey{1, 2, 3});
    const auto v = tape.variable(x.clone());
    Gradients<double> gradients({w1.handle(), b1.handle(), w2.handle(), b2.handle()});
    const auto y = fused ? feed_forward(ctx, v, w1, b1, w2, b2, activation, 0.3)
                         : linear(ctx, linear(ctx, v, w1, b1, activation, 0.3), w2, b2);
    tape.backward(sum(square(y)), gradients);
    return std::vector<Tensor<double>>{tape.gradient(v), gradients.of(w1).clone(), gradients.of(b1).clone(),
                                       gradients.of(w2).clone(), gradients.of(b2).clone()};
  };
  for (const Activation activation : {Activation::relu, Activation::gelu, Activation::silu}) {
    CAPTURE(static_cast<int>(activation));
    const auto whole = gradients_of(activation, true), parts = gradients_of(activation, false);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      double worst = 0, scale = 0;
      for (index_t k = 0; k < whole[i].numel(); ++k) {
        worst = std::max(worst, std::abs(whole[i].data()[k] - parts[i].data()[k]));
        scale = std::max(scale, std::abs(parts[i].data()[k]));
      }
      CHECK(worst <= 1e-11 * scale);
    }
  }
}
