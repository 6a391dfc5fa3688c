#include <doctest/doctest.h>

#include <vector>

#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/data/tokenizers/conventions.hpp"
#include "eigenformer/data/tokenizers/vocabulary.hpp"

using namespace eigenformer;

TEST_CASE("conventions: a vocabulary and the conventions of text have the same ones") {
  const Vocabulary vocabulary;
  REQUIRE(vocabulary.size() == Vocabulary::num_specials);
  CHECK(vocabulary.token(SpecialIds::pad) == "<pad>");
  CHECK(vocabulary.token(SpecialIds::unknown) == "<unk>");
  CHECK(vocabulary.token(SpecialIds::begin) == "<s>");
  CHECK(vocabulary.token(SpecialIds::end) == "</s>");
  CHECK(vocabulary.id("never seen") == SpecialIds::unknown);
  const TextConventions text;
  CHECK(text.begin_id == SpecialIds::begin);
  CHECK(text.end_id == SpecialIds::end);
  CHECK(text.source_suffix == std::vector<std::int32_t>{SpecialIds::end});
  CHECK(text.forbidden_ids ==
        std::vector<std::int32_t>{SpecialIds::pad, SpecialIds::unknown, SpecialIds::begin});
}

TEST_CASE("conventions: num_positions is what batches of the longest sentences take") {
  EncodedCorpus corpus;
  corpus.source.push_back(std::vector<std::int32_t>{4, 5, 6});
  corpus.target.push_back(std::vector<std::int32_t>{7, 8, 9});
  TextConventions text;
  const auto longest = [&] {
    const Batch batch = Batcher(corpus, {.text = text}).batch(0, 0);
    return std::max(batch.source_layout.max_length(), batch.target_layout.max_length());
  };
  CHECK(detail::num_positions(3) == 4);
  CHECK(detail::num_positions(3, text) == longest());
  text.target_prefix = {10, 11};
  CHECK(detail::num_positions(3, text) == 6);
  CHECK(detail::num_positions(3, text) == longest());
  text.source_prefix = {12, 13, 14};
  CHECK(detail::num_positions(3, text) == 7);
  CHECK(detail::num_positions(3, text) == longest());
}
