#include "eigenformer/search/alignment/attention_alignment.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/search/decoding/ensemble.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "search/search_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Links = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

/// A small model of words with two decoder layers.
LoadedModel<Seq2SeqTransformer<double>> word_translator(SelfMixing decoder = SelfMixing::attention,
                                                        std::uint64_t seed = 3) {
  const ParallelCorpus corpus{{"a man walks the dog", "and of a dog"},
                              {"ein Mann geht mit dem Hund", "und Hund"}};
  const TokenizerPair tokenizers = train_tokenizers({.kind = "word", .joint = false}, corpus);
  RandomGenerator rng(seed);
  Seq2SeqTransformer<double> model(
      {.source_vocab_size = tokenizers.source->vocabulary_size(),
       .target_vocab_size = tokenizers.target->vocabulary_size(),
       .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
       .encoder = {.num_layers = 1},
       .decoder = {.num_layers = 2,
                   .layer =
                       LayerOptions{
                           .d_model = 12, .num_heads = 3, .dim_feedforward = 20, .self_mixing = decoder}},
       .max_length = 30},
      rng);
  LoadedModel<Seq2SeqTransformer<double>> loaded{{}, tokenizers, std::move(model)};
  for (double& w : loaded.model.own_projection.value().span()) w *= 3;
  loaded.description.model = loaded.model.options;
  return loaded;
}

/// The links of a row by row reading of attention_maps.
Links links_of_maps(const AttentionMaps& maps, index_t layer, index_t head, double threshold, index_t rows) {
  const Tensor<float>& w = maps.memory[static_cast<std::size_t>(layer)];
  Links links;
  for (index_t t = 0; t < rows; ++t) {
    std::vector<double> row;
    for (index_t s = 0; s < w.dim(2); ++s) {
      double sum = 0;
      for (index_t h = 0; h < w.dim(0); ++h)
        if (head < 0 || h == head) sum += static_cast<double>(w.at({h, t, s}));
      row.push_back(head < 0 ? sum / static_cast<double>(w.dim(0)) : sum);
    }
    for (std::size_t s = 0; s < row.size(); ++s) {
      const bool most =
          std::max_element(row.begin(), row.end()) == row.begin() + static_cast<std::ptrdiff_t>(s);
      if (threshold > 0 ? row[s] > threshold : most)
        links.emplace_back(static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(t));
    }
  }
  return links;
}

}  // namespace

TEST_CASE("a translation's alignment is what its attention maps say, for any layer and head, with SSRU too") {
  const std::vector<std::string> lines = {"a man walks", "", " the  dog of a man walks", "a dog"};
  for (const SelfMixing mixing : {SelfMixing::attention, SelfMixing::ssru}) {
    const auto loaded = word_translator(mixing);
    for (const AlignmentOptions& wanted : {AlignmentOptions{}, AlignmentOptions{.layer = 0, .head = 2},
                                           AlignmentOptions{.head = 1, .threshold = 0.2}}) {
      TextTranslatorOptions options = text_translator_options(loaded.description);
      options.search.max_length = 5;
      options.search.num_hypotheses = 2;
      options.search.attention = true;
      options.alignment = wanted;
      const TextTranslator translator(loaded, options);
      const auto found = translator.alternatives(lines);
      CHECK(found[1][0].alignment == nullptr);  // no word, no translation
      for (const std::size_t i : {0, 2, 3}) {
        for (const Translation& t : found[i]) {
          REQUIRE(t.alignment != nullptr);
          const TextAlignment& a = *t.alignment;
          const index_t rows = a.attention.dim(0);
          CHECK(static_cast<std::size_t>(rows) == a.target.size());
          CHECK(static_cast<std::size_t>(a.attention.dim(1)) == a.source.size());
          CHECK(a.links == links_of_maps(*t.attention, wanted.layer < 0 ? 1 : wanted.layer, wanted.head,
                                         wanted.threshold, rows));
          CHECK(a.source.back().empty());  // the end symbol
        }
      }
      const TextAlignment& third = *found[2][0].alignment;
      CHECK(third.source[0].of(lines[2]) == "the");
      CHECK(third.source[1].of(lines[2]) == "dog");
      // Given pairs are aligned as translations are.
      const std::vector<std::string> line = {lines[2]}, text = {" ein  Mann geht"};
      const Translation given = translator.score(line, text)[0];
      REQUIRE(given.alignment != nullptr);
      REQUIRE(given.alignment->target.size() == 4);
      CHECK(given.alignment->target[2].of(text[0]) == "geht");
      CHECK(given.alignment->target[3].empty());
      CHECK(given.alignment->source == third.source);
    }
  }
}

TEST_CASE("an alignment's tokens include those of a prefix, and an ensemble aligns by its first model") {
  const auto loaded = word_translator(), other = word_translator(SelfMixing::attention, 8);
  TextTranslatorOptions options = text_translator_options(loaded.description);
  options.search.max_length = 6;
  options.search.prefix_ids = {5};
  options.search.beam_size = 2;
  options.alignment = AlignmentOptions{};
  const TextTranslator translator(loaded, options);
  const std::vector<std::string> lines = {"the dog walks"}, prefixes = {"ein Mann"};
  const Translation t = translator.translate(lines, 0, prefixes)[0];
  REQUIRE(t.alignment != nullptr);
  REQUIRE(t.alignment->target.size() >= 2);
  CHECK(t.alignment->target[0].of(t.text) == "ein");
  CHECK(t.alignment->target[1].of(t.text) == "Mann");
  Ids source = loaded.tokenizers.source->encode(lines[0]), target = loaded.tokenizers.target->encode(t.text);
  source.push_back(3);
  target.insert(target.begin(), 5);
  const AttentionMaps maps = attention_maps(loaded.model, Context<double>::inference(), source, target, 2);
  for (index_t s = 0; s < 4; ++s) {
    double mean = 0;
    for (index_t h = 0; h < 3; ++h) mean += static_cast<double>(maps.memory[1].at({h, 1, s})) / 3;
    CHECK(std::abs(mean - static_cast<double>(t.alignment->attention.at({0, s}))) < 1e-6);
  }

  using Both = Ensemble<Seq2SeqTransformer<double>>;
  const Both both({{loaded.model}, {other.model}});
  const TextTranslator<Both> ensemble(both, loaded.tokenizers, loaded.description, options);
  const auto together = ensemble.score(lines, prefixes), alone = translator.score(lines, prefixes);
  REQUIRE(together[0].alignment != nullptr);
  CHECK(together[0].alignment->links == alone[0].alignment->links);
}

TEST_CASE("what a model's conventions put around a line stands for none of it") {
  const WordTokenizer words = WordTokenizer::train(std::vector<std::string>{"translate this: a dog walks"});
  TextConventions text;
  text.source_text = "translate this: ";
  text.source_prefix = {9};
  text.source_suffix = {3, 3};
  const std::string line = "  a  dog walks";
  const Ids ids = source_ids(text, words, line, 5);
  REQUIRE(ids.size() == 8);  // "walks" does not fit
  std::string found;
  for (const ByteSpan& span : detail::source_spans(text, words, ids, line))
    found += std::string(span.of(line)) + "|";
  CHECK(found == "||||a|dog|||");
}

TEST_CASE("alignments that cannot be are refused") {
  const auto loaded = word_translator();
  const std::vector<std::string> lines = {"a dog"};
  const auto translate_with = [&](const AlignmentOptions& wanted) {
    TextTranslatorOptions options = text_translator_options(loaded.description);
    options.search.max_length = 3;
    options.alignment = wanted;
    return TextTranslator(loaded, options).translate(lines);
  };
  CHECK_THROWS_WITH_AS((void)translate_with({.layer = 2}), doctest::Contains("alignment_layer is 2"),
                       ValueError);
  CHECK_THROWS_WITH_AS((void)translate_with({.layer = -3}), doctest::Contains("in [-2, 2)"), ValueError);
  CHECK_THROWS_WITH_AS((void)translate_with({.head = 3}), doctest::Contains("must be below 3"), ValueError);
  CHECK_THROWS_AS((void)translate_with({.head = -2}), ValueError);
  CHECK_THROWS_AS((void)translate_with({.threshold = 1}), ValueError);
  // A language model looks at no source.
  RandomGenerator rng(1);
  using Decoder = LanguageModel<double>;
  const Decoder model({.vocab_size = loaded.tokenizers.target->vocabulary_size(),
                       .num_layers = 1,
                       .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}},
                      rng);
  FolderDescription<LanguageModelOptions> description;
  description.model = model.options;
  TextTranslatorOptions options;
  options.alignment = AlignmentOptions{};
  CHECK_THROWS_WITH_AS((TextTranslator<Decoder>(model, {loaded.tokenizers.target, loaded.tokenizers.target},
                                                description, options)),
                       doctest::Contains("no function cross_attention_weights"), ValueError);
}
