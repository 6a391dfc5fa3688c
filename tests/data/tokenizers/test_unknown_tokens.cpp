#include "eigenformer/data/tokenizers/tokenizer.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"
#include "temporary_folder.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("unknown tokens are kept or dropped in decoded text, and nothing else changes") {
  using Ids = std::vector<std::int32_t>;
  const auto words = std::make_shared<WordTokenizer>(
      WordTokenizer::train(std::vector<std::string>{"a red tree", "a tree"}, {.max_size = 20}));
  const auto foreign = std::make_shared<detail::TokenTokenizer>(
      detail::ForeignVocabulary{{"a", "<u>", "tree", "</s>", "red"}, 1, {3}});
  for (const std::shared_ptr<const Tokenizer>& tokenizer :
       {std::shared_ptr<const Tokenizer>(words), std::shared_ptr<const Tokenizer>(foreign)}) {
    CAPTURE(tokenizer->kind());
    const auto dropping = detail::with_unknown_tokens(tokenizer, UnknownTokens::drop);
    CHECK(detail::with_unknown_tokens(tokenizer, UnknownTokens::keep) == tokenizer);
    const Ids ids = dropping->encode("a blue tree");
    CHECK(ids == tokenizer->encode("a blue tree"));
    CHECK(ids.size() == 3);
    CHECK(tokenizer->decode(ids) == "a \xE2\x81\x87 tree");
    CHECK(dropping->decode(ids) == "a tree");
    CHECK(dropping->decode(Ids{tokenizer->unknown_id()}).empty());
    CHECK(dropping->kind() == tokenizer->kind());
    CHECK(dropping->vocabulary_size() == tokenizer->vocabulary_size());
    CHECK(dropping->token(1) == tokenizer->token(1));
    CHECK_THROWS_AS((void)dropping->decode(Ids{70}), IndexError);
    TemporaryFolder folder;
    dropping->save(folder.path(), "saved");
    CHECK(load_tokenizer(tokenizer->kind(), folder.path(), "saved")->decode(ids) == tokenizer->decode(ids));
  }
}
