#include "eigenformer/data/tokenizers/metaspace_tokenizer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "temporary_folder.hpp"

using namespace eigenformer;

namespace {

using Ids = std::vector<std::int32_t>;
constexpr double none = std::numeric_limits<double>::quiet_NaN();
const std::string mark = "\xE2\x96\x81";

detail::ForeignVocabulary vocabulary() {
  return {{"<unk>", mark, mark + "a", mark + "b", "a", "b", "<m>"}, 0, {6}};
}
const std::vector<double> scores = {none, -3, -1, -1, -2, -2.5, none};
const std::vector<detail::AddedToken> added = {{"<m>", 6}};

detail::MetaspaceTokenizer unigram(const detail::MetaspaceOptions& options) {
  return {vocabulary(), options, scores, added};
}

detail::MetaspaceOptions prepend(const std::string& where) {
  detail::MetaspaceOptions options;
  options.prepend = where;
  return options;
}

}  // namespace

TEST_CASE("spaces are marks, and one stands before each word, the text, or none") {
  const detail::MetaspaceTokenizer always = unigram({});
  CHECK(always.encode("a b") == Ids{2, 3});
  CHECK(always.encode(" a") == Ids{2});
  CHECK(always.encode("ab  a") == Ids{2, 5, 1, 2});
  CHECK(always.encode("ax") == Ids{2, 0});
  CHECK(always.encode("a<m>a") == Ids{2, 6, 2});
  CHECK(always.encode("").empty());
  const detail::MetaspaceTokenizer first = unigram(prepend("first"));
  CHECK(first.encode("a<m>a b") == Ids{2, 6, 4, 3});
  CHECK(first.encode("<m>a") == Ids{6, 4});
  const detail::MetaspaceTokenizer never = unigram(prepend("never"));
  CHECK(never.encode("a b") == Ids{4, 3});
  CHECK(always.decode(Ids{2, 5, 6, 3, 0}) == "ab b\xE2\x81\x87");
  CHECK(never.decode(Ids{3, 4}) == " ba");
  CHECK_THROWS_AS((void)always.decode(Ids{7}), IndexError);
}

TEST_CASE("words are cut at white space that is dropped, where the options say so") {
  detail::MetaspaceOptions options;
  options.split_white_space = true;
  CHECK(unigram(options).encode("a\t b\xC2\xA0"
                                "a ") == Ids{2, 3, 2});
  options.prepend = "first";
  CHECK(unigram(options).encode("a b") == Ids{2, 5});
}

TEST_CASE("words are not cut at marks where the options say so") {
  // One piece over a mark.
  const detail::ForeignVocabulary v{{"<unk>", mark + "a", mark + "a" + mark + "a"}, 0, {}};
  detail::MetaspaceOptions options;
  CHECK(detail::MetaspaceTokenizer(v, options, std::vector<double>{none, -1, -1}).encode("a a") == Ids{1, 1});
  options.split = false;
  CHECK(detail::MetaspaceTokenizer(v, options, std::vector<double>{none, -1, -1}).encode("a a") == Ids{2});
}

TEST_CASE("a normaliser does its steps one after the other") {
  detail::MetaspaceOptions options;
  options.normalizer = {{"replace", "``", "\""}, {"strip", "both", ""}, {"spaces", "", "_"}};
  CHECK(unigram(options).normalize(" \t``x   y z```\xC2\xA0") == "\"x_y z\"`");
  options.normalizer = {{"strip", "left", ""}};
  CHECK(unigram(options).normalize("  x  ") == "x  ");
  options.normalizer = {{"strip", "right", ""}};
  CHECK(unigram(options).normalize("  x  ") == "  x");
  CHECK(unigram(options).normalize("  ").empty());
  options.normalizer = {{"replace", "x", "a"}};
  CHECK(unigram(options).encode("x") == Ids{2});
}

TEST_CASE("byte pair encoding over marks, saved and loaded as unigram models are") {
  detail::MetaspaceOptions options;
  options.normalizer = {{"replace", "x", "b"}, {"strip", "left", ""}};
  options.prepend = "first";
  options.split_white_space = true;
  const detail::MetaspaceTokenizer pairs(vocabulary(), options, std::vector<std::string>{mark, "a"}, added);
  CHECK(pairs.encode("ax b<m>a") == Ids{2, 5, 5, 6, 4});
  const testing::TemporaryFolder folder;
  pairs.save(folder.path(), "pairs");
  unigram(prepend("never")).save(folder.path(), "unigram");
  const auto loaded_pairs = load_tokenizer("metaspace", folder.path(), "pairs");
  CHECK(loaded_pairs->kind() == "metaspace");
  CHECK(loaded_pairs->encode("ax b<m>a") == Ids{2, 5, 5, 6, 4});
  const auto loaded = load_tokenizer("metaspace", folder.path(), "unigram");
  CHECK(loaded->encode("a bb<m>x") == Ids{4, 3, 5, 6, 0});
  CHECK(loaded->decode(Ids{3, 4}) == " ba");
}

TEST_CASE("impossible options of a metaspace tokenizer are refused") {
  CHECK_THROWS_AS(unigram(prepend("sometimes")), ValueError);
  for (const detail::MetaspaceOptions::Step& step :
       {detail::MetaspaceOptions::Step{"lower", "", ""}, {"replace", "", "x"}, {"charsmap", "abc", ""}}) {
    CAPTURE(step.name);
    detail::MetaspaceOptions options;
    options.normalizer = {step};
    CHECK_THROWS_AS(unigram(options), ValueError);
  }
  const std::vector<detail::AddedToken> outside = {{"<m>", 7}};
  CHECK_THROWS_AS(detail::MetaspaceTokenizer(vocabulary(), {}, scores, outside), ValueError);
  CHECK_THROWS_AS(detail::MetaspaceTokenizer(vocabulary(), {}, std::vector<std::string>{"a", "b"}),
                  ValueError);
}
