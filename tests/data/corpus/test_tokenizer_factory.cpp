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
  const auto planned = [](double target_bytes, char32_t different, const TokenizerOptions& options = {}) {
    std::vector<std::string> source, target = {"one"};
    for (char32_t c = 0; c < different; ++c) source.push_back(detail::utf8_of(U'\u4E00' + c));
    return detail::planned_vocabulary(options, target_bytes, {source, target});
  };
  CHECK(planned(1e5, 90) == 2000);
  CHECK(planned(1e6, 90) == 4000);
  CHECK(planned(1e7, 90) == 8000);
  CHECK(planned(1e8, 90) == 16000);
  CHECK(planned(1e5, 2850) == 6000);
  CHECK(planned(1e7, 4700) == 10000);
  CHECK(planned(1e7, 20000) == 16000);
  CHECK(planned(1e5, 90, {.vocabulary_size = 300}) == 300);
  CHECK(planned(1e5, 90, {.kind = "word"}) == 8000);
}

TEST_CASE(
    "train_tokenizers chooses a size by the bytes of the target side, train_tokenizer by those of its text") {
  if (!has_subword_tokenizer()) return;
  // Words of random letters in random order: enough pieces, and few different words, which training is fast
  // for.
  std::uint32_t random = 1;
  const auto below = [&](std::uint32_t n) { return (random = random * 1664525u + 1013904223u) / 65536 % n; };
  std::vector<std::string> words(1500);
  for (std::string& word : words) {
    for (int k = 0; k < 7; ++k) word += static_cast<char>('a' + below(26));
  }
  ParallelCorpus corpus;
  for (int line = 0; line < 6000; ++line) {
    std::string text;
    for (int k = 0; k < 10; ++k) text += words[below(1500)] + ' ';
    corpus.source.push_back(text);
    corpus.target.push_back(text.substr(0, 40));
  }
  CHECK(train_tokenizers({}, corpus).target->vocabulary_size() == 2000);  // 0.24 MB
  CHECK(train_tokenizer({}, corpus.source)->vocabulary_size() == 4000);   // 0.48 MB
  CHECK(train_tokenizer({.vocabulary_size = 300}, corpus.source)->vocabulary_size() == 300);
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
