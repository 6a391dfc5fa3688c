#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "nn/seq2seq_test_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// A causal depthwise convolution of three rows before an ordinary layer.
template <class Inner>
struct Convolved {
  using value_type = double;
  using Options = LayerOptions;
  static constexpr bool is_decoder = true;
  Parameter<double> filter;  // (3, D)
  Inner layer;
  Convolved(const LayerOptions& o, RandomGenerator& rng)
      : filter(init::normal<double>({3, o.d_model}, rng, 0, 0.5)), layer(o, rng) {
    name_parameters(*this);
  }
  Var<double> operator()(const Context<double>& ctx, const Var<double>& x, LayerPass<double>& pass) const {
    return layer(ctx, sum(multiply(pass.window(ctx, x, 3), ctx.use(filter)), {1}), pass);
  }
  index_t d_model() const { return layer.d_model(); }
  static void fields(auto& self, auto&& visit) {
    visit("filter", self.filter);
    visit("", self.layer);
  }
};

using ConvolvedModel =
    Seq2SeqTransformer<double, Convolved<EncoderLayer<double>>, Convolved<DecoderLayer<double>>>;

Seq2SeqOptions convolved_options() {
  Seq2SeqOptions o = small_seq2seq();
  o.layer.activation = Activation::gelu;
  return o;
}

}  // namespace

TEST_CASE("a window has each row after those before it in its sequence, in every layout") {
  const index_t n = 3;
  const auto check = [&](const SequenceLayout& layout) {
    const auto x = random_tensor<double>({layout.rows(), 4}, 5);
    SequencePass<double> pass(layout);
    const auto y = pass.window(Context<double>::inference(), x, n).value();
    REQUIRE(y.shape() == Shape{layout.rows(), n, 4});
    for (index_t b = 0; b < layout.batch(); ++b) {
      for (index_t t = 0; t < layout.length(b); ++t) {
        for (index_t j = 0; j < n; ++j) {
          for (index_t c = 0; c < 4; ++c) {
            const index_t from = t - (n - 1 - j);
            const double expected = from < 0 ? 0 : x.at({layout.offset(b) + from, c});
            CHECK(y.at({layout.offset(b) + t, j, c}) == expected);
          }
        }
      }
    }
  };
  check(SequenceLayout::packed({5, 1, 3}));
  check(SequenceLayout::padded({5, 2}, 6));
  check(SequenceLayout::padded_left({5, 2}, 6));
  SequencePass<double> pass(SequenceLayout::packed({5}));
  CHECK(contains(message_of<ValueError>([&] {
                   (void)pass.window(Context<double>::inference(), random_tensor<double>({5, 4}, 1), 0);
                 }),
                 "[window] n is 0, must be at least 1"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)pass.window(Context<double>::inference(), random_tensor<double>({4, 4}, 1), n);
                 }),
                 "[window] input of shape (4, 4) must fit its layout: 1 packed sequences in 5 rows"));
}

TEST_CASE("a layer of one's own has right gradients, packed and padded alike") {
  RandomGenerator rng(1);
  ConvolvedModel model(convolved_options(), rng);
  randomise(model, 2);
  const TokenBatch batch;
  check_backward(model, {}, [&](const Context<double>& ctx, const auto&) {
    return model.loss(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout,
                      batch.target_out);
  });
  const auto ctx = Context<double>::inference();
  const auto padded =
      model(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout).value();
  CHECK(padded.shape() == Shape{B, L, 19});
  const auto packed = model(ctx, detail::pack_tokens(batch.source, batch.source_layout),
                            detail::packed_layout(batch.source_layout),
                            detail::pack_tokens(batch.target_in, batch.target_layout),
                            detail::packed_layout(batch.target_layout))
                          .value();
  for (index_t t = 0; t < 3; ++t) CHECK(std::abs(packed.at({t, 4}) - padded.at({0, t, 4})) < 1e-12);
}

TEST_CASE(
    "a layer of one's own decodes with a cache as it does without, also when hypotheses are re-ordered") {
  RandomGenerator rng(1);
  ConvolvedModel model(convolved_options(), rng);
  randomise(model, 2);
  const auto ctx = Context<double>::inference();
  const std::vector<std::vector<std::int32_t>> sources = {{5, 6, 7, 3}, {8, 9, 3}};
  const Memory<double> memory = model.encode_sentences(ctx, sources);
  const auto uncached = [&](const std::vector<std::int32_t>& target, std::int32_t sentence) {
    const auto length = static_cast<index_t>(target.size());
    const Memory<double> own(memory.rows, memory.layout, {sentence});
    return model.decode(ctx, Tokens::from(Shape{length}, target), SequenceLayout::packed({length}), own)
        .value()
        .rows(length - 1, 1);
  };
  DecoderState<double> state = model.begin(ctx, memory);
  (void)state.step(Tokens::from({2, 2}, {2, 4, 2, 5}));
  const auto y = state.step(Tokens::from({2}, {6, 7})).value();
  check_close(y.rows(0, 1), uncached({2, 4, 6}, 0), 1e-12);
  check_close(y.rows(1, 1), uncached({2, 5, 7}, 1), 1e-12);
  state.reorder(std::vector<std::int32_t>{1, 1, 0});
  const auto z = state.step(Tokens::from({3}, {8, 9, 10})).value();
  check_close(z.rows(0, 1), uncached({2, 5, 7, 8}, 1), 1e-12);
  check_close(z.rows(1, 1), uncached({2, 5, 7, 9}, 1), 1e-12);
  check_close(z.rows(2, 1), uncached({2, 4, 6, 10}, 0), 1e-12);
}

TEST_CASE("a step that asks for something else than the first one is refused") {
  RandomGenerator rng(1);
  const MultiHeadAttention<double> a({.d_model = 12, .num_heads = 3}, rng),
      b({.d_model = 12, .num_heads = 3}, rng);
  const auto ctx = Context<double>::inference();
  int step = 0;
  const Var<double> x = random_tensor<double>({2, 12}, 3);
  DecoderState<double> state(ctx, 2, {},
                             [&](const Context<double>& c, const Tokens&, LayerPass<double>& pass) {
                               return pass.self_attention(c, step == 0 ? a : b, x);
                             });
  (void)state.step(Tokens::from({2}, {4, 5}));
  step = 1;
  CHECK(contains(message_of<ValueError>([&] {
                   (void)state.step(Tokens::from({2}, {4, 5}));
                 }),
                 "every step must use the same ones in the same order"));
  DecoderState<double> alone(ctx, 2, {},
                             [&](const Context<double>& c, const Tokens&, LayerPass<double>& pass) {
                               return pass.memory_attention(c, a, x);
                             });
  CHECK(contains(message_of<ValueError>([&] {
                   (void)alone.step(Tokens::from({2}, {4, 5}));
                 }),
                 "memory 0 does not exist: the pass has 0"));
}

TEST_CASE("attention to a memory with positions or a window is refused where a cache would ignore them") {
  RandomGenerator rng(1);
  const auto ctx = Context<double>::inference();
  const Var<double> x = random_tensor<double>({2, 12}, 3);
  const Memory<double> memory{random_tensor<double>({5, 12}, 4), SequenceLayout::packed({2, 3})};
  for (const MultiHeadAttentionOptions& options :
       {MultiHeadAttentionOptions{
            .d_model = 12, .num_heads = 3, .attention = {.positions = RotaryPositions{}}},
        MultiHeadAttentionOptions{.d_model = 12, .num_heads = 3, .attention = {.window = 2}}}) {
    const MultiHeadAttention<double> attention(options, rng);
    DecoderState<double> state(ctx, 2, {memory},
                               [&](const Context<double>& c, const Tokens&, LayerPass<double>& pass) {
                                 return pass.memory_attention(c, attention, x);
                               });
    CHECK(contains(message_of<ValueError>([&] {
                     (void)state.step(Tokens::from({2}, {4, 5}));
                   }),
                   "positions or a window"));
  }
}

TEST_CASE("attention to a memory of another width decodes with a cache; self-attention needs one width") {
  RandomGenerator rng(1);
  const auto ctx = Context<double>::inference();
  const Var<double> x = random_tensor<double>({2, 12}, 3);
  const Memory<double> memory{random_tensor<double>({5, 8}, 4), SequenceLayout::packed({2, 3})};
  const MultiHeadAttentionOptions plain{.d_model = 12, .num_heads = 3, .kdim = 8, .vdim = 8, .cross = true};
  MultiHeadAttentionOptions normed = plain, linear = plain;
  normed.attention.query_key_norm = NormKind::rms_norm;
  linear.attention.kind = AttentionKind::linear;
  for (const MultiHeadAttentionOptions& options : {plain, normed, linear}) {
    const MultiHeadAttention<double> attention(options, rng);
    DecoderState<double> state(ctx, 2, {memory},
                               [&](const Context<double>& c, const Tokens&, LayerPass<double>& pass) {
                                 return pass.memory_attention(c, attention, x);
                               });
    const SequenceLayout rows = SequenceLayout::packed({1, 1});
    const Tensor<double> whole = attention.cross(ctx, x, rows, memory.rows, memory.layout).value();
    check_close(state.step(Tokens::from({2}, {4, 5})).value(), whole, 1e-12);
    check_close(state.step(Tokens::from({2}, {6, 7})).value(), whole, 1e-12);
  }
  const MultiHeadAttention<double> attention({.d_model = 12, .num_heads = 3, .kdim = 8}, rng);
  DecoderState<double> state(ctx, 2, {},
                             [&](const Context<double>& c, const Tokens&, LayerPass<double>& pass) {
                               return pass.self_attention(c, attention, x);
                             });
  CHECK(contains(message_of<ValueError>([&] {
                   (void)state.step(Tokens::from({2}, {4, 5}));
                 }),
                 "kdim is 8 and vdim 12, must both be d_model, which is 12, for self-attention"));
}

TEST_CASE("either stack has layers of its own sizes, trains and decodes") {
  Seq2SeqOptions o = small_seq2seq();
  LayerOptions narrow = o.layer;
  narrow.num_heads = 2;
  narrow.dim_feedforward = 7;
  narrow.activation = Activation::gelu;
  o.layer.activation = Activation::gelu;
  o.encoder.num_layers = 3;
  o.decoder = {.num_layers = 1, .final_norm = false, .layer = narrow};
  auto model = make_seq2seq<double>(o);
  CHECK(model.transformer.encoder.layers[2].self_attn.options.num_heads == H);
  CHECK(model.transformer.decoder.layers[0].multihead_attn.options.num_heads == 2);
  CHECK(model.transformer.decoder.layers[0].feed_forward.linear1.weight.shape() == Shape{7, D});
  CHECK(bool(model.transformer.encoder.norm));
  CHECK(!model.transformer.decoder.norm);
  const TokenBatch batch;
  check_backward(model, {}, [&](const Context<double>& ctx, const auto&) {
    return model.loss(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout,
                      batch.target_out);
  });
  o.decoder.layer->d_model = 24;
  CHECK(message_of<ValueError>([&] { o.validate("seq2seq_transformer"); }) ==
        "[seq2seq_transformer] decoder.layer.d_model is 24, must be layer.d_model, which is 12");
}

namespace {

// Reads every source backwards.
struct Backwards : Seq2SeqTransformer<double> {
  using Seq2SeqTransformer<double>::Seq2SeqTransformer;
  Var<double> encode(const Context<double>& ctx, const Tokens& source, const SequenceLayout& layout,
                     const AttentionMask& mask, std::vector<Var<double>>* maps) const override {
    Tokens reversed = source.clone();
    for (index_t b = 0; b < layout.batch(); ++b) {
      for (index_t t = 0; t < layout.length(b); ++t) {
        reversed.data()[layout.offset(b) + t] = source.data()[layout.offset(b) + layout.length(b) - 1 - t];
      }
    }
    return Seq2SeqTransformer<double>::encode(ctx, reversed, layout, mask, maps);
  }
};

}  // namespace

TEST_CASE("a derived model's encode is what loss and decoding use") {
  RandomGenerator rng(1), same(1);
  const Backwards derived(small_seq2seq(), rng);
  const Seq2SeqTransformer<double> plain(small_seq2seq(), same);
  const auto ctx = Context<double>::inference();
  const auto forward = Tokens::from({1, 4}, {5, 6, 7, 3}), backward = Tokens::from({1, 4}, {3, 7, 6, 5});
  const auto in = Tokens::from({1, 3}, {2, 4, 5}), out = Tokens::from({1, 3}, {4, 5, 3});
  CHECK(derived.loss(ctx, forward, in, out).item() == plain.loss(ctx, backward, in, out).item());
  CHECK(derived.loss(ctx, forward, in, out).item() != plain.loss(ctx, forward, in, out).item());
  const std::vector<std::vector<std::int32_t>> one = {{5, 6, 7, 3}}, other = {{3, 7, 6, 5}};
  auto state = derived.begin(ctx, one), expected = plain.begin(ctx, other);
  CHECK(values(state.step(Tokens::from({1}, {2})).value()) ==
        values(expected.step(Tokens::from({1}, {2})).value()));
}

TEST_CASE("padded ids train as packed ones do: padding counts neither as input nor as target") {
  const auto model = make_seq2seq<double>(small_seq2seq());
  const auto ctx = Context<double>::inference();
  const auto source = Tokens::from({2, 4}, {5, 6, 7, 3, 8, 3, 0, 0});
  const auto in = Tokens::from({2, 4}, {2, 4, 5, 6, 2, 9, 3, 0}),
             out = Tokens::from({2, 4}, {4, 5, 6, 3, 9, 3, 0, 0});
  const auto loss = [&](const SequenceLayout& layout) {
    return model.loss(ctx, source, SequenceLayout::padded({4, 2}, 4), in, layout, out, {.ignore_index = 0})
        .item();
  };
  CHECK(model.loss(ctx, source, in, out).item() == loss(SequenceLayout::padded({4, 3}, 4)));
  // The end symbol that the shorter row still has as an input changes nothing that is asked.
  CHECK(model.loss(ctx, source, in, out).item() ==
        doctest::Approx(loss(SequenceLayout::padded({4, 2}, 4))).epsilon(1e-12));
}
