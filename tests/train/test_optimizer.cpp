#include "eigenformer/train/trainer.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "eigenformer/io/safetensors/checkpoint.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

TrainingOptions options(index_t steps, const OptimizerOptions& optimizer = {}) {
  return {.loop = {.max_steps = steps, .accumulate = 2, .validate_every = 0},
          .batch_tokens = 60,
          .learning_rate = optimizer.kind == OptimizerKind::sgd ? 0.5 : 8e-3,
          .warmup = 10,
          .weight_decay = 0.01,
          .groups = {{.pattern = "*bias", .rate = 2}},
          .optimizer = optimizer};
}

OptimizerOptions of(OptimizerKind kind) { return {.kind = kind}; }

std::vector<OptimizerOptions> all_kinds() {
  std::vector<OptimizerOptions> kinds{of(OptimizerKind::adam), of(OptimizerKind::adam),
                                      of(OptimizerKind::adafactor), of(OptimizerKind::sgd)};
  kinds[1].state = StatePrecision::bf16;
  kinds[3].momentum = 0.9;
  return kinds;
}

double loss_after(const EncodedCorpus& corpus, const TrainingOptions& o) {
  auto model = small_model(0.1);
  Trainer(model, corpus, nullptr, o).run();
  return corpus_loss(model, corpus);
}

}  // namespace

TEST_CASE("a training has the optimizer that its options name, and learns with each") {
  const EncodedCorpus corpus = reversal_corpus(60, 1);
  const double before = corpus_loss(small_model(0), corpus);
  std::vector<double> losses;
  for (const OptimizerOptions& kind : all_kinds()) {
    losses.push_back(loss_after(corpus, options(60, kind)));
    INFO(word_of(kind.kind) << ", " << word_of(kind.state));
    CHECK(losses.back() < before - 0.3);
  }
  MESSAGE("loss " << before << ", after 60 updates with adam, adam in bf16, adafactor, sgd: " << losses[0]
                  << ", " << losses[1] << ", " << losses[2] << ", " << losses[3]);
  // Moments in bf16 learn as well as those in float.
  CHECK(std::abs(losses[1] - losses[0]) < 0.1);
}

TEST_CASE("a training goes on with the same bits from its saved state, with each optimizer") {
  const EncodedCorpus corpus = reversal_corpus(60, 1);
  const TemporaryFolder folder;
  for (const OptimizerOptions& kind : all_kinds()) {
    auto whole = small_model(0.1), first = small_model(0.1), second = small_model(0.1, 9);
    Trainer(whole, corpus, nullptr, options(12, kind)).run();
    Trainer begun(first, corpus, nullptr, options(7, kind));
    begun.run();
    save_training_state(folder.path() / "state.safetensors", begun.state());
    Trainer resumed(second, corpus, nullptr, options(12, kind));
    resumed.load(load_training_state<float>(folder.path() / "state.safetensors"));
    resumed.run();
    INFO(word_of(kind.kind) << ", " << word_of(kind.state));
    CHECK(weights_of(second) == weights_of(whole));
  }
}

TEST_CASE("the state of another optimizer is refused by name") {
  const EncodedCorpus corpus = reversal_corpus(20, 1);
  auto model = small_model(0.1);
  Trainer adam(model, corpus, nullptr, options(2));
  adam.run();
  const auto state = adam.state();
  const auto before = weights_of(model);
  Trainer other(model, corpus, nullptr, options(2, of(OptimizerKind::adafactor)));
  CHECK(contains(message_of<ValueError>([&] { other.load(state); }),
                 "was made with optimizer \"adam\", cannot resume with \"adafactor\""));
  Trainer half(model, corpus, nullptr, options(2, all_kinds()[1]));
  CHECK(contains(message_of<ValueError>([&] { half.load(state); }), "optimizer_state \"float32\""));
  CHECK(weights_of(model) == before);
}

TEST_CASE("options that an optimizer does not have are refused") {
  const auto refuses = [](const OptimizerOptions& o) {
    return message_of<ValueError>([&] { o.validate(); });
  };
  CHECK(contains(refuses({.kind = OptimizerKind::adafactor, .state = StatePrecision::bf16}),
                 "optimizer_state = bf16 is an option of adam, and the optimizer is adafactor"));
  CHECK(contains(refuses({.momentum = 0.9}), "momentum is an option of sgd"));
  CHECK(contains(refuses({.scale_parameter = true}), "adafactor_scale_parameter is an option of adafactor"));
  CHECK(contains(refuses({.relative_step = true}), "adafactor_relative_step is an option of adafactor"));
  CHECK(contains(refuses({.kind = OptimizerKind::sgd, .momentum = 1}), "momentum is 1"));
}

TEST_CASE("optimizers over parts of the parameters step them as one over all does") {
  for (const OptimizerOptions& kind : all_kinds()) {
    const auto run = [&](bool parts) {
      auto model = small_model<float>(0);
      const auto all = parameters(model);
      TrainingOptions o = options(1, kind);
      o.groups.push_back({.pattern = "encoder.*", .rate = 0.5});
      std::vector<std::unique_ptr<Optimizer<float>>> optimizers;
      const std::size_t middle = parts ? all.size() / 3 : all.size();
      for (const auto& [begin, end] : {std::pair(std::size_t{0}, middle), std::pair(middle, all.size())}) {
        const std::vector<ParameterHandle<float>> part(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                                       all.begin() + static_cast<std::ptrdiff_t>(end));
        TrainingOptions own = o;
        own.groups = detail::groups_of(part, o.groups);
        if (!part.empty()) optimizers.push_back(detail::make_optimizer<float>(part, own));
      }
      RandomGenerator rng(4);
      Gradients<float> gradients(all);
      for (int step = 0; step < 3; ++step) {
        for (auto& e : gradients.entries()) {
          Tensor<float>& g = e.writable();
          rng.fill_normal(g.data(), g.numel(), 0, 1);
        }
        for (auto& optimizer : optimizers) optimizer->step(gradients, 0.01, 0.5);
      }
      std::size_t entries = 0;
      for (auto& optimizer : optimizers) entries += optimizer->state().size();
      return std::pair(weights_of(model), entries);
    };
    CHECK(run(true) == run(false));
  }
}

TEST_CASE("checkpoints of activations change no bit of a training, which may turn them on and off") {
  const EncodedCorpus corpus = reversal_corpus(60, 1);
  const auto trained = [&](bool first, bool second, index_t workers = 1) {
    auto model = small_model(0.2);
    TrainingOptions o = options(4);
    o.loop.checkpoint_activations = first;
    o.loop.workers = workers;
    Trainer begun(model, corpus, nullptr, o);
    begun.run();
    const auto state = begun.state();
    o.loop.checkpoint_activations = second;
    o.loop.max_steps = 8;
    Trainer resumed(model, corpus, nullptr, o);
    resumed.load(state);
    resumed.run();
    return weights_of(model);
  };
  const auto plain = trained(false, false);
  CHECK(trained(true, true) == plain);
  CHECK(trained(true, false) == plain);
  CHECK(trained(false, true, 2) == plain);
}
