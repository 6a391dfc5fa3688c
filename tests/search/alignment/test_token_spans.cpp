#include "eigenformer/search/alignment/token_spans.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/data/tokenizers/byte_bpe_tokenizer.hpp"
#include "eigenformer/data/tokenizers/metaspace_tokenizer.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/sentencepiece_tokenizer.hpp"
#include "eigenformer/data/tokenizers/sentencepiece/subword_tokenizer.hpp"
#include "eigenformer/data/tokenizers/wordpiece_tokenizer.hpp"

using namespace eigenformer;

namespace {

using Ids = std::vector<std::int32_t>;

std::string pieces(const std::vector<ByteSpan>& spans, const std::string& text) {
  std::string found;
  for (const ByteSpan& span : spans) found += (found.empty() ? "" : "|") + std::string(span.of(text));
  return found;
}

std::string source_pieces(const Tokenizer& tokenizer, const std::string& text) {
  return pieces(token_spans(tokenizer, tokenizer.encode(text), text), text);
}

/// In order, without overlap, at code points and not at white space.
void check_spans(const std::vector<ByteSpan>& spans, const std::string& text, std::size_t count) {
  REQUIRE(spans.size() == count);
  std::vector<bool> boundary(text.size() + 1, false);
  std::size_t at = 0;
  detail::for_each_code_point(text, [&](char32_t, std::string_view bytes) {
    boundary[at] = true;
    at += bytes.size();
  });
  boundary[at] = true;
  std::size_t done = 0;
  bool good = true;
  for (const ByteSpan& span : spans) {
    good = good && done <= span.begin && span.begin <= span.end && span.end <= text.size();
    if (!good) break;
    good = boundary[span.begin] && boundary[span.end] && trim(span.of(text)) == span.of(text);
    done = span.end;
  }
  CAPTURE(text);
  CHECK(good);
}

/// The letters of the text that no span holds.
std::size_t letters_outside(const std::vector<ByteSpan>& spans, const std::string& text) {
  std::vector<bool> held(text.size(), false);
  for (const ByteSpan& span : spans)
    for (std::size_t i = span.begin; i < span.end; ++i) held[i] = true;
  std::size_t outside = 0, at = 0;
  detail::for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (!detail::is_space(c) && !held[at]) ++outside;
    at += bytes.size();
  });
  return outside;
}

const std::vector<std::string> corpus = {"the dog walks in the park", "a man and his dogs, walking",
                                         "der Hund läuft im Park herum", "größer! als \"das\" Haus?",
                                         "naïve café — 3.5 €"};

detail::ByteBpeTokenizer byte_bpe() {
  std::vector<std::string> tokens = {"<s>", "<pad>", "</s>", "<unk>"};
  for (std::uint32_t byte = 0, other = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    tokens.push_back(detail::utf8_of(visible ? byte : 256 + other++));
  }
  for (const char* token : {"th", "the", "\xC4\xA0th", "\xC4\xA0the"}) tokens.emplace_back(token);
  return {{tokens, 3, {0, 1, 2}}, {"t h", "th e", "\xC4\xA0 the"}};
}

detail::WordPieceTokenizer wordpiece() {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "the", "dog", "##s", "walk", "##ing", "##s", ",", "!"};
  for (char c = 'a'; c <= 'z'; ++c) {
    tokens.emplace_back(1, c);
    if (c != 's') tokens.push_back(std::string("##") + c);
  }
  return detail::WordPieceTokenizer({tokens, 1, {0}});
}

detail::MetaspaceTokenizer metaspace(const std::string& prepend) {
  const std::string mark = "\xE2\x96\x81";
  std::vector<std::string> tokens = {"<unk>", mark, mark + "the", "dog", mark + "d"};
  for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
  std::vector<double> scores(tokens.size(), -3);
  scores[0] = std::numeric_limits<double>::quiet_NaN();
  scores[2] = scores[3] = -1;
  detail::MetaspaceOptions options;
  options.prepend = prepend;
  options.normalizer = {{"spaces", "", " "}, {"replace", "A", "a"}};
  return {{tokens, 0, {}}, options, scores};
}

/// A SentencePiece model of its own normalisation (NFKC), as those of other libraries are.
detail::SentencePieceTokenizer sentencepiece() {
  std::string text, model;
  for (const std::string& line : corpus) text += line + "\n";
  struct Lines final : sentencepiece::SentenceIterator {
    std::size_t at = 0;
    bool done() const override { return at >= corpus.size(); }
    void Next() override { ++at; }
    const std::string& value() const override { return corpus[at]; }
    sentencepiece::util::Status status() const override { return {}; }
  } lines;
  const std::unordered_map<std::string, std::string> arguments = {{"model_type", "unigram"},
                                                                  {"vocab_size", "320"},
                                                                  {"hard_vocab_limit", "false"},
                                                                  {"byte_fallback", "true"},
                                                                  {"minloglevel", "3"}};
  REQUIRE(sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model).ok());
  detail::ForeignVocabulary vocabulary;
  vocabulary.tokens = detail::SentencePieceTokenizer::model_pieces(model);
  vocabulary.unknown_id = 0;
  vocabulary.special_ids = {1, 2};
  return {model, vocabulary};
}

std::map<std::string, std::shared_ptr<Tokenizer>> all_tokenizers() {
  std::map<std::string, std::shared_ptr<Tokenizer>> all;
  all["char"] = std::make_shared<CharacterTokenizer>(CharacterTokenizer::train(corpus));
  all["word"] = std::make_shared<WordTokenizer>(WordTokenizer::train(corpus));
  all["bpe"] = std::make_shared<SubwordTokenizer>(SubwordTokenizer::train(corpus, {.vocabulary_size = 80}));
  all["bytes"] = std::make_shared<SubwordTokenizer>(
      SubwordTokenizer::train(corpus, {.vocabulary_size = 340, .byte_fallback = true}));
  all["unigram"] = std::make_shared<SubwordTokenizer>(
      SubwordTokenizer::train(corpus, {.vocabulary_size = 60, .unigram = true}));
  all["byte_bpe"] = std::make_shared<detail::ByteBpeTokenizer>(byte_bpe());
  all["wordpiece"] = std::make_shared<detail::WordPieceTokenizer>(wordpiece());
  for (const char* prepend : {"always", "first", "never"})
    all[std::string("metaspace ") + prepend] =
        std::make_shared<detail::MetaspaceTokenizer>(metaspace(prepend));
  all["tokens"] = std::make_shared<detail::TokenTokenizer>(
      detail::ForeignVocabulary{{"<unk>", "the", "dog", "a"}, 0, {}});
  all["sentencepiece"] = std::make_shared<detail::SentencePieceTokenizer>(sentencepiece());
  return all;
}

}  // namespace

TEST_CASE("token_spans: each tokenizer's tokens stand where the text has them") {
  const auto all = all_tokenizers();
  CHECK(source_pieces(*all.at("char"), "a  dog") == "a||d|o|g");
  CHECK(source_pieces(*all.at("word"), " The dog,\twalks  here") == "The|dog|,|walks|here");
  CHECK(source_pieces(*all.at("tokens"), "the big dog") == "the|big|dog");
  CHECK(source_pieces(*all.at("wordpiece"), "The  dogs, walking") == "The|dog|s|,|walk|ing");
  CHECK(source_pieces(*all.at("wordpiece"), "Thé dög \xE4\xB8\xAD!") == "Thé|dög|\xE4\xB8\xAD|!");
  CHECK(source_pieces(*all.at("byte_bpe"), "the the é") ==
        "the|the|||é");  // bytes of one character: the last has it
  // Of an incomplete character too: the first three of the four bytes of U+1F600, the first of U+00E9.
  const auto& bytes = *all.at("byte_bpe");
  Ids incomplete = bytes.encode("a\xF0\x9F\x98\x80");
  incomplete.back() = bytes.encode("é").front();
  incomplete.push_back(incomplete.front());
  const std::string decoded = bytes.decode(incomplete);
  REQUIRE(decoded == "a��a");
  CHECK(pieces(token_spans(bytes, incomplete, decoded), decoded) == "a|||�|�|a");
  CHECK(source_pieces(*all.at("metaspace always"), "the  Adog\xE2\x82\xAC x") ==
        "the||A|dog|\xE2\x82\xAC||x");
  const auto& normalising = *all.at("sentencepiece");
  // Full-width letters and a ligature become plain ones, an ellipsis three dots.
  for (const std::string text : {"the ｄｏｇ walks", "ﬁne dogs…", "the dog\xCC\x88 walks"}) {
    const auto spans = token_spans(normalising, normalising.encode(text), text);
    CAPTURE(text);
    CHECK(letters_outside(spans, text) == 0);
  }
}

TEST_CASE("token_spans: tokens of a cut text do not reach behind it, unknown ones not behind their word") {
  const auto words = all_tokenizers().at("word");
  const std::string text = "the dog runs quickly. A man, walking the dog";
  Ids ids = words->encode(text);
  ids.resize(7);
  CHECK(pieces(token_spans(*words, ids, text), text) == "the|dog|runs|quickly|.|A|man");
  ids.resize(3);
  CHECK(pieces(token_spans(*words, ids, text), text) == "the|dog|runs");
  CHECK(token_spans(*words, {}, text).empty());
  CHECK(token_spans(*words, Ids{3, 0, 2}, "") == std::vector<ByteSpan>(3));
  CHECK_THROWS_AS((void)token_spans(*words, Ids{9999}, text), IndexError);
}

TEST_CASE("token_spans: whatever the text and the tokens, spans are in order and hold whole code points") {
  const auto all = all_tokenizers();
  RandomGenerator rng(5);
  const std::vector<std::string> parts = {"the",
                                          "dog",
                                          "Dogs",
                                          " ",
                                          "  ",
                                          "\t",
                                          "\xC2\xA0",
                                          ",",
                                          ".",
                                          "ä",
                                          "e\xCC\x81",
                                          "ﬁ",
                                          "…",
                                          "\xE4\xB8\xAD",
                                          "ｗ",
                                          "€",
                                          "\xF0\x9F\x98\x80",
                                          "\xE2\x80\x8B",
                                          "\xE2\x96\x81",
                                          "A",
                                          "\xE2\x81\x87",
                                          "<s>",
                                          "walk",
                                          "ing",
                                          "\xFF",
                                          "x",
                                          "\xE2\x82\xAC",
                                          "½"};
  for (const auto& entry : all) {
    const Tokenizer* const tokenizer = entry.second.get();
    CAPTURE(entry.first);
    for (int round = 0; round < 60; ++round) {
      std::string text;
      const index_t count = rng.uniform_int(24);
      for (index_t k = 0; k < count; ++k)
        text += parts[static_cast<std::size_t>(rng.uniform_int(static_cast<index_t>(parts.size())))];
      const Ids ids = tokenizer->encode(text);
      check_spans(token_spans(*tokenizer, ids, text), text, ids.size());
      // What a model writes: any ids.
      Ids drawn;
      for (index_t k = 0; k < count; ++k)
        drawn.push_back(static_cast<std::int32_t>(rng.uniform_int(tokenizer->vocabulary_size())));
      const std::string decoded = tokenizer->decode(drawn);
      const auto spans = token_spans(*tokenizer, drawn, decoded);
      check_spans(spans, decoded, drawn.size());
      CAPTURE(decoded);
      CHECK(letters_outside(spans, decoded) == 0);
    }
  }
}

TEST_CASE("token_spans: a long text with differences all over is matched to its end") {
  const auto words = all_tokenizers().at("word");
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 7 == 0 ? "unseen  " : i % 3 == 0 ? "walks, " : "dog\t";
  text += "park";
  const Ids ids = words->encode(text);
  const auto spans = token_spans(*words, ids, text);
  check_spans(spans, text, ids.size());
  CHECK(letters_outside(spans, text) == 0);
  CHECK(spans.back().of(text) == "park");
}

TEST_CASE("token_spans: a long run of white space, a token for each space") {
  const detail::ByteBpeTokenizer tokenizer({{"a", "\u0120"}, -1, {}}, {});
  const std::string text = "a" + std::string(100'000, ' ') + "a";
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  REQUIRE(ids.size() == text.size());
  const std::vector<ByteSpan> spans = token_spans(tokenizer, ids, text);
  CHECK(spans.front() == ByteSpan{0, 1});
  CHECK(spans.back() == ByteSpan{text.size() - 1, text.size()});
  CHECK(std::count_if(spans.begin(), spans.end(), [](ByteSpan span) { return !span.empty(); }) == 2);
}
