#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "core/fork_tools.hpp"
#include "data/word_parts.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/subword_tokenizer.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
using eigenformer::testing::sentences_of_word_parts;

using Strings = std::vector<std::string>;
using Ids = std::vector<std::int32_t>;

namespace {

/// What f writes to standard output and standard error.
template <class F>
std::string printed_by(F&& f) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "out").string();
  std::fflush(stdout), std::fflush(stderr);
  const int out = dup(1), err = dup(2);
  std::FILE* file = std::fopen(path.c_str(), "w");
  dup2(fileno(file), 1), dup2(fileno(file), 2);
  f();
  std::fflush(stdout), std::fflush(stderr);
  dup2(out, 1), dup2(err, 2);
  close(out), close(err), std::fclose(file);
  return detail::read_text_file(path);
}

}  // namespace

TEST_CASE("subword_tokenizer: decoding what was encoded gives the text back, in both models") {
  const Strings text = sentences_of_word_parts();
  for (const bool unigram : {false, true}) {
    const SubwordTokenizer tokenizer =
        SubwordTokenizer::train(text, {.vocabulary_size = 80, .unigram = unigram});
    CHECK(tokenizer.kind() == "subword");
    CHECK(tokenizer.vocabulary_size() <= 80);
    CHECK(tokenizer.vocabulary_size() > 40);
    for (std::size_t i = 0; i < text.size(); i += 11) {
      const Ids ids = tokenizer.encode(text[i]);
      CHECK(ids.size() < text[i].size());
      for (const std::int32_t id : ids) CHECK(id >= Vocabulary::num_specials);
      CHECK(tokenizer.decode(ids) == text[i]);
    }
    CHECK(tokenizer.decode(tokenizer.encode(" Wir\u00A0 lernen\t")) == "Wir lernen");
    CHECK(tokenizer.encode("").empty());
    CHECK(tokenizer.encode(" \u00A0").empty());
  }
}

TEST_CASE("subword_tokenizer: special ids, unknown characters and ids out of range") {
  const SubwordTokenizer tokenizer =
      SubwordTokenizer::train(sentences_of_word_parts(), {.vocabulary_size = 60});
  CHECK(tokenizer.token(SpecialIds::pad) == "<pad>");
  CHECK(tokenizer.token(SpecialIds::unknown) == "<unk>");
  CHECK(tokenizer.token(SpecialIds::begin) == "<s>");
  CHECK(tokenizer.token(SpecialIds::end) == "</s>");
  Ids ids = tokenizer.encode("Wir lernen");
  ids.insert(ids.begin(), SpecialIds::begin);
  ids.insert(ids.end(), {SpecialIds::end, SpecialIds::pad, SpecialIds::pad});
  CHECK(tokenizer.decode(ids) == "Wir lernen");
  CHECK(tokenizer.decode(tokenizer.encode("Wir 東 lernen")) == "Wir ⁇ lernen");
  for (const std::int32_t id : tokenizer.encode("</s><pad>")) {
    CHECK(id != SpecialIds::end);
    CHECK(id != SpecialIds::pad);
  }
  const auto size = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  for (const std::int32_t id : {-1, size}) {
    CHECK(contains(
        message_of<IndexError>([&] { (void)tokenizer.decode(Ids{id}); }),
        "token id " + std::to_string(id) + " is outside the vocabulary of size " + std::to_string(size)));
    CHECK(contains(message_of<IndexError>([&] { (void)tokenizer.token(id); }), "token id"));
  }
}

TEST_CASE("subword_tokenizer: with byte fallback nothing is unknown") {
  const SubwordTokenizer tokenizer =
      SubwordTokenizer::train(sentences_of_word_parts(), {.vocabulary_size = 330, .byte_fallback = true});
  for (const std::string text : {"Wir 東京 lernen 😀.", "naïve"}) {
    for (const std::int32_t id : tokenizer.encode(text)) CHECK(id != SpecialIds::unknown);
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  }
}

TEST_CASE("subword_tokenizer: equal text gives an equal model, saved and loaded it is the same") {
  const testing::TemporaryFolder folder;
  const Strings text = sentences_of_word_parts();
  for (const bool unigram : {false, true}) {
    SubwordTokenizer::train(text, {.vocabulary_size = 70, .unigram = unigram}).save(folder.path(), "first");
    SubwordTokenizer::train(text, {.vocabulary_size = 70, .unigram = unigram}).save(folder.path(), "second");
    CHECK(detail::read_text_file(folder.path() / "first.model") ==
          detail::read_text_file(folder.path() / "second.model"));
    const SubwordTokenizer loaded = SubwordTokenizer::load(folder.path(), "first");
    CHECK(loaded.encode(text[5]) ==
          SubwordTokenizer::train(text, {.vocabulary_size = 70, .unigram = unigram}).encode(text[5]));
    CHECK(loaded.decode(loaded.encode(text[5])) == text[5]);
  }
}

TEST_CASE("subword_tokenizer: a small corpus gives a small vocabulary, a sample is enough") {
  for (const bool unigram : {false, true}) {
    const SubwordTokenizer tokenizer =
        SubwordTokenizer::train(Strings{"ab ab abc", "", "  ", "b c"}, {.unigram = unigram});
    CHECK(tokenizer.vocabulary_size() < 30);
    CHECK(tokenizer.decode(tokenizer.encode("abc b")) == "abc b");
  }
  const Strings text = {"aa aa", "bb bb", "cc cc", "dd dd", "ee ee", "ff ff"};
  const SubwordTokenizer sampled = SubwordTokenizer::train(text, {.max_sentences = 3});
  CHECK(sampled.decode(sampled.encode("aa cc ee")) == "aa cc ee");
  CHECK(sampled.decode(sampled.encode("bb")) == "⁇");
}

TEST_CASE("subword_tokenizer: what cannot be is refused") {
  CHECK(contains(message_of<ValueError>([] { SubwordTokenizer::train(Strings{}); }), "no text to train on"));
  CHECK(contains(message_of<ValueError>([] {
                   SubwordTokenizer::train(Strings{"", " "});
                 }),
                 "no text to train on"));
  CHECK(
      contains(message_of<ValueError>([] { SubwordTokenizer::train(Strings{"a"}, {.vocabulary_size = 4}); }),
               "vocabulary_size is 4, must be at least 5"));
  CHECK(contains(message_of<ValueError>([] { SubwordTokenizer::train(Strings{"a"}, {.max_sentences = 0}); }),
                 "max_sentences is 0"));
  for (const bool unigram : {false, true}) {
    CHECK(contains(message_of<ValueError>([&] {
                     SubwordTokenizer::train(sentences_of_word_parts(),
                                             {.vocabulary_size = 9, .unigram = unigram});
                   }),
                   "vocabulary_size is 9, must be at least "));
  }
}

TEST_CASE("subword_tokenizer: the least size that a refusal names is the least that can be trained") {
  Strings text = {"ab cd", "ba", "日本 d"};  // a b c d 日 本, and what stands for a space
  for (const bool many : {false, true}) {
    for (char32_t i = 0; many && i < 600; ++i) text.push_back(detail::utf8_of(0x4E00 + i));
    for (const bool unigram : {false, true}) {
      for (const bool bytes : {false, true}) {
        CAPTURE(many);
        CAPTURE(unigram);
        CAPTURE(bytes);
        // With bytes, one character that is a piece is enough.
        const index_t least = many || bytes ? 4 + 256 + 3 : 4 + 7;
        const auto train = [&](index_t size) {
          return SubwordTokenizer::train(
              text, {.vocabulary_size = size, .unigram = unigram, .byte_fallback = bytes});
        };
        CHECK(contains(message_of<ValueError>([&] { train(least - 1); }),
                       "vocabulary_size is " + std::to_string(least - 1) + ", must be at least " +
                           std::to_string(least)));
        CHECK(train(least).decode(train(least).encode(text[2])) == text[2]);
      }
    }
  }
}

TEST_CASE("subword_tokenizer: of more characters than fit, the frequent ones are pieces, the others bytes") {
  // 600 ideographs; the first ones are frequent. They end a sentence, so that few pairs of them are pieces.
  Strings text;
  for (char32_t i = 0; i < 600; ++i) {
    for (char32_t times = 0; times < (i < 40 ? 20 : 1); ++times) {
      text.push_back("ab cd " + detail::utf8_of(0x4E00 + i));
    }
  }
  for (const bool unigram : {false, true}) {
    CAPTURE(unigram);
    const SubwordTokenizer tokenizer =
        SubwordTokenizer::train(text, {.vocabulary_size = 450, .unigram = unigram});
    CHECK(tokenizer.vocabulary_size() <= 450);
    for (const std::string& sentence : text) {
      const Ids ids = tokenizer.encode(sentence);
      CHECK(std::find(ids.begin(), ids.end(), SpecialIds::unknown) == ids.end());
      CHECK(tokenizer.decode(ids) == sentence);
    }
    CHECK(tokenizer.encode(text.front()).size() < tokenizer.encode(text.back()).size());
  }
}

TEST_CASE("subword_tokenizer: the refusal of a size says why in one sentence") {
  CHECK(
      message_of<ValueError>([&] {
        (void)SubwordTokenizer::train(Strings{"ab cd", "ba"}, {.vocabulary_size = 8, .reserved = {"<x>"}});
      }) ==
      "[subword_tokenizer] vocabulary_size is 8, must be at least 10: this text has 5 different characters, "
      "and 5 ids are for special and reserved pieces");
}

#if EIGENFORMER_TEST_MEMORY_LIMIT
TEST_CASE("subword_tokenizer: without memory the training is an error, and the process goes on") {
  const Strings text = sentences_of_word_parts();
  for (const bool unigram : {false, true}) {
    CAPTURE(unigram);
    const SubwordOptions options{.vocabulary_size = 100, .unigram = unigram};
    const SubwordTokenizer free = SubwordTokenizer::train(text, options);
    // What is left of the process's memory, in blocks of 64 KiB; -1: much more.
    for (const int left : {0, 4, 8, 16, 32, 64, 96, -1}) {
      CAPTURE(left);
      const bool enough = left < 0;
      const int code = testing::in_child([&] {
        if (!testing::limit_memory(enough ? 400U << 20U : 32U << 20U)) return false;
        std::array<void*, 128> blocks{};
        if (!enough) {
          for (void*& block : blocks) block = ::operator new(1U << 16U, std::nothrow);
          for (std::size_t size = 1U << 20U; size >= 512; size /= 2)
            while (::operator new(size, std::nothrow) != nullptr) continue;
          for (int i = 0; i < left; ++i) ::operator delete(blocks[static_cast<std::size_t>(i)]);
        }
        try {
          const SubwordTokenizer limited = SubwordTokenizer::train(text, options);
          if (limited.vocabulary_size() != free.vocabulary_size()) return false;
          for (std::int32_t id = 0; id < free.vocabulary_size(); ++id)
            if (limited.token(id) != free.token(id)) return false;
          return true;
        } catch (const Error& error) {
          return !enough && contains(error.what(), "[subword_tokenizer] ");
        } catch (const std::bad_alloc&) {
          return !enough;
        }
      });
      CHECK(code == 0);
    }
  }
}
#endif

TEST_CASE("subword_tokenizer: a missing or foreign file is refused") {
  const testing::TemporaryFolder folder;
  CHECK(contains(message_of<IoError>([&] { SubwordTokenizer::load(folder.path()); }),
                 "tokenizer.model': No such file"));
  folder.write("text.model", "this is no model");
  CHECK(contains(message_of<IoError>([&] { SubwordTokenizer::load(folder.path(), "text"); }), "text.model'"));
  folder.write("empty.model", "");
  CHECK(contains(message_of<IoError>([&] { SubwordTokenizer::load(folder.path(), "empty"); }),
                 "empty.model' is empty, expected a SentencePiece model"));
  SubwordTokenizer::train(sentences_of_word_parts(), {.vocabulary_size = 60}).save(folder.path(), "whole");
  const std::string whole = detail::read_text_file(folder.path() / "whole.model");
  folder.write("half.model", whole.substr(0, whole.size() / 2));
  CHECK(contains(message_of<IoError>([&] { SubwordTokenizer::load(folder.path(), "half"); }),
                 "half.model' is truncated or not a SentencePiece model: "));
}

TEST_CASE("subword_tokenizer: training and refusing print nothing") {
  const testing::TemporaryFolder folder;
  folder.write("text.model", "this is no model");
  CHECK(printed_by([&] {
          for (const bool unigram : {false, true}) {
            SubwordTokenizer::train(sentences_of_word_parts(), {.vocabulary_size = 60, .unigram = unigram})
                .encode("Wir 東");
          }
          (void)message_of<ValueError>(
              [] { SubwordTokenizer::train(sentences_of_word_parts(), {.vocabulary_size = 9}); });
          (void)message_of<IoError>([&] { SubwordTokenizer::load(folder.path(), "text"); });
        }) == "");
}

#endif
