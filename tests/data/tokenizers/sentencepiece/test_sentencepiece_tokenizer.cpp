#include "eigenformer/data/tokenizers/sentencepiece/sentencepiece_tokenizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "folders.hpp"
#include "temporary_folder.hpp"

using namespace eigenformer;

namespace {

using Ids = std::vector<std::int32_t>;

std::string model() {
  return detail::read_text_file(testing::fixtures_folder() / "checkpoints" / "hf_marian" / "source.spm");
}

// The model's pieces from the last to the first, and a language.
detail::ForeignVocabulary vocabulary() {
  std::vector<std::string> tokens = detail::SentencePieceTokenizer::model_pieces(model());
  std::reverse(tokens.begin(), tokens.end());
  tokens.push_back(">>deu<<");
  const auto language = static_cast<std::int32_t>(tokens.size()) - 1;
  return {tokens, language - 1, {language}};
}

}  // namespace

TEST_CASE("a SentencePiece model's pieces have the ids of the vocabulary") {
  const std::vector<std::string> own = detail::SentencePieceTokenizer::model_pieces(model());
  CHECK(own[0] == "<unk>");
  const detail::SentencePieceTokenizer tokenizer(model(), vocabulary());
  CHECK(tokenizer.vocabulary_size() == static_cast<index_t>(own.size()) + 1);
  CHECK(tokenizer.token(0) == own.back());
  const Ids ids = tokenizer.encode("the small dog");
  REQUIRE_FALSE(ids.empty());
  std::string text;
  for (const std::int32_t id : ids) text += tokenizer.token(id);
  CHECK(text ==
        "\xE2\x96\x81the\xE2\x96\x81small\xE2\x96\x81"
        "dog");
  CHECK(tokenizer.decode(ids) == "the small dog");
  const auto unknown = static_cast<std::int32_t>(tokenizer.vocabulary_size()) - 2;
  const Ids foreign = tokenizer.encode("\xE7\x8A\xAC");
  CHECK(std::count(foreign.begin(), foreign.end(), unknown) == 1);
  CHECK(tokenizer.encode("").empty());
}

TEST_CASE("a text may begin with a language where the model has several") {
  const detail::SentencePieceTokenizer one(model(), vocabulary()), several(model(), vocabulary(), true);
  const auto language = static_cast<std::int32_t>(several.vocabulary_size()) - 1;
  Ids expected = several.encode(" a dog");
  expected.insert(expected.begin(), language);
  CHECK(several.encode(">>deu<< a dog") == expected);
  CHECK(several.decode(expected) == "a dog");
  CHECK(one.encode(">>deu<< a dog") != expected);
  const testing::TemporaryFolder folder;
  several.save(folder.path());
  CHECK(load_tokenizer("sentencepiece", folder.path())->encode(">>deu<< a dog") == expected);
}

TEST_CASE("pieces that the model does not have become spaces and text, as in transformers") {
  const std::filesystem::path folder = testing::fixtures_folder() / "checkpoints" / "hf_marian";
  const auto map = nlohmann::json::parse(detail::read_text_file(folder / "vocab.json"));
  std::vector<std::string> tokens(map.size());
  for (const auto& [token, id] : map.items()) tokens[id.get<std::size_t>()] = token;
  const detail::SentencePieceTokenizer target(detail::read_text_file(folder / "target.spm"),
                                              {tokens, 1, {0, 47}});
  const auto decoded = nlohmann::json::parse(detail::read_text_file(folder / "decoded.json"));
  REQUIRE(decoded.size() == 12);
  for (const auto& one : decoded) {
    CAPTURE(one.at("pieces").dump());
    CHECK(target.decode(one.at("ids").get<Ids>()) == one.at("text").get<std::string>());
  }
  tokens.back() = "\xE2\x96\x81people";
  const detail::SentencePieceTokenizer more(detail::read_text_file(folder / "target.spm"), {tokens, 1, {0}});
  CHECK(more.decode(Ids{24, 47, 10}) == "kleine peoples");
  CHECK(more.decode(Ids{47, 24, 2}) == "people kleine");
}

TEST_CASE("bytes that are no SentencePiece model are refused") {
  CHECK_THROWS_AS(detail::SentencePieceTokenizer("abc", vocabulary()), ValueError);
  CHECK_THROWS_AS((void)detail::SentencePieceTokenizer::model_pieces(model().substr(0, 30)), ValueError);
}
