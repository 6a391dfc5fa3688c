#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/nn/models/sequence_regressor.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

SequenceRegressorOptions small(Activation output = Activation::none) {
  return {.source_features = 3,
          .target_features = 4,
          .output_features = 2,
          .layer = {.d_model = D, .num_heads = H, .dim_feedforward = F, .activation = Activation::gelu},
          .encoder = {.num_layers = 1},
          .decoder = {.num_layers = 2},
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

TEST_CASE("the regressor has every option of the layers: gradients, causality, packed as padded") {
  const auto with = [](auto&& change) {
    auto options = small();
    options.decoder.num_layers = 1;
    change(options);
    return options;
  };
  using O = SequenceRegressorOptions;
  const std::vector<O> variants = {with([](O& o) {
                                     o.positions = LearnedPositions{.offset = 2};
                                     o.max_length = 9;
                                     o.layer.norm_first = true;
                                   }),
                                   with([](O& o) {
                                     o.layer.attention.positions = RotaryPositions{};
                                     o.layer.norm.kind = NormKind::rms_norm;
                                     o.layer.attention.query_key_norm = NormKind::rms_norm;
                                     o.layer.gated = true;
                                     o.layer.activation = Activation::silu;
                                     o.layer.bias = false;
                                   }),
                                   with([](O& o) {
                                     o.layer.attention.positions =
                                         RelativeBiasPositions{.buckets = 8, .max_distance = 9};
                                     o.layer.attention.num_key_value_heads = 1;
                                     o.layer.attention.head_dim = 6;
                                     o.layer.attention.scale = 0.3;
                                   }),
                                   with([](O& o) {
                                     o.layer.attention.positions = ShawPositions{.max_distance = 2};
                                     o.layer.attention.window = 3;
                                     o.layer.sandwich_norm = true;
                                   }),
                                   with([](O& o) {
                                     o.layer.attention.positions = AlibiPositions{};
                                     o.final_norm = false;
                                     o.layer.norm.formula = LayerNormFormula::teaching;
                                     o.layer.norm.scalar_gain = true;
                                   }),
                                   with([](O& o) {
                                     o.positions = NoPositions{};
                                     o.layer.attention.kind = AttentionKind::linear;
                                   })};
  const auto source = random_tensor<double>({B, S, 3}, 1), target = random_tensor<double>({B, L, 4}, 2);
  const auto sources = SequenceLayout::padded({7, 4}, S), targets = SequenceLayout::padded({3, 5}, L);
  const auto ctx = Context<double>::inference();
  const auto rows_of = [](const Tensor<double>& x, const SequenceLayout& layout) {
    Tensor<double> packed({layout.tokens(), x.dim(-1)});
    double* to = packed.data();
    for (index_t b = 0; b < layout.batch(); ++b)
      to = std::copy_n(x.data() + layout.offset(b) * x.dim(-1), layout.length(b) * x.dim(-1), to);
    return packed;
  };
  std::vector<std::vector<double>> outputs;
  for (const O& options : variants) {
    CAPTURE(detail::chosen_word(options.layer.attention.positions));
    RandomGenerator rng(1);
    SequenceRegressor<double> model(options, rng);
    randomise(model, 4);
    const auto y = model(ctx, source, sources, target, targets).value();
    const auto packed = model(ctx, rows_of(source, sources), SequenceLayout::packed({7, 4}),
                              rows_of(target, targets), SequenceLayout::packed({3, 5}))
                            .value();
    check_close(packed, rows_of(y, targets), 1e-12);
    // The layers are those of a Transformer with these options.
    CHECK((model.transformer.decoder.layers[0].options.attention.positions.index() ==
           options.layer.attention.positions.index()));
    CHECK(model.transformer.encoder.layers[0].options.attention.window == options.layer.attention.window);
    CHECK(bool(model.source_positions.learned) ==
          std::holds_alternative<LearnedPositions>(options.input_positions()));
    auto later = target.clone();
    later.at({1, 4, 2}) += 1;
    const auto changed = model(ctx, source, sources, later, targets).value();
    CHECK(values(changed.reshape({B * L, 2}).rows(L, 4)) == values(y.reshape({B * L, 2}).rows(L, 4)));
    check_backward(model, {source, target}, [&](const Context<double>& c, const auto& in) {
      return mean(square(model(c, in[0], sources, in[1], targets)));
    });
    outputs.push_back(values(y));
  }
  for (std::size_t i = 1; i < outputs.size(); ++i) CHECK(outputs[i] != outputs[i - 1]);
  RandomGenerator rng(1);
  CHECK(contains(message_of<ValueError>([&] {
                   SequenceRegressor<double>(with([](O& o) {
                                               o.positions = LearnedPositions{};
                                               o.max_length = 0;
                                             }),
                                             rng);
                 }),
                 "[sequence_regressor] max_length is 0, must be positive"));
}

TEST_CASE("the regressor's dropout rates are told apart") {
  const auto run = [](auto&& change) {
    auto options = small();
    options.layer.dropout.rate = 0;
    change(options);
    RandomGenerator rng(1), drop(5);
    const SequenceRegressor<float> model(options, rng);
    Tape<float> tape;
    return values(model(Context<float>::training(tape, drop), random_tensor<float>({B, S, 3}, 1),
                        random_tensor<float>({B, L, 4}, 2))
                      .value());
  };
  using O = SequenceRegressorOptions;
  const auto none = run([](O&) {});
  CHECK(run([](O& o) { o.embedding_dropout = 0.5; }) != none);
  CHECK(run([](O& o) { o.layer.dropout.attention = 0.5; }) != none);
  CHECK(run([](O& o) { o.layer.dropout.feed_forward = 0.5; }) != none);
  CHECK(run([](O& o) { o.layer.dropout.residual = 0.5; }) != none);
  CHECK(run([](O& o) { o.layer.layer_drop = 0.9; }) != none);
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
