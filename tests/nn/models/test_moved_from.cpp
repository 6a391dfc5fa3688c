#include <doctest/doctest.h>

#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "eigenformer/search/decoding/ensemble.hpp"
#include "nn/seq2seq_test_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const auto ctx = Context<float>::inference();

// What `module` says after it was moved from.
template <class M, class F>
std::string after_move(M module, F&& use) {
  const M taken = std::move(module);
  return message_of<ValueError>([&] { use(std::as_const(module)); });
}

// Ids of a tensor that was moved from.
Tensor<std::int32_t> moved_ids(const Shape& shape) {
  auto ids = Tensor<std::int32_t>::full(shape, 5);
  const Tensor<std::int32_t> taken = std::move(ids);
  return ids;
}

}  // namespace

TEST_CASE("models and layers that were moved from throw, and do not compute with what is left") {
  RandomGenerator rng(1);
  const auto ids = Tensor<std::int32_t>::from({2, 3}, {4, 5, 6, 7, 8, 9});
  const auto x = Tensor<float>::ones({2, 3, 12});
  const std::vector<std::vector<std::int32_t>> inputs = {{4, 5, 3}};
  const LayerOptions layer{.d_model = 12, .num_heads = 3, .dim_feedforward = 20};
  const auto generates = [&](const auto& m) { (void)generate(m, ctx, inputs); };
  const auto samples = [&](const auto& m) { (void)generate(m, ctx, inputs, {.sampling = Sampling{}}); };
  const std::string
      absent = "[parameter] this parameter does not exist: it is optional and absent, or was moved from",
      no_layers = "there are no layers, expected at least one; the stack may have been moved from";
  CHECK(after_move(make_seq2seq<float>(small_seq2seq()), generates) == absent);
  CHECK(after_move(make_seq2seq<float>(small_seq2seq()), samples) == absent);
  CHECK(after_move(LanguageModel<float>({.vocab_size = 20, .layer = layer}, rng), generates) == absent);
  CHECK(after_move(TextEncoder<float>({.vocab_size = 20, .layer = layer}, rng),
                   [&](const auto& m) { (void)m.vectors(ctx, ids); }) == absent);
  const auto runs = [&](const auto& m) { (void)m(ctx, x); };
  CHECK(after_move(Encoder<float>({.num_layers = 2, .layer = layer}, rng), runs) == "[encoder] " + no_layers);
  CHECK(after_move(Encoder<float>({.num_layers = 2, .layer = layer}, rng),
                   [](const auto& m) { (void)m.d_model(); }) == "[encoder] " + no_layers);
  CHECK(contains(
      after_move(Transformer<float>({.layer = layer}, rng), [&](const auto& m) { (void)m(ctx, x, x); }),
      no_layers));
  CHECK(after_move(LayerNorm<float>({.size = 12}), runs) == absent);
  CHECK(after_move(RMSNorm<float>({.size = 12}), runs) == absent);
  CHECK(after_move(MultiHeadAttention<float>({.d_model = 12, .num_heads = 3}, rng),
                   [&](const auto& m) { (void)m.self(ctx, x); }) == absent);
  CHECK(after_move(Embedding<float>({.num_embeddings = 20, .embedding_dim = 12}, rng),
                   [&](const auto& m) { (void)m(ctx, ids); }) == absent);
}

TEST_CASE("states and ensembles that were moved from throw") {
  const auto model = make_seq2seq<float>(small_seq2seq());
  const std::vector<std::vector<std::int32_t>> inputs = {{4, 5, 3}};
  auto state = model.begin(ctx, inputs);
  const auto taken = std::move(state);
  CHECK(contains(message_of<ValueError>([&] {
                   (void)state.step(Tensor<std::int32_t>::full({0}, 2), std::span<const index_t>());
                 }),
                 "[decoder_state] the state was moved from"));
  Ensemble<Seq2SeqTransformer<float>> both({{model}, {model}});
  const auto moved = std::move(both);
  CHECK(contains(message_of<ValueError>([&] { (void)generate(both, ctx, inputs); }),
                 "[ensemble] there is no model"));
}

TEST_CASE("ids of a tensor that was moved from are refused by every model and layer that takes ids") {
  RandomGenerator rng(1);
  const auto good = Tensor<std::int32_t>::full({2, 3}, 5), bad = moved_ids({2, 3});
  const auto layout = SequenceLayout::padded({3, 2}, 3);
  const LayerOptions layer{.d_model = 12, .num_heads = 3, .dim_feedforward = 20};
  const auto refused = [](const std::string& what, auto&& f) {
    const std::string message = message_of<ValueError>(f);
    CAPTURE(message);
    CHECK(contains(message, what + " of shape (2, 3) have no memory: the tensor was moved from"));
  };
  for (const index_t padding : {-1, 0}) {
    auto options = small_seq2seq();
    options.padding_index = padding;
    const auto model = make_seq2seq<float>(options);
    refused("token ids", [&] { (void)model(ctx, bad, good); });
    refused("token ids", [&] { (void)model(ctx, good, bad); });
    refused("source", [&] { (void)model.loss(ctx, bad, layout, good, layout, good); });
    refused("target", [&] { (void)model.loss(ctx, good, layout, bad, layout, good); });
    refused("target output", [&] { (void)model.loss(ctx, good, layout, good, layout, bad); });
    refused("source", [&] { (void)model.encode(ctx, bad, layout); });
  }
  const LanguageModel<float> language({.vocab_size = 20, .layer = layer}, rng);
  refused("token ids", [&] { (void)language(ctx, bad); });
  refused("input", [&] { (void)language.loss(ctx, bad, layout, good); });
  refused("output", [&] { (void)language.loss(ctx, good, layout, bad); });
  const TextEncoder<float> encoder({.vocab_size = 20, .layer = layer}, rng);
  refused("token ids", [&] { (void)encoder(ctx, bad); });
  refused("tokens", [&] { (void)encoder.vectors(ctx, bad, layout); });
  const Embedding<float> table({.num_embeddings = 20, .embedding_dim = 12}, rng);
  refused("ids", [&] { (void)table(ctx, bad); });
  const auto packed = pack_weights(table, WeightFormat::int8);
  refused("ids", [&] { (void)table(ctx.with_packed_weights(packed), bad); });
  const auto model = make_seq2seq<float>(small_seq2seq());
  const std::vector<std::vector<std::int32_t>> inputs = {{4, 5, 3}, {6, 3}};
  auto state = model.begin(ctx, inputs);
  CHECK(contains(message_of<ValueError>([&] { (void)state.step(moved_ids({2})); }), "have no memory"));
}
