#include <doctest/doctest.h>

#include <vector>

#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/data/corpus/conventions.hpp"
#include "eigenformer/data/corpus/vocabulary.hpp"

using namespace eigenformer;

TEST_CASE("conventions: a vocabulary and the conventions of text have the same ones") {
  const Vocabulary vocabulary;
  REQUIRE(vocabulary.size() == SpecialIds::count);
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
