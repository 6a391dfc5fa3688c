#include "eigenformer/data/tokenizers/sentencepiece/processor.hpp"

#include <doctest/doctest.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "crafted_models.hpp"
#include "data/word_parts.hpp"
#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/sentencepiece_tokenizer.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/subword_tokenizer.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
using detail::EndSpaces;
using detail::SentencePieceProcessor;
using std::string_literals::operator""s;

namespace {

using Strings = std::vector<std::string>;

Strings parts_of(std::string_view text, EndSpaces spaces, std::size_t longest) {
  Strings parts;
  detail::for_each_part(
      text, spaces, [&](std::string_view part) { parts.emplace_back(part); }, longest);
  return parts;
}

/// A model that SentencePiece trains on sentences of word parts.
std::string trained(std::unordered_map<std::string, std::string> arguments) {
  struct Lines final : sentencepiece::SentenceIterator {
    bool done() const override { return next >= lines.size(); }
    void Next() override { ++next; }
    const std::string& value() const override { return lines[next]; }
    sentencepiece::util::Status status() const override { return {}; }
    Strings lines = sentences_of_word_parts();
    std::size_t next = 0;
  } lines;
  arguments.insert({{"vocab_size", "60"}, {"hard_vocab_limit", "false"}, {"minloglevel", "3"}});
  std::string model;
  REQUIRE(sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model).ok());
  return model;
}

}  // namespace

TEST_CASE("a long text is cut at spaces, a long word between code points") {
  const std::string text = "one two  three";
  CHECK(parts_of(text, EndSpaces::added, 14) == Strings{text});
  CHECK(parts_of(text, EndSpaces::added, 13) == Strings{"one two ", "three"});
  CHECK(parts_of(text, EndSpaces::added, 8) == Strings{"one two ", "three"});
  CHECK(parts_of(text, EndSpaces::added, 12) == parts_of(text, EndSpaces::added, 8));
  CHECK(parts_of(text, EndSpaces::kept, 8) == Strings{"one two ", " three"});
  CHECK(parts_of(text, EndSpaces::removed, 8) == Strings{"one tw", "o  three"});
  CHECK(parts_of("123456789", EndSpaces::added, 8) == Strings{"12345678", "9"});
  CHECK(parts_of("äöüßé", EndSpaces::added, 9) == Strings{"äöüß", "é"});
  CHECK(parts_of("犬犬犬犬", EndSpaces::removed, 8) == Strings{"犬犬", "犬犬"});
  CHECK(parts_of(" 23456789", EndSpaces::kept, 8) == Strings{" 2345678", "9"});
  CHECK(parts_of("", EndSpaces::added, 8).empty());
  // All that is lost is one space at each cut.
  std::string words;
  for (int i = 0; i < 500; ++i) words += std::string(static_cast<std::size_t>(i % 11), 'x') + " \xC3\xA4";
  for (const EndSpaces spaces : {EndSpaces::added, EndSpaces::kept, EndSpaces::removed}) {
    std::string together;
    for (const std::string& part : parts_of(words, spaces, 64)) {
      CHECK(part.size() <= 64);
      CHECK_FALSE(detail::find_invalid_utf8(part));
      together += (spaces == EndSpaces::added && !together.empty() ? " " : "") + part;
    }
    CHECK(together == words);
  }
}

TEST_CASE("the library gets a long text in as many calls as it has parts") {
  // Its own work on a run of unknown characters grows with the square of the run.
  for (const std::size_t size : {100'000u, 200'000u, 400'000u}) {
    const Strings parts = parts_of(std::string(size, 'x'), EndSpaces::added, detail::longest_part);
    CHECK(parts.size() == (size + detail::longest_part - 1) / detail::longest_part);
    for (const std::string& part : parts) CHECK(part.size() <= detail::longest_part);
  }
  const SentencePieceProcessor processor(model_of());
  const std::string unknown(3 * detail::longest_part, 'x');
  const Strings pieces = processor.encode<std::string>(unknown);
  CHECK(pieces.size() == 6);  // the mark of a space and one unknown piece, three times
  for (const std::string& piece : pieces) CHECK(piece.size() <= detail::longest_part);
}

TEST_CASE("words in parts have the pieces of the whole text") {
  std::string text;
  const Strings sentences = sentences_of_word_parts();
  for (std::size_t i = 0; text.size() < 40'000; ++i) text += sentences[i % sentences.size()] + ' ';
  struct Kind {
    const char *type, *adds_space, *collapses_spaces;
  };
  static constexpr Kind kinds[] = {
      {"bpe", "true", "true"}, {"unigram", "true", "false"}, {"bpe", "false", "false"}};
  for (const Kind& kind : kinds) {
    CAPTURE(kind.type);
    CAPTURE(kind.adds_space);
    const SentencePieceProcessor processor(trained({{"model_type", kind.type},
                                                    {"add_dummy_prefix", kind.adds_space},
                                                    {"remove_extra_whitespaces", kind.collapses_spaces},
                                                    {"byte_fallback", "false"}}));
    Strings whole;
    REQUIRE(processor.library().Encode(text, &whole).ok());
    CHECK(processor.encode<std::string>(text) == whole);
    std::vector<int> ids;
    REQUIRE(processor.library().Encode(text, &ids).ok());
    CHECK(processor.encode<int>(text) == ids);
    RandomGenerator rng(1);
    Strings drawn;
    for (const auto& piece : processor.sample(text, {}, rng)) drawn.push_back(piece.text);
    CHECK(drawn == whole);
  }
  // Where the model takes spaces away and adds none, words are cut and spaces kept.
  const SentencePieceProcessor removing(trained({{"model_type", "bpe"}, {"add_dummy_prefix", "false"}}));
  CHECK(removing.decode(removing.encode<int>(text)) == trim(text));
}

TEST_CASE("no model that SentencePiece trains is refused") {
  const auto check = [](std::unordered_map<std::string, std::string> arguments) {
    const SentencePieceProcessor processor(trained(std::move(arguments)));
    CHECK(processor.decode(processor.encode<int>("Haus")) != "");
  };
  for (const char* type : {"bpe", "unigram", "char", "word"}) {
    for (const char* rule : {"identity", "nmt_nfkc_cf"})
      check({{"model_type", type}, {"normalization_rule_name", rule}});
  }
  check({{"byte_fallback", "true"}, {"vocab_size", "330"}, {"normalization_rule_name", "nfkc"}});
  check({{"user_defined_symbols", "<sep>,<2de>,a b"}, {"control_symbols", "<c>"}, {"model_type", "bpe"}});
  check({{"pad_id", "2"},
         {"unk_id", "1"},
         {"bos_id", "-1"},
         {"eos_id", "0"},
         {"treat_whitespace_as_suffix", "true"}});
  const TemporaryFolder folder;
  const std::string rules = folder.write("rules.tsv", "61\t62\n63 64\t66 67 68\n").string();
  check({{"normalization_rule_tsv", rules},
         {"denormalization_rule_tsv", rules},
         {"split_by_whitespace", "false"}});
}

TEST_CASE("every way to a tokenizer has its model checked") {
  const std::string bad = model_of(piece(std::string(200'000, 'x')));
  const std::string expected =
      "a damaged SentencePiece model: piece 7 has 200000 bytes, expected at most 7999";
  CHECK(contains(message_of<ValueError>([&] { (void)SentencePieceProcessor(bad); }), expected));
  CHECK(contains(message_of<ValueError>([&] { (void)detail::SentencePieceTokenizer(bad, {}); }),
                 "[tokenizer] the file is " + expected));
  CHECK(contains(message_of<ValueError>([&] { (void)detail::SentencePieceTokenizer::model_pieces(bad); }),
                 expected));
  CHECK(contains(message_of<ValueError>([&] { (void)detail::SentencePieceSampler(bad); }), expected));
  const TemporaryFolder folder;
  folder.write("tokenizer.model", bad);
  CHECK(contains(message_of<IoError>([&] { (void)SubwordTokenizer::load(folder.path()); }),
                 "tokenizer.model' is " + expected));
  const std::vector<std::string> pieces = detail::SentencePieceTokenizer::model_pieces(model_of());
  detail::SentencePieceTokenizer(model_of(), {pieces, 0, {}}).save(folder.path());
  detail::TokenizerParts parts = detail::TokenizerParts::load(folder / "tokenizer.tokenizer");
  parts.set("model", bad);
  parts.save(folder / "tokenizer.tokenizer");
  CHECK(contains(message_of<IoError>([&] { (void)detail::SentencePieceTokenizer::load(folder.path()); }),
                 expected));
  // What the check cannot know is the library's own to refuse.
  const std::string empty = piece("<unk>", 2) + training(number_field(3, 1));
  CHECK(contains(message_of<ValueError>([&] { (void)SentencePieceProcessor(empty); }),
                 "a SentencePiece model that the library refuses (SentencePiece: "));
}

TEST_CASE("a crafted table of characters that passes the check is followed to its end") {
  const SentencePieceProcessor processor(model_of(normalizer(bytes_field(2, one_rule().bytes("b\0"s)))));
  CHECK(processor.encode<std::string>("a b") == Strings{"\xE2\x96\x81", "b", "\xE2\x96\x81", "b"});
}
