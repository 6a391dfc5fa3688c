#include "eigenformer/data/tokenizers/tokenizer.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "data/word_parts.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/data/tokenizers/subword_models.hpp"
#include "folders.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

namespace {

using Ids = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;

// Merges of strings, the earlier in the list the sooner.
auto merges_of(const Strings& list) {
  return [list](const std::string& left,
                const std::string& right) -> std::optional<detail::PossibleMerge<std::string>> {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i] == left + ' ' + right)
        return detail::PossibleMerge<std::string>{static_cast<double>(i), left + right};
    }
    return std::nullopt;
  };
}

std::string joined(const Strings& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += (text.empty() ? "" : " ") + piece;
  return text;
}

}  // namespace

TEST_CASE("merges are left out with the probability that is asked for") {
  const auto find = merges_of({"a b", "ab c"});
  RandomGenerator rng(7);
  Strings word = {"a", "b", "c"};
  detail::merge_with_dropout(word, 0, rng, find);
  CHECK(joined(word) == "abc");
  CHECK(rng.state().position == 0);
  // "a b" is the only merge at first: kept with probability 1 - p, and then "ab c" alike.
  std::map<std::string, int> counts;
  constexpr int n = 20000;
  constexpr double p = 0.3;
  for (int i = 0; i < n; ++i) {
    word = {"a", "b", "c"};
    detail::merge_with_dropout(word, p, rng, find);
    ++counts[joined(word)];
  }
  CHECK(counts.size() == 3);
  CHECK(counts["a b c"] / double{n} == doctest::Approx(p).epsilon(0.05));
  CHECK(counts["ab c"] / double{n} == doctest::Approx((1 - p) * p).epsilon(0.05));
  CHECK(counts["abc"] / double{n} == doctest::Approx((1 - p) * (1 - p)).epsilon(0.05));
  // A merge that was left out once may be done after another one.
  std::set<std::string> seen;
  for (int i = 0; i < 200; ++i) {
    word = {"a", "b", "a", "b"};
    detail::merge_with_dropout(word, 0.5, rng, merges_of({"a b"}));
    seen.insert(joined(word));
  }
  CHECK(seen == std::set<std::string>{"a b a b", "ab a b", "a b ab", "ab ab"});
}

TEST_CASE("segmentations of a unigram model are drawn by their probabilities") {
  const Strings tokens = {"<unk>", "a", "b", "ab", "ba", "aba"};
  const double none = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> scores = {none, -1.0, -1.5, -2.0, -2.2, -4.0};
  const detail::UnigramModel model(scores, tokens);
  const auto find = [&](std::string_view text) -> std::optional<std::int32_t> {
    for (std::size_t i = 1; i < tokens.size(); ++i) {
      if (tokens[i] == text) return static_cast<std::int32_t>(i);
    }
    return std::nullopt;
  };
  const std::map<Ids, double> log_probability = {
      {{1, 2, 1}, -3.5}, {{3, 1}, -3.0}, {{1, 4}, -3.2}, {{5}, -4.0}};
  const auto draw = [&](double alpha, RandomGenerator& rng) {
    Ids ids;
    for (const auto& step : model.sample("aba", alpha, rng, find)) ids.push_back(step.id);
    return ids;
  };
  RandomGenerator rng(3);
  for (const double alpha : {0.2, 1.0, 3.0}) {
    double total = 0;
    for (const auto& [ids, score] : log_probability) total += std::exp(alpha * score);
    std::map<Ids, int> counts;
    constexpr int n = 20000;
    for (int i = 0; i < n; ++i) ++counts[draw(alpha, rng)];
    CHECK(counts.size() == log_probability.size());
    for (const auto& [ids, score] : log_probability) {
      const double expected = std::exp(alpha * score) / total;
      CHECK(std::abs(counts[ids] / double{n} - expected) < 0.015);
    }
  }
  CHECK(draw(0, rng) == Ids{3, 1});
  CHECK(draw(200, rng) == Ids{3, 1});
  Ids best;
  model.segment("aba", find, [&](std::int32_t id) { best.push_back(id); });
  CHECK(best == Ids{3, 1});
}

TEST_CASE("kinds of tokenizers refuse what they cannot draw") {
  RandomGenerator rng(1);
  const Strings text = {"a dog"};
  const auto word = WordTokenizer::train(text);
  CHECK(
      contains(message_of<ValueError>([&] { (void)word.encode_sampled("a dog", {.bpe_dropout = 0.1}, rng); }),
               "kind 'word' has only one segmentation"));
  CHECK_THROWS_AS(SubwordSampling({.bpe_dropout = 1.0}).validate(), ValueError);
  CHECK_THROWS_AS(SubwordSampling({.bpe_dropout = 0.1, .unigram_alpha = 0.1}).validate(), ValueError);
}

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
TEST_CASE("byte pairs and metaspace models: rate 0 is the plain encoding") {
  const Strings tokens = {"<unk>",
                          "a",
                          "b",
                          "ab",
                          "abb",
                          "\xC4\xA0",
                          "\xC4\xA0"
                          "ab",
                          "c"};
  const detail::ByteBpeTokenizer bytes({tokens, 0, {}}, {"a b", "ab b", "\xC4\xA0 ab"});
  const std::string mark = "\xE2\x96\x81";
  const Strings pieces = {"<unk>", mark, "a", "b", "ab", mark + "ab", "c"};
  const detail::MetaspaceTokenizer pairs({pieces, 0, {}}, {}, Strings{"a", "b", mark, "ab"});
  const double none = std::numeric_limits<double>::quiet_NaN();
  const detail::MetaspaceTokenizer unigram({pieces, 0, {}}, {},
                                           std::vector<double>{none, -2, -2, -2, -3, -4, -5});
  for (const char* text : {"ab abb", "abab c x xx ab", "", "c", "bbaab", "xyx ab"}) {
    RandomGenerator rng(1);
    CHECK(bytes.encode_sampled(text, {}, rng) == bytes.encode(text));
    CHECK(pairs.encode_sampled(text, {}, rng) == pairs.encode(text));
    CHECK(unigram.encode_sampled(text, {}, rng) == unigram.encode(text));
    CHECK(rng.state().position == 0);
  }
  RandomGenerator rng(2);
  std::set<Ids> of_bytes, of_pairs, of_unigram;
  for (int i = 0; i < 100; ++i) {
    of_bytes.insert(bytes.encode_sampled("abb", {.bpe_dropout = 0.4}, rng));
    of_pairs.insert(pairs.encode_sampled("ab", {.bpe_dropout = 0.4}, rng));
    of_unigram.insert(unigram.encode_sampled("ab", {.unigram_alpha = 0.3}, rng));
  }
  CHECK(of_bytes == std::set<Ids>{{1, 2, 2}, {3, 2}, {4}});
  CHECK(of_pairs == std::set<Ids>{{1, 2, 3}, {1, 4}, {5}});
  CHECK(of_unigram == of_pairs);
  CHECK_THROWS_AS((void)pairs.encode_sampled("ab", {.unigram_alpha = 0.3}, rng), ValueError);
  CHECK_THROWS_AS((void)unigram.encode_sampled("ab", {.bpe_dropout = 0.3}, rng), ValueError);
}
#endif

#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE

TEST_CASE("SentencePiece: without a rate the library's encoding, with one other ways to the same text") {
  for (const bool unigram : {false, true}) {
    for (const bool byte_fallback : {false, true}) {
      CAPTURE(unigram);
      CAPTURE(byte_fallback);
      const auto tokenizer = SubwordTokenizer::train(
          testing::sentences_of_word_parts(),
          {.vocabulary_size = byte_fallback ? 400 : 120, .unigram = unigram, .byte_fallback = byte_fallback});
      Strings text = testing::sentences_of_word_parts();
      for (const char* more : {"", "Wir", "犬犬 und 犬", "<0xE4> ▁▁ x", "ÄäÖ  Häus\tchen", "spielspielspiel"})
        text.emplace_back(more);
      const SubwordSampling sampling =
          unigram ? SubwordSampling{.unigram_alpha = 0.2} : SubwordSampling{.bpe_dropout = 0.2};
      index_t plain_tokens = 0, tokens = 0;
      for (const std::string& line : text) {
        RandomGenerator rng(5), again(5);
        CHECK(tokenizer.encode_sampled(line, {}, rng) == tokenizer.encode(line));
        CHECK(rng.state().position == 0);
        const Ids ids = tokenizer.encode_sampled(line, sampling, rng);
        CHECK(ids == tokenizer.encode_sampled(line, sampling, again));
        if (byte_fallback || !contains(line, "犬"))
          CHECK(tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(line)));
        plain_tokens += static_cast<index_t>(tokenizer.encode(line).size());
        tokens += static_cast<index_t>(ids.size());
      }
      CHECK(tokens > plain_tokens + plain_tokens / 20);
      RandomGenerator rng(6);
      CHECK_THROWS_AS(
          (void)tokenizer.encode_sampled(
              "a", unigram ? SubwordSampling{.bpe_dropout = 0.2} : SubwordSampling{.unigram_alpha = 0.2},
              rng),
          ValueError);
    }
  }
}

TEST_CASE("a SentencePiece model with another vocabulary is drawn from as well") {
  const std::string model =
      detail::read_text_file(testing::fixtures_folder() / "checkpoints" / "hf_marian" / "source.spm");
  std::vector<std::string> tokens = detail::SentencePieceTokenizer::model_pieces(model);
  std::reverse(tokens.begin(), tokens.end());
  const detail::SentencePieceTokenizer tokenizer(model,
                                                 {tokens, static_cast<std::int32_t>(tokens.size()) - 1, {}});
  const bool bpe = detail::SentencePieceSampler(model).is_bpe();
  std::set<Ids> seen;
  RandomGenerator rng(1);
  CHECK(tokenizer.encode_sampled("the small dog", {}, rng) == tokenizer.encode("the small dog"));
  for (int i = 0; i < 50; ++i) {
    const Ids ids = tokenizer.encode_sampled(
        "the small dog", bpe ? SubwordSampling{.bpe_dropout = 0.3} : SubwordSampling{.unigram_alpha = 0.2},
        rng);
    CHECK(tokenizer.decode(ids) == "the small dog");
    seen.insert(ids);
  }
  CHECK(seen.size() > 2);
  CHECK_THROWS_AS(detail::SentencePieceSampler(std::string_view(model).substr(0, model.size() / 2)),
                  ValueError);
}
#endif
