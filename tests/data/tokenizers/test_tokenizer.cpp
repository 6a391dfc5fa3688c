#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/data/tokenizers/tokenizer.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

using Strings = std::vector<std::string>;
using Ids = std::vector<std::int32_t>;

namespace {

const Strings sentences = {
    "Der Hund schläft.",
    "\"Nein\", sagte er (leise) ... 'doch'?!",
    "3,14 ist 1/2 x-mal (a)(b) — „so“ € 5",
    "don't e-mail me@x.org, 東京 。 😀😀",
    "- a -b c- --d-- .",
    "...",
    "a",
};

/// The tokens of a text, seen through encode().
Strings tokens(const Tokenizer& tokenizer, const std::string& text) {
  Strings out;
  for (const std::int32_t id : tokenizer.encode(text)) out.push_back(tokenizer.token(id));
  return out;
}

template <class T>
void check_round_trip() {
  const T tokenizer = T::train(sentences);
  for (const std::string& sentence : sentences) {
    CAPTURE(sentence);
    const Ids ids = tokenizer.encode(sentence);
    for (const std::int32_t id : ids) CHECK(id >= Vocabulary::num_specials);
    CHECK(tokenizer.decode(ids) == sentence);
    CHECK(tokenizer.decode(tokenizer.encode(" \t" + sentence + "\u00A0\r\n")) == sentence);
  }
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.encode(" \u00A0 ").empty());
  CHECK(tokenizer.decode({}) == "");
}

template <class T>
void check_specials() {
  const T tokenizer = T::train(sentences);
  Ids ids = {SpecialIds::begin};
  for (const std::int32_t id : tokenizer.encode("Der Hund")) ids.push_back(id);
  for (const std::int32_t id : {SpecialIds::end, SpecialIds::pad}) ids.push_back(id);
  CHECK(tokenizer.decode(ids) == "Der Hund");
  const auto size = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  CHECK(contains(
      message_of<IndexError>([&] {
        (void)tokenizer.decode(Ids{4, size});
      }),
      "token id " + std::to_string(size) + " is outside the vocabulary of size " + std::to_string(size)));
  CHECK(contains(message_of<IndexError>([&] { (void)tokenizer.decode(Ids{-1}); }), "token id -1"));
  CHECK(contains(message_of<IndexError>([&] { (void)tokenizer.token(size); }), "token id"));
}

template <class T>
void check_saved_and_loaded() {
  const testing::TemporaryFolder folder;
  const T tokenizer = T::train(sentences);
  tokenizer.save(folder.path(), "both");
  const T loaded = T::load(folder.path(), "both");
  CHECK(loaded.vocabulary() == tokenizer.vocabulary());
  CHECK(loaded.encode(sentences[2]) == tokenizer.encode(sentences[2]));
  CHECK(contains(message_of<IoError>([&] { T::load(folder.path()); }), "tokenizer.vocab"));
}

}  // namespace

TEST_CASE("tokenizer: decoding what was encoded gives the text back") {
  check_round_trip<CharacterTokenizer>();
  check_round_trip<WordTokenizer>();
}

TEST_CASE("tokenizer: special ids are no text, ids out of range an error") {
  check_specials<CharacterTokenizer>();
  check_specials<WordTokenizer>();
}

TEST_CASE("tokenizer: saved and loaded it is the same") {
  check_saved_and_loaded<CharacterTokenizer>();
  check_saved_and_loaded<WordTokenizer>();
}

TEST_CASE("tokenizer: words and marks, with joiners where they touch") {
  CHECK(WordTokenizer::split("Der Hund, alt.") == Strings{"Der", "Hund", "￭,", "alt", "￭."});
  CHECK(WordTokenizer::split("(a) b's?!") == Strings{"(￭", "a", "￭)", "b", "￭'￭", "s", "￭?", "￭!"});
  CHECK(WordTokenizer::split("a - b -c d- e-f") ==
        Strings{"a", "-", "b", "-￭", "c", "d", "￭-", "e", "￭-￭", "f"});
  CHECK(WordTokenizer::split("x￭y") == Strings{"x", "￭■￭", "y"});
}

TEST_CASE("tokenizer: a word is one token wherever it stands") {
  const WordTokenizer tokenizer = WordTokenizer::train(Strings{"Hund (Hund) Hund, \"Hund\""});
  for (const std::string text : {"Hund", "(Hund)", "Hund,"}) {
    const Ids ids = tokenizer.encode(text);
    CHECK(std::count(ids.begin(), ids.end(), tokenizer.vocabulary().id("Hund")) == 1);
  }
}

TEST_CASE("tokenizer: unknown words and characters") {
  const WordTokenizer words = WordTokenizer::train(Strings{"der Hund schläft ."});
  CHECK(words.encode("der Vogel schläft") ==
        Ids{words.vocabulary().id("der"), SpecialIds::unknown, words.vocabulary().id("schläft")});
  CHECK(words.decode(words.encode("der Vogel schläft")) == "der ⁇ schläft");
  const CharacterTokenizer characters = CharacterTokenizer::train(Strings{"abc"});
  CHECK(characters.decode(characters.encode("axb")) == "a⁇b");
  CHECK(characters.encode("</s>") == Ids(4, SpecialIds::unknown));
}

TEST_CASE("tokenizer: vocabularies are limited by size and count") {
  const Strings text = {"a a a b b c", "a b d"};
  CHECK(WordTokenizer::train(text, {.max_size = 6}).vocabulary() == Vocabulary(Strings{"a", "b"}));
  CHECK(WordTokenizer::train(text, {.min_count = 2}).vocabulary() == Vocabulary(Strings{"a", "b"}));
  CHECK(CharacterTokenizer::train(text, {.max_size = 6}).vocabulary() == Vocabulary(Strings{" ", "a"}));
}

TEST_CASE("tokenizer: behind the interface both are alike") {
  const std::vector<std::shared_ptr<const Tokenizer>> all = {
      std::make_shared<CharacterTokenizer>(CharacterTokenizer::train(sentences)),
      std::make_shared<WordTokenizer>(WordTokenizer::train(sentences))};
  CHECK(all[0]->kind() == "char");
  CHECK(all[1]->kind() == "word");
  for (const auto& tokenizer : all) CHECK(tokenizer->decode(tokenizer->encode("Der Hund")) == "Der Hund");
  CHECK(tokens(*all[0], "er") == Strings{"e", "r"});
}
