#include "eigenformer/data/tokenizers/added_tokens.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/data/text/icu_text.hpp"

using namespace eigenformer;

namespace {

// "text@begin" for texts and "#id" for tokens, in their order.
template <class Characters = eigenformer::detail::icu::AddedTokenCharacters>
std::vector<std::string> parts_of(const detail::AddedTokens& tokens, std::string_view text,
                                  bool normalized = false) {
  std::vector<std::string> parts;
  tokens.split<Characters>(
      text, normalized, [&](std::int32_t id) { parts.push_back("#" + std::to_string(id)); },
      [&](std::string_view part, std::size_t begin) {
        parts.push_back(std::string(part) + "@" + std::to_string(begin));
      });
  return parts;
}

using Parts = std::vector<std::string>;

const std::vector<detail::AddedToken> tokens = {{"<m>", 5},
                                                {"<m>x", 6},
                                                {"<s>", 7, true, true},
                                                {"yo", 8, false, false, true},
                                                {"low", 9, false, false, false, true},
                                                {"<l>", 10, true},
                                                {"", 11}};

}  // namespace

TEST_CASE("added tokens are found leftmost first, of several there the longest") {
  const detail::AddedTokens added(tokens);
  CHECK(parts_of(added, "a<m>xb<m>c") == Parts{"a@0", "#6", "b@5", "#5", "c@9"});
  CHECK(parts_of(added, "<m><m>") == Parts{"#5", "#5"});
  CHECK(parts_of(added, "<m") == Parts{"<m@0"});
  CHECK(parts_of(added, "").empty());
  CHECK(parts_of(detail::AddedTokens(), "<m>") == Parts{"<m>@0"});
}

TEST_CASE("added tokens take white space beside them where they are said to") {
  const detail::AddedTokens added(tokens);
  CHECK(parts_of(added,
                 "a  <s> \xC2\xA0"
                 "b") == Parts{"a@0", "#7", "b@9"});
  CHECK(parts_of(added, "\xC3\xA4 <s>") == Parts{"\xC3\xA4@0", "#7"});
  CHECK(parts_of(added, "<m> <s> <s>") == Parts{"#5", "#7", "#7"});
  CHECK(parts_of(added, "a <l> b") == Parts{"a@0", "#10", " b@5"});
  CHECK(parts_of(added, "a <m> b") == Parts{"a @0", "#5", " b@5"});
}

TEST_CASE("an added token that is a word does not count inside of one") {
  const detail::AddedTokens added(tokens);
  CHECK(parts_of(added, "yo you ayo,yo") == Parts{"#8", " you ayo,@2", "#8"});
  CHECK(parts_of(added, "yo\xC3\xA4 \xC3\xA4yo yo_") == Parts{"yo\xC3\xA4 \xC3\xA4yo yo_@0"});
}

TEST_CASE("in transformers' tokenizers in Python only a space ends a word, and separators are white space") {
  const detail::AddedTokens added(tokens);
  CHECK(parts_of<detail::AddedTokenCharacters>(added, "yo ayo .yo yo. yo") ==
        Parts{"#8", " ayo .yo yo. @2", "#8"});
  CHECK(parts_of(added, ".yo") == Parts{".@0", "#8"});
  CHECK(parts_of<detail::AddedTokenCharacters>(added, "a\x1c<s>\x1d b") == Parts{"a@0", "#7", "b@7"});
  CHECK(parts_of(added, "a\x1c<s>") == Parts{"a\x1c@0", "#7"});
}

TEST_CASE("added tokens of the normalised text are found in that pass alone") {
  const detail::AddedTokens added(tokens);
  CHECK(parts_of(added, "low<m>") == Parts{"low@0", "#5"});
  CHECK(parts_of(added, "low<m>", true) == Parts{"#9", "<m>@3"});
}

TEST_CASE("added tokens are saved and read, and ids outside the vocabulary refused") {
  detail::TokenizerParts parts;
  CHECK(detail::AddedTokens::read(parts).empty());
  detail::AddedTokens().add_to(parts);
  CHECK_FALSE(parts.contains("added"));
  detail::AddedTokens(tokens).add_to(parts);
  CHECK(detail::AddedTokens::read(parts) == tokens);
  detail::AddedTokens(tokens).require_ids(12);
  CHECK_THROWS_AS(detail::AddedTokens(tokens).require_ids(11), ValueError);
  CHECK_THROWS_AS(detail::AddedTokens({{"a", -1}}).require_ids(11), ValueError);
  parts.set_list("added", {"a", "1"});
  CHECK_THROWS_AS((void)detail::AddedTokens::read(parts), IoError);
  parts.set_list("added", {"a", "one", "0"});
  CHECK_THROWS_AS((void)detail::AddedTokens::read(parts), IoError);
}
