#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "folders.hpp"
#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/documents/markup/translate_markup.hpp"

using namespace eigenformer;
using eigenformer::detail::character_reference;
using eigenformer::detail::CharacterReference;
using eigenformer::detail::read_markup;

namespace {

/// A text with its references as browsers read them; those that have no character stay.
std::string decoded(std::string_view text) {
  std::string all;
  for (std::size_t at = 0; at < text.size();) {
    const CharacterReference found = character_reference(text.substr(at), true);
    const std::size_t length = std::max<std::size_t>(1, found.length);
    all += found.character.empty() ? std::string(text.substr(at, length)) : found.character;
    at += length;
  }
  return all;
}

/// A document with each segment's text replaced.
std::string replaced(std::string_view document, const std::string& text,
                     MarkupFormat format = MarkupFormat::html) {
  return translate_markup(document, {.format = format}, [&](const std::vector<std::string>& segments) {
    return std::vector<AlignedText>(segments.size(), AlignedText{text, {}});
  });
}

}  // namespace

TEST_CASE("all names of the HTML standard, with and without a semicolon") {
  std::ifstream file(testing::fixtures_folder() / "html_entities.json");
  const nlohmann::json known = nlohmann::json::parse(file);
  REQUIRE(known.at("names").size() == 2231);
  int bare = 0;
  for (const auto& entry : known.at("names").items()) {
    const std::string name = entry.key();
    CAPTURE(name);
    const std::string text = "&" + name;
    const bool ended = name.ends_with(';');
    bare += ended ? 0 : 1;
    const CharacterReference html = character_reference(text, true), strict = character_reference(text);
    CHECK(html.length == text.size());
    CHECK(html.character == entry.value().get<std::string>());
    CHECK(strict.length == (ended ? text.size() : 0));
    if (ended) CHECK(strict.character == html.character);
    // A name that differs in one letter is another one or none.
    const std::string other = "&" + name.substr(0, name.size() - 1) + "q;";
    const CharacterReference unknown = character_reference(other);
    if (!known.at("names").contains(other.substr(1))) CHECK(unknown.character.empty());
  }
  CHECK(bare == 106);
  REQUIRE(known.at("texts").size() == 400);
  for (const auto& text : known.at("texts")) {
    CAPTURE(text.at(0));
    CHECK(decoded(text.at(0).get<std::string>()) == text.at(1).get<std::string>());
  }
}

TEST_CASE("names and numbers without a semicolon: as the HTML standard says, and never in XML") {
  CHECK(decoded("&notit; &notin; &copy2026 &amp;lt &AMP&LT;") ==
        "\xC2\xACit; \xE2\x88\x89 \xC2\xA9"
        "2026 &lt &<");
  CHECK(decoded("&#228x &#xe4; &#xE4g &#65") == "\xC3\xA4x \xC3\xA4 \xC3\xA4g A");
  CHECK(decoded("&nope &no; &alpha &Copy& &; &# &#x &#; &x") == "&nope &no; &alpha &Copy& &; &# &#x &#; &x");
  CHECK(decoded("&#" + std::string(100, '0') + "65;") == "A");
  CHECK(character_reference("&copy").length == 0);
  CHECK(character_reference("&#65 ").length == 0);
  CHECK_THROWS_AS((void)read_markup("<a>&copy 2</a>", MarkupFormat::xml), IoError);
  CHECK(read_markup("&copy 2&rarr;&nvlt;&fjlig;", MarkupFormat::html).segments.at(0).text ==
        "\xC2\xA9 2\xE2\x86\x92<\xE2\x83\x92"
        "fj");
}

TEST_CASE("a translation spells references so that they are read as they are meant") {
  CHECK(replaced("&copy 2", "\xC2\xA9 3") == "&copy 3");
  // What follows would make another name or number of it.
  CHECK(replaced("a &not b", "\xC2\xACin; b") == "&not;in; b");
  CHECK(replaced("a &#65 b", "A5") == "&#65;5");
  CHECK(replaced("a &not b", "\xC2\xACx") == "&notx");
  // Two characters of one reference are written as they are.
  CHECK(replaced("a &nvlt; b", "b <\xE2\x83\x92 a") == "b <\xE2\x83\x92 a");
  CHECK(replaced("a &nvlt; b", "b < a") == "b < a");
  // An & that would begin an old name.
  CHECK(replaced("AT&T", "R&copy") == "R&amp;copy");
  CHECK(replaced("AT&T", "AT&T") == "AT&T");
}
