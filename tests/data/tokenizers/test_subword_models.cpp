#include "eigenformer/data/tokenizers/subword_models.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace eigenformer;

namespace {

using Ids = std::vector<std::int32_t>;
constexpr double none = std::numeric_limits<double>::quiet_NaN();

auto find_in(const std::vector<std::string>& tokens) {
  return [&tokens](std::string_view text) -> std::optional<std::int32_t> {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == text) return static_cast<std::int32_t>(i);
    }
    return std::nullopt;
  };
}

Ids segment(const detail::UnigramModel& model, const std::vector<std::string>& tokens,
            std::string_view word) {
  Ids ids;
  model.segment(word, find_in(tokens), [&](std::int32_t id) { ids.push_back(id); });
  return ids;
}

Ids segment(const detail::PairModel& model, const std::vector<std::string>& tokens, std::string_view word) {
  Ids ids;
  RandomGenerator unused;
  model.segment(word, 0, unused, find_in(tokens), [&](std::int32_t id) { ids.push_back(id); });
  return ids;
}

}  // namespace

TEST_CASE("a unigram model takes the pieces with the largest sum of scores") {
  const std::vector<std::string> tokens = {"<unk>", "a", "b", "ab", "abc", "\xC3\xA4", "ba"};
  const detail::UnigramModel model({none, -1, -1, -1.5, -10, -2, -1.25}, tokens);
  CHECK(segment(model, tokens, "ab") == Ids{3});
  CHECK(segment(model, tokens, "aab") == Ids{1, 3});
  CHECK(segment(model, tokens, "aba") == Ids{1, 6});  // -2.25, where the longest first would have -2.5
  CHECK(segment(model, tokens, "abc") == Ids{4});     // -10, a character in no piece being worse
  CHECK(segment(model, tokens,
                "\xC3\xA4"
                "b") == Ids{5, 2});
  CHECK(segment(model, tokens, "").empty());
}

TEST_CASE("a unigram model gives a run of characters in no piece once, and special tokens never") {
  const std::vector<std::string> tokens = {"<unk>", "a"};
  const detail::UnigramModel model({none, -1}, tokens);
  CHECK(segment(model, tokens, "xya\xE7\x8A\xAC\xC3\xA4") == Ids{-1, 1, -1});
  CHECK(segment(model, tokens, "<unk>a") == Ids{-1, 1});
  const detail::UnigramModel short_of_scores(std::vector<double>{-1}, {"b", "a"});
  CHECK(segment(short_of_scores, {"b", "a"}, "ba") == Ids{0, -1});
}

TEST_CASE("a unigram model without pieces or with scores that are no numbers is refused") {
  CHECK_THROWS_AS(detail::UnigramModel({none}, {"a"}), ValueError);
  CHECK_THROWS_AS(detail::UnigramModel(std::vector<double>{}, {}), ValueError);
  CHECK_THROWS_AS(detail::UnigramModel({std::numeric_limits<double>::infinity()}, {"a"}), ValueError);
  CHECK_THROWS_AS(detail::UnigramModel({-1e31}, {"a"}), ValueError);
}

TEST_CASE("byte pair encoding merges the first pair of the list first, of several such the leftmost") {
  const std::vector<std::string> tokens = {"a", "b", "c", "ab", "bc", "abab", "aa"};
  const detail::PairModel first({"a", "b", "b", "c", "ab", "ab"}, find_in(tokens));
  CHECK(segment(first, tokens, "abc") == Ids{3, 2});
  CHECK(segment(first, tokens, "ababab") == Ids{5, 3});
  CHECK(segment(first, tokens, "cbcb") == Ids{2, 4, 1});
  const detail::PairModel second({"b", "c", "a", "b"}, find_in(tokens));
  CHECK(segment(second, tokens, "abc") == Ids{0, 4});
  const detail::PairModel third({"a", "a"}, find_in(tokens));
  CHECK(segment(third, tokens, "aaa") == Ids{6, 0});
  CHECK(segment(third, tokens, "").empty());
  CHECK(third.merges() == std::vector<std::string>{"a", "a"});
}

TEST_CASE("byte pair encoding gives a run of characters that are no tokens once") {
  const std::vector<std::string> tokens = {"a", "b", "ab"};
  const detail::PairModel model({"a", "b"}, find_in(tokens));
  CHECK(segment(model, tokens,
                "xyab\xE7\x8A\xAC"
                "a\xC3\xA4"
                "b") == Ids{-1, 2, -1, 0, -1, 1});
}

TEST_CASE("merges that are no pairs, or of or into what is no token, are refused") {
  const std::vector<std::string> tokens = {"a", "b", "ab"};
  CHECK_THROWS_AS(detail::PairModel({"a"}, find_in(tokens)), ValueError);
  CHECK_THROWS_AS(detail::PairModel({"a", "x"}, find_in(tokens)), ValueError);
  CHECK_THROWS_AS(detail::PairModel({"b", "a"}, find_in(tokens)), ValueError);
}
