#if defined(EIGENFORMER_WITH_SENTENCEPIECE) && EIGENFORMER_WITH_SENTENCEPIECE

#include <doctest/doctest.h>

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "eigenformer/data/sampling/mixture.hpp"
#include "eigenformer/data/sampling/sampled_corpus.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("training on a mixture with BPE-dropout goes on in the middle of an epoch, bit by bit") {
  ParallelCorpus real, synthetic;
  for (const char* verb : {"lernen", "spielen", "arbeiten", "kochen", "tanzen"}) {
    for (const char* word : {"wir", "sie", "alle"}) {
      real.source.push_back(std::string(word) + " " + verb + " gern");
      real.target.push_back(std::string(verb) + " " + word + " gern");
      synthetic.source.push_back(std::string(verb) + " gern " + word);
      synthetic.target.push_back("gern " + std::string(verb) + " " + word);
    }
  }
  const TokenizerPair tokenizers = train_tokenizers({.vocabulary_size = 60, .reserved = {"<bt>"}}, real);
  ModelConventions text;
  TextConventions tagged;
  tagged.source_prefix = {*find_token(*tokenizers.source, "<bt>")};
  const SubwordSampling sampling{.bpe_dropout = 0.2};
  const auto train = [&](std::uint64_t sampling_seed, index_t stop_at, const std::filesystem::path& file,
                         bool resume) {
    const SampledCorpus first(real, tokenizers, sampling, sampling_seed),
        second(synthetic, tokenizers, sampling, sampling_seed + 1);
    const Mixture mixture({{&first, 2}, {&second, 1, tagged}}, {.seed = 4});
    RandomGenerator rng(3);
    const index_t size = tokenizers.source->vocabulary_size();
    Seq2SeqTransformer<float> model(
        {.source_vocab_size = size,
         .target_vocab_size = size,
         .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20, .dropout = {0.1}},
         .encoder = {.num_layers = 1},
         .decoder = {.num_layers = 1}},
        rng);
    Recorder sink;
    std::stop_source stop;
    sink.at_step = [&](index_t step) {
      if (step == stop_at) stop.request_stop();
    };
    Trainer trainer(model, mixture, nullptr,
                    {.loop = {.epochs = 3, .report_every = 1, .seed = 9}, .batch_tokens = 24, .text = text},
                    sink);
    if (resume) trainer.load(load_training_state<float>(file));
    trainer.run(stop.get_token());
    if (!resume && stop_at > 0) save_training_state(file, trainer.state());
    return std::pair(trainer.step(), weights_of(model));
  };
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "state.safetensors";
  const auto [steps, expected] = train(5, 0, file, false);
  REQUIRE(steps > 12);
  for (const index_t stop_at : {index_t{1}, steps / 2, steps - 1}) {
    CAPTURE(stop_at);
    CHECK(train(5, stop_at, file, false).first == stop_at);
    const auto [all, resumed] = train(5, 0, file, true);
    CHECK(all == steps);
    CHECK(resumed == expected);
  }
  CHECK(train(8, 0, file, false).second != expected);
  CHECK(contains(message_of<ValueError>([&] { train(8, 0, file, true); }),
                 "the corpus differs from that of the saved training (options: '"));
}

#endif
