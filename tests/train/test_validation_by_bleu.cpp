#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "test_tools.hpp"
#include "train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// "5 7 4": ids as words.
std::string words(std::span<const std::int32_t> ids) {
  std::string text;
  for (const std::int32_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  return text;
}

}  // namespace

TEST_CASE("the best model may be the one that translates best") {
  const EncodedCorpus corpus = reversal_corpus(600, 1), held_out = reversal_corpus(20, 2);
  std::vector<std::vector<std::int32_t>> sources;
  std::vector<std::string> references;
  for (index_t i = 0; i < held_out.size(); ++i) {
    const auto source = held_out.source[i];
    sources.emplace_back(source.begin(), source.end());
    sources.back().push_back(SpecialIds::end);
    references.push_back(words(held_out.target[i]));
  }
  auto model = small_model(0);
  const auto bleu = [&] {
    std::vector<std::string> translations;
    for (const auto& found :
         generate(model, Context<float>::inference(), sources, {.beam_size = 1, .max_length = 8})) {
      translations.push_back(words(found[0].ids));
    }
    return corpus_bleu(translations, references).score;
  };
  Recorder sink;
  Trainer trainer(model, corpus, nullptr,
                  {.loop = {.epochs = 4,
                            .validate_every = 0,
                            .validation = {.measure = bleu, .better = Better::higher, .name = "BLEU"}},
                   .batch_tokens = 200,
                   .learning_rate = 1e-2,
                   .warmup = 20,
                   .label_smoothing = 0},
                  sink);
  CHECK(trainer.run() == TrainingEnd::epochs);
  REQUIRE(sink.validations.size() == 4);
  double best = 0;
  for (const ValidationReport& v : sink.validations) {
    CHECK(v.name == "BLEU");
    CHECK(v.best == (v.value > best));
    best = std::max(best, v.value);
  }
  CHECK(trainer.best() == best);
  CHECK(best > sink.validations[0].value);
}
