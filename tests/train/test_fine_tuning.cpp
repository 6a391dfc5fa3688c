#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/import_checkpoint.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/train/trainer.hpp"
#include "folders.hpp"
#include "imported_batch.hpp"
#include "recorder.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Ids = std::vector<std::int32_t>;

TrainingOptions ten_updates(const nlohmann::json& facts, const ModelConventions& text) {
  return {.loop = {.max_steps = 10, .clip_norm = 0, .validate_every = 100, .report_every = 1},
          .batch_tokens = 1000,
          .learning_rate = facts.at("learning_rate"),
          .warmup = 0,
          .schedule = ScheduleKind::constant,
          .label_smoothing = 0,
          .text = text};
}

}  // namespace

TEST_CASE("ten updates of an imported model are those of transformers: Marian, NLLB, BART and T5") {
  for (const std::string name : {"hf_marian", "hf_nllb", "hf_bart", "hf_t5"}) {
    CAPTURE(name);
    const auto folder = fixtures_folder() / "checkpoints" / name;
    const auto facts = nlohmann::json::parse(detail::read_text_file(folder / "fine_tuning.json"));
    auto [loaded, corpus, batch] = imported_batch(name, facts);
    const ModelConventions& text = loaded.description.text;
    // What the decoder reads and is to say has the model's begin and end symbols and language codes.
    Ids inputs, labels;
    for (const auto& ids : facts.at("inputs")) {
      for (const std::int32_t id : ids.get<Ids>()) inputs.push_back(id);
    }
    for (const auto& ids : facts.at("labels")) {
      for (const std::int32_t id : ids.get<Ids>()) labels.push_back(id);
    }
    CHECK(batch.target_input == inputs);
    CHECK(batch.target_output == labels);

    // In transformers the output's bias is a buffer, and T5's norms are computed in float32.
    TrainingOptions training = ten_updates(facts, text);
    if (name == "hf_marian" || name == "hf_bart") training.frozen = "projection.bias";
    Recorder sink;
    Trainer trainer(loaded.model, corpus, nullptr, training, sink);
    CHECK(trainer.run() == TrainingEnd::max_steps);
    REQUIRE(sink.steps.size() == 10);
    for (std::size_t i = 0; i < 10; ++i) {
      CAPTURE(i);
      CHECK(sink.steps[i].loss == doctest::Approx(facts.at("losses")[i].get<double>()).epsilon(1e-6));
    }
  }
}

TEST_CASE("frozen parameters stay as they are, have no moments, and resume with the others") {
  const EncodedCorpus corpus = reversal_corpus(60, 4);
  TrainingOptions options{.loop = {.max_steps = 6, .validate_every = 3},
                          .batch_tokens = 60,
                          .frozen = "encoder.*,*embedding.weight"};
  auto model = small_model(0.1), before = small_model(0.1);
  Trainer trainer(model, corpus, nullptr, options);
  (void)trainer.run();
  index_t changed = 0, kept = 0;
  const auto now = parameters(model), then = parameters(before);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const bool frozen = now[i]->name.starts_with("encoder.") || now[i]->name.ends_with("embedding.weight");
    CAPTURE(now[i]->name);
    CHECK(now[i]->frozen == frozen);
    CHECK((values(now[i]->value) == values(then[i]->value)) == frozen);
    (frozen ? kept : changed) += 1;
  }
  CHECK(changed > 0);
  CHECK(kept > 0);
  const TrainingState<float> state = trainer.state();
  for (const auto& [name, tensor] : state.tensors) CHECK_FALSE(name.starts_with("optimizer.encoder."));

  auto again = small_model(0.1, 8);  // weights of its own, frozen ones too
  options.loop.max_steps = 9;
  Trainer resumed(again, corpus, nullptr, options), straight(model, corpus, nullptr, options);
  resumed.load(state);
  straight.load(state);
  (void)resumed.run();
  (void)straight.run();
  CHECK(weights_of(again) == weights_of(model));
}

TEST_CASE("patterns that freeze nothing or everything are refused, and change nothing") {
  auto model = small_model(0);
  const auto all = parameters(model);
  CHECK(contains(message_of<ValueError>([&] { freeze(all, "encoder.*,encodr.*"); }),
                 "'encodr.*' matches no parameter; the nearest names are 'encoder."));
  CHECK(contains(message_of<ValueError>([&] { freeze(all, "*"); }), "'*' leaves no parameter to train"));
  for (const auto& p : all) CHECK_FALSE(p->frozen);
  CHECK(freeze(all, "") == 0);
  CHECK(freeze(all, "encoder.*") > 0);
}

TEST_CASE("a training does not go on with another corpus, and says what to do") {
  const EncodedCorpus corpus = reversal_corpus(20, 1), other = reversal_corpus(21, 1);
  auto model = small_model(0);
  const TrainingOptions options{.loop = {.max_steps = 1}};
  const TrainingState<float> state = Trainer(model, corpus, nullptr, options).state();
  Trainer trainer(model, other, nullptr, options);
  CHECK(contains(message_of<ValueError>([&] { trainer.load(state); }),
                 "the corpus differs from that of the saved training (number of pairs: 21, expected 20); to "
                 "continue with other data"));
}
