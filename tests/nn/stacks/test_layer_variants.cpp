#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "nn/seq2seq_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// The variants of normalisation and feed-forward network that a model may have, by name.
std::vector<std::pair<std::string, Seq2SeqOptions>> variants() {
  std::vector<std::pair<std::string, Seq2SeqOptions>> all;
  const auto add = [&](const char* name, auto&& change) {
    all.emplace_back(name, small_seq2seq());
    change(all.back().second);
  };
  add("rms", [](auto& o) { o.layer.norm.kind = NormKind::rms_norm; });
  add("rms, pre-norm, swiglu", [](auto& o) {
    o.layer.norm.kind = NormKind::rms_norm, o.layer.norm_first = true, o.layer.gated = true,
    o.layer.activation = Activation::silu;
    o.layer.bias = false;
  });
  add("sandwich", [](auto& o) { o.layer.sandwich_norm = true, o.layer.norm_first = true; });
  add("sandwich of rms, relu squared", [](auto& o) {
    o.layer.sandwich_norm = true, o.layer.norm.kind = NormKind::rms_norm,
    o.layer.activation = Activation::relu_squared;
  });
  add("glu", [](auto& o) { o.layer.gated = true, o.layer.activation = Activation::sigmoid; });
  add("linear attention, silu",
      [](auto& o) { o.layer.attention.kind = AttentionKind::linear, o.layer.activation = Activation::silu; });
  add("geglu, embedding norm, scaled logits, tied", [](auto& o) {
    o.layer.gated = true, o.layer.activation = Activation::gelu_tanh, o.embedding_norm = true,
    o.logit_scale = 0.25;
    o.target_vocab_size = 0, o.tying = Tying::all;
  });
  return all;
}

}  // namespace

TEST_CASE("every variant's gradients are right, through the whole model") {
  const TokenBatch batch;
  for (const auto& variant : variants()) {
    const auto& name = variant.first;
    const auto& options = variant.second;
    CAPTURE(name);
    auto model = make_seq2seq<double>(options);
    check_backward(model, {}, [&](const Context<double>& ctx, const auto&) {
      return model.loss(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout,
                        batch.target_out);
    });
  }
}

TEST_CASE_TEMPLATE("every variant gives a sentence the same logits alone, padded and packed, bit by bit", T,
                   float, double) {
  const TokenBatch batch;
  for (const auto& variant : variants()) {
    const auto& name = variant.first;
    const auto& options = variant.second;
    CAPTURE(name);
    const auto model = make_seq2seq<T>(options);
    const auto ctx = Context<T>::inference();
    const auto padded =
        model(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout).value();
    const auto targets = detail::packed_layout(batch.target_layout);
    const auto packed = model(ctx, detail::pack_tokens(batch.source, batch.source_layout),
                              detail::packed_layout(batch.source_layout),
                              detail::pack_tokens(batch.target_in, batch.target_layout), targets)
                            .value();
    for (index_t b = 0; b < B; ++b) {
      CHECK(values(sequence(packed, targets, b)) == values(sequence(padded, batch.target_layout, b)));
    }
  }
}

TEST_CASE_TEMPLATE("a layer of RMS norms before and after, and SwiGLU, agrees with PyTorch", T, float,
                   double) {
  RandomGenerator rng(1);
  EncoderLayer<T> layer({.d_model = D,
                         .num_heads = H,
                         .dim_feedforward = F,
                         .activation = Activation::silu,
                         .gated = true,
                         .norm = {.kind = NormKind::rms_norm},
                         .sandwich_norm = true},
                        rng);
  check_parity<T>(
      Fixture("stacks/encoder_layer_rms_sandwich_swiglu"), layer, {"x"}, {L, L},
      [&](const Context<T>& ctx, const auto& x) { return layer(ctx, x[0], AttentionMask::causal()); });
}

TEST_CASE("sandwich norm is x + post(f(pre(x))), and its norms are listed last") {
  RandomGenerator rng(1);
  EncoderLayer<double> layer({.d_model = D, .num_heads = H, .dim_feedforward = F, .sandwich_norm = true},
                             rng);
  randomise(layer, 2);
  const auto ctx = Context<double>::inference();
  const Var<double> x = random_tensor<double>({B, L, D}, 3);
  const Var<double> h = layer.norm1(ctx, x);
  const Var<double> middle = add(x, (*layer.post_norm1)(ctx, layer.self_attn(ctx, h, h, h)));
  const Var<double> expected =
      add(middle, (*layer.post_norm2)(ctx, layer.feed_forward(ctx, layer.norm2(ctx, middle))));
  check_close(layer(ctx, x).value(), expected.value(), 1e-12);
  const auto names = names_of(layer);
  CHECK(names.back() == "post_norm2.bias (12,)");
  CHECK(names.size() == 16);
}

TEST_CASE("embedding_norm normalises embedding + position, and logit_scale the decoder's output") {
  const TokenBatch batch;
  auto options = small_seq2seq();
  options.embedding_norm = true;
  options.logit_scale = 0.5;
  const auto model = make_seq2seq<double>(options);
  const auto ctx = Context<double>::inference();
  const Var<double> plain = model.source_positions(
      ctx, model.source_embedding(ctx, batch.source, std::sqrt(12.0)), batch.source_layout);
  check_close(model.embed_source(ctx, batch.source, batch.source_layout).value(),
              (*model.source_embedding_norm)(ctx, plain).value(), 1e-12);
  const Var<double> decoded = random_tensor<double>({3, D}, 4);
  const Var<double> expected =
      linear(ctx, multiply(decoded, 0.5), model.projection_weight(), model.projection_bias);
  check_close(model.logits(ctx, decoded).value(), expected.value(), 1e-12);
  options.logit_scale = std::numeric_limits<double>::infinity();
  CHECK(contains(message_of<ValueError>([&] { make_seq2seq<float>(options); }),
                 "logit_scale is inf, must be finite"));
}

TEST_CASE(
    "linear attention is linear_attention between the projections, and refuses what it has no form of") {
  RandomGenerator rng(1);
  MultiHeadAttention<double> attention(
      {.d_model = D, .num_heads = H, .attention = {.kind = AttentionKind::linear}}, rng);
  randomise(attention, 2);
  const auto ctx = Context<double>::inference();
  const Var<double> x = random_tensor<double>({B, L, D}, 3), memory = random_tensor<double>({B, S, D}, 4);
  const auto layout = SequenceLayout::padded(B, L), keys = SequenceLayout::padded(B, S);
  const auto expected = [&](const Var<double>& y, const SequenceLayout& of_y, bool causal) {
    return attention.out_proj(
        ctx, linear_attention(attention.project_query(ctx, x), attention.in_proj.key(ctx, y),
                              attention.in_proj.value(ctx, y), layout, of_y, {.heads = H, .causal = causal}));
  };
  check_close(attention(ctx, x, x, x).value(), expected(x, layout, false).value(), 1e-12);
  check_close(attention(ctx, x, x, x, AttentionMask::causal()).value(), expected(x, layout, true).value(),
              1e-12);
  check_close(attention(ctx, x, memory, memory).value(), expected(memory, keys, false).value(), 1e-12);
  const auto refusal = [](auto&& f) { return message_of<ValueError>(f); };
  for (const auto& mask :
       {AttentionMask::window(2, 0), AttentionMask::window(AttentionMask::unlimited, 1),
        AttentionMask::prefix({1, 2}), AttentionMask::allow(Tensor<bool>::full({L, L}, true))}) {
    CHECK(contains(refusal([&] { (void)attention(ctx, x, x, x, mask); }),
                   "only the masks causal() and key_padding()"));
  }
  CHECK(contains(refusal([&] { (void)attention.with_weights(ctx, x, x, x); }),
                 "no attention weights to return"));
  for (const Shape& wrong : {Shape{B, S - 1}, Shape{B, S + 1}, Shape{B + 1, S}}) {
    const auto mask = AttentionMask::key_padding(Tensor<bool>::full(wrong, false));
    CHECK(contains(message_of<ShapeError>([&] { (void)attention(ctx, x, memory, memory, mask); }),
                   "key padding of shape " + wrong.str() + " must be " + Shape{B, S}.str()));
  }
  CHECK(contains(refusal([&] { (void)attention(ctx, x, memory, memory, AttentionMask::causal()); }),
                 "one layout"));
  const auto layer = [&](auto&& change) {
    LayerOptions o{.d_model = D, .num_heads = 4, .attention = {.kind = AttentionKind::linear}};
    change(o);
    return refusal([&] { EncoderLayer<double>(o, rng); });
  };
  CHECK(layer([](auto& o) { o.attention.window = 3; }) ==
        "[encoder_layer] linear attention does not support attention_window");
  CHECK(contains(layer([](auto& o) { o.attention.positions = AlibiPositions{}; }),
                 "attention_positions alibi"));
  CHECK(contains(layer([](auto& o) { o.attention.num_key_value_heads = 2; }),
                 "num_key_value_heads other than num_heads"));
}

TEST_CASE("linear attention with key padding attends to what is left, causal or not, in either layout") {
  RandomGenerator rng(1);
  MultiHeadAttention<double> attention(
      {.d_model = D, .num_heads = H, .attention = {.kind = AttentionKind::linear}}, rng);
  randomise(attention, 2);
  const auto ctx = Context<double>::inference();
  const Var<double> x = random_tensor<double>({B, L, D}, 3), memory = random_tensor<double>({B, S, D}, 4);
  // The last keys of the first sequence and the first of the second; 2 of 7 and 3 of 7.
  auto padding = Tensor<bool>::zeros({B, S});
  auto bias = Tensor<float>::zeros({B, S});
  for (const auto& [b, j] :
       std::vector<std::pair<index_t, index_t>>{{0, 5}, {0, 6}, {1, 0}, {1, 1}, {1, 2}}) {
    padding.at({b, j}) = true;
    bias.at({b, j}) = -std::numeric_limits<float>::infinity();
  }
  const auto queries = SequenceLayout::padded(B, L), all = SequenceLayout::padded(B, S);
  const auto left = SequenceLayout::padded_around(std::vector<index_t>{0, 3}, std::vector<index_t>{5, 4}, S);
  const auto expected = attention(ctx, x, queries, memory, memory, left, {}).value();
  check_close(attention(ctx, x, memory, memory, AttentionMask::key_padding(padding)).value(), expected,
              1e-12);
  check_close(attention(ctx, x, memory, memory, AttentionMask::key_padding(bias)).value(), expected, 1e-12);
  // Joined with the causal mask: keys that are left out of a sequence of its own.
  const Var<double> rows = random_tensor<double>({S, D}, 5);
  auto third = Tensor<bool>::zeros({1, S});
  third.at({0, 2}) = true;
  const auto mask = AttentionMask::causal() & AttentionMask::key_padding(third);
  const auto y = attention(ctx, rows, rows, rows, mask).value();
  for (index_t t = 3; t < S; ++t) {
    Tensor<double> seen({t, D});
    for (index_t i = 0, to = 0; i <= t; ++i) {
      if (i != 2) std::copy_n(rows.value().data() + i * D, D, seen.data() + D * to++);
    }
    const auto last = attention(ctx, rows.value().rows(t, 1), seen, seen).value();
    check_close(y.rows(t, 1), last, 1e-12);
  }
  check_backward(attention, {x.value(), memory.value()}, [&](const Context<double>& c, const auto& in) {
    return attention(c, in[0], queries, in[1], in[1], all, AttentionMask::key_padding(padding));
  });
  bias.at({1, 5}) = 0.5F;
  CHECK(contains(message_of<ValueError>(
                     [&] { (void)attention(ctx, x, memory, memory, AttentionMask::key_padding(bias)); }),
                 "is 0.5, must be 0 or -infinity"));
  CHECK(contains(
      message_of<ShapeError>([&] {
        (void)attention(ctx, x, memory, memory, AttentionMask::key_padding(Tensor<bool>::zeros({B, L})));
      }),
      "key padding of shape (2, 5) must be (2, 7)"));
}

TEST_CASE("layer_drop rises to the last layer, leaves a sentence's sub-layers out, and only in training") {
  RandomGenerator rng(1);
  const LayerOptions options{
      .d_model = D, .num_heads = H, .dim_feedforward = F, .dropout = {0}, .layer_drop = 0.8};
  const Encoder<double> stack({.num_layers = 4, .layer = options}, rng);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(stack.layers[i].options.layer_drop == doctest::Approx(0.2 * static_cast<double>(i + 1)));
  }
  LayerOptions pre = options;
  pre.norm_first = true;
  const EncoderLayer<double> layer(pre, rng);
  constexpr index_t sequences = 200;
  const auto layout = SequenceLayout::padded(sequences, 2);
  const Tensor<double> x = random_tensor<double>({sequences, 2, D}, 2);
  Tape<double> tape;
  const auto y = layer(Context<double>::training(tape, detail::DropoutKey{1, 2, 0}), x, layout).value();
  const auto z = layer(Context<double>::checking(tape), x, layout).value();
  index_t unchanged = 0;
  for (index_t b = 0; b < sequences; ++b) {
    unchanged += values(sequence(y, layout, b)) == values(sequence(x, layout, b)) ? 1 : 0;
    CHECK(values(sequence(z, layout, b)) != values(sequence(x, layout, b)));
  }
  // Both sub-layers left out: 0.8 squared of 200 is 128, three standard deviations are 20.
  CHECK(unchanged > 108);
  CHECK(unchanged < 148);
  LayerOptions impossible = options;
  impossible.layer_drop = 1;
  CHECK(contains(message_of<ValueError>([&] { EncoderLayer<float>(impossible, rng); }),
                 "layer_drop is 1, must be in [0, 1)"));
}

TEST_CASE("layer_drop's choices and gradients do not depend on packing") {
  const TokenBatch batch;
  auto options = small_seq2seq();
  options.layer.layer_drop = 0.5;
  auto model = make_seq2seq<double>(options);
  const detail::DropoutKey key{7, 3, 0};
  const auto run = [&](bool packed) {
    Tape<double> tape;
    const auto ctx = Context<double>::training(tape, key);
    Gradients<double> gradients(parameters(model));
    const auto loss = token_batch_loss(model, ctx, batch, packed);
    const double value = loss.item();
    tape.backward(loss, gradients);
    std::vector<double> all{value};
    for (const auto& entry : gradients.entries())
      all.insert(all.end(), entry.value.span().begin(), entry.value.span().end());
    return all;
  };
  CHECK(run(false) == run(true));
  const auto result = grad_check(
      [&](Tape<double>& tape, const auto&) {
        return model.loss(Context<double>::training(tape, key), batch.source, batch.source_layout,
                          batch.target_in, batch.target_layout, batch.target_out);
      },
      {}, parameters(model), {.max_elements = 40});
  CHECK_MESSAGE(result.ok, result.str());
}
