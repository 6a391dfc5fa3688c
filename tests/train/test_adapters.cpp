#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/adapters/load_adapter.hpp"
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

template <class T>
std::vector<T> factors_of(const Seq2SeqTransformer<T>& model) {
  std::vector<T> all;
  for (const auto& p : lora_parameters(model))
    all.insert(all.end(), p->value.span().begin(), p->value.span().end());
  return all;
}

}  // namespace

TEST_CASE(
    "logits with PEFT's adapters, and ten updates of them, are those of PEFT: Marian, NLLB, BART and T5") {
  for (const std::string name : {"marian", "nllb", "bart", "t5"}) {
    CAPTURE(name);
    const auto folder = fixtures_folder() / "adapters" / name;
    const auto facts = nlohmann::json::parse(detail::read_text_file(folder / "lora.json"));
    auto [loaded, corpus, batch] = imported_batch("hf_" + name, facts);
    load_adapter(folder, loaded.model);
    const ModelConventions& text = loaded.description.text;
    const auto packed = [](const Ids& ids) {
      return Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids);
    };
    const auto logits = loaded
                            .model(Context<double>::inference(), packed(batch.source), batch.source_layout,
                                   packed(batch.target_input), batch.target_layout)
                            .value();
    const auto reference = SafetensorsFile::open(folder / "lora.safetensors");
    double worst = 0;
    for (index_t i = 0; i < 2; ++i) {
      const auto expected = reference.tensor<double>("logits." + std::to_string(i));
      const double* const ours = logits.data() + batch.target_layout.offset(i) * logits.dim(1);
      REQUIRE(expected.dim(0) == batch.target_layout.length(i));
      for (index_t k = 0; k < expected.numel(); ++k)
        worst = std::max(worst, std::fabs(expected.data()[k] - ours[k]));
    }
    CHECK(worst < 1e-5);

    const TrainingOptions training{
        .loop = {.max_steps = 10, .clip_norm = 0, .validate_every = 100, .report_every = 1},
        .batch_tokens = 1000,
        .learning_rate = facts.at("learning_rate"),
        .warmup = 0,
        .schedule = ScheduleKind::constant,
        .label_smoothing = 0,
        .text = text};
    Recorder sink;
    const auto before = weights_of(loaded.model);
    Trainer trainer(loaded.model, corpus, nullptr, training, sink);
    CHECK(trainer.run() == TrainingEnd::max_steps);
    REQUIRE(sink.steps.size() == 10);
    for (std::size_t i = 0; i < 10; ++i) {
      CAPTURE(i);
      CHECK(sink.steps[i].loss == doctest::Approx(facts.at("losses")[i].get<double>()).epsilon(1e-5));
    }
    CHECK(weights_of(loaded.model) == before);
  }
}

TEST_CASE(
    "an adapter's training has gradients, moments and a state of its factors alone, and resumes with the "
    "same bits") {
  const EncodedCorpus corpus = reversal_corpus(60, 4);
  const TrainingOptions options{.loop = {.max_steps = 8, .validate_every = 4},
                                .batch_tokens = 60,
                                .lora = {.rank = 2, .dropout = 0.1, .targets = "q_proj,linear1"}};
  auto model = small_model(0.1);
  const auto base = weights_of(model);
  // 3 attentions and 3 feed-forward networks of an encoder's and two decoder layers (with cross-attentions):
  // A (2, 12) and B (12, 2) or (20, 2).
  const index_t factors = 5 * (2 * 12 + 12 * 2) + 3 * (2 * 12 + 20 * 2);
  TrainingState<float> half;
  Recorder sink;
  Trainer trainer(model, corpus, nullptr, options, sink);
  sink.at_checkpoint = [&] {
    if (trainer.step() != 4) return;
    half = trainer.state();
    for (auto& [name, tensor] : half.tensors) tensor = tensor.clone();
  };
  (void)trainer.run();
  CHECK(weights_of(model) == base);
  CHECK(static_cast<index_t>(factors_of(model).size()) == factors);
  CHECK(count_parameters(model) > 10 * factors);
  index_t weights = 0, moments = 0;
  for (const auto& [name, tensor] : trainer.state().tensors) {
    if (name.starts_with("model.")) {
      weights += tensor.numel();
      CHECK(name.find(".lora_") != std::string::npos);
    } else if (tensor.numel() > 1) {
      moments += tensor.numel();
    }
  }
  CHECK(weights == factors);
  CHECK(moments == 2 * factors);
  Gradients<float> gradients(lora_parameters(model));
  Tape<float> tape;
  const auto batch = Batcher(corpus, {.max_target_tokens = 60}).batch(0, 0);
  tape.backward(batch_loss(model, Context<float>::checking(tape), batch, CrossEntropyOptions{}), gradients);
  for (const auto& p : parameters(model)) CHECK(p->frozen);

  REQUIRE_FALSE(half.tensors.empty());
  auto again = small_model(0.1);
  Trainer resumed(again, corpus, nullptr, options);
  resumed.load(half);
  CHECK(resumed.step() == 4);
  (void)resumed.run();
  CHECK(factors_of(again) == factors_of(model));

  auto small = options, other = options, none = options;
  small.lora.alpha = 5;
  none.lora.rank = 0;
  auto with_small = small_model(0.1), with_other = small_model(0.1, 8), without = small_model(0.1);
  Trainer of_small(with_small, corpus, nullptr, small), of_other(with_other, corpus, nullptr, other),
      of_none(without, corpus, nullptr, none);
  CHECK(contains(message_of<ValueError>([&] { of_small.load(half); }), "was made with lora {"));
  CHECK(contains(message_of<ValueError>([&] { of_other.load(half); }), "was made with lora_base"));
  CHECK(contains(message_of<ValueError>([&] { of_none.load(half); }), "is of an adapter"));
  CHECK(contains(message_of<ValueError>([&] { resumed.load(of_none.state()); }), "is of a whole model"));
}

TEST_CASE("an adapter learns, is saved, and goes on from its folder") {
  const EncodedCorpus corpus = reversal_corpus(60, 4);
  TrainingOptions options{.loop = {.max_steps = 60, .report_every = 10},
                          .batch_tokens = 200,
                          .learning_rate = 1e-2,
                          .warmup = 0,
                          .schedule = ScheduleKind::constant,
                          .lora = {.rank = 4, .alpha = 8, .targets = "*"}};
  auto model = small_model(0);
  Recorder sink;
  (void)Trainer(model, corpus, nullptr, options, sink).run();
  CHECK(sink.steps.back().loss < sink.steps.front().loss - 0.3);
  const TemporaryFolder folder;
  save_adapter(folder.path(), model);
  auto loaded = small_model(0);
  load_adapter(folder.path(), loaded);
  CHECK(factors_of(loaded) == factors_of(model));
  options.lora = {};  // the one that is attached is trained
  options.loop.max_steps = 20;
  Recorder more;
  (void)Trainer(loaded, corpus, nullptr, options, more).run();
  CHECK(more.steps.front().loss < sink.steps.front().loss - 0.3);
  CHECK(weights_of(loaded) == weights_of(small_model(0)));
  CHECK(factors_of(loaded) != factors_of(model));
  options.lora.rank = 2;
  CHECK(contains(message_of<ValueError>([&] { Trainer(loaded, corpus, nullptr, options); }), "has adapters"));
}
