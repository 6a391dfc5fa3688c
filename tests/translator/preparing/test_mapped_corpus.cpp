#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/data/files/mapped_file.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"
#include "translator/preparing/token_file.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

void write_tokens(const std::filesystem::path& path, const EncodedCorpus& corpus) {
  TokenFileWriter writer(path, 23, 24);
  for (index_t i = 0; i < corpus.size(); ++i) writer.add(corpus.source[i], corpus.target[i]);
  writer.commit();
}

TrainingOptions some_options(index_t steps) {
  return {.loop = {.max_steps = steps, .accumulate = 2, .validate_every = 4, .report_every = 1},
          .batch_tokens = 30,
          .warmup = 3};
}

}  // namespace

TEST_CASE("a mapped corpus trains as one in memory, bit by bit, with batches made ahead or not") {
  const TemporaryFolder folder;
  const EncodedCorpus corpus = reversal_corpus(80, 1), validation = reversal_corpus(20, 2);
  write_tokens(folder.path() / "train", corpus);
  write_tokens(folder.path() / "validation", validation);
  const TokenFile mapped(folder.path() / "train"), mapped_validation(folder.path() / "validation");
  const auto trained = [&](const PairSource& pairs, const PairSource& held_out, index_t prefetch) {
    auto model = small_model(0.3);
    TrainingOptions options = some_options(25);  // more than an epoch
    options.prefetch = prefetch;
    Trainer trainer(model, pairs, &held_out, options);
    CHECK(trainer.run() == TrainingEnd::max_steps);
    CHECK(trainer.epoch() >= 1);
    auto all = weights_of(model);
    all.push_back(static_cast<float>(trainer.best()));
    return all;
  };
  const auto expected = trained(corpus, validation, 0);
  CHECK(trained(corpus, validation, 4) == expected);
  CHECK(trained(mapped, mapped_validation, 0) == expected);
  CHECK(trained(mapped, mapped_validation, 1) == expected);
  CHECK(trained(mapped, validation, 4) == expected);
}

TEST_CASE("a training on a mapped corpus is resumed with the same file, and with no other") {
  const TemporaryFolder folder;
  write_tokens(folder.path() / "train", reversal_corpus(80, 1));
  write_tokens(folder.path() / "other", reversal_corpus(80, 2));
  auto whole = small_model(0.3);
  const TokenFile mapped(folder.path() / "train");
  Trainer uninterrupted(whole, mapped, nullptr, some_options(12));
  uninterrupted.run();

  auto first = small_model(0.3), second = small_model(0.3, 7);
  Trainer before(first, mapped, nullptr, some_options(5));
  before.run();
  const TokenFile again(folder.path() / "train"), other(folder.path() / "other");
  Trainer after(second, again, nullptr, some_options(12));
  after.load(before.state());
  after.run();
  CHECK(weights_of(second) == weights_of(whole));

  Trainer wrong(second, other, nullptr, some_options(12));
  CHECK(
      contains(message_of<ValueError>([&] { wrong.load(before.state()); }),
               "the corpus differs from that of the saved training (as many pairs, but not the same ones)"));
  TokenFileWriter writer(folder.path() / "tokenizers", 24, 24, 5);
  EncodedPair pair;
  for (index_t i = 0; i < mapped.size(); ++i) {
    mapped.read(0, i, pair);
    writer.add(pair.source, pair.target);
  }
  writer.commit();
  const TokenFile others_ids(folder.path() / "tokenizers");
  Trainer reencoded(second, others_ids, nullptr, some_options(12));
  CHECK(contains(message_of<ValueError>([&] { reencoded.load(before.state()); }), "(other tokenizers)"));
}
