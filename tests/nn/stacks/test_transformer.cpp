#include <doctest/doctest.h>

#include <limits>

#include "eigenformer/nn/stacks/transformer.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

TransformerOptions small(bool norm_first = false) {
  return {.layer = {.d_model = D, .num_heads = H, .dim_feedforward = F, .norm_first = norm_first},
          .encoder = {.num_layers = 2},
          .decoder = {.num_layers = 2}};
}

template <class T>
Transformer<T> make(bool norm_first = false) {
  RandomGenerator rng(1);
  Transformer<T> model(small(norm_first), rng);
  randomise(model, 2);
  return model;
}

}  // namespace

TEST_CASE_TEMPLATE("the Transformer agrees with PyTorch under all masks at once, post- and pre-norm", T,
                   float, double) {
  for (const std::string order : {"post", "pre"}) {
    const Fixture fixture("models/transformer_" + order);
    auto model = make<T>(order == "pre");
    const auto source = SequenceLayout::padded(fixture.lengths("in.src_lengths"), S);
    const auto target = SequenceLayout::padded(fixture.lengths("in.tgt_lengths"), L);
    const auto mask = [&](const char* name) { return AttentionMask::block(fixture.get<bool>(name)); };
    const TransformerMasks masks{mask("in.src_mask"), mask("in.tgt_mask"), mask("in.memory_mask")};
    check_parity<T>(
        fixture, model, {"src", "tgt"}, fixture.lengths("in.tgt_lengths"),
        [&](const Context<T>& ctx, const auto& x) { return model(ctx, x[0], source, x[1], target, masks); });
    const auto padding = [&](const char* name) {
      return AttentionMask::key_padding(fixture.get<bool>(name));
    };
    const TransformerMasks padded{masks.source & padding("in.src_key_padding"),
                                  masks.target & padding("in.tgt_key_padding"),
                                  masks.memory & padding("in.memory_key_padding")};
    check_parity<T>(fixture, model, {"src", "tgt"}, fixture.lengths("in.tgt_lengths"),
                    [&](const Context<T>& ctx, const auto& x) { return model(ctx, x[0], x[1], padded); });
    const auto memory =
        model.encoder(Context<T>::inference(), fixture.get<T>("in.src"), source, masks.source);
    check_rows_close(memory.value(), fixture.get<T>("out.memory"), fixture.lengths("in.src_lengths"),
                     output_tolerance<T>, "memory");
  }
}

TEST_CASE("the Transformer's gradients are right with all masks") {
  // With GELU: where a central difference crosses ReLU's kink, it says nothing.
  for (const bool norm_first : {false, true}) {
    auto options = small(norm_first);
    options.layer.activation = Activation::gelu;
    RandomGenerator rng(1);
    Transformer<double> model(options, rng);
    randomise(model, 2);
    check_backward(model, {random_tensor<double>({B, S, D}, 3), random_tensor<double>({B, L, D}, 4)},
                   [&](const Context<double>& ctx, const auto& in) {
                     return model(ctx, in[0], SequenceLayout::padded({7, 4}, S), in[1],
                                  SequenceLayout::padded({3, 5}, L),
                                  {.source = AttentionMask::window(4, 2),
                                   .target = AttentionMask::causal(),
                                   .memory = AttentionMask::window(3, 3)});
                   });
  }
}

TEST_CASE("padded, packed and alone give the same rows, bit by bit") {
  const auto model = make<float>();
  const auto ctx = Context<float>::inference();
  const auto source = random_tensor<float>({B, S, D}, 3), target = random_tensor<float>({B, L, D}, 4);
  const auto padded_source = SequenceLayout::padded({7, 4}, S),
             padded_target = SequenceLayout::padded({3, 5}, L);
  const auto packed_source = SequenceLayout::packed({7, 4}), packed_target = SequenceLayout::packed({3, 5});
  const auto pack = [](const Tensor<float>& x, const SequenceLayout& from, const SequenceLayout& to) {
    Tensor<float> rows({to.rows(), D});
    for (index_t b = 0; b < B; ++b) rows.rows(to.offset(b), to.length(b)).copy_from(sequence(x, from, b));
    return rows;
  };
  const TransformerMasks masks{.target = AttentionMask::causal()};
  const auto padded = model(ctx, source, padded_source, target, padded_target, masks).value();
  const auto packed = model(ctx, pack(source, padded_source, packed_source), packed_source,
                            pack(target, padded_target, packed_target), packed_target, masks)
                          .value();
  for (index_t b = 0; b < B; ++b) {
    const auto rows = values(sequence(padded, padded_target, b));
    CHECK(values(sequence(packed, packed_target, b)) == rows);
    const auto alone =
        model(ctx, sequence(source, padded_source, b), sequence(target, padded_target, b), masks).value();
    CHECK(values(alone) == rows);
  }
}

TEST_CASE("what padding holds changes nothing, bit by bit: outputs even for NaN, gradients for any numbers") {
  auto model = make<float>();
  const auto source = random_tensor<float>({B, S, D}, 3), target = random_tensor<float>({B, L, D}, 4);
  const auto sources = SequenceLayout::padded({7, 4}, S), targets = SequenceLayout::padded({3, 5}, L);
  const auto filled = [](const Tensor<float>& x, const SequenceLayout& layout, float value) {
    auto copy = x.clone();
    for (index_t b = 0; b < B; ++b) {
      for (index_t i = layout.length(b); i < layout.max_length(); ++i)
        copy.rows(b, 1).reshape({x.dim(1), D}).rows(i, 1).fill(value);
    }
    return copy;
  };
  auto cotangent = random_tensor<float>({B, L, D}, 5);
  cotangent = filled(cotangent, targets, 0);
  const auto run = [&](const Tensor<float>& s, const Tensor<float>& t) {
    Tape<float> tape;
    const auto y =
        model(Context<float>::checking(tape), s, sources, t, targets, {.target = AttentionMask::causal()});
    std::vector<float> result;
    for (index_t b = 0; b < B; ++b) {
      const auto rows = values(sequence(y.value(), targets, b));
      result.insert(result.end(), rows.begin(), rows.end());
    }
    Gradients<float> gradients(parameters(model));
    tape.backward(y, cotangent, gradients);
    return std::make_pair(result, gradients);
  };
  const auto plain = run(source, target),
             other = run(filled(source, sources, 3.5F), filled(target, targets, -2.25F));
  CHECK(other.first == plain.first);
  for_each_parameter(model, [&](const std::string& name, const auto& parameter) {
    CHECK_MESSAGE(values(other.second.of(parameter)) == values(plain.second.of(parameter)), name);
  });
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(run(filled(source, sources, nan), filled(target, targets, nan)).first == plain.first);
}

TEST_CASE("a Transformer of a given encoder and decoder is that encoder and decoder") {
  RandomGenerator rng(1);
  const LayerOptions layer{.d_model = D, .num_heads = H, .dim_feedforward = F};
  Encoder<double> encoder({.num_layers = 1, .layer = layer}, rng);
  Decoder<double> decoder(
      {.num_layers = 3, .layer = {.d_model = D, .num_heads = 2, .dim_feedforward = 30, .norm_first = true}},
      rng);
  const auto ctx = Context<double>::inference();
  const Var<double> source = random_tensor<double>({B, S, D}, 3),
                    target = random_tensor<double>({B, L, D}, 4);
  const auto expected = decoder(ctx, target, Memory<double>(encoder(ctx, source)));
  const auto id = encoder.layers[0].norm1.weight.id();
  const Transformer<double> model(std::move(encoder), std::move(decoder));
  CHECK(values(model(ctx, source, target).value()) == values(expected.value()));
  CHECK(model.encoder.layers[0].norm1.weight.id() == id);
  CHECK(model.decoder.layers[2].multihead_attn.in_proj.weight.name() ==
        "decoder.layers.2.multihead_attn.in_proj_weight");

  Decoder<double> narrow({.num_layers = 1, .layer = {.d_model = 8, .num_heads = 2}}, rng);
  CHECK(message_of<ValueError>([&] {
          Transformer<double>(Encoder<double>({.num_layers = 1, .layer = layer}, rng), std::move(narrow));
        }) == "[transformer] encoder has d_model 12, must be that of the decoder, which is 8");
}

TEST_CASE("the defaults are PyTorch's") {
  const TransformerOptions o;
  CHECK(o.layer.d_model == 512);
  CHECK(o.layer.num_heads == 8);
  CHECK(o.encoder.num_layers == 6);
  CHECK(o.decoder.num_layers == 6);
  CHECK(o.layer.dim_feedforward == 2048);
  CHECK(o.layer.dropout.rate == 0.1);
  CHECK(o.layer.norm.eps == 1e-5);
  CHECK(o.layer.activation == Activation::relu);
  CHECK(!o.layer.norm_first);
  CHECK(o.final_norm);
  RandomGenerator rng(1);
  auto wrong = small();
  wrong.decoder.num_layers = 0;
  CHECK(message_of<ValueError>([&] { Transformer<float>(wrong, rng); }) ==
        "[transformer] decoder.num_layers is 0, must be positive");
  wrong = small();
  wrong.layer.d_model = 13;
  CHECK(message_of<ValueError>([&] { Transformer<float>(wrong, rng); }) ==
        "[transformer] d_model is 13, must be divisible by num_heads, which is 3");
}
