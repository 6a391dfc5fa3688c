#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "translator/documents/document_translator.hpp"
#include "translator/documents/markup/markup_tools.hpp"
#include "translator/documents/markup/placeholders.hpp"
#include "translator/documents/markup/translate_markup.hpp"

using namespace eigenformer;
using namespace eigenformer::detail;
using namespace eigenformer::markup_test;

namespace {

constexpr MarkupOptions html{MarkupFormat::html}, xml{MarkupFormat::xml}, plain{MarkupFormat::text};

std::string reversed(std::string_view document, const MarkupOptions& options) {
  return translate_markup(document, options, reordering(backward, shouted));
}
std::string in_order(std::string_view document, const MarkupOptions& options) {
  return translate_markup(document, options, reordering(forward, shouted));
}
std::string unchanged(std::string_view document, const MarkupOptions& options) {
  return translate_markup(document, options, identity);
}

// Each tag with the tags that it is in; throws where the tags do not match.
std::map<std::string, std::vector<std::string>> nesting(std::string_view document) {
  std::map<std::string, std::vector<std::string>> found;
  std::vector<std::string> open;
  for (const MarkupToken& token : xml_tokens(document)) {
    const std::string raw(token.span.of(document));
    if (token.kind == MarkupKind::open || token.kind == MarkupKind::empty ||
        token.kind == MarkupKind::verbatim) {
      REQUIRE(found.count(raw) == 0);
      found[raw] = open;
    }
    if (token.kind == MarkupKind::open) open.push_back(raw);
    if (token.kind == MarkupKind::close) open.pop_back();
  }
  return found;
}

// The text without tags.
std::string stripped(std::string_view document, MarkupFormat format) {
  std::string text;
  for (const MarkupSegment& segment : read_markup(document, format, false).segments) text += segment.text;
  return text;
}

std::string words_only(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ' ') out += c;
  return out;
}

int count_of(std::string_view what, std::string_view text) {
  int count = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

const std::vector<std::string> sentences = {
    "A man in an orange hat is staring at something.",
    "Two young, white males are outside near many bushes &amp; trees.",
    "Several men in hard hats are operating a giant pulley system, caf&#233; style &lt;3.",
    "Call {name} or write to jane@example.org about %d of https://example.org/a?b=1&amp;c=2."};

// Random elements around the words of a sentence, each with a number of its own.
class RandomTree {
 public:
  explicit RandomTree(std::uint32_t seed) : random_(seed) {}

  std::string over(const std::string& sentence, bool html_too) {
    std::string out;
    html_ = html_too;
    std::size_t at = 0;
    std::vector<std::string> words;
    while (at < sentence.size()) {
      const std::size_t end = std::min(sentence.find(' ', at), sentence.size());
      words.push_back(sentence.substr(at, end - at));
      at = end + 1;
    }
    write(words, 0, words.size(), 0, out);
    return out;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }
  std::string name() { return std::vector<std::string>{"b", "i", "em", "span", "a"}[below(5)]; }
  std::string next() { return " id=\"" + std::to_string(++number_) + "\""; }

  void point(std::string& out) {
    switch (below(6)) {
      case 0:
        out += html_ ? "<img" + next() + ">" : "<img" + next() + "/>";
        break;
      case 1:
        out += "<!-- " + std::to_string(++number_) + " > -->";
        break;
      case 2: {
        const std::string tag = name();
        out += "<" + tag + next() + "></" + tag + ">";
        break;
      }
      default:
        break;
    }
  }

  void write(const std::vector<std::string>& words, std::size_t begin, std::size_t end, int depth,
             std::string& out) {
    while (begin < end) {
      const std::size_t stop = begin + 1 + below(end - begin);
      const bool element = depth < 4 && below(2) == 0;
      const std::string tag = name();
      point(out);
      if (element) out += "<" + tag + next() + ">";
      if (element) {
        write(words, begin, stop, depth + 1, out);
      } else {
        for (std::size_t i = begin; i < stop; ++i) out += (i > begin ? " " : "") + words[i];
      }
      const bool inside = element && stop < end && below(3) == 0;
      if (inside) out += ' ';
      if (element) out += "</" + tag + ">";
      if (!inside && stop < end) out += ' ';
      begin = stop;
    }
    point(out);
  }

  std::mt19937 random_;
  int number_ = 0;
  bool html_ = false;
};

std::string random_document(std::uint32_t seed, bool html_too) {
  RandomTree tree(seed);
  return (html_too ? "<p id=\"p\">" : "<doc>text <p id=\"p\">") +
         tree.over(sentences[seed % sentences.size()], html_too) + (html_too ? "</p>" : "</p></doc>");
}

}  // namespace

TEST_CASE("tags follow the words that they are aligned to") {
  CHECK(reversed("one <b>two</b> three", html) == "THREE <b>TWO</b> ONE");
  CHECK(reversed("one <b>two <i>three</i></b> four", html) == "FOUR <b><i>THREE</i> TWO</b> ONE");
  CHECK(reversed("<p><b>one two</b></p>\n<p>three <a href='x'>four</a></p>", html) ==
        "<p><b>TWO ONE</b></p>\n<p><a href='x'>FOUR</a> THREE</p>");
  CHECK(reversed("one<br>two three", html) == "ONE<br>THREE TWO");
  CHECK(reversed("one <img src=\"a>b\">two three", html) == "THREE <img src=\"a>b\">TWO ONE");
  CHECK(reversed("<!-- c --> one two <wbr>", html) == "<!-- c --> TWO ONE <wbr>");
  CHECK(reversed("<r>one <b>two</b><x/> three</r>", xml) == "<r>THREE <b>TWO</b><x/> ONE</r>");
  CHECK(reversed("\xEF\xBB\xBF"
                 "one two",
                 html) ==
        "\xEF\xBB\xBF"
        "TWO ONE");
  CHECK(reversed("one <b>two</b>", plain) == "<B>TWO</B> ONE");
  // The innermost of the tags that cut a word.
  CHECK(in_order("<b>H</b>ello you", html) == "<b>HELLO</b> YOU");
}

TEST_CASE("an element that the translation splits spans its longest run of words") {
  const auto order = [](std::vector<std::size_t> o) {
    return reordering([o](std::size_t) { return o; }, shouted);
  };
  // One foreign word is taken in where that gains one of its own; two are not.
  CHECK(translate_markup("<b>a b</b> c", html, order({0, 2, 1})) == "<b>A C B</b>");
  CHECK(translate_markup("<b>a b</b> c d", html, order({0, 2, 3, 1})) == "<b>A</b> C D B");
  CHECK(translate_markup("<b>a b c</b> d e", html, order({0, 3, 4, 1, 2})) == "A D E <b>B C</b>");
  // A word of a sibling is never taken in.
  CHECK(translate_markup("<b>a b</b> <i>c d</i>", html, order({0, 2, 1, 3})) == "<b>A</b> <i>C</i> B D");
  // What has no word left stays, empty, where its neighbours are.
  CHECK(translate_markup("a <b>b</b> c", html, order({2, 0})) == "<b></b>C A");
}

TEST_CASE("a word without a link belongs to what the word before it belongs to") {
  const auto some = [](const std::vector<std::string>&) {
    AlignedText text{"eins zwei drei vier", {}};
    text.alignment.source = {{0, 3}, {4, 7}, {8, 13}};
    text.alignment.target = {{0, 4}, {5, 9}, {10, 14}, {15, 19}};
    text.alignment.links = {{0, 0}, {1, 1}, {2, 3}};
    return std::vector{text};
  };
  CHECK(translate_markup("one <b>two</b> three", html, some) == "eins <b>zwei drei</b> vier");
  // But a mark stands for the same mark.
  const auto marks = [](const std::vector<std::string>&) {
    AlignedText text{"eins zwei, drei.", {}};
    text.alignment.source = {{0, 3}, {4, 7}, {7, 8}, {9, 14}, {14, 15}};
    text.alignment.target = {{0, 4}, {5, 9}, {9, 10}, {11, 15}, {15, 16}};
    text.alignment.links = {{0, 0}, {1, 1}, {3, 2}, {3, 3}};
    return std::vector{text};
  };
  CHECK(translate_markup("one <b>two</b>, <i>three</i>.", html, marks) == "eins <b>zwei</b>, <i>drei</i>.");
  const auto none = [](const std::vector<std::string>&) {
    return std::vector<AlignedText>{{"eins zwei", {}}};
  };
  CHECK(translate_markup("one <b>two</b>", html, none) == "eins <b>zwei</b>");
  const auto nothing = [](const std::vector<std::string>&) { return std::vector<AlignedText>{{"", {}}}; };
  CHECK(translate_markup("<p>one <b>two</b> {x}</p>", html, nothing) == "<p><b></b>{x}</p>");
  const auto two = [](const std::vector<std::string>&) { return std::vector<AlignedText>(2); };
  CHECK_THROWS_WITH_AS(
      translate_markup("one", html, two),
      "[translate_markup] the translator returned 2 translations of 1 texts, expected one for each",
      ValueError);
}

TEST_CASE("elements that go beyond a block keep their tags in it") {
  CHECK(reversed("<b>one two<p>three four</p>five</b> six", html) ==
        "<b>TWO ONE<p>FOUR THREE</p>SIX FIVE</b>");
  CHECK(reversed("one <b>two<br>three</b> four <i>five", html) == "<b>TWO ONE<br></b>FIVE FOUR THREE<i>");
  CHECK(in_order("one <b>two<br>three</b> four", html) == "ONE <b>TWO<br>THREE</b> FOUR");
  CHECK(in_order("one <b>two <i>three</b> four</i>", html) == "ONE <b>TWO <i>THREE</b> FOUR</i>");
}

TEST_CASE("a translator that changes nothing gives the document back, byte for byte") {
  for (const char* document :
       {"", " ", "<p>", "no tags", "  <p> a  b <b>c </b> d\n</p>\n", "un<b>believ</b>able <i> </i>x",
        "a<b>.</b>.<u></u>.",
        "AT&T &amp; R&D &eacute;\xC3\xA9 &copy &nope; &#228;&#xE4; &#0; 1 < 2 > 0 <3 &amp;lt;",
        "<b><i>a</b> c</i> </u> d",
        "a <code>x  y</code> b <span translate=no>New <i>York</i></span> c <kbd></kbd>",
        "x <script>if (a < b) '</p>'</script> y <style>p > a {}</style>", "<title>a &lt;b> &lt;c></title>t",
        "<!DOCTYPE html>\n<html><head><meta charset=utf-8></head><body onload=\"a()\">x</body></html>",
        "a <!-- b --> c <?php x > 1 ?> d <![CDATA[ e ]]> f", "<a href=\"q>x</a> y", "a <", "<!--",
        "{a} %s <0>b</0> www.x.org, a@b.de! <b>{c}</b>{d} 100%",
        "caf\xC3\xA9 \xE4\xBD\xA0<b>\xE5\xA5\xBD</b>\xE3\x80\x82"}) {
    CAPTURE(document);
    CHECK(unchanged(document, html) == document);
    CHECK(unchanged(document, plain) == document);
  }
  // Text that a later `>` would make a tag is escaped.
  CHECK(unchanged("a <b href=\"q", html) == "a &lt;b href=\"q");
  CHECK(unchanged("</", html) == "&lt;/");
  CHECK(unchanged("<title>a <b></title>", html) == "<title>a &lt;b></title>");
  for (const char* document : {"<r/>",
                               "<?xml version=\"1.0\"?>\n<!DOCTYPE r [<!ENTITY e \"x>\">]>\n<r a='1'>\n <p>b "
                               "&e; &#65; &lt;c&gt;</p>\n</r>\n",
                               "<r>a <![CDATA[b < & c]]> d <b>e</b> <?pi x?><!-- f --></r>", "a<b> c</b>",
                               "<r><a>b > c \"d\" &quot;</a></r>",
                               "<r>x <s translate=\"no\">y &amp; <t/></s> z</r>", "\xEF\xBB\xBF<r>a</r>",
                               "\xEF\xBB\xBF"
                               "a <b>c</b>"}) {
    CAPTURE(document);
    CHECK(unchanged(document, xml) == document);
  }
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    for (const bool html_too : {false, true}) {
      const std::string document = random_document(seed, html_too);
      CAPTURE(document);
      CHECK(unchanged(document, html_too ? html : xml) == document);
    }
  }
}

TEST_CASE(
    "random trees come back well-formed, with the same tags, nested in the same way, and with the "
    "translation's text") {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    const std::string document = random_document(seed, false);
    CAPTURE(document);
    const AlignedTranslator translate = seed % 2 == 0 ? careless(seed) : reordering(backward, shouted);
    std::string given;  // what the translator says
    const AlignedTranslator listening = [&](const std::vector<std::string>& texts) {
      auto translations = translate(texts);
      for (const AlignedText& t : translations) given += t.text;
      return translations;
    };
    const std::string out = translate_markup(document, {MarkupFormat::xml, false}, listening);
    CAPTURE(out);
    CHECK(nesting(out) == nesting(document));
    CHECK(words_only(stripped(out, MarkupFormat::xml)) == words_only(given));
    const std::string protect = translate_markup(document, xml, careless(seed + 1));
    CAPTURE(protect);
    CHECK(nesting(protect) == nesting(document));
  }
}

TEST_CASE("without tags the text is what the translator gives") {
  const std::string text = "Two men, near  trees.\nSome \"quotes\" > one.";
  CHECK(in_order(text, html) == reordering(forward, shouted)({text})[0].text);
  CHECK(in_order("  " + text + "\n", plain) == "  " + reordering(forward, shouted)({text})[0].text + "\n");
}

TEST_CASE("each placeholder stands in the translation once") {
  const auto gives = [](std::string text, std::vector<std::pair<std::uint32_t, std::uint32_t>> links = {}) {
    return [=](const std::vector<std::string>& sources) {
      AlignedText out{text, {}};
      out.alignment.source = words_of(sources[0]);
      out.alignment.target = words_of(text);
      out.alignment.links = links;
      return std::vector{out};
    };
  };
  const std::string source = "Hello {name}, bye.";  // Hello 0, {name} 1, the comma 2, bye 3, the stop 4
  CHECK(translate_markup(source, plain, gives("Hallo {name}, tsch.")) == "Hallo {name}, tsch.");
  CHECK(translate_markup(source, plain, gives("Hallo { Name }, tsch.")) == "Hallo {name}, tsch.");
  // Replaced: the words that are aligned to it. Inserted: behind the word aligned to the one before it.
  CHECK(
      translate_markup(source, plain, gives("Hallo Nam, tsch.", {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}})) ==
      "Hallo {name}, tsch.");
  CHECK(translate_markup(source, plain, gives("Hallo, tsch.", {{0, 0}, {2, 1}, {3, 2}, {4, 3}})) ==
        "Hallo {name}, tsch.");
  CHECK(translate_markup("{name} says", plain, gives("das sagt", {{1, 1}})) == "das {name} sagt");
  CHECK(translate_markup("{a} {b}x", plain, gives("", {})) == "{a} {b}");
  CHECK(translate_markup("%s of %s", plain, gives("%s %s %s von", {{0, 0}, {1, 3}, {2, 1}})) == "%s %s von");
  CHECK(translate_markup("a %s", plain, gives("%s", {})) == "%s");
  CHECK(translate_markup("a %s", {MarkupFormat::text, false}, gives("b", {})) == "b");
  CHECK(translate_markup("a <b>{x}</b> c", html, gives("C A", {{0, 1}, {2, 0}})) == "C A <b>{x}</b>");
  CHECK(translate_markup("a <code>f&lt;(<b>)</b></code> c", html, gives("C A", {{0, 1}, {2, 0}})) ==
        "C A <code>f&lt;(<b>)</b></code>");

  const std::vector<std::string> kinds = {"{name}",
                                          "%s",
                                          "%1$d",
                                          "<0>",
                                          "</0>",
                                          "${x}",
                                          "{{ x }}",
                                          "https://a.org/b?c=d&e",
                                          "joe@example.org",
                                          "www.example.org",
                                          "%(n)s"};
  std::mt19937 random(5);
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::string text;
    for (std::size_t i = 0, n = 1 + random() % 12; i < n; ++i) {
      if (i > 0) text += ' ';
      text += random() % 3 == 0 ? kinds[random() % kinds.size()] : "word";
      if (random() % 6 == 0) text += random() % 2 == 0 ? "," : ".";
    }
    CAPTURE(text);
    const std::string out = translate_markup(text, plain, careless(seed));
    CAPTURE(out);
    for (const ByteSpan& span : find_placeholders(text))
      CHECK(count_of(span.of(text), out) == count_of(span.of(text), text));
  }
}

TEST_CASE("a protected element may touch quotes, characters of unspaced scripts, and letters") {
  for (const char* document :
       {"Die Option \u201E<code>foo</code>\u201C ist gut.",
        "L\u2019option \u00AB<code>a</code>\u00BB et \u2026<code>b</code>\u2026",
        "\u4F7F\u7528<code>x1</code>\u51FD\u6570\uFF0C\u5E76\u4E14<code>foo</code>\u3002",
        "All <code>int</code>s are ints.", "Version<code>1.2</code> and a<code>b</code>c, b",
        "x<code>for</code> loop for all", "das <span translate=no>Haus</span>es",
        "<code>a</code><code>b</code>c<code>a</code>", "caf\u00E9<code>s</code> s"}) {
    CAPTURE(document);
    CHECK(unchanged(document, html) == document);
  }
  // Bytes that are not UTF-8.
  CHECK(unchanged("\u200B\x80x<code>a</code>\xE2y", html) == "\u200B\x80x<code>a</code>\xE2y");
  // A word that contains the piece's text is not the piece.
  const auto gives = [](const std::string& text) {
    return [=](const std::vector<std::string>&) { return std::vector<AlignedText>{{text, {}}}; };
  };
  CHECK(translate_markup("see <code>int</code>", html, gives("siehe \u00E9int \u201Cint\u201D")) ==
        "siehe \u00E9int \u201C<code>int</code>\u201D");
  CHECK(translate_markup("see <code>int</code>", html, gives("siehe \u201EINT\u201C.")) ==
        "siehe \u201E<code>int</code>\u201C.");
  // Beside characters of unspaced scripts no space is added.
  CHECK(translate_markup("use <code>f</code>", html, gives("\u4F7F\u7528F")) == "\u4F7F\u7528<code>f</code>");
}

TEST_CASE("characters are written as the source writes them, and never become markup") {
  CHECK(reversed("a &lt; b &amp; c", html) == "C &amp; B &lt; A");
  CHECK(reversed("x &#60; y < z", html) == "Z &#60; Y < X");
  const auto says = [](std::string text) {
    return [=](const std::vector<std::string>&) { return std::vector<AlignedText>{{text, {}}}; };
  };
  CHECK(translate_markup("a", html, says("<b> & &lt; > \"")) == "&lt;b&gt; &amp; &amp;lt; &gt; \"");
  CHECK(translate_markup("a < b & c", html, says("1 <b &lt;")) == "1 &lt;b &amp;lt;");
  CHECK(translate_markup("<r>a ]] > b</r>", xml, says("]]>")) == "<r>]]&gt;</r>");
  CHECK(translate_markup("<r><![CDATA[a]]></r>", xml, says("<]]>&")) ==
        "<r><![CDATA[<]]]]><![CDATA[>&]]></r>");
  CHECK(translate_markup("<r>a</r>", xml,
                         says("a\x01"
                              "b")) == "<r>ab</r>");
  CHECK(translate_markup("&auml; b", html, says("\xC3\xA4 \xC3\xA4 \xC3\xB6")) == "&auml; &auml; \xC3\xB6");
}

TEST_CASE("deep nesting takes neither the stack nor the tags") {
  std::string deep = "x ", open, close;
  for (int i = 0; i < 2000; ++i) {
    open += "<b" + std::to_string(i) + ">w ";
    close = "</b" + std::to_string(i) + ">" + close;
  }
  deep += open + close;
  CHECK(unchanged(deep, xml) == deep);
  CHECK(nesting(reversed(deep, xml)) == nesting(deep));
  CHECK(unchanged(deep + close, html) == deep + close);
}

TEST_CASE("a DocumentTranslator translates the sentences of all segments together") {
  std::size_t calls = 0;
  const auto sentences_backward = [&](std::span<const std::string> lines) {
    ++calls;
    std::vector<std::vector<Translation>> out;
    for (AlignedText& text : reordering(backward, shouted)({lines.begin(), lines.end()})) {
      Translation one;
      one.text = std::move(text.text);
      one.alignment = std::make_shared<const TextAlignment>(std::move(text.alignment));
      out.push_back({std::move(one)});
    }
    return out;
  };
  // Lines are paragraphs here, so that a segment has two sentences.
  const DocumentTranslator documents(sentences_backward);
  CHECK(translate_markup("<p>\none <b>two</b>\n <i>three</i> four</p> <p>five</p>\n<p> </p>six <u>seven</u>",
                         html, documents) ==
        "<p>\n<b>TWO</b> ONE\n FOUR <i>THREE</i></p> <p>FIVE</p>\n<p> </p><u>SEVEN</u> SIX");
  CHECK(calls == 1);
  CHECK(translate_markup("<p> </p>", html, documents) == "<p> </p>");
  CHECK(calls == 1);
  DocumentOptions flow;
  flow.layout = DocumentLayout::flow;
  const DocumentTranslator flowing(sentences_backward, flow);
  CHECK(translate_markup("<p>one <b>two</b>\nthree</p>", html, flowing) == "<p>THREE <b>TWO</b> ONE</p>");
  const std::string text = "one two.\n three";
  CHECK(translate_markup(text, html, documents) == documents.translate(text).text);
}
