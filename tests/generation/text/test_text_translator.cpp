#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/generation/text/translate.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const std::vector<std::string> lines = {"a man walks", "", "the dog of a man walks and walks", "a dog"};

LoadedModel<Seq2SeqTransformer<double>> small_translator(std::optional<InputPositions> positions = {},
                                                         index_t max_length = 30) {
  const ParallelCorpus corpus{{"a man walks the dog", "and of a dog"},
                              {"ein Mann geht mit dem Hund", "und Hund"}};
  const TokenizerPair tokenizers = train_tokenizers({.kind = "word", .joint = false}, corpus);
  RandomGenerator rng(3);
  Seq2SeqTransformer<double> model({.source_vocab_size = tokenizers.source->vocabulary_size(),
                                    .target_vocab_size = tokenizers.target->vocabulary_size(),
                                    .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                                    .encoder = {.num_layers = 1},
                                    .decoder = {.num_layers = 1},
                                    .positions = positions,
                                    .max_length = max_length},
                                   rng);
  LoadedModel<Seq2SeqTransformer<double>> loaded{{}, tokenizers, std::move(model)};
  for (double& w : loaded.model.own_projection.value().span()) w *= 3;
  loaded.description.model = loaded.model.options;
  return loaded;
}

}  // namespace

TEST_CASE(
    "a translator gives the texts, scores and attention of what generate finds, and nothing for a blank "
    "line") {
  const auto loaded = small_translator();
  TextTranslatorOptions options = text_translator_options(loaded.description);
  options.search.max_length = 7;
  options.search.attention = true;
  const TextTranslator translator(loaded, options);
  const auto translations = translator.translate(lines);
  REQUIRE(translations.size() == 4);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK_FALSE(translations[i].cut);
    if (lines[i].empty()) {
      CHECK(translations[i].text.empty());
      CHECK(translations[i].attention == nullptr);
      continue;
    }
    auto ids = loaded.tokenizers.source->encode(lines[i]);
    ids.push_back(3);
    const auto found = generate(loaded.model, Context<double>::inference(),
                                std::vector<std::vector<std::int32_t>>{ids}, options.search)[0][0];
    CHECK(translations[i].text == loaded.tokenizers.target->decode(found.ids));
    CHECK(translations[i].score == found.score);
    CHECK(translations[i].log_probability == found.log_probability);
    REQUIRE(translations[i].attention != nullptr);
    CHECK(translations[i].attention->memory[0].dim(2) == static_cast<index_t>(ids.size()));
    CHECK(translator.translate(lines[i]).text == translations[i].text);
  }
  std::vector<std::string> texts;
  for (const auto& translation : translations) texts.push_back(translation.text);
  CHECK(translate(loaded, lines, options.search) == texts);
}

TEST_CASE("what is drawn for a line depends on its number and the seed, and not on the lines beside it") {
  const auto loaded = small_translator();
  TextTranslatorOptions options = text_translator_options(loaded.description);
  options.sampling = sampling_options(loaded.description);
  options.sampling->temperature = 2;
  options.sampling->max_length = 8;
  options.batching.batch_size = 2;
  const TextTranslator translator(loaded, options);
  const auto all = translator.translate(lines);
  const auto part = translator.translate(std::span(lines).subspan(2), 2);
  CHECK(part[0].text == all[2].text);
  CHECK(part[1].text == all[3].text);
  std::set<std::string> different;
  for (std::size_t first = 0; first < 20; ++first)
    different.insert(translator.translate(std::span(lines).subspan(2, 1), first)[0].text);
  CHECK(different.size() > 5);
}

TEST_CASE(
    "a line that is too long is cut and said to be, and no translation is longer than the model has room "
    "for") {
  const auto loaded = small_translator(LearnedPositions{}, 5);
  CHECK(max_source_tokens(loaded.description) == 4);
  const TextTranslator translator(loaded);
  CHECK(translator.options().search.max_length == 5);
  const auto translations = translator.translate(lines);
  CHECK(translations[2].cut);
  CHECK_FALSE(translations[0].cut);
  CHECK(translations[2].text == translator.translate("the dog of a").text);
}

TEST_CASE("a decoder-only model goes on from lines") {
  RandomGenerator rng(3);
  const ParallelCorpus corpus{{"a man walks the dog", "and of a dog"},
                              {"a man walks the dog", "and of a dog"}};
  const TokenizerPair tokenizers = train_tokenizers({.kind = "word", .joint = true}, corpus);
  LoadedModel<LanguageModel<double>> loaded{
      {},
      tokenizers,
      LanguageModel<double>({.vocab_size = tokenizers.source->vocabulary_size(),
                             .num_layers = 1,
                             .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}},
                            rng)};
  loaded.description.model = loaded.model.options;
  loaded.description.text.source_prefix = {2};
  loaded.description.text.source_suffix = {};
  const TextTranslator translator(loaded);
  auto prompt = tokenizers.source->encode("a man");
  prompt.insert(prompt.begin(), 2);
  const auto found =
      generate(loaded.model, Context<double>::inference(), std::vector<std::vector<std::int32_t>>{prompt});
  CHECK(translator.translate("a man").text == tokenizers.target->decode(found[0][0].ids));
}

TEST_CASE("impossible options and missing tokenizers are refused by name") {
  auto loaded = small_translator();
  const auto refusal = [&](auto&& change) {
    TextTranslatorOptions options = text_translator_options(loaded.description);
    change(options);
    return message_of<ValueError>([&] { const TextTranslator translator(loaded, options); });
  };
  CHECK(contains(refusal([](auto& o) { o.search.beam_size = 0; }), "beam_size is 0, must be positive"));
  CHECK(contains(refusal([](auto& o) { o.search.length_penalty = -1; }), "length_penalty is -1"));
  CHECK(contains(refusal([](auto& o) { o.batching.batch_size = 0; }), "batch_size is 0, must be positive"));
  CHECK(contains(refusal([](auto& o) { o.sampling = SamplingOptions{.top_p = 2}; }), "top_p is 2"));
  loaded.tokenizers = {};
  CHECK(contains(refusal([](auto&) {}), "[text_translator] the model has no tokenizers"));
}
