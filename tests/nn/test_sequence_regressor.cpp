#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduce.hpp"
#include "eigenformer/nn/sequence_regressor.hpp"
#include "module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

SequenceRegressorOptions small(Activation output = Activation::none) {
  return {.source_features = 3,
          .target_features = 4,
          .output_features = 2,
          .d_model = D,
          .num_heads = H,
          .num_encoder_layers = 1,
          .num_decoder_layers = 2,
          .dim_feedforward = F,
          .activation = Activation::gelu,
          .output_activation = output};
}

}  // namespace

TEST_CASE("the regressor's gradients are right, with every kind of output") {
  const auto source = random_tensor<double>({B, S, 3}, 1), target = random_tensor<double>({B, L, 4}, 2),
             truth = random_tensor<double>({B, L, 2}, 3);
  for (const auto activation : {Activation::none, Activation::sigmoid, Activation::tanh}) {
    RandomGenerator rng(1);
    SequenceRegressor<double> model(small(activation), rng);
    randomise(model, 4);
    check_backward(model, {source, target}, [&](const Context<double>& ctx, const auto& in) {
      return mean(square(subtract(
          model(ctx, in[0], SequenceLayout::padded({7, 4}, S), in[1], SequenceLayout::padded(B, L)), truth)));
    });
  }
}

TEST_CASE("the regressor is causal, and the same padded, packed and alone") {
  RandomGenerator rng(1);
  const SequenceRegressor<float> model(small(), rng);
  const auto ctx = Context<float>::inference();
  const auto source = random_tensor<float>({B, S, 3}, 1), target = random_tensor<float>({B, L, 4}, 2);
  const auto y = model(ctx, source, target).value();
  CHECK(y.shape() == Shape{B, L, 2});
  auto later = target.clone();
  later.at({1, 3, 2}) += 1;
  const auto changed = model(ctx, source, later).value();
  CHECK(values(changed.reshape({B * L, 2}).rows(0, L + 3)) == values(y.reshape({B * L, 2}).rows(0, L + 3)));
  CHECK(changed.at({1, 3, 0}) != y.at({1, 3, 0}));
  const auto packed = model(ctx, source.reshape({B * S, 3}), SequenceLayout::packed({S, S}),
                            target.reshape({B * L, 4}), SequenceLayout::packed({L, L}));
  CHECK(values(packed.value()) == values(y));
  CHECK(values(model(ctx, source.rows(1, 1), target.rows(1, 1)).value()) == values(y.rows(1, 1)));
}

TEST_CASE("the regressor says what does not fit") {
  RandomGenerator rng(1);
  const SequenceRegressor<float> model(small(), rng);
  const auto ctx = Context<float>::inference();
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)model(ctx, Tensor<float>::zeros({2, 7, 4}), Tensor<float>::zeros({2, 5, 4}));
                 }),
                 "must be 3, to match 'source_input.weight' of shape (12, 3)"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)model(ctx, Tensor<float>::zeros({2, 7, 3}), Tensor<float>::zeros({3, 5, 4}));
                 }),
                 "3 sequences of queries and 2 of keys"));
  auto options = small();
  options.output_features = 0;
  CHECK(message_of<ValueError>([&] { SequenceRegressor<float>(options, rng); }) ==
        "[sequence_regressor] output_features is 0, must be positive");
}
