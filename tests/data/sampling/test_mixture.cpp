#include "eigenformer/data/sampling/mixture.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/data/sampling/sampled_corpus.hpp"
#include "eigenformer/io/models/conventions_json.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

namespace {

using Ids = std::vector<std::int32_t>;

// Pairs of one source id each, from `first` on, with targets of 1 to 3 tokens.
EncodedCorpus numbered(index_t pairs, std::int32_t first) {
  EncodedCorpus corpus;
  for (std::int32_t i = 0; i < pairs; ++i) {
    corpus.source.push_back(Ids{first + i});
    corpus.target.push_back(Ids(static_cast<std::size_t>(1 + i % 3), 7));
  }
  return corpus;
}

// The source ids of an epoch in the order of its numbers.
Ids epoch_of(const Mixture& mixture, index_t epoch) {
  Ids ids;
  EncodedPair pair;
  for (index_t i = 0; i < mixture.size(); ++i) {
    mixture.read(epoch, i, pair);
    CHECK(mixture.lengths(epoch, i).target == static_cast<index_t>(pair.target.size()));
    ids.push_back(pair.source.at(0));
  }
  return ids;
}

}  // namespace

TEST_CASE("a mixture without weights has every pair once in an epoch, in another order each time") {
  const EncodedCorpus a = numbered(7, 100), b = numbered(12, 200);
  const Mixture mixture({{&a}, {&b}});
  CHECK(mixture.size() == 19);
  std::set<Ids> orders;
  for (index_t epoch = 0; epoch < 3; ++epoch) {
    const Ids ids = epoch_of(mixture, epoch);
    CHECK(std::set<std::int32_t>(ids.begin(), ids.end()).size() == 19);
    orders.insert(ids);
  }
  CHECK(orders.size() == 3);
  CHECK(epoch_of(Mixture({{&a}, {&b}}), 2) == epoch_of(mixture, 2));
  CHECK(epoch_of(Mixture({{&a}, {&b}}, {.seed = 2}), 2) != epoch_of(mixture, 2));
  Ids in_order;
  for (std::int32_t i = 0; i < 7; ++i) in_order.push_back(100 + i);
  for (std::int32_t i = 0; i < 12; ++i) in_order.push_back(200 + i);
  CHECK(epoch_of(Mixture({{&a}, {&b}}, {.shuffle = false}), 1) == in_order);
}

TEST_CASE("weights are the shares of an epoch, and a corpus repeats nothing until it is exhausted") {
  const EncodedCorpus a = numbered(5, 100), b = numbered(35, 200);
  const Mixture mixture({{&a, 3}, {&b, 1}});
  CHECK(mixture.pairs_of(0) == 30);
  CHECK(mixture.pairs_of(1) == 10);
  Ids of_a, of_b;  // as they come, in all epochs
  for (index_t epoch = 0; epoch < 7; ++epoch) {
    const Ids ids = epoch_of(mixture, epoch);
    of_a.insert(of_a.end(), ids.begin(), ids.begin() + 30);
    of_b.insert(of_b.end(), ids.begin() + 30, ids.end());
  }
  const auto passes = [](const Ids& ids, std::size_t n) {
    std::set<Ids> orders;
    for (std::size_t at = 0; at + n <= ids.size(); at += n) {
      const Ids pass(ids.begin() + static_cast<std::ptrdiff_t>(at),
                     ids.begin() + static_cast<std::ptrdiff_t>(at + n));
      CHECK(std::set<std::int32_t>(pass.begin(), pass.end()).size() == n);
      orders.insert(pass);
    }
    return orders.size();
  };
  CHECK(passes(of_a, 5) > 25);  // of 42 passes, with 120 orders
  CHECK(passes(of_b, 35) == 2);
  // Rounding: 1 : 1 : 1 of 40 pairs.
  const EncodedCorpus c = numbered(10, 300), d = numbered(20, 400), e = numbered(10, 500);
  const Mixture thirds({{&c, 1}, {&d, 1}, {&e, 1}});
  CHECK(thirds.size() == 40);
  CHECK(thirds.pairs_of(0) == 14);
  CHECK(thirds.pairs_of(1) == 13);
  CHECK(thirds.pairs_of(2) == 13);
  CHECK_THROWS_AS((void)thirds.pairs_of(3), IndexError);
  CHECK(thirds.fingerprint() != Mixture({{&c, 2}, {&d, 1}, {&e, 1}}).fingerprint());
}

TEST_CASE("a temperature brings shares by size together") {
  const EncodedCorpus a = numbered(90, 100), b = numbered(10, 300);
  CHECK(Mixture({{&a}, {&b}}).pairs_of(0) == 90);
  CHECK(Mixture({{&a}, {&b}}, {.temperature = 2}).pairs_of(0) == 75);  // 3 : 1
  CHECK(Mixture({{&a}, {&b}}, {.temperature = 1e6}).pairs_of(0) == 50);
}

TEST_CASE("mixtures that cannot be are refused") {
  const EncodedCorpus a = numbered(5, 100), b = numbered(5, 200), none;
  CHECK_THROWS_AS(Mixture(std::vector<MixturePart>{}), ValueError);
  CHECK(contains(message_of<ValueError>([&] { Mixture({{&a}, {&none}}); }), "corpus 2 has no pair"));
  CHECK(contains(message_of<ValueError>([&] { Mixture({{&a, 1}, {&b}}); }), "corpus 2 has the weight 0"));
  CHECK(contains(message_of<ValueError>([&] {
                   Mixture({{&a, 1}, {&b, -1}});
                 }),
                 "corpus 2 has the weight -1"));
  CHECK(contains(message_of<ValueError>([&] { Mixture({{&a, 1}, {&b, 1e-4}}); }), "none of the 10 pairs"));
  CHECK_THROWS_AS(Mixture({{&a, 1}, {&b, 1}}, {.temperature = 2}), ValueError);
  CHECK_THROWS_AS(Mixture({{&a}, {&b}}, {.temperature = 0}), ValueError);
  EncodedPair pair;
  CHECK_THROWS_AS(Mixture({{&a}, {&b}}).read(0, 10, pair), IndexError);
  EncodedCorpus linked = numbered(5, 100);
  linked.alignment.resize(5);
  CHECK_THROWS_AS((void)Mixture({{&a}, {&linked}}).aligned(), ValueError);
  CHECK(Mixture({{&linked}}).aligned());
}

TEST_CASE("batches of a mixture have each corpus's tag before its sources, and the shares of an epoch") {
  const EncodedCorpus a = numbered(40, 100), b = numbered(20, 200);
  TextConventions text;
  text.source_prefix = {9};
  text.target_languages = {{"de", 11}, {"fr", 12}};
  const Mixture mixture(
      {{&a, 1, with_target_language(text, "de")}, {&b, 2, with_target_language(text, "fr")}});
  Batcher batcher(mixture, {.max_target_tokens = 30, .text = text});
  std::map<std::int32_t, int> tags;
  for (index_t k = 0; k < batcher.num_batches(1); ++k) {
    const Batch batch = batcher.batch(1, k);
    CHECK(batch.target_tokens() <= 30);
    REQUIRE(batch.source.size() == 4 * static_cast<std::size_t>(batch.size()));
    for (std::size_t i = 0; i < batch.source.size(); i += 4) {
      CHECK(batch.source[i] == 9);
      ++tags[batch.source[i + 1]];
      CHECK(batch.source[i + 1] == (batch.source[i + 2] < 200 ? 11 : 12));
      CHECK(batch.source[i + 3] == SpecialIds::end);
    }
  }
  CHECK(tags == std::map<std::int32_t, int>{{11, 20}, {12, 40}});
}

TEST_CASE("a target language is chosen among those of the model") {
  ModelConventions text;
  CHECK(with_target_language(text, "") == text);
  CHECK(contains(message_of<ValueError>([&] { with_target_language(text, "de"); }), "no target languages"));
  text.target_languages = {{"de", 11}};
  CHECK(with_target_language(text, "").source_prefix == Ids{11});
  text.target_languages.push_back({"fr", 12});
  CHECK(with_target_language(text, "fr").source_prefix == Ids{12});
  const ModelConventions french = with_target_language(text, "fr");
  CHECK(with_target_language(french, "") == french);
  CHECK(with_target_language(french, "fr") == french);
  CHECK(with_target_language(french, "de").source_prefix == Ids{11});
  CHECK(contains(message_of<ValueError>([&] { with_target_language(text, "es"); }),
                 "the target language is 'es', expected one of de, fr"));
  CHECK(contains(message_of<ValueError>([&] { with_target_language(text, ""); }), "several languages"));

  const nlohmann::json json = detail::conventions_to_json(text);
  CHECK(detail::conventions_from_json(json, 20, 20) == text);
  CHECK_THROWS_AS((void)detail::conventions_from_json(json, 12, 20), ValueError);
  CHECK_FALSE(detail::conventions_to_json(ModelConventions{}).contains("target_languages"));
  // So that older versions read it.
  CHECK_FALSE(detail::conventions_to_json(ModelConventions{}).contains("lines_are_sentences"));
  CHECK_FALSE(detail::conventions_to_json(ModelConventions{}).contains("unknown"));
  ModelConventions paragraphs;
  paragraphs.lines_are_sentences = false;
  paragraphs.search = {{"rule", "marian"}, {"beam_size", 3}};
  CHECK(detail::conventions_to_json(paragraphs).at("lines_are_sentences") == false);
  CHECK(detail::conventions_from_json(detail::conventions_to_json(paragraphs), 9, 9) == paragraphs);
  CHECK_FALSE(detail::conventions_to_json(ModelConventions{}).contains("search"));
  CHECK(contains(message_of<ValueError>([&] {
                   (void)detail::conventions_from_json({{"search", 3}}, 9, 9);
                 }),
                 "search is 3, expected an object"));
}

TEST_CASE("reserved entries are no text's") {
  const std::vector<std::string> text = {"a <2de> dog", "a cat"};
  for (const char* kind : {"char", "word", "subword"}) {
    if (std::string(kind) == "subword" && !has_subword_tokenizer()) continue;
    CAPTURE(kind);
    const auto tokenizer =
        train_tokenizer({.kind = kind, .vocabulary_size = 30, .reserved = {"<2de>", "<bt>"}}, text);
    CHECK(find_token(*tokenizer, "<2de>") == 4);
    CHECK(find_token(*tokenizer, "<bt>") == 5);
    CHECK_FALSE(find_token(*tokenizer, "<2fr>"));
    for (const std::int32_t id : tokenizer->encode("a <2de> dog <bt>")) {
      CHECK(id != 4);
      CHECK(id != 5);
    }
  }
}

#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE
TEST_CASE("a corpus with drawn segmentations follows from seed, epoch and pair") {
  ParallelCorpus text;
  for (const char* word : {"lernen", "spielen", "arbeiten", "kochen", "tanzen", "lernten", "spielten"}) {
    text.source.push_back("wir " + std::string(word) + " gern");
    text.target.push_back(std::string(word) + " wir gern");
  }
  const TokenizerPair tokenizers = train_tokenizers({.vocabulary_size = 60}, text);
  const SubwordSampling sampling{.bpe_dropout = 0.3};
  const SampledCorpus corpus(text, tokenizers, sampling, 5), same(text, tokenizers, sampling, 5),
      other(text, tokenizers, sampling, 6);
  CHECK(corpus.size() == 7);
  EncodedPair a, b;
  std::set<Ids> seen, sources, targets;
  for (index_t epoch = 0; epoch < 5; ++epoch) {
    for (const index_t i : {3, 0, 6}) {
      corpus.read(epoch, i, a);
      same.read(epoch, i, b);
      CHECK(a.source == b.source);
      CHECK(a.target == b.target);
      CHECK(tokenizers.source->decode(a.source) == text.source[static_cast<std::size_t>(i)]);
      CHECK(tokenizers.target->decode(a.target) == text.target[static_cast<std::size_t>(i)]);
      if (i == 3) seen.insert(a.source);
    }
  }
  CHECK(seen.size() > 1);
  CHECK(corpus.fingerprint() == same.fingerprint());
  CHECK(corpus.fingerprint() != other.fingerprint());
  const SampledCorpus limited(text, tokenizers, sampling, 5, 30), longer(text, tokenizers, sampling, 5, 31);
  CHECK(limited.size() == longer.size());  // a drawn segmentation may have more tokens than the plain one
  CHECK(limited.fingerprint() != longer.fingerprint());
  CHECK(limited.identity().options != longer.identity().options);
  CHECK(limited.identity().content == longer.identity().content);
  CHECK(limited.identity().tokenizers == std::to_string(detail::tokenizer_fingerprint(tokenizers)));
  CHECK(corpus.lengths(0, 3).source ==
        static_cast<index_t>(tokenizers.source->encode(text.source[3]).size()));

  // One side alone, and no more tokens than the limit.
  const index_t longest = 12;
  const SampledCorpus source_only(text, tokenizers, {.bpe_dropout = 0.6, .sides = SampledSides::source}, 5,
                                  longest);
  index_t fallbacks = 0;
  for (index_t epoch = 0; epoch < 40; ++epoch) {
    source_only.read(epoch, 0, a);
    CHECK(a.target == tokenizers.target->encode(text.target[0]));
    CHECK(static_cast<index_t>(a.source.size()) <= longest);
    fallbacks += a.source == tokenizers.source->encode(text.source[0]) ? 1 : 0;
  }
  CHECK(fallbacks > 0);
  CHECK_THROWS_AS(SampledCorpus(text, tokenizers, {.unigram_alpha = 0.1}, 5), ValueError);
}
#endif

TEST_CASE("a mixture's fingerprint covers what changes its batches, and older states match") {
  const EncodedCorpus a = numbered(10, 100), b = numbered(20, 200), c = numbered(20, 300);
  const TextConventions text;
  const auto mixture = [&](const TextConventions& own, const MixtureOptions& options = {},
                           const PairSource* second = nullptr) {
    return Mixture({{&a, 0, own}, {second == nullptr ? &b : second}}, options);
  };
  std::vector<TextConventions> others(5);
  others[0].source_prefix = {7};
  others[1].source_suffix = {7, 3};
  others[2].begin_id = 7;
  others[3].target_prefix = {7};
  others[4].end_id = 7;
  std::set<std::string> all = {mixture(text).fingerprint(),
                               mixture(text, {.shuffle = false}).fingerprint(),
                               mixture(text, {.seed = 2}).fingerprint(),
                               mixture(text, {}, &c).fingerprint(),
                               Mixture({{&a}, {&b}}).fingerprint(),
                               Mixture({{&a}, {&b}}, {.temperature = 2}).fingerprint()};
  for (const TextConventions& other : others) all.insert(mixture(other).fingerprint());
  CHECK(all.size() == 11);
  CHECK(mixture(text).fingerprint() == mixture(text).fingerprint());
  TextConventions decoding;
  decoding.forbidden_ids = {5};  // of no use in training
  CHECK(mixture(decoding).fingerprint() == mixture(text).fingerprint());

  const std::string older =
      "mixture with seed 1; 10 of " + a.fingerprint() + " after,,; 20 of " + b.fingerprint();
  CHECK(detail::same_fingerprint(older, mixture(text).fingerprint()));
  CHECK_FALSE(detail::same_fingerprint(older, mixture(text, {.seed = 2}).fingerprint()));
  CHECK_FALSE(
      detail::same_fingerprint(mixture(text, {.shuffle = false}).fingerprint(), mixture(text).fingerprint()));

  const SourceIdentity one = mixture(text).identity(), other = mixture(others[2]).identity();
  CHECK(one.pairs == 30);
  CHECK(one.content == other.content);
  CHECK(one.content != mixture(text, {}, &c).identity().content);
  CHECK(one.options != other.options);
}
