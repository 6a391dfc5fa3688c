#include "eigenformer/nn/stacks/decoder.hpp"

#include <cmath>

#include <doctest/doctest.h>

#include "eigenformer/nn/models/seq2seq.hpp"
#include "nn/module_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

LayerOptions ssru_layer(bool norm_first = false, Activation activation = Activation::relu) {
  LayerOptions options = small_layer(norm_first, activation);
  options.self_mixing = SelfMixing::ssru;
  return options;
}

double dot(const Tensor<double>& weight, index_t row, const Tensor<double>& x, index_t of) {
  double sum = 0;
  for (index_t i = 0; i < D; ++i) sum += weight.at({row, i}) * x.at({of, i});
  return sum;
}

}  // namespace

TEST_CASE("an SSRU is the recurrence of its paper, forward and backward") {
  RandomGenerator rng(1);
  Ssru<double> unit({.d_model = D}, rng);
  randomise(unit, 2);
  CHECK(names_of(unit) ==
        std::vector<std::string>{"input.weight (12, 12)", "forget.weight (12, 12)", "forget.bias (12,)"});
  const auto layout = SequenceLayout::packed({5, 2});
  const auto x = random_tensor<double>({7, D}, 3);
  SequencePass<double> pass(layout, AttentionMask::causal());
  const auto y = unit(Context<double>::inference(), x, pass).value();
  for (const auto& [first, length] : {std::pair<index_t, index_t>{0, 5}, {5, 2}}) {
    for (index_t j = 0; j < D; ++j) {
      double c = 0;
      for (index_t t = first; t < first + length; ++t) {
        const double gate =
            1 /
            (1 + std::exp(-(dot(unit.forget.weight.value(), j, x, t) + unit.forget.bias.value().at({j}))));
        c = gate * c + (1 - gate) * dot(unit.input.weight.value(), j, x, t);
        CHECK(y.at({t, j}) == doctest::Approx(std::max(c, 0.0)));
      }
    }
  }
  check_backward(unit, {x}, [&](const Context<double>& ctx, const auto& in) {
    SequencePass<double> of_check(layout);
    return unit(ctx, in[0], of_check);
  });
  const Ssru<double> without({.d_model = D, .bias = false}, rng);
  CHECK(names_of(without) == std::vector<std::string>{"input.weight (12, 12)", "forget.weight (12, 12)"});
}

TEST_CASE_TEMPLATE("the decoder layer with an SSRU agrees with PyTorch, post- and pre-norm", T, float,
                   double) {
  for (const std::string order : {"post", "pre"}) {
    const Fixture fixture("stacks/decoder_layer_ssru_" + order);
    RandomGenerator rng(1);
    DecoderLayer<T> layer(ssru_layer(order == "pre"), rng);
    const auto lengths = fixture.lengths("in.tgt_lengths");
    const auto memory_layout = SequenceLayout::padded(fixture.lengths("in.memory_lengths"), S);
    check_parity<T>(fixture, layer, {"tgt", "memory"}, lengths, [&](const Context<T>& ctx, const auto& x) {
      return layer(ctx, x[0], SequenceLayout::padded(lengths, L), Memory<T>(x[1], memory_layout),
                   {.target = AttentionMask::causal()});
    });
  }
}

TEST_CASE("a decoder of SSRUs has the right gradients") {
  RandomGenerator rng(1);
  for (const bool norm_first : {false, true}) {
    Decoder<double> decoder({.num_layers = 2, .layer = ssru_layer(norm_first, Activation::silu)}, rng);
    randomise(decoder, 3);
    check_backward(decoder, {random_tensor<double>({B, L, D}, 4), random_tensor<double>({B, S, D}, 5)},
                   [&](const Context<double>& ctx, const auto& in) {
                     return decoder(ctx, in[0], SequenceLayout::padded({3, 5}, L),
                                    Memory<double>(in[1], SequenceLayout::padded({7, 4}, S)),
                                    {.target = AttentionMask::causal()});
                   });
  }
}

TEST_CASE("a layer with an SSRU has no self-attention, and is refused what belongs to that") {
  RandomGenerator rng(1);
  const DecoderLayer<float> layer(ssru_layer(), rng);
  CHECK(!layer.self_attn);
  REQUIRE(layer.ssru);
  const auto refused = [&](auto&& change) {
    LayerOptions options = ssru_layer();
    change(options);
    CHECK_THROWS_AS(DecoderLayer<float>(options, rng), ValueError);
  };
  refused([](LayerOptions& o) { o.attention.positions = RotaryPositions{}; });
  refused([](LayerOptions& o) { o.attention.positions = RelativeBiasPositions{}; });
  refused([](LayerOptions& o) { o.attention.window = 3; });
  CHECK_THROWS_AS(EncoderLayer<float>(ssru_layer(), rng), ValueError);
  CHECK_THROWS_AS(Seq2SeqTransformer<float>({.source_vocab_size = V, .layer = ssru_layer()}, rng),
                  ValueError);
  // Masks that a recurrence cannot keep.
  const auto run = [&](const AttentionMask& mask) {
    return layer(Context<float>::inference(), random_tensor<float>({B, L, D}, 4),
                 Memory<float>(Var<float>(random_tensor<float>({B, S, D}, 5))), {.target = mask});
  };
  CHECK(run(AttentionMask::none()).shape() == Shape{B, L, D});
  CHECK_THROWS_AS(run(AttentionMask::window(2, 0)), ValueError);
  CHECK_THROWS_AS(run(AttentionMask::prefix({1, 1})), ValueError);
  CHECK_THROWS_AS(run(AttentionMask::block(Tensor<bool>::full({L, L}, false))), ValueError);
}

TEST_CASE("what an SSRU keeps of a sentence does not grow, and follows hypotheses that are re-ordered") {
  RandomGenerator rng(1);
  Seq2SeqOptions options{.source_vocab_size = V, .layer = small_layer(), .decoder = {.num_layers = 2}};
  options.decoder.layer = ssru_layer();
  const Seq2SeqTransformer<double> model(options, rng);
  const auto ctx = Context<double>::inference();
  const std::vector<std::vector<std::int32_t>> sources = {{5, 6, 7, 3}, {8, 3}};
  const auto row = [](std::vector<std::int32_t> ids) {
    const auto n = static_cast<index_t>(ids.size());
    return Tensor<std::int32_t>::from(Shape{n}, ids);
  };
  DecoderState<double> state = model.begin(ctx, sources);
  (void)state.step(row({2, 2}));
  const std::size_t bytes = state.cache_bytes();
  (void)state.step(row({7, 9}));
  // Both go on from the second sentence's, and then again from one each.
  state.reorder(std::vector<std::int32_t>{1, 1});
  const auto y = state.step(row({4, 11})).value();
  for (int t = 0; t < 40; ++t) (void)state.step(row({3, 4}));
  CHECK(state.cache_bytes() <= bytes + 1024);  // the table of row numbers
  const Memory<double> memory = model.encode_sentences(ctx, sources);
  for (const std::int32_t i : {0, 1}) {
    const Memory<double> second(memory.rows, memory.layout, {1});
    const auto all =
        model.decode(ctx, row({2, 9, i == 0 ? 4 : 11}), SequenceLayout::packed({3}), second).value();
    check_close(y.rows(i, 1), all.rows(2, 1), 1e-12);
  }
}
