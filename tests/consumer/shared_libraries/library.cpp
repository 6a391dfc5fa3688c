// Compiled into two shared libraries with different flags and optional libraries. EXPORTED is the name of the
// function.
#include "library.hpp"

#include <exception>
#include <string>

#include "../work.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"

static std::vector<std::vector<int>> search() {
  namespace ef = eigenformer;
  ef::RandomGenerator rng(3);
  const ef::Seq2SeqTransformer<float> model(
      {.source_vocab_size = 11,
       .target_vocab_size = 13,
       .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20, .dropout = {0}},
       .encoder = {.num_layers = 1},
       .decoder = {.num_layers = 1}},
      rng);
  const std::vector<std::vector<std::int32_t>> sentences = {{4, 5, 6}, {7, 8}};
  std::vector<std::vector<int>> found;
  for (const auto& hypotheses :
       ef::generate(model, ef::Context<float>::inference(), sentences, {.beam_size = 2, .max_length = 8})) {
    found.emplace_back(hypotheses[0].ids.begin(), hypotheses[0].ids.end());
  }
  return found;
}

extern "C" __attribute__((visibility("default"))) void EXPORTED(int threads, Work& work) {
  namespace ef = eigenformer;
  ef::Runtime::instance().set_threads(threads);
  work.loss_ratio = loss_ratio();
  work.hypotheses = search();
  try {
    const std::vector<std::string> text = {"the old dog and the young dog", "a cat and an old dog"};
    (void)ef::train_tokenizer({.kind = "subword", .vocabulary_size = 24}, text);
    work.has_sentencepiece = true;
  } catch (const std::exception&) {
    work.has_sentencepiece = false;
  }
  work.runtime = &ef::Runtime::instance();
  work.threads = ef::Runtime::instance().threads();
}
