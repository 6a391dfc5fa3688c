#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/nn/stacks/encoder.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE_TEMPLATE("the encoder layer agrees with PyTorch, post- and pre-norm", T, float, double) {
  for (const std::string order : {"post", "pre"}) {
    for (const std::string activation : {"relu", "gelu"}) {
      const Fixture fixture("stacks/encoder_layer_" + order + "_" + activation);
      RandomGenerator rng(1);
      EncoderLayer<T> layer(
          small_layer(order == "pre", activation == "relu" ? Activation::relu : Activation::gelu), rng);
      const auto lengths = fixture.lengths("in.src_lengths");
      const auto mask = AttentionMask::block(fixture.get<bool>("in.src_mask"));
      check_parity<T>(fixture, layer, {"src"}, lengths, [&](const Context<T>& ctx, const auto& x) {
        return layer(ctx, x[0], SequenceLayout::padded(lengths, S), mask);
      });
      check_parity<T>(fixture, layer, {"src"}, lengths, [&](const Context<T>& ctx, const auto& x) {
        return layer(ctx, x[0], mask & AttentionMask::key_padding(fixture.get<bool>("in.src_key_padding")));
      });
    }
  }
}

TEST_CASE("the encoder's gradients are right with masks, every activation, norm formula and order") {
  const auto x = random_tensor<double>({B, S, D}, 2);
  const auto layout = SequenceLayout::padded({7, 4}, S);
  RandomGenerator rng(1);
  std::vector<LayerOptions> kinds{small_layer(), small_layer(true), small_layer(true, Activation::gelu_tanh),
                                  small_layer(false, Activation::silu)};
  kinds.push_back(small_layer());
  kinds.back().norm.formula = LayerNormFormula::teaching;
  kinds.back().norm.scalar_gain = true;
  kinds.back().bias = false;
  for (const auto& options : kinds) {
    Encoder<double> encoder({.num_layers = 2, .final_norm = true, .layer = options}, rng);
    randomise(encoder, 3);
    check_backward(encoder, {x}, [&](const Context<double>& ctx, const auto& in) {
      return encoder(ctx, in[0], layout, AttentionMask::window(3, 2));
    });
  }
}

TEST_CASE("the encoder has PyTorch's names, and no two of its layers start alike") {
  RandomGenerator rng(1);
  const Encoder<float> encoder({.num_layers = 2, .final_norm = true, .layer = small_layer()}, rng);
  std::vector<std::string> expected;
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    for (const char* name :
         {"self_attn.in_proj_weight (36, 12)", "self_attn.in_proj_bias (36,)",
          "self_attn.out_proj.weight (12, 12)", "self_attn.out_proj.bias (12,)", "linear1.weight (20, 12)",
          "linear1.bias (20,)", "linear2.weight (12, 20)", "linear2.bias (12,)", "norm1.weight (12,)",
          "norm1.bias (12,)", "norm2.weight (12,)", "norm2.bias (12,)"}) {
      expected.push_back(layer + name);
    }
  }
  expected.insert(expected.end(), {"norm.weight (12,)", "norm.bias (12,)"});
  CHECK(names_of(encoder) == expected);
  CHECK(values(encoder.layers[0].self_attn.in_proj.weight.value()) !=
        values(encoder.layers[1].self_attn.in_proj.weight.value()));
  CHECK(values(encoder.layers[0].feed_forward.linear1.weight.value()) !=
        values(encoder.layers[1].feed_forward.linear1.weight.value()));
}

TEST_CASE("an encoder of given layers is those layers one after the other, each with its own options") {
  RandomGenerator rng(1);
  std::vector<EncoderLayer<double>> layers;
  layers.emplace_back(small_layer(true), rng);
  layers.emplace_back(small_layer(false, Activation::gelu), rng);
  const auto ctx = Context<double>::inference();
  const Var<double> x = random_tensor<double>({B, S, D}, 2);
  const auto expected = layers[1](ctx, layers[0](ctx, x));
  const Encoder<double> encoder(std::move(layers));
  CHECK(values(encoder(ctx, x).value()) == values(expected.value()));
  CHECK(encoder.layers[1].feed_forward.linear1.weight.name() == "layers.1.linear1.weight");

  std::vector<EncoderLayer<double>> uneven;
  uneven.emplace_back(small_layer(), rng);
  uneven.emplace_back(LayerOptions{.d_model = 8, .num_heads = 2}, rng);
  CHECK(message_of<ValueError>([&] { (void)Encoder<double>(std::move(uneven)); }) ==
        "[encoder] layer 1 has d_model 8, must be that of layer 0, which is 12");
  CHECK(contains(message_of<ValueError>([] { (void)Encoder<double>(std::vector<EncoderLayer<double>>()); }),
                 "no layers"));
}

TEST_CASE("attention maps on request: one a layer, rows sum to one, the output unchanged, differentiable") {
  RandomGenerator rng(1);
  Encoder<double> encoder({.num_layers = 2, .layer = small_layer()}, rng);
  const auto x = random_tensor<double>({B, S, D}, 2);
  const auto layout = SequenceLayout::padded({7, 4}, S);
  std::vector<Var<double>> maps;
  const auto y = encoder(Context<double>::inference(), x, layout, {}, &maps);
  check_close(y.value(), encoder(Context<double>::inference(), x, layout).value(), 1e-12);
  REQUIRE(maps.size() == 2);
  for (const auto& map : maps) {
    REQUIRE(map.shape() == Shape{B, H, S, S});
    double row = 0;
    for (index_t j = 0; j < S; ++j) row += map.value().at({1, 2, 3, j});
    CHECK(row == doctest::Approx(1));
    CHECK(map.value().at({1, 2, 3, 5}) == 0);
  }
  check_backward(encoder, {x}, [&](const Context<double>& ctx, const auto& in) {
    std::vector<Var<double>> weights;
    const auto output = encoder(ctx, in[0], layout, {}, &weights);
    return add(sum(output), sum(square(weights[1])));
  });
}

TEST_CASE("the encoder says what does not fit") {
  RandomGenerator rng(1);
  const Encoder<float> encoder({.num_layers = 1, .layer = small_layer()}, rng);
  const auto ctx = Context<float>::inference();
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)encoder(ctx, Tensor<float>::zeros({2, 7, 11}));
                 }),
                 "must have 12 features, to match 'layers.0.self_attn.in_proj_weight'"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)encoder(ctx, Tensor<float>::zeros({2, 7, 1, 12}));
                 }),
                 "(2, 7, 1, 12)"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)encoder(ctx, Tensor<float>::zeros({2, 7, 12}), SequenceLayout::packed({7, 7}));
                 }),
                 "[encoder] input of shape (2, 7, 12) must fit its layout: 2 packed sequences in 14 rows"));
  const auto refuses = [&](const EncoderOptions& options) {
    return message_of<ValueError>([&] { Encoder<float>(options, rng); });
  };
  CHECK(refuses({.num_layers = 0}) == "[encoder] num_layers is 0, must be positive");
  CHECK(contains(refuses({.layer = {.d_model = -4}}), "d_model is -4"));
  CHECK(contains(refuses({.layer = {.d_model = 12, .num_heads = 5}}), "num_heads, which is 5"));
  CHECK(contains(refuses({.layer = {.dim_feedforward = 0}}), "dim_feedforward is 0"));
  CHECK(contains(refuses({.layer = {.dropout = {1.5}}}), "dropout is 1.5"));
  CHECK(contains(refuses({.layer = {.dropout = {.attention = 1}}}), "attention_dropout is 1"));
  CHECK(contains(refuses({.layer = {.dropout = {.feed_forward = -1}}}), "feed_forward_dropout is -1"));
  CHECK(contains(refuses({.layer = {.dropout = {.residual = 2}}}), "residual_dropout is 2"));
  CHECK(contains(refuses({.layer = {.norm = {.eps = -1}}}), "layer_norm_eps is -1"));
}
