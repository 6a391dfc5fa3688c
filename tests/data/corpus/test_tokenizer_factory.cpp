#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

namespace {

ParallelCorpus small_corpus() {
  ParallelCorpus corpus;
  corpus.source = {"the dog sleeps", "the cat is old"};
  corpus.target = {"der Hund schläft", "die Katze ist alt"};
  return corpus;
}

}  // namespace

TEST_CASE("a planned vocabulary grows with the text and has room for the characters of both sides") {
  const auto planned = [](double target_bytes, char32_t different) {
    detail::CharacterCounts characters;
    for (char32_t c = 0; c < different; ++c) characters.add(detail::utf8_of(U'\u4E00' + c));
    return detail::planned_vocabulary(target_bytes, characters);
  };
  CHECK(planned(1e5, 90) == 2000);
  CHECK(planned(1e6, 90) == 4000);
  CHECK(planned(1e7, 90) == 8000);
  CHECK(planned(1e8, 90) == 16000);
  CHECK(planned(1e5, 2850) == 6000);
  CHECK(planned(1e7, 4700) == 10000);
  CHECK(planned(1e7, 20000) == 16000);
}

TEST_CASE("tokenizer_factory: each kind, joint and apart, saved and loaded") {
  std::vector<std::string> kinds = {"char", "word"};
  if (has_subword_tokenizer()) kinds.push_back("subword");
  const ParallelCorpus corpus = small_corpus();
  for (const std::string& kind : kinds) {
    for (const bool joint : {true, false}) {
      CAPTURE(kind);
      CAPTURE(joint);
      const TokenizerPair pair =
          train_tokenizers({.kind = kind, .vocabulary_size = 60, .joint = joint}, corpus);
      CHECK(pair.joint() == joint);
      CHECK(pair.source->kind() == kind);
      CHECK(pair.target->decode(pair.target->encode("der alte Hund")).substr(0, 4) == "der ");
      const testing::TemporaryFolder folder;
      save_tokenizers(pair, folder.path());
      const TokenizerPair loaded = load_tokenizers(kind, joint, folder.path());
      CHECK(loaded.joint() == joint);
      CHECK(loaded.source->encode("the old cat") == pair.source->encode("the old cat"));
      CHECK(loaded.target->encode("die Katze") == pair.target->encode("die Katze"));
      CHECK(loaded.source->vocabulary_size() == pair.source->vocabulary_size());
    }
  }
}

TEST_CASE("tokenizer_factory: a joint vocabulary knows both languages, one apart only its own") {
  const ParallelCorpus corpus = small_corpus();
  const TokenizerPair joint = train_tokenizers({.kind = "word", .joint = true}, corpus);
  CHECK(joint.source->decode(joint.source->encode("Hund dog")) == "Hund dog");
  const TokenizerPair apart = train_tokenizers({.kind = "word", .joint = false}, corpus);
  CHECK(apart.source->decode(apart.source->encode("Hund dog")) == "⁇ dog");
  CHECK(apart.target->decode(apart.target->encode("Hund dog")) == "Hund ⁇");
}

TEST_CASE("tokenizer_factory: sizes and counts are kept to, impossible ones refused") {
  const std::vector<std::string> text = {"a a b", "a b c"};
  CHECK(train_tokenizer({.kind = "word", .vocabulary_size = 6}, text)->vocabulary_size() == 6);
  CHECK(train_tokenizer({.kind = "word", .min_count = 2}, text)->vocabulary_size() == 6);
  CHECK(
      contains(message_of<ValueError>([&] { train_tokenizer({.kind = "word", .vocabulary_size = 4}, text); }),
               "max_size is 4"));
  CHECK(contains(message_of<ValueError>([&] { train_tokenizer({.kind = "bytes"}, text); }),
                 "kind is 'bytes', expected char, word or subword"));
  CHECK(contains(message_of<ValueError>([&] { load_tokenizer("", "folder"); }), "kind is ''"));
}

TEST_CASE("tokenizer_factory: without SentencePiece subwords are refused with the reason") {
  const std::vector<std::string> text = {"a a b"};
  const auto train = [&] { (void)train_tokenizer({.kind = "subword", .vocabulary_size = 10}, text); };
  if (has_subword_tokenizer()) {
    CHECK(message_of<ValueError>(train) == "no error");
  } else {
    CHECK(
        contains(message_of<ValueError>(train), "needs SentencePiece, which this program was built without"));
  }
}
