#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/data/text/utf8.hpp"

using namespace eigenformer;

TEST_CASE("utf8: valid text of one to four bytes a code point") {
  for (const std::string text :
       {"", "Hund", "Grüße", "€ 東京", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF",
        "\xC2\x80", "\xE0\xA0\x80", "\xF0\x90\x80\x80"}) {
    CAPTURE(text);
    CHECK_FALSE(detail::find_invalid_utf8(text).has_value());
  }
}

TEST_CASE(
    "utf8: overlong forms, surrogates, too large values, lone and missing bytes are found at their offset") {
  for (const std::string bad : {"\xC0\x80",
                                "\xC1\xBF",
                                "\xE0\x80\x80",
                                "\xE0\x9F\xBF",
                                "\xF0\x80\x80\x80",
                                "\xF0\x8F\xBF\xBF",
                                "\xED\xA0\x80",
                                "\xED\xBF\xBF",
                                "\xF4\x90\x80\x80",
                                "\xF5\x80\x80\x80",
                                "\xFF",
                                "\x80",
                                "\xBF",
                                "\xC3",
                                "\xE2\x82",
                                "\xF0\x9F\x98",
                                "\xC3(",
                                "\xE2(\x82",
                                "\xE2\x82(",
                                "\xF0\x9F\x98("}) {
    CAPTURE(bad);
    CHECK(detail::find_invalid_utf8(bad) == index_t{0});
    CHECK(detail::find_invalid_utf8("aü€" + bad) == index_t{6});
    CHECK(detail::find_invalid_utf8(bad + "abc") == index_t{0});
  }
}

TEST_CASE("utf8: what is not UTF-8 becomes U+FFFD as in Python's bytes.decode(errors='replace')") {
  CHECK(valid_utf8("") == "");
  CHECK(valid_utf8("aü€😀\uFFFD") == "aü€😀\uFFFD");
  CHECK(valid_utf8("\xFF"
                   "a\xE2\x82(\x80") == "\uFFFDa\uFFFD(\uFFFD");
  // The example of table 3-8 of The Unicode Standard, then what Python makes of others.
  CHECK(valid_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                   "b\x80"
                   "c\x80\xBF"
                   "d") == "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  CHECK(valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82") == "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  CHECK(valid_utf8("\xED\xA0\x80\xF4\x91\x92\x93\xFF") == "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  CHECK(valid_utf8("\xF0\x9F\x98\xC3\xA4\xF0\x9F") == "\uFFFDä\uFFFD");
}

TEST_CASE("utf8: every code point decodes to itself") {
  for (char32_t c = 1; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 37) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
    } else {
      put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
    }
    std::vector<char32_t> seen;
    detail::for_each_code_point(text, [&](char32_t value, std::string_view) { seen.push_back(value); });
    REQUIRE(seen == std::vector<char32_t>{c});
  }
}

TEST_CASE("utf8: splitting keeps the bytes, and those of an incomplete code point stay together") {
  const std::string text = "aß€\xF0\x9F\x98\x80";
  const std::vector<std::string_view> pieces = split_code_points(text);
  CHECK(pieces == std::vector<std::string_view>{"a", "ß", "€", "\xF0\x9F\x98\x80"});
  std::vector<char32_t> values;
  detail::for_each_code_point("a\xE2\x82(", [&](char32_t c, std::string_view) { values.push_back(c); });
  CHECK(values == std::vector<char32_t>{'a', 0xFFFD, '('});
  CHECK(split_code_points("\xF0\x9F\x98(\x80\x80") ==
        std::vector<std::string_view>{"\xF0\x9F\x98", "(", "\x80", "\x80"});
}

TEST_CASE("utf8: normalisation makes white space single spaces and changes nothing else") {
  CHECK(detail::normalize_text("  Der\u00A0Hund\t \u2003schläft.\r\n") == "Der Hund schläft.");
  CHECK(detail::normalize_text("") == "");
  CHECK(detail::normalize_text(" \u00A0\u3000\n") == "");
  CHECK(detail::normalize_text("ﬁ ½ … „x“") == "ﬁ ½ … „x“");
  CHECK(detail::normalize_text(std::string("a\0b", 3)) == "a b");
  CHECK(detail::normalize_text("a\xFF\xC3") == "a\uFFFD\uFFFD");
  CHECK(detail::normalize_text("\xE2\x82(\xF0\x9F\x98") == "\uFFFD(\uFFFD");
}

TEST_CASE("utf8: white space is what Python's str.isspace() takes for it") {
  std::u32string found;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (detail::is_space(c)) found += c;
  }
  CHECK(found ==
        U"\t\n\v\f\r\x1c\x1d\x1e\x1f "
        U"\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
        U"\u2028\u2029\u202f\u205f\u3000");
}

TEST_CASE("utf8: punctuation marks and letters") {
  for (const char32_t c : std::u32string(U".,!?'\"-/()[]{}@_`~«»¿„“–…€→、。！😀"))
    CHECK(detail::is_punctuation(c));
  for (const char32_t c : std::u32string(U"aZ09äßéŁжעあ東ªµº²½ ")) CHECK_FALSE(detail::is_punctuation(c));
}

TEST_CASE("utf8: characters are counted, and how many cover a share of the text") {
  detail::CharacterCounts counts;
  counts.add("aaaaa bb é");
  counts.add("日a");
  using Counts = std::vector<std::pair<char32_t, std::int64_t>>;
  CHECK(counts.by_frequency() == Counts{{U'a', 6}, {U'b', 2}, {U'é', 1}, {U'日', 1}});
  CHECK(counts.covering(0.5) == 1);
  CHECK(counts.covering(0.7) == 2);
  CHECK(counts.covering(1) == 4);
  CHECK(detail::CharacterCounts().covering(1) == 0);
}

TEST_CASE("utf8: text without a visible character is blank") {
  for (const char* blank :
       {"", " ", "\t\r\n", "\u00A0\u3000", "\u200B", "\uFEFF \u00AD", "\u200D\uFE0F", "\u2060"}) {
    CAPTURE(blank);
    CHECK(detail::is_blank(blank));
  }
  CHECK(detail::is_blank(std::string_view("\0 ", 2)));
  for (const char* text : {"a", " . ", "\u200Ba", "\u0301", "\uFF0E", "\xFF", "\u2010", "\u2070"}) {
    CAPTURE(text);
    CHECK_FALSE(detail::is_blank(text));
  }
}

TEST_CASE("utf8: trim takes white space from the ends and from nowhere else") {
  CHECK(trim("") == "");
  CHECK(trim(" \t\n") == "");
  CHECK(trim("a") == "a");
  CHECK(trim("  a  b\xC2\xA0\n") == "a  b");
  CHECK(trim("\xE3\x80\x80\xC3\xA4 \xFF ") == "\xC3\xA4 \xFF");
}
