#include "eigenformer/data/text/icu_text.hpp"

#include <doctest/doctest.h>

#include <string>

namespace text = eigenformer::detail::icu;  // ICU has a namespace icu too

TEST_CASE("characters have Unicode's classes") {
  CHECK(text::is_letter(U'\u00E4'));
  CHECK(text::is_letter(U'\u72AC'));
  CHECK_FALSE(text::is_letter(U'5'));
  CHECK(text::is_number(U'\u00BD'));
  CHECK_FALSE(text::is_number(U'x'));
  CHECK(text::is_white_space(U'\u00A0'));
  CHECK(text::is_white_space(U'\t'));
  CHECK_FALSE(text::is_white_space(U'\u200B'));
  CHECK(text::is_other(U'\u200B'));
  CHECK(text::is_other(U'\uE000'));
  CHECK_FALSE(text::is_other(U'\u0378'));
  CHECK_FALSE(text::is_other(U' '));
  CHECK(text::is_nonspacing_mark(U'\u0301'));
  CHECK_FALSE(text::is_nonspacing_mark(U'e'));
  CHECK(text::is_punctuation_mark(U'$'));  // a symbol in Unicode
  CHECK(text::is_punctuation_mark(U'\u2014'));
  CHECK_FALSE(text::is_punctuation_mark(U'\u20AC'));
  CHECK(text::is_word_character(U'_'));
  CHECK(text::is_word_character(U'\u0301'));
  CHECK_FALSE(text::is_word_character(U'-'));
}

TEST_CASE("text goes to code points and back, and characters to lower case and parts") {
  CHECK(text::code_points("a\xC3\xA4\xFF") == U"a\u00E4\uFFFD");
  std::string bytes = "x";
  for (const char32_t c : {U'\u00E4', U'\u72AC', U'\U0001F600'}) bytes += eigenformer::detail::utf8_of(c);
  CHECK(bytes == "x\xC3\xA4\xE7\x8A\xAC\xF0\x9F\x98\x80");
  CHECK(text::to_lower(U'\u00C4') == U'\u00E4');
  CHECK(text::to_lower(U'1') == U'1');
  CHECK(text::decompose(U'\u00E4') == U"a\u0308");
  CHECK(text::decompose(U'\u1E69') == U"s\u0323\u0307");
  CHECK(text::decompose(U'a') == U"a");
}
