#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "eigenformer/search/decoding/attention_maps.hpp"
#include "search/packed_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// 60 pairs of random sentences: more target tokens than a block of rows.
EncodedCorpus corpus() {
  RandomGenerator rng(3);
  EncodedCorpus corpus;
  for (index_t i = 0; i < 60; ++i) {
    const auto sentence = [&](index_t length) {
      std::vector<std::int32_t> ids;
      for (index_t k = 0; k < length; ++k) ids.push_back(static_cast<std::int32_t>(4 + rng.uniform_int(49)));
      return ids;
    };
    corpus.source.push_back(sentence(1 + i % 7));
    corpus.target.push_back(sentence(2 + i % 5));
  }
  return corpus;
}

}  // namespace

TEST_CASE("forced decoding chooses the likeliest token after each prefix of the reference") {
  const auto pairs = corpus();
  const auto model = float_model();
  const auto ctx = Context<float>::inference();
  const Batch batch = Batcher(pairs, {.shuffle = false}).batch(0, 0);
  REQUIRE(batch.target_tokens() > 256);
  const auto choices = detail::forced_choices(model, ctx, batch);
  REQUIRE(static_cast<index_t>(choices.size()) == batch.target_tokens());
  const std::vector<std::int32_t> forbidden = {choices[0], choices[3]};
  const auto allowed = detail::forced_choices(model, ctx, batch, forbidden);

  // Sentence by sentence, and without blocks.
  std::size_t at = 0, source_at = 0;
  for (index_t b = 0; b < batch.size(); ++b) {
    const auto length = static_cast<std::size_t>(batch.target_layout.length(b));
    const auto source_length = static_cast<std::size_t>(batch.source_layout.length(b));
    const auto part = [](const std::vector<std::int32_t>& ids, std::size_t begin, std::size_t count) {
      return Tensor<std::int32_t>::from(
          {static_cast<index_t>(count)},
          std::vector<std::int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                    ids.begin() + static_cast<std::ptrdiff_t>(begin + count)));
    };
    const Tensor<float> logits =
        model(ctx, part(batch.source, source_at, source_length),
              SequenceLayout::packed({static_cast<index_t>(source_length)}),
              part(batch.target_input, at, length), SequenceLayout::packed({static_cast<index_t>(length)}))
            .value();
    for (std::size_t t = 0; t < length; ++t) {
      std::int32_t best = 0, best_allowed = -1;
      for (std::int32_t id = 0; id < 53; ++id) {
        const auto x = [&](std::int32_t i) { return logits.at({static_cast<index_t>(t), i}); };
        if (x(id) > x(best)) best = id;
        const bool bad = id == forbidden[0] || id == forbidden[1];
        if (!bad && (best_allowed < 0 || x(id) > x(best_allowed))) best_allowed = id;
      }
      CHECK(choices[at + t] == best);
      CHECK(allowed[at + t] == best_allowed);
    }
    at += length;
    source_at += source_length;
  }
  CHECK(at == choices.size());
}

TEST_CASE("smaller weights keep most choices") {
  const auto pairs = corpus();
  const auto model = float_model();
  const Batch batch = Batcher(pairs, {.shuffle = false}).batch(0, 0);
  const auto exact = detail::forced_choices(model, Context<float>::inference(), batch);
  CHECK(detail::forced_choices(model, packed_context(pack_weights(model)), batch) == exact);
  for (const WeightFormat format : {WeightFormat::bf16, WeightFormat::int8}) {
    const auto choices = detail::forced_choices(model, packed_context(pack_weights(model, format)), batch);
    std::size_t equal = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) equal += choices[i] == exact[i] ? 1 : 0;
    CAPTURE(equal);
    CAPTURE(exact.size());
    CHECK(equal * 100 >= exact.size() * 90);
  }
}
