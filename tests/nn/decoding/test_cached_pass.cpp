#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "nn/attention_variants.hpp"
#include "search/search_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Seq2SeqTransformer<double> random_model(const Seq2SeqOptions& options) {
  RandomGenerator rng(1);
  Seq2SeqTransformer<double> model(options, rng);
  for_each_parameter(model, [&](const std::string& name, auto& p) {
    const bool gain = name.find("norm") != std::string::npos && name.find("weight") != std::string::npos;
    rng.fill_normal(p.value().data(), p.value().numel(), gain ? 1 : 0, 0.4);
  });
  return model;
}

double largest_difference(const double* a, const double* b, index_t n) {
  double worst = 0;
  for (index_t i = 0; i < n; ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

// Prefers memory near the query's position.
struct NearTheQuery {
  static constexpr bool additive = true;
  template <class T>
  void operator()(ScoreTile<T>& tile) const {
    for (index_t i = 0; i < tile.rows; ++i) {
      for (index_t j = 0; j < tile.columns; ++j)
        tile.row(i)[j] -= static_cast<T>(0.7) * static_cast<T>(std::abs(tile.query + i - tile.key - j));
    }
  }
};

}  // namespace

TEST_CASE("a score rule of the attention to the memory sees the same positions with a cache") {
  auto model = random_model({.source_vocab_size = 19,
                             .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                             .encoder = {.num_layers = 1},
                             .decoder = {.num_layers = 2}});
  for (auto& layer : model.transformer.decoder.layers) layer.multihead_attn.score_rule = NearTheQuery{};
  const auto ctx = Context<double>::inference();
  const auto memory = encode(model, {{5, 6, 7, 9, 3}});
  const Ids target = {2, 11, 8, 14};
  const auto expected = model.decode(ctx, id_tensor(target), SequenceLayout::packed({4}), memory).value();
  DecoderState<double> decoder = model.begin(ctx, memory);
  for (index_t t = 0; t < 4; ++t) {
    const index_t beams = decoder.sequences(), d = expected.dim(-1);
    const auto y =
        decoder.step(Tensor<std::int32_t>::full({beams}, target[static_cast<std::size_t>(t)])).value();
    for (index_t i = 0; i < beams; ++i)
      CHECK(largest_difference(y.data() + i * d, expected.data() + t * d, d) < 1e-12);
    decoder.reorder(std::vector<std::int32_t>{0, 0, 0});  // a beam that shares the memory
  }
}

TEST_CASE("every variant decodes with a cache what it decodes without, with the same attention weights") {
  for (const auto& variant : attention_variants()) {
    const std::string& name = variant.first;
    const Seq2SeqOptions& options = variant.second;
    CAPTURE(name);
    const auto model = random_model(options);
    const auto ctx = Context<double>::inference();
    const auto memory = encode(model, {{5, 6, 7, 3}, {8, 3}});
    DecoderState<double> decoder = model.begin(ctx, memory);
    std::vector<Ids> hypotheses = {{2}, {2}};
    std::vector<std::int32_t> sequences = {0, 1};
    RandomGenerator rng(4);
    // One token at a time and then three, with beams that cross and multiply.
    const std::vector<std::vector<std::int32_t>> parents = {
        {0, 0, 1}, {2, 0, 1, 1}, {3, 2, 0, 1}, {1, 0}, {1, 0, 0}};
    for (std::size_t step = 0; step <= parents.size(); ++step) {
      const index_t n = step == parents.size() ? 3 : 1, count = static_cast<index_t>(hypotheses.size());
      Tensor<std::int32_t> ids({count, n});
      for (index_t i = 0; i < count; ++i) {
        Ids& h = hypotheses[static_cast<std::size_t>(i)];
        while (static_cast<index_t>(h.size()) < decoder.lengths()[0] + n)
          h.push_back(static_cast<std::int32_t>(4 + rng.uniform_int(15)));
        std::copy_n(h.end() - n, n, ids.data() + i * n);
      }
      DecoderMaps<double> maps;
      const auto y = decoder.step(ids, &maps).value();
      for (index_t i = 0; i < count; ++i) {
        const Ids& h = hypotheses[static_cast<std::size_t>(i)];
        const auto length = static_cast<index_t>(h.size());
        const Memory<double> one(memory.rows, memory.layout, {sequences[static_cast<std::size_t>(i)]});
        DecoderMaps<double> expected_maps;
        const auto expected =
            model.decode(ctx, id_tensor(h), SequenceLayout::packed({length}), one, {}, &expected_maps)
                .value();
        const index_t d = expected.dim(-1), first = length - n;
        CHECK(largest_difference(y.data() + i * n * d, expected.data() + first * d, n * d) < 1e-12);
        for (std::size_t layer = 0; layer < 2; ++layer) {
          for (index_t head = 0; head < options.layer.num_heads; ++head) {
            const auto& self = maps.target[layer].value();
            CHECK(self.shape() == Shape{count, options.layer.num_heads, n, length});
            CHECK(largest_difference(&self.at({i, head, 0, 0}),
                                     &expected_maps.target[layer].value().at({0, head, first, 0}),
                                     n * length) < 1e-12);
            CHECK(largest_difference(&maps.memory[layer].value().at({i, head, 0, 0}),
                                     &expected_maps.memory[layer].value().at({0, head, first, 0}),
                                     n * 4) < 1e-12);
          }
        }
      }
      if (step == parents.size()) break;
      decoder.reorder(parents[step]);
      std::vector<Ids> next;
      std::vector<std::int32_t> next_sequences;
      for (const std::int32_t parent : parents[step]) {
        next.push_back(hypotheses[static_cast<std::size_t>(parent)]);
        next_sequences.push_back(sequences[static_cast<std::size_t>(parent)]);
      }
      hypotheses = next;
      sequences = next_sequences;
    }
  }
}

TEST_CASE("shared heads make the cache smaller") {
  const auto bytes = [](index_t heads) {
    RandomGenerator rng(1);
    const Seq2SeqTransformer<double> model({.source_vocab_size = 23,
                                            .layer = {.d_model = 24,
                                                      .num_heads = 6,
                                                      .dim_feedforward = 20,
                                                      .attention = {.num_key_value_heads = heads}},
                                            .encoder = {.num_layers = 1},
                                            .decoder = {.num_layers = 2}},
                                           rng);
    const auto held = [&](index_t tokens) {
      DecoderState<double> state = model.begin(Context<double>::inference(), encode(model, {{5, 3}}));
      (void)state.step(Tensor<std::int32_t>::full({1, tokens}, 5));
      return state.cache_bytes();
    };
    // Without the table of row numbers, which is as large for all.
    return held(1) - 16 * sizeof(index_t);
  };
  CHECK(bytes(2) * 3 == bytes(0));
  CHECK(bytes(1) * 6 == bytes(0));
}
