#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/data/tokenizers/vocabulary.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

namespace {
const std::vector<std::string> words = {"der", "Hund", "schläft"};
}

TEST_CASE("vocabulary: special entries first, then the tokens in order") {
  const Vocabulary vocabulary(words);
  CHECK(vocabulary.size() == 7);
  CHECK(vocabulary.token(SpecialIds::pad) == "<pad>");
  CHECK(vocabulary.token(SpecialIds::end) == "</s>");
  for (std::int32_t id = 4; id < 7; ++id) CHECK(vocabulary.id(vocabulary.token(id)) == id);
  CHECK(vocabulary.id("Katze") == SpecialIds::unknown);
  CHECK_FALSE(vocabulary.find("Katze").has_value());
  CHECK(Vocabulary().size() == 4);
}

TEST_CASE("vocabulary: text cannot name the special entries") {
  CHECK(Vocabulary(words).id("</s>") == SpecialIds::unknown);
  const Vocabulary with_text_like_that(std::vector<std::string>{"</s>"});
  CHECK(with_text_like_that.id("</s>") == 4);
}

TEST_CASE("vocabulary: from counts, frequent ones first and ties by their bytes") {
  const TokenCounts counts = {{"b", 3}, {"a", 3}, {"c", 9}, {"ä", 3}, {"rare", 1}, {"d", 2}};
  CHECK(Vocabulary::from_counts(counts) ==
        Vocabulary(std::vector<std::string>{"c", "a", "b", "ä", "d", "rare"}));
  CHECK(Vocabulary::from_counts(counts, {.max_size = 7}) ==
        Vocabulary(std::vector<std::string>{"c", "a", "b"}));
  CHECK(Vocabulary::from_counts(counts, {.max_size = 100, .min_count = 3}) ==
        Vocabulary(std::vector<std::string>{"c", "a", "b", "ä"}));
}

TEST_CASE("vocabulary: what cannot be is refused") {
  const Vocabulary vocabulary(words);
  CHECK(message_of<IndexError>([&] { (void)vocabulary.token(7); }) ==
        "[vocabulary] token id 7 is outside the vocabulary of size 7");
  CHECK(contains(message_of<IndexError>([&] { (void)vocabulary.token(-1); }), "token id -1"));
  CHECK(contains(message_of<ValueError>([] {
                   Vocabulary(std::vector<std::string>{"a", "b", "a"});
                 }),
                 "'a' occurs twice"));
  CHECK(contains(message_of<ValueError>([] {
                   Vocabulary(std::vector<std::string>{"a", ""});
                 }),
                 "id 5 is empty"));
  CHECK(contains(message_of<ValueError>([] { Vocabulary::from_counts({}, {.max_size = 4}); }),
                 "max_size is 4"));
  CHECK(contains(message_of<ValueError>([] { Vocabulary::from_counts({}, {.max_size = -1}); }),
                 "max_size is -1"));
  CHECK(contains(message_of<ValueError>([] { Vocabulary::from_counts({}, {.min_count = -2}); }),
                 "min_count is -2"));
  const std::vector<std::string> reserved = {"<2de>", "<2fr>", "<2it>"};
  CHECK(contains(
      message_of<ValueError>([&] { Vocabulary::from_counts({}, {.max_size = 6, .reserved = reserved}); }),
      "max_size is 6"));
  CHECK(Vocabulary::from_counts({{"a", 1}}, {.max_size = 7, .reserved = reserved}).size() == 7);
}

TEST_CASE("vocabulary: saved and loaded, odd tokens too") {
  const testing::TemporaryFolder folder;
  const Vocabulary vocabulary(
      std::vector<std::string>{"a\nb", "\\", "\\n", "\r", " ", "\xEF\xBB\xBF", "ß", "<pad>"});
  vocabulary.save(folder.path() / "v");
  CHECK(Vocabulary::load(folder.path() / "v") == vocabulary);
  CHECK(Vocabulary::load(folder.path() / "v").id("a\nb") == 4);
  CHECK(contains(detail::read_text_file(folder.path() / "v"), "<pad>\n<unk>\n<s>\n</s>\na\\nb\n"));
}

TEST_CASE("vocabulary: a damaged or foreign file names the line") {
  const testing::TemporaryFolder folder;
  const auto message = [&](const std::string& bytes) {
    const auto path = folder.write("v", bytes);
    return message_of<IoError>([&] { Vocabulary::load(path); });
  };
  const std::string head = "<pad>\n<unk>\n<s>\n</s>\n";
  CHECK(contains(message(""), "line 1: expected the special entry '<pad>'"));
  CHECK(contains(message("<pad>\n<unk>\n"), "line 3: expected the special entry '<s>'"));
  CHECK(contains(message("der\ndie\n"), "line 1"));
  CHECK(contains(message(head + "a\nb\\x\n"), "line 6: 'b\\x'"));
  CHECK(contains(message(head + "a\\"), "line 5"));
  CHECK(contains(message(head + "a\n\nb\n"), "line 6"));
  CHECK(contains(message(head + "a\na\n"), "occurs twice"));
  CHECK(contains(message(head + "\xFF\n"), "invalid UTF-8"));
}
