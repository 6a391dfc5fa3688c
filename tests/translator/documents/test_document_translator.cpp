#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/search/text/split_lines.hpp"
#include "test_tools.hpp"
#include "translator/documents/document_translator.hpp"
#include "translator/text/word_alignments.hpp"

using namespace eigenformer;
using testing::contains;
using testing::message_of;

namespace {

using Texts = std::vector<std::string>;

/// Counts the texts that a tokenizer encodes.
class CountingTokenizer final : public Tokenizer {
 public:
  explicit CountingTokenizer(std::shared_ptr<const Tokenizer> inner) : inner_(std::move(inner)) {}
  std::string kind() const override { return inner_->kind(); }
  index_t vocabulary_size() const override { return inner_->vocabulary_size(); }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    ++count;
    return inner_->encode(text);
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return inner_->decode(ids); }
  std::string token(std::int32_t id) const override { return inner_->token(id); }
  void save(const std::filesystem::path& directory, const std::string& name) const override {
    inner_->save(directory, name);
  }

  mutable int count = 0;

 private:
  std::shared_ptr<const Tokenizer> inner_;
};

/// Has each sentence translated by f.
template <class F>
DocumentTranslator::Alternatives by(F f) {
  return [f](std::span<const std::string> sentences) {
    std::vector<std::vector<Translation>> found;
    for (const std::string& s : sentences) {
      Translation t;
      t.text = f(s);
      found.push_back({t});
    }
    return found;
  };
}

const auto identity = by([](const std::string& s) { return s; });
const auto bracketed = by([](const std::string& s) { return "[" + s + "]"; });

/// At most so many words, or bytes of a word.
detail::SentenceFits at_most(std::size_t words, std::size_t bytes = 1000) {
  return [words, bytes](const std::string& s) {
    std::size_t count = 1;
    bool fits = true;
    std::size_t length = 0;
    for (const char c : s) {
      const bool space =
          detail::is_space(static_cast<unsigned char>(c)) && static_cast<unsigned char>(c) < 0x80;
      count += space;
      length = space ? 0 : length + 1;
      fits = fits && length <= bytes;
    }
    return fits && count <= words;
  };
}

std::string translated(const std::string& text, DocumentOptions options, detail::SentenceFits fits = {},
                       std::vector<std::size_t> boundaries = {}) {
  return DocumentTranslator(bracketed, std::move(options), std::move(fits)).translate(text, boundaries).text;
}

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
std::shared_ptr<const SentenceSplitter> splitter(const std::string& language) {
  return std::make_shared<SentenceSplitter>(SentenceOptions{.language = language});
}
#endif

}  // namespace

TEST_CASE("white space and line breaks stay, each layout has its paragraphs") {
  const std::string text = "\xE2\x80\x83 A b\r\nc d  e\n \n\tf\tg h \n";
  CHECK(translated(text, {}) == "\xE2\x80\x83 [A b]\r\n[c d  e]\n \n\t[f]\t[g h] \n");
  CHECK(translated(text, {.layout = DocumentLayout::wrapped}) ==
        "\xE2\x80\x83 [A b\r\nc d  e]\n \n\t[f]\t[g h] \n");
  CHECK(translated(text, {.layout = DocumentLayout::flow}) == "\xE2\x80\x83 [A b\r\nc d  e\n \n\tf\tg h] \n");
  CHECK(translated("a\fb", {.layout = DocumentLayout::wrapped}) == "[a]\f[b]");
  CHECK(translated("a\rb\vc\xE2\x80\xA9"
                   "d",
                   {}) == "[a]\r[b]\v[c]\xE2\x80\xA9[d]");
  CHECK(translated("", {}).empty());
  CHECK(translated(" \n", {}) == " \n");
}

TEST_CASE("no sentence goes across a boundary, and nothing is put between what touches there") {
  const DocumentOptions flow{.layout = DocumentLayout::flow};
  CHECK(translated("one two three", flow, {}, {0, 4, 4, 13}) == "[one] [two three]");
  CHECK(translated("onetwo \nthree", flow, {}, {3, 7}) == "[one][two] \n[three]");
  CHECK(translated("你好world", flow, {}, {6}) == "[你好][world]");
  CHECK(translated("ab", flow, {}, {}) == "[ab]");
  const auto refused = [&](std::vector<std::size_t> boundaries) {
    CHECK_THROWS_WITH_AS(translated("a\xC3\xA4", flow, {}, boundaries), doctest::Contains("boundary"),
                         ValueError);
  };
  refused({4});
  refused({2});
  refused({1, 0});
  CHECK_THROWS_WITH_AS(translated("ab\xFF", flow), doctest::Contains("the text has invalid UTF-8 at byte 2"),
                       ValueError);
}

TEST_CASE("what is too long is cut at the best place, and the result says so") {
  CHECK(translated("a b, c; d e, f g", {}, at_most(6)) == "[a b, c; d e,] [f g]");
  CHECK(translated("a b c; d e, f g", {}, at_most(5)) == "[a b c;] [d e, f g]");
  CHECK(translated("a b ccc. d; e, f g", {}, at_most(5)) == "[a b ccc.] [d; e, f g]");
  CHECK(translated("a; b c d e f  g h", {}, at_most(5)) == "[a; b c d e] [f  g h]");
  CHECK(translated("(a b c;\") d e, f g", {}, at_most(5)) == "[(a b c;\")] [d e, f g]");
  CHECK(translated("ab cdefghijkl mn", {}, at_most(10, 4)) == "[ab] [cdef][ghij][kl mn]");
  CHECK(translated("\xC3\xA4\xC3\xB6\xC3\xBC", {}, at_most(9, 3)) == "[\xC3\xA4][\xC3\xB6][\xC3\xBC]");
  // Nothing fits: a character a part.
  CHECK(translated("\xC3\xA4xy", {}, [](const std::string&) { return false; }) == "[\xC3\xA4][x][y]");
  const DocumentTranslator translator(identity, {}, at_most(3));
  const DocumentTranslation t = translator.translate("a b c d e f g\nh i\nj k l m");
  CHECK(t.num_split == 2);
  REQUIRE(t.sentences.size() == 6);
  std::vector<bool> continues;
  for (const DocumentSentence& s : t.sentences) continues.push_back(s.continues);
  CHECK(continues == std::vector<bool>{false, true, true, false, false, true});
}

TEST_CASE("a long text without white space is tokenized in pieces only") {
  std::size_t bytes = 0;
  const detail::SentenceFits fits = [&](const std::string& s) {
    bytes += s.size();
    return s.size() <= 100;
  };
  const std::string text(20000, 'x');
  const DocumentTranslation t = DocumentTranslator(identity, {}, fits).translate(text);
  CHECK(t.text == text);
  CHECK(t.sentences.size() == 200);
  CHECK(bytes < 200 * 3000);
}

TEST_CASE("spans lead to the sentences, in the text and in its translation, and so does the alignment") {
  const DocumentTranslator translator([](std::span<const std::string> sentences) {
    std::vector<std::vector<Translation>> found;
    for (const std::string& s : sentences) {
      Translation t;
      t.text = "<" + s + ">";
      TextAlignment alignment;
      alignment.source = {{0, 1}, {s.size() - 1, s.size()}, {s.size(), s.size()}};
      alignment.target = {{1, 2}, {s.size(), s.size() + 1}};
      alignment.links = {{0, 0}, {1, 1}, {2, 1}};
      t.alignment = std::make_shared<const TextAlignment>(alignment);
      found.push_back({t});
    }
    return found;
  });
  const std::string text = " ab cd\n\nxy  ";
  const DocumentTranslation t = translator.translate(text);
  CHECK(t.text == " <ab cd>\n\n<xy>  ");
  REQUIRE(t.sentences.size() == 2);
  for (const DocumentSentence& s : t.sentences)
    CHECK(s.target.of(t.text) == "<" + std::string(s.source.of(text)) + ">");
  REQUIRE(t.alignment != nullptr);
  CHECK(t.alignment->links ==
        std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 0}, {1, 1}, {2, 1}, {3, 2}, {4, 3}, {5, 3}});
  std::string source, target;
  for (const ByteSpan s : t.alignment->source) source += s.of(text);
  for (const ByteSpan s : t.alignment->target) target += s.of(t.text);
  CHECK(source == "adxy");
  CHECK(target == "adxy");
  CHECK(DocumentTranslator(identity).translate(text).alignment == nullptr);
}

TEST_CASE("translations that are not UTF-8 are joined") {
  const std::string text = "好。好。";
  const std::vector<detail::DocumentPart> parts = {{.source = {0, 6}}, {.source = {6, 12}}};
  std::vector<Translation> translations(2);
  translations[0].text = "\x80";  // the middle of a character, and no beginning before it
  translations[1].text = "a";
  CHECK(detail::assemble_document(text, parts, translations).text == "\x80 a");
}

TEST_CASE("parts outside their text, out of order, or without a beginning are refused") {
  const auto refused = [](std::vector<detail::DocumentPart> parts) {
    const std::vector<Translation> translations(parts.size());
    return message_of<ValueError>([&] { (void)detail::assemble_document("abc", parts, translations); });
  };
  CHECK(contains(refused({{.source = {0, 4}}}),
                 "part 0, bytes 0 to 4 does not follow the part before within the text of 3 bytes"));
  CHECK(contains(refused({{.source = {0, 2}}, {.source = {1, 3}}}), "part 1, bytes 1 to 3 does not follow"));
  CHECK(contains(refused({{.source = {2, 1}}}), "part 0, bytes 2 to 1 does not follow"));
  CHECK(
      contains(refused({{.source = {0, 3}, .continues = true}}), "which continues a part, does not follow"));
  CHECK(refused({{.source = {0, 1}}, {.source = {1, 3}, .continues = true}}) == "no error");
}

TEST_CASE("alternatives are of the i-th best of each sentence") {
  const DocumentTranslator translator([](std::span<const std::string> sentences) {
    std::vector<std::vector<Translation>> found;
    for (const std::string& s : sentences) {
      found.emplace_back();
      for (std::size_t i = 0; i <= (s == "a" ? 2u : 0u); ++i) {
        found.back().emplace_back().text = s + std::to_string(i);
        found.back().back().score = -static_cast<double>(i);
      }
    }
    return found;
  });
  Texts texts;
  for (const DocumentTranslation& t : translator.alternatives("a\nb")) texts.push_back(t.text);
  CHECK(texts == Texts{"a0\nb0", "a1\nb0", "a2\nb0"});
  CHECK(translator.alternatives("a\nb", {}, 2).size() == 2);
  CHECK(translator.alternatives("").size() == 1);
  CHECK_THROWS_AS(DocumentTranslator(DocumentTranslator::Alternatives{}), ValueError);
  const DocumentTranslator none(
      [](std::span<const std::string> s) { return std::vector<std::vector<Translation>>(s.size()); });
  CHECK_THROWS_WITH_AS(none.translate("a"), doctest::Contains("has no translation"), ValueError);
  const DocumentTranslator few(
      [](std::span<const std::string>) { return std::vector<std::vector<Translation>>(); });
  CHECK_THROWS_WITH_AS(few.translate("a"), doctest::Contains("0 translations, must be 1"), ValueError);
}

TEST_CASE("the sentences of a document as one translation") {
  const DocumentTranslator translator(
      [](std::span<const std::string> sentences) {
        std::vector<std::vector<Translation>> found;
        for (const std::string& s : sentences) {
          Translation t;
          t.text = s;
          t.score = -1;
          t.log_probability = -2;
          t.tokens = {{s, -2}};
          t.words = {{s, 0.5}};
          t.confidence = 0.5;
          t.cut = s == "cd";
          found.push_back({t});
        }
        return found;
      },
      {}, [](const std::string& s) { return s.size() <= 2; });
  const Translation t = detail::joined_translation(translator.translate("ab\ncdef "));
  CHECK(t.text == "ab\ncdef ");
  CHECK(t.score == -3);
  CHECK(t.log_probability == -6);
  CHECK(t.cut);
  CHECK(t.tokens.size() == 3);
  REQUIRE(t.words.size() == 2);
  CHECK(t.words[1].word == "cdef");
  CHECK(t.words[1].confidence == 0.25);
  CHECK(t.confidence == 0.375);
  CHECK(detail::joined_translation(translator.translate(" a ")).text == " a ");
  CHECK(detail::joined_translation(translator.translate(" a ")).tokens.size() == 1);
  CHECK(detail::joined_translation(translator.translate(" ")).text == " ");
}

TEST_CASE("an alignment without weights takes no memory or time that grows with the square of the text") {
  DocumentTranslation document;
  TextAlignment all;
  constexpr std::size_t sentences = 1000, words = 100;
  const auto alignment = std::make_shared<TextAlignment>();
  alignment->attention = Tensor<float>::zeros(Shape{words, words});
  for (std::size_t i = 0; i < sentences; ++i)
    document.sentences.emplace_back().translation.alignment = alignment;
  for (std::uint32_t k = 0; k < sentences * words; ++k) {
    document.text += "a ";
    const ByteSpan word{2 * std::size_t{k}, 2 * std::size_t{k} + 1};
    all.source.push_back(word);
    all.target.push_back(word);
    all.links.emplace_back(k, k);
  }
  document.alignment = std::make_shared<const TextAlignment>(std::move(all));
  // The weights would take 40 GB.
  const Translation t = detail::joined_translation(document, false);
  REQUIRE(t.alignment != nullptr);
  CHECK(t.alignment->attention.numel() == 0);
  const auto begin = std::chrono::steady_clock::now();
  const auto links = word_links(*t.alignment, t.text, t.text);
  REQUIRE(links.size() == sentences * words);
  CHECK(links.back().source == static_cast<index_t>(sentences * words) - 1);
  // Comparing each token with each word takes minutes.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("the attention of a document is that of its sentences, one block after another") {
  const auto sentence = [](index_t rows, index_t columns, float first) {
    auto alignment = std::make_shared<TextAlignment>();
    alignment->attention = Tensor<float>(Shape{rows, columns});
    for (float& weight : alignment->attention.span()) weight = first++;
    DocumentSentence one;
    one.translation.alignment = alignment;
    return one;
  };
  DocumentTranslation document;
  document.sentences = {sentence(1, 2, 1), DocumentSentence{}, sentence(2, 1, 5)};
  document.alignment = std::make_shared<const TextAlignment>();
  const Translation t = detail::joined_translation(document);
  REQUIRE(t.alignment != nullptr);
  REQUIRE(t.alignment->attention.shape() == Shape{3, 3});
  const auto weights = t.alignment->attention.span();
  CHECK(std::vector<float>(weights.begin(), weights.end()) == std::vector<float>{1, 2, 0, 0, 0, 5, 0, 0, 6});
  document.sentences.push_back(sentence(0, 0, 0));  // has links but no weights
  CHECK(detail::joined_translation(document).alignment->attention.numel() == 0);
}

TEST_CASE("lines are cut and put together again, one translation for each line") {
  const auto split_up_to = [](const Texts& lines, const DocumentOptions& options, std::size_t words) {
    return detail::PreparedParts(
        lines, options, 0, {},
        [words](const std::string& text, std::uint64_t, const std::string&, std::size_t) {
          return PreparedLine{.text = text, .cut = !at_most(words)(text)};
        });
  };
  const auto translate = [](detail::PreparedParts split) {
    std::vector<std::vector<Translation>> found;
    for (std::size_t i = 0; i < split.lines().size(); ++i) {
      const PreparedLine& part = split.lines()[i];
      CHECK(split.begins_line(i) == (part.number >> 40 == 0));
      found.emplace_back();
      for (const char* mark : {"", "*"}) {
        found.back().emplace_back().text = "[" + std::to_string(split.line_of(i)) +
                                           std::to_string(part.number >> 40) + part.text + mark + "]";
        found.back().back().log_probability = -1;
      }
    }
    return split.join(std::move(found));
  };
  const Texts lines = {" a\tb ", "", "c d, e  f ", "g"};
  const auto split = split_up_to(lines, {.layout = DocumentLayout::flow}, 4);
  const auto found = translate(split);
  REQUIRE(found.size() == 4);
  CHECK(found[0][1].text == "[00 a\tb *]");
  REQUIRE(found[1].size() == 1);
  CHECK(found[1][0].text.empty());
  REQUIRE(found[2].size() == 2);
  CHECK(found[2][0].text == "[20c d,] [21e  f] ");
  CHECK(found[2][1].text == "[20c d,*] [21e  f*] ");
  CHECK(found[2][0].log_probability == -2);
  for (std::size_t i = 0; i < 4; ++i) CHECK(found[i][0].in_parts == (i == 2));
  CHECK(found[3][0].text == "[30g]");
  CHECK_THROWS_WITH_AS(split.join({}), doctest::Contains("there are translations of 0 parts, must be 4"),
                       ValueError);
  std::vector<std::vector<Translation>> incomplete(4, std::vector<Translation>(1));
  incomplete[3].clear();
  CHECK_THROWS_WITH_AS(split.join(incomplete), doctest::Contains("part 3 has no translation, must have one"),
                       ValueError);
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
  const Texts paragraphs = {" A.  B\t\tC. ", " "};
  const auto joined = translate(split_up_to(paragraphs, {.splitter = splitter("de")}, 100));
  CHECK_FALSE(joined[0][0].in_parts);
  CHECK(joined[0][0].text == " [00A.  B]\t\t[01C.] ");
  CHECK(joined[1][0].text == " ");
#endif
}

TEST_CASE("by a model: long lines come whole, sentence by sentence as the model translates them alone") {
  const ParallelCorpus corpus{{"a man walks the dog ; , ."}, {"ein Mann geht mit dem Hund ; , ."}};
  TokenizerPair tokenizers = train_tokenizers({.kind = "word", .joint = false}, corpus);
  const auto counting = std::make_shared<CountingTokenizer>(tokenizers.source);
  tokenizers.source = counting;
  RandomGenerator rng(3);
  Seq2SeqTransformer<double> model({.source_vocab_size = tokenizers.source->vocabulary_size(),
                                    .target_vocab_size = tokenizers.target->vocabulary_size(),
                                    .layer = {.d_model = 8, .num_heads = 2, .dim_feedforward = 12},
                                    .encoder = {.num_layers = 1},
                                    .decoder = {.num_layers = 1},
                                    .max_length = 6},
                                   rng);
  LoadedModel<Seq2SeqTransformer<double>> loaded{{}, tokenizers, std::move(model)};
  for (double& w : loaded.model.own_projection.value().span()) w *= 3;
  loaded.description.model = loaded.model.options;
  TextTranslatorOptions options = text_translator_options(loaded.description);
  options.search.max_length = 6;
  options.alignment.emplace();
  const TextTranslator translator(loaded, options);
  CHECK_FALSE(translator.prepare("a man walks the dog ;").cut);
  CHECK(translator.prepare("a man walks the dog ; a").cut);
  CHECK(translator.translate("a man walks the dog ; a").in_parts);
  const DocumentTranslator documents(translator);
  const std::string text = "  a man walks the dog ; the dog walks , a man walks the dog walks \n\na dog";
  const DocumentTranslation t = documents.translate(text);
  CHECK(t.num_split == 1);
  Texts parts;
  std::string expected = "  ";
  for (const DocumentSentence& s : t.sentences) {
    parts.emplace_back(s.source.of(text));
    CHECK_FALSE(s.translation.cut);
    CHECK(s.target.of(t.text) == translator.translate(parts.back()).text);
  }
  CHECK(parts == Texts{"a man walks the dog ;", "the dog walks ,", "a man walks the dog walks", "a dog"});
  REQUIRE(t.alignment != nullptr);
  CHECK(t.alignment->links.back().first < t.alignment->source.size());
  CHECK(t.alignment->target.back().end == t.text.size());

  // A sentence that fits is tokenized once.
  counting->count = 0;
  CHECK(documents.translate("a man walks\nthe dog walks\na dog").sentences.size() == 3);
  CHECK(counting->count == 3);
  CHECK(documents.translate(" \n").text == " \n");
  counting->count = 0;
  (void)translator.translate("a man walks");
  CHECK(counting->count == 1);
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
  // Sentences end where the translator's lines are split.
  CHECK(documents.translate("a man walks! the dog walks!\na dog").sentences.size() == 3);
  TextTranslatorOptions whole = options;
  whole.splitting = DocumentOptions{.layout = DocumentLayout::flow};
  const TextTranslator unsplit = translator.with_options(whole);
  CHECK(DocumentTranslator(unsplit).translate("a man walks! the dog").sentences.size() == 1);
#endif

  // Each sentence has its number, with which it is sampled.
  options.alignment.reset();
  options.search.sampling = Sampling{.seed = 5};
  options.search.max_length = 6;
  const TextTranslator sampler(loaded, options);
  const Texts same(4, "a dog");
  const DocumentTranslation sampled = DocumentTranslator(sampler).translate("a dog\na dog\na dog\na dog");
  const std::vector<Translation> lines = sampler.translate(same);
  REQUIRE(sampled.sentences.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(sampled.sentences[i].translation.text == lines[i].text);
}

TEST_CASE(
    "with a translator that changes nothing any text comes back, byte for byte, and all of it was seen") {
  const Texts pieces = {"Mr",
                        ".",
                        ". ",
                        " ",
                        "  ",
                        "\n",
                        "\r\n",
                        "\t",
                        "!",
                        "; ",
                        ", ",
                        "word",
                        "Word",
                        "3",
                        "\u00A0",
                        "\u2028",
                        "\f",
                        "\u3000",
                        "。",
                        "你好",
                        "「",
                        "」",
                        "\u00AB",
                        "\u00BB",
                        "\"",
                        "\u2026",
                        "A",
                        "e\u0301",
                        "\xF0\x9F\x98\x80",
                        "Donaudampfschifffahrtsgesellschaft",
                        std::string(1, '\0'),
                        ")",
                        "ไทย"};
  std::vector<std::shared_ptr<const SentenceSplitter>> splitters = {nullptr};
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
  splitters.push_back(splitter("en"));
  splitters.push_back(splitter("de"));
#endif
  std::mt19937 rng(7);
  std::size_t split = 0;
  for (int i = 0; i < 600; ++i) {
    std::string text;
    for (auto n = rng() % 60; n > 0; --n) text += pieces[rng() % pieces.size()];
    std::vector<std::size_t> boundaries;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if ((static_cast<unsigned char>(text[at]) & 0xC0u) != 0x80u && rng() % 40 == 0)
        boundaries.push_back(at);
    }
    const std::size_t most = 4 + rng() % 60;
    const detail::SentenceFits fits = [most](const std::string& s) { return s.size() <= most; };
    const DocumentOptions options{.layout = static_cast<DocumentLayout>(rng() % 3),
                                  .splitter = splitters[rng() % splitters.size()]};
    const DocumentTranslation t = DocumentTranslator(identity, options, fits).translate(text, boundaries);
    CAPTURE(text);
    CHECK(t.text == text);
    split += t.num_split;
    std::size_t end = 0;
    bool good = true;
    for (const DocumentSentence& s : t.sentences) {
      good = good && s.source == s.target && s.source.begin >= end && !s.source.empty() &&
             s.source.size() <= most && trim(text.substr(end, s.source.begin - end)).empty() &&
             trim(s.source.of(text)) == s.source.of(text);
      for (const std::size_t b : boundaries) good = good && (b <= s.source.begin || b >= s.source.end);
      end = s.source.end;
    }
    CHECK(good);
    CHECK(trim(text.substr(end)).empty());
  }
  CHECK(split > 100);
}

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU

TEST_CASE("paragraphs are split into sentences, wrapped ones across their lines") {
  const std::string text = "Mr. Smith  came. He\nleft.  \n\nThe end.";
  CHECK(translated(text, {.splitter = splitter("en")}) == "[Mr. Smith  came.] [He]\n[left.]  \n\n[The end.]");
  CHECK(translated(text, {.layout = DocumentLayout::wrapped, .splitter = splitter("en")}) ==
        "[Mr. Smith  came.] [He\nleft.]  \n\n[The end.]");
  // A full stop inside a sentence is an abbreviation's, and no place to cut.
  CHECK(translated("one two Mr. Smith came", {.splitter = splitter("en")}, at_most(4)) ==
        "[one two Mr. Smith] [came]");
}

TEST_CASE("a space is put between translations of sentences that have none, where their script wants it") {
  const DocumentOptions zh{.splitter = splitter("zh")};
  CHECK(DocumentTranslator(by([](const std::string&) { return "Hello."; }), zh)
            .translate("你好。你好。\n你好。")
            .text == "Hello. Hello.\nHello.");
  CHECK(DocumentTranslator(by([](const std::string&) { return "こんにちは。"; }), zh)
            .translate("你好。你好。")
            .text == "こんにちは。こんにちは。");
  CHECK(DocumentTranslator(by([](const std::string&) { return ""; }), zh)
            .translate("你好。你好。")
            .text.empty());
}

#endif
