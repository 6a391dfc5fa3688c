#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/core/base/error.hpp"
#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/documents/markup/placeholders.hpp"
#include "translator/documents/markup/read_markup.hpp"

using namespace eigenformer;
using namespace eigenformer::detail;

namespace {

std::string kinds(const std::vector<MarkupToken>& tokens, std::string_view document) {
  static constexpr std::string_view letters = "tToce[]v";
  std::string out;
  std::size_t at = 0;
  for (const MarkupToken& token : tokens) {
    CHECK(token.span.begin == at);
    CHECK(!token.span.empty());
    out += letters[static_cast<std::size_t>(token.kind)];
    out += token.name;
    at = token.span.end;
  }
  CHECK(at == document.size());
  return out;
}
std::string of_html(std::string_view document) { return kinds(html_tokens(document), document); }
std::string of_xml(std::string_view document) { return kinds(xml_tokens(document), document); }

std::string placeholders(std::string_view text) {
  std::string out;
  for (const ByteSpan& span : find_placeholders(text)) {
    if (!out.empty()) out += '|';
    out += span.of(text);
  }
  return out;
}

std::vector<std::string> texts(std::string_view document, MarkupFormat format) {
  std::vector<std::string> out;
  for (const MarkupSegment& segment : read_markup(document, format).segments) out.push_back(segment.text);
  return out;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("HTML is cut into text and tags, whatever it is") {
  CHECK(of_html("a<B x>b</b>") == "tobtcb");
  CHECK(of_html("<br><img src=a/><x/></p >") == "ebreimgexcp");
  CHECK(of_html("<a href='>' x=\">\" y=it's z>b</a>") == "oatca");
  CHECK(of_html("<!doctype html><!-- > --><!--><?p?><![CDATA[>]]></ x>") == "vvvvvv");
  CHECK(of_html("<script>\"</p>\"</scripts></SCRIPT >x") == "vscriptt");
  CHECK(of_html("<style>a") == "vstyle");
  CHECK(of_html("<title><b></title>") == "otitletctitle");
  CHECK(of_html("1 < 2 <3 </4 a <") == "t");
  CHECK(of_html("<a") == "t");
  CHECK(of_html("<a x=\"b>c") == "oat");
  CHECK(of_html("<a x=\"b>c<p><a y='") == "oatopt");
  CHECK(of_html("<!-- a") == "v");
  CHECK(of_html("<! a") == "t");
  CHECK(html_tokens("<p translate=NO><p class='a notranslate'><p class=notranslated>")[0].untranslated);
  CHECK(html_tokens("<p class='a notranslate'>")[0].untranslated);
  CHECK(!html_tokens("<p class=notranslated title='translate=no'>")[0].untranslated);
}

TEST_CASE("no HTML fails, and no byte of it is lost") {
  std::mt19937 random(3);
  const std::vector<std::string> pieces = {
      "<",        ">",        "</",     "/>",       "<b",       "b",    "</b>",          "<p>", "=",
      "\"",       "'",        "<!--",   "-->",      "&",        "amp;", "&#x",           ";",   " ",
      "<script>", "</script", "<code>", "</code>",  "<i>",      "</i>", " translate=no", "{",   "}",
      "%",        "s",        "a@b.de", "http://x", "\xC3\xA4", "\xFF"};
  for (int i = 0; i < 3000; ++i) {
    std::string document;
    for (std::size_t k = 0, n = random() % 25; k < n; ++k) document += pieces[random() % pieces.size()];
    CAPTURE(document);
    of_html(document);
    const MarkupDocument read = read_markup(document, MarkupFormat::html);
    for (const MarkupSegment& segment : read.segments) {
      for (std::size_t e = 0; e < segment.elements.size(); ++e) {
        const InlineElement& element = segment.elements[e];
        REQUIRE(element.text.begin <= element.text.end);
        REQUIRE(element.text.end <= segment.text.size());
        if (element.parent == InlineElement::none) continue;
        REQUIRE(element.parent < e);
        const InlineElement& parent = segment.elements[element.parent];
        REQUIRE(parent.subtree_end >= element.subtree_end);
        REQUIRE(parent.text.begin <= element.text.begin);
        REQUIRE(parent.text.end >= element.text.end);
      }
      for (const ProtectedPiece& piece : segment.pieces) REQUIRE(piece.text.end <= segment.text.size());
    }
  }
}

TEST_CASE("XML is cut into text and tags, and errors name their places") {
  CHECK(of_xml("<?xml version='1.0'?><!DOCTYPE a [<!-- > --> <!ENTITY b \">\">]><a:b c.d-e = '>'>x<f /></a:b "
               ">\n") == "vvoa:btefca:bt");
  CHECK(of_xml("a<![CDATA[<b>]]><![CDATA[]]>") == "t[T][]");
  CHECK(of_xml("<\xC3\xA4>&x; &#65;</\xC3\xA4>") == "o\xC3\xA4tc\xC3\xA4");
  // All numbers of XML 1.0, 2.2, also those that are no text.
  CHECK(of_xml("<a b='&#150;'>x &#x7F;&#x85;&#129;&#x1FFFE;&#x9;&#xFFFD;</a>") == "oatca");
  const auto says = [](std::string_view document, const std::string& message) {
    CAPTURE(document);
    CHECK_THROWS_WITH_AS(xml_tokens(document), ("[xml] " + message).c_str(), IoError);
  };
  says("<a>\n <b>\n</a>", "line 3, column 1: found </a>, expected </b> for the element of line 2, column 2");
  says("\xC3\xA4<a>",
       "line 1, column 5: the document ends within the element <a> of line 1, column 2, expected </a>");
  says("</a>", "line 1, column 1: found </a>, but no element is open");
  says("a & b",
       "line 1, column 3: '&' does not begin an entity, expected '&amp;' or a name or number and ';'");
  says("<a b='&'/>",
       "line 1, column 7: '&' does not begin an entity, expected '&amp;' or a name or number and ';'");
  says("&#0;", "line 1, column 1: '&#0;' is not a character that XML allows");
  for (const std::string number : {"&#8;", "&#x1F;", "&#xFFFE;", "&#xFFFF;", "&#xD800;", "&#x110000;"})
    says(number, "line 1, column 1: '" + number + "' is not a character that XML allows");
  says("1 < 2",
       "line 1, column 4: found ' ' after '<', expected the name of an element, or '&lt;' for a '<' of the "
       "text");
  says("<",
       "line 1, column 2: found the end of the document after '<', expected the name of an element, or "
       "'&lt;' for a '<' of the text");
  says("<a b>", "line 1, column 5: found '>' after the attribute 'b', expected '='");
  says("<a b=c>", "line 1, column 6: found 'c' after the attribute 'b', expected a value in quotes");
  says("<a b='c>", "line 1, column 6: the value of the attribute 'b' does not end, expected '''");
  says("<a b='<'>", "line 1, column 7: '<' is in the value of an attribute, expected '&lt;'");
  says("<a b='' b=''>", "line 1, column 9: the attribute 'b' occurs twice in the tag <a>");
  says("<a b=''c=''>",
       "line 1, column 8: found 'c' in the tag <a>, expected white space before an attribute");
  says("<a \xC3\xA4='' <>", "line 1, column 9: found '<' in the tag <a>, expected an attribute, '/>' or '>'");
  says("<a></a b>", "line 1, column 8: found 'b' in the closing tag </a>, expected '>'");
  says("</>", "line 1, column 3: found '>' after '</', expected the name of an element");
  says("<!-- a", "line 1, column 1: the comment does not end, expected -->");
  says("<!-- -- -->", "line 1, column 6: '--' is within a comment, expected '-->'");
  says("<![CDATA[ a", "line 1, column 1: the CDATA section does not end, expected ]]>");
  says("]]>", "line 1, column 1: ']]>' is in the text, expected ']]&gt;'");
  says("<?a", "line 1, column 1: the processing instruction does not end, expected ?>");
  says("<? ?>", "line 1, column 1: '<?' is not followed by a name");
  says(" <?xml version='1.0'?>",
       "line 1, column 2: the XML declaration comes after other text, expected it at the beginning");
  says("<?xml version='1.0' encoding='iso-8859-1'?><a/>",
       "line 1, column 30: the document declares the encoding 'iso-8859-1', expected UTF-8");
  says("<a/><!DOCTYPE a>",
       "line 1, column 5: the doctype comes after an element, expected it before all elements");
  says("<!DOCTYPE a [>", "line 1, column 1: the doctype does not end, expected >");
  says("a\x01", "line 1, column 2: the text has a control character, expected none but tabs and line ends");
}

TEST_CASE("character references") {
  const auto decoded = [](std::string_view text) { return character_reference(text).character; };
  CHECK(decoded("&amp;x") == "&");
  CHECK(decoded("&eacute;") == "\xC3\xA9");
  CHECK(decoded("&yuml;") == "\xC3\xBF");
  CHECK(decoded("&nbsp;") == "\xC2\xA0");
  CHECK(decoded("&omega;&Omega;") == "\xCF\x89");
  CHECK(decoded("&Omega;") == "\xCE\xA9");
  CHECK(decoded("&Sigma;") == "\xCE\xA3");
  CHECK(decoded("&#x1F600;") == "\xF0\x9F\x98\x80");
  CHECK(decoded("&#8364;") == "\xE2\x82\xAC");
  // Numbers of Windows-1252, as browsers read them.
  CHECK(decoded("&#128;") == "\xE2\x82\xAC");
  CHECK(decoded("&#146;") == "\xE2\x80\x99");
  CHECK(decoded("&#x96;") == "\xE2\x80\x93");
  CHECK(decoded("&#159;") == "\xC5\xB8");
  for (const char* unknown :
       {"&nope;", "&#0;", "&#xD800;", "&#x110000;", "&#99999999999999999999;", "&#x81;", "&#127;"}) {
    CAPTURE(unknown);
    CHECK(character_reference(unknown).length == std::string_view(unknown).size());
    CHECK(decoded(unknown).empty());
  }
  for (const char* none : {"&", "&;", "&amp", "& amp;", "&#;", "&#x;", "&#a;", "&1a;", "&a b;"}) {
    CAPTURE(none);
    CHECK(character_reference(none).length == 0);
  }
}

TEST_CASE("placeholders are found, and nothing else") {
  CHECK(placeholders("Hi {name}, {0:>8}, {} and {{ user.name }}: ${x}") ==
        "{name}|{0:>8}|{}|{{ user.name }}|${x}");
  CHECK(placeholders("%s %5.2f %1$d %-3i %(n)s %@ %% %PATH% %dpx %lu") ==
        "%s|%5.2f|%1$d|%-3i|%(n)s|%@|%%|%PATH%|%dpx|%lu");
  CHECK(placeholders("<0>a</0> <12/>") == "<0>|</0>|<12/>");
  CHECK(placeholders("%d%s {a}{b}") == "%d%s|{a}{b}");
  CHECK(placeholders("See https://a.org/b_(c)?d=e#f, (http://x.y/{id}). WWW www.x.de! mailto:a@b.c") ==
        "https://a.org/b_(c)?d=e#f|http://x.y/{id}|www.x.de|mailto:a@b.c");
  CHECK(placeholders("a.b+c@d-e.co.uk. (x@y.org)") == "a.b+c@d-e.co.uk|x@y.org");
  CHECK(placeholders("https://de.wikipedia.org/wiki/\xC3\x9C"
                     "bung\xE3\x80\x82") ==
        "https://de.wikipedia.org/wiki/\xC3\x9C"
        "bung");
  CHECK(placeholders(
            "100 % sure, 50%, 100%sicher, {a b}, { }, <b>, <a1>, a@b, @c, http://, $5, 3 < 4 > 2, %") == "");
}

TEST_CASE("what ends a sentence ends a segment") {
  CHECK(texts("<p>a <b>b</b></p> <ul><li>c<li>d</ul><br>e", MarkupFormat::html) ==
        Texts{"a b", "c", "d", "e"});
  CHECK(texts("a<pre>x</pre>b<textarea>y</textarea><script>z</script>", MarkupFormat::html) ==
        Texts{"a", "b"});
  CHECK(texts("a <code> b  c </code> d<div translate=no>e</div>f", MarkupFormat::html) ==
        Texts{"a b c d", "f"});
  CHECK(texts("<p> </p><p>&nbsp;</p>", MarkupFormat::html).empty());
  CHECK(texts("\uFEFF<p>\u200B</p><p>&#8203;&shy; &zwnj;</p>", MarkupFormat::html).empty());
  CHECK(texts("<r>\u2060<a>x</a>\uFEFF</r>", MarkupFormat::xml) == Texts{"x"});
  // In XML, elements that stand beside text are part of it, wherever they are.
  CHECK(texts("<r><p>a <b>b</b></p><p><b>c</b> <i>d</i></p><p><i/>e</p></r>", MarkupFormat::xml) ==
        Texts{"a b", "c d", "e"});
  CHECK(texts("<r><a>x</a><a>y</a></r>", MarkupFormat::xml) == Texts{"x", "y"});
  CHECK(texts("<r>x <a translate=\"no\">y <b/></a></r>", MarkupFormat::xml) == Texts{"x y"});
  CHECK(texts("<b>a</b>\n&amp;", MarkupFormat::text) == Texts{"<b>a</b>\n&amp;"});
}

TEST_CASE("pieces know how the document writes them, and no tag cuts one") {
  const std::string document = "a {n&#97;me} %<b>s</b> x&nope; <code>y</code> http://x.y/?a&amp;b";
  const MarkupDocument read = read_markup(document, MarkupFormat::html);
  REQUIRE(read.segments.size() == 1);
  std::vector<std::string> raw, text;
  for (const ProtectedPiece& piece : read.segments[0].pieces) {
    raw.emplace_back(piece.raw);
    text.emplace_back(piece.text.of(read.segments[0].text));
  }
  CHECK(raw == Texts{"{n&#97;me}", "&nope;", "<code>y</code>", "http://x.y/?a&amp;b"});
  CHECK(text == Texts{"{name}", "&nope;", "y", "http://x.y/?a&b"});
  CHECK(read_markup(document, MarkupFormat::html, false).segments[0].pieces.size() == 2);
}
