#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// Short, and with everything on that has a state.
TrainingOptions busy_options() {
  return {.loop = {.epochs = 3,
                   .accumulate = 2,
                   .validate_every = 3,
                   .average_last = 3,
                   .report_every = 1,
                   .seed = 9},
          .batch_tokens = 60,
          .learning_rate = 5e-3,
          .warmup = 4};
}

struct Outcome {
  TrainingEnd end{};
  std::vector<float> weights;
  std::vector<double> validations;
  std::vector<std::pair<std::string, std::vector<float>>> state;
  std::string values;
};

Outcome outcome(TrainingEnd end, const Seq2SeqTransformer<float>& model,
                const Trainer<Seq2SeqTransformer<float>>& trainer,
                const std::vector<ValidationReport>& validations) {
  Outcome o{end, weights_of(model), {}, {}, {}};
  for (const auto& v : validations) o.validations.push_back(v.value);
  const TrainingState<float> state = trainer.state();
  for (const auto& [name, tensor] : state.tensors) o.state.emplace_back(name, values(tensor));
  o.values = state.values.dump();
  return o;
}

}  // namespace

TEST_CASE("training learns: the loss of sentences never seen falls") {
  const EncodedCorpus corpus = reversal_corpus(600, 1), validation = reversal_corpus(40, 2);
  auto model = small_model(0);
  Recorder sink;
  Trainer trainer(model, corpus, &validation,
                  {.loop = {.epochs = 8, .validate_every = 0, .report_every = 5},
                   .batch_tokens = 200,
                   .learning_rate = 1e-2,
                   .warmup = 20,
                   .label_smoothing = 0},
                  sink);
  const double before = corpus_loss(model, validation);
  CHECK(trainer.run() == TrainingEnd::epochs);
  CHECK(trainer.best() < 0.6 * before);
  REQUIRE(sink.validations.size() == 8);  // after each epoch
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(sink.validations[i].epoch == static_cast<index_t>(i) + 1);
    CHECK(sink.validations[i].name == "loss");
  }
  CHECK(trainer.epoch() == 8);
  CHECK(trainer.step() == sink.validations.back().step);
  REQUIRE_FALSE(sink.steps.empty());
  for (const ValidationReport& v : sink.validations) CHECK(v.total_steps == sink.steps.back().total_steps);
  CHECK(sink.steps.front().step == 5);
  CHECK(sink.steps.front().epoch == 1);
  CHECK(sink.steps.front().learning_rate == doctest::Approx(1e-2 * 5 / 20));
  CHECK(sink.steps.front().gradient_norm > 0);
  CHECK(sink.steps.front().weight_per_second > 0);
  CHECK(std::abs(static_cast<double>(sink.steps.front().total_steps - trainer.step())) <= 8);
  CHECK(sink.steps.back().loss < sink.steps.front().loss);
}

TEST_CASE("interrupted and resumed training is uninterrupted training, bit by bit") {
  const EncodedCorpus corpus = reversal_corpus(150, 1), validation = reversal_corpus(20, 2);
  const TrainingOptions options = busy_options();
  auto whole = small_model(0.3);
  Recorder sink;
  Trainer uninterrupted(whole, corpus, &validation, options, sink);
  const TrainingEnd end = uninterrupted.run();
  const Outcome expected = outcome(end, whole, uninterrupted, sink.validations);
  REQUIRE(uninterrupted.step() > 12);
  REQUIRE(uninterrupted.epoch() == 3);

  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "last.safetensors";
  // In an epoch, at a validation, between two epochs, before the last step.
  for (const index_t stop_at :
       {index_t{1}, index_t{6}, index_t{uninterrupted.step() / 3}, uninterrupted.step() - 1}) {
    CAPTURE(stop_at);
    Recorder before, after;
    {
      auto model = small_model(0.3);
      std::stop_source stop;
      before.at_step = [&](index_t step) {
        if (step == stop_at) stop.request_stop();
      };
      Trainer trainer(model, corpus, &validation, options, before);
      before.at_checkpoint = [&] { save_training_state(file, trainer.state()); };
      CHECK(trainer.run(stop.get_token()) == TrainingEnd::interrupted);
      CHECK(trainer.step() == stop_at);
    }
    auto model = small_model(0.3, 77);  // other weights, until the state is loaded
    Trainer trainer(model, corpus, &validation, options, after);
    trainer.load(load_training_state<float>(file));
    const TrainingEnd resumed_end = trainer.run();
    std::vector<ValidationReport> validations = before.validations;
    validations.insert(validations.end(), after.validations.begin(), after.validations.end());
    const Outcome resumed = outcome(resumed_end, model, trainer, validations);
    CHECK(resumed.end == expected.end);
    CHECK(resumed.weights == expected.weights);
    CHECK(resumed.validations == expected.validations);
    CHECK(resumed.state == expected.state);
    CHECK(resumed.values == expected.values);
  }
}

TEST_CASE("the number of threads does not change a bit") {
  const EncodedCorpus corpus = reversal_corpus(60, 1);
  const auto train = [&](int threads) {
    const ThreadScope scope(threads);
    auto model = small_model(0.3);
    Recorder sink;
    TrainingOptions options = busy_options();
    options.loop.max_steps = 6;
    Trainer(model, corpus, nullptr, options, sink).run();
    return weights_of(model);
  };
  const std::vector<float> one = train(1);
  CHECK(one == train(3));
  CHECK(one != weights_of(small_model(0.3)));
}

TEST_CASE("a state of another training is refused, and changes nothing") {
  const EncodedCorpus corpus = reversal_corpus(30, 1), other_corpus = reversal_corpus(30, 2);
  const TrainingOptions options = busy_options();
  Recorder sink;
  auto model = small_model(0.1);
  Trainer trainer(model, corpus, nullptr, options, sink);
  TrainingOptions short_options = options;
  short_options.loop.max_steps = 2;
  auto trained = small_model(0.1, 5);
  Trainer source(trained, corpus, nullptr, short_options, sink);
  source.run();
  const TrainingState<float> state = source.state();

  const auto refusal = [&](const TrainingState<float>& s) {
    return message_of<ValueError>([&] { trainer.load(s); });
  };
  const auto with = [&](const char* key, const nlohmann::json& value) {
    TrainingState<float> changed = state;
    changed.values[key] = value;
    return changed;
  };
  const std::vector<float> before = weights_of(model);
  CHECK(contains(refusal(with("seed", 10)), "made with seed 10, cannot resume with 9"));
  CHECK(contains(refusal(with("batch_tokens", 61)), "batch_tokens 61"));
  CHECK(contains(refusal(with("accumulate", 1)), "accumulate 1"));
  CHECK(contains(refusal(with("corpus", other_corpus.fingerprint())), "corpus"));
  TrainingState<float> older = with("corpus", other_corpus.fingerprint());
  older.values.erase("corpus_identity");
  CHECK(contains(refusal(older), "(fingerprint: " + corpus.fingerprint() + ", expected 30 pairs, "));
  CHECK(contains(refusal(with("text", "source_prefix 5")), "made with text \"source_prefix 5\""));
  CHECK(contains(refusal(with("step", "many")),
                 "'step' of the training state has another type than expected: \"many\""));
  CHECK(contains(refusal(with("step", 0.5)),
                 "'step' of the training state has another type than expected: 0.5"));
  CHECK(contains(refusal(with("step", 1e300)), "another type than expected: 1e+300"));
  CHECK(contains(refusal(with("epoch", -1)), "must be 0 or above"));
  TrainingState<float> incomplete = state;
  incomplete.values.erase("snapshots");
  CHECK(contains(refusal(incomplete), "has no 'snapshots'"));
  incomplete = state;
  incomplete.tensors.erase(incomplete.tensors.begin());
  CHECK(contains(refusal(incomplete), "has no 'model."));
  incomplete = state;
  std::erase_if(incomplete.tensors, [](const auto& t) { return contains(t.first, "exp_avg_sq"); });
  CHECK(contains(refusal(incomplete), "missing"));
  TrainingState<float> misshaped = state;
  misshaped.tensors[0].second = Tensor<float>::zeros({2, 2});
  CHECK(contains(refusal(misshaped), "has shape (2, 2), must be"));
  CHECK(weights_of(model) == before);
  CHECK(trainer.step() == 0);

  trainer.load(state);
  CHECK(weights_of(model) == weights_of(trained));
  CHECK(trainer.step() == 2);

  // A state without the identity of its corpus.
  older = state;
  older.values.erase("corpus_identity");
  auto resumed = small_model(0.1);
  Trainer later(resumed, corpus, nullptr, options, sink);
  later.load(older);
  CHECK(weights_of(resumed) == weights_of(trained));
}

TEST_CASE("early stopping ends training where validation gets worse, after the best was reported") {
  const EncodedCorpus corpus = reversal_corpus(300, 1, 4, 4);
  const EncodedCorpus validation =
      reversal_corpus(30, 2, 12, 4);  // symbols never seen: the model gets surer and more wrong
  auto model = small_model(0);
  Recorder sink;
  std::vector<float> best;
  sink.at_best = [&] { best = weights_of(model); };
  Trainer trainer(model, corpus, &validation,
                  {.loop = {.epochs = 50, .validate_every = 2, .patience = 3},
                   .batch_tokens = 200,
                   .learning_rate = 1e-2,
                   .warmup = 5},
                  sink);
  CHECK(trainer.run() == TrainingEnd::early_stopping);
  REQUIRE(sink.validations.size() > 3);
  const std::size_t n = sink.validations.size();
  for (std::size_t i = 0; i < n; ++i) CHECK(sink.validations[i].best == (i < n - 3));
  CHECK(trainer.best() == sink.validations[n - 4].value);
  CHECK(sink.best == static_cast<int>(n - 3));
  // What was told to be best is what validated best, and not the last.
  auto check = small_model(0);
  std::size_t at = 0;
  for_each_parameter(check, [&](const std::string&, auto& p) {
    std::copy_n(best.begin() + static_cast<std::ptrdiff_t>(at), p.value().numel(), p.value().data());
    at += static_cast<std::size_t>(p.value().numel());
  });
  CHECK(corpus_loss(check, validation, 200) == doctest::Approx(trainer.best()).epsilon(1e-6));
  CHECK(best != weights_of(model));
}

TEST_CASE("the last snapshots are averaged at the end, and training's own weights stay") {
  const EncodedCorpus corpus = reversal_corpus(120, 1);
  TrainingOptions options = busy_options();
  options.loop.max_steps = 11;  // snapshots after 3, 6, 9 and 11
  auto model = small_model(0.1);
  Recorder sink;
  std::vector<std::vector<float>> told;
  sink.at_best = [&] { told.push_back(weights_of(model)); };
  Trainer trainer(model, corpus, nullptr, options, sink);
  CHECK(trainer.run() == TrainingEnd::max_steps);
  REQUIRE(told.size() == 5);
  CHECK(weights_of(model) == told[3]);
  double largest = 0;
  for (std::size_t i = 0; i < told[4].size(); ++i) {
    const double mean = (double{told[1][i]} + double{told[2][i]} + double{told[3][i]}) / 3;
    largest = std::max(largest, std::abs(mean - double{told[4][i]}));
  }
  CHECK(largest < 1e-7);
  CHECK(told[4] != told[3]);
  REQUIRE(sink.notices.size() == 1);
  CHECK(contains(sink.notices[0], "last 3 validations"));
}

TEST_CASE("a best value of other validation data does not count after a resume") {
  const EncodedCorpus corpus = reversal_corpus(60, 1), easy = reversal_corpus(10, 2),
                      other = reversal_corpus(10, 3);
  TrainingOptions options = busy_options();
  options.loop.max_steps = 6;
  options.warmup = 2;
  options.loop.average_last = 0;
  auto model = small_model(0);
  Trainer before(model, corpus, &easy, options);
  before.run();
  REQUIRE(std::isfinite(before.best()));
  auto same_model = small_model(0), other_model = small_model(0);
  Recorder same_sink, other_sink;
  Trainer same(same_model, corpus, &easy, options, same_sink),
      changed(other_model, corpus, &other, options, other_sink);
  same.load(before.state());
  changed.load(before.state());
  CHECK(same_sink.notices.empty());
  CHECK(std::isfinite(same.best()));
  REQUIRE(other_sink.notices.size() == 1);
  CHECK(contains(other_sink.notices[0], "the validation data has changed"));
  CHECK(changed.best() == std::numeric_limits<double>::infinity());
}

TEST_CASE("an update with a loss that is not a number is left out") {
  const EncodedCorpus corpus = reversal_corpus(60, 1);
  TrainingOptions options = busy_options();
  options.loop.max_steps = 4;
  options.warmup = 2;
  options.loop.average_last = 0;
  auto model = small_model(0);
  Recorder sink;
  std::vector<float> before, after;
  float kept = 0;
  float* weight = &first_value(model, "encoder.layers.0.self_attn.in_proj_weight");
  sink.at_step = [&](index_t step) {
    if (step == 2) {
      before = weights_of(model);
      kept = *weight;
      *weight = std::numeric_limits<float>::quiet_NaN();
    } else if (step == 3) {
      *weight = kept;
      after = weights_of(model);
    }
  };
  Trainer trainer(model, corpus, nullptr, options, sink);
  CHECK(trainer.run() == TrainingEnd::max_steps);
  CHECK(before == after);
  REQUIRE(sink.notices.size() == 1);
  CHECK(contains(sink.notices[0], "update 3 skipped: loss nan"));
  CHECK(trainer.skipped() == 1);
  CHECK(trainer.skipped_in_a_row() == 0);
  CHECK(weights_of(model) != after);
  CHECK(std::isfinite(sink.steps.back().loss));
}

TEST_CASE("training that cannot recover ends with an error") {
  const EncodedCorpus corpus = reversal_corpus(60, 1);
  TrainingOptions options = busy_options();
  options.loop.epochs = 100;
  options.loop.validate_every = 1000;  // a validation would find the parameter
  auto model = small_model(0);
  *model.projection_bias.value().data() = std::numeric_limits<float>::quiet_NaN();
  Recorder sink;
  Trainer trainer(model, corpus, nullptr, options, sink);
  CHECK(contains(message_of<ValueError>([&] { trainer.run(); }), "infinite or NaN for 20 updates in a row"));
  CHECK(sink.notices.size() == 19);
  CHECK(trainer.skipped() == 20);
  CHECK(trainer.skipped_in_a_row() == 20);
}

TEST_CASE("parameters that are not finite are no model: the validation that would save them throws") {
  const EncodedCorpus corpus = reversal_corpus(60, 1);
  for (const bool validates : {false, true}) {
    CAPTURE(validates);
    TrainingOptions options = busy_options();
    options.loop.validate_every = 2;
    auto model = small_model(0);
    Recorder sink;
    sink.at_step = [&](index_t step) {
      if (step == 2) *model.projection_bias.value().data() = std::numeric_limits<float>::infinity();
    };
    options.loop.report_every = 1;
    Trainer trainer(model, corpus, validates ? &corpus : nullptr, options, sink);
    const std::string message = message_of<ValueError>([&] { trainer.run(); });
    CHECK(contains(message, "the training diverged: parameter '"));
    CHECK(contains(message, "' is infinite or NaN after update 2; try a lower learning rate"));
    CHECK(sink.best == 0);
    CHECK(std::isfinite(trainer.last_loss()));
  }
}

TEST_CASE("limits: steps, epochs, time; the state is reported at the end") {
  const EncodedCorpus corpus = reversal_corpus(60, 1);
  const auto run = [&](TrainingOptions options, Recorder& sink) {
    auto model = small_model(0);
    Trainer trainer(model, corpus, nullptr, options, sink);
    const TrainingEnd end = trainer.run();
    return std::pair(end, trainer.step());
  };
  TrainingOptions options = busy_options();
  options.loop.average_last = 0;
  options.loop.max_steps = 5;
  Recorder steps;
  CHECK(run(options, steps) == std::pair(TrainingEnd::max_steps, index_t{5}));
  CHECK(steps.best == 2);  // after 3 and at the end
  CHECK(steps.checkpoints == 2);
  CHECK(steps.steps.back().total_steps == 5);
  options.loop.max_steps = 0;
  options.loop.epochs = 1;
  Recorder epoch;
  CHECK(run(options, epoch).first == TrainingEnd::epochs);
  options.loop.epochs = 1000000;
  options.loop.max_minutes = 0.2 / 60;
  options.loop.report_every = 1;
  Recorder time;
  CHECK(run(options, time).first == TrainingEnd::max_minutes);
  CHECK(time.steps.back().remaining_seconds < 1);
  CHECK(time.steps.back().total_steps < 1000000);
}

TEST_CASE("impossible trainings are refused") {
  const EncodedCorpus corpus = reversal_corpus(5, 1), empty;
  auto model = small_model(0);
  Recorder sink;
  const auto refusal = [&](const EncodedCorpus& c, const TrainingOptions& o) {
    return message_of<ValueError>([&] { Trainer(model, c, nullptr, o, sink); });
  };
  CHECK(contains(refusal(corpus, {.batch_tokens = -5}), "batch_tokens is -5"));
  CHECK(contains(refusal(empty, {}), "number of sentence pairs is 0"));
}

namespace {

/// Decodes without a source: its encoder gives zeros.
struct OwnEncoder : Seq2SeqTransformer<float> {
  using Seq2SeqTransformer<float>::Seq2SeqTransformer;
  mutable int encoded = 0;
  Var<float> encode(const Context<float>& ctx, const Tokens& source, const SequenceLayout& layout,
                    const AttentionMask& mask = {}, std::vector<Var<float>>* maps = nullptr) const override {
    ++encoded;
    return multiply(Seq2SeqTransformer<float>::encode(ctx, source, layout, mask, maps), 0.0f);
  }
};

}  // namespace

TEST_CASE("a derived model is trained and validated by what it overrides") {
  const EncodedCorpus corpus = reversal_corpus(30, 1), validation = reversal_corpus(10, 2);
  RandomGenerator rng(3);
  OwnEncoder model(small_model(0.1).options, rng);
  const float before = first_value(model, "encoder.layers.0.self_attn.in_proj_weight");
  Recorder sink;
  Trainer trainer(model, corpus, &validation, {.loop = {.max_steps = 3}, .batch_tokens = 60, .warmup = 0},
                  sink);
  static_assert(std::is_same_v<decltype(trainer), Trainer<OwnEncoder>>);
  CHECK(trainer.run() == TrainingEnd::max_steps);
  CHECK(model.encoded > 3);
  // The encoder's output is multiplied by 0, so its weights have a gradient of 0.
  CHECK(first_value(model, "encoder.layers.0.self_attn.in_proj_weight") == before);
  CHECK(trainer.best() == corpus_loss(model, validation, 60));
  Seq2SeqTransformer<float>& base = model;
  CHECK(trainer.best() == corpus_loss(base, validation, 60));
}

TEST_CASE("norms and biases do not decay") {
  const EncodedCorpus corpus = reversal_corpus(60, 1);
  TrainingOptions options = busy_options();
  options.loop.max_steps = 2;
  const auto trained = [&](double weight_decay, const ParameterGroups& groups) {
    auto model = small_model(0);
    options.weight_decay = weight_decay;
    options.groups = groups;
    Trainer(model, corpus, nullptr, options).run();
    return std::pair<float, float>(first_value(model, "encoder.layers.0.norm1.weight"),
                                   first_value(model, "encoder.layers.0.linear1.weight"));
  };
  const auto none = trained(0, {}), some = trained(0.5, {}),
             all = trained(0, {{.pattern = "*", .weight_decay = 0.5}});
  CHECK(some.first == doctest::Approx(none.first).epsilon(1e-4));
  CHECK(all.first < none.first - 0.001f);
  CHECK(some.second != none.second);
  CHECK(some.second == doctest::Approx(all.second).epsilon(1e-3));
}

TEST_CASE("a validation corpus and a metric are not both taken") {
  const EncodedCorpus corpus = reversal_corpus(5, 1);
  auto model = small_model(0);
  const TrainingOptions options{
      .loop = {.max_steps = 1, .validation = {.measure = [] { return 1.0; }, .name = "BLEU"}}};
  CHECK(contains(message_of<ValueError>([&] { Trainer trainer(model, corpus, &corpus, options); }),
                 "a validation corpus and the metric 'BLEU' are both given, expected only one of them"));
}

TEST_CASE("what goes wrong while batches are made ends the training with that error") {
  struct Failing final : PairSource {
    EncodedCorpus pairs = reversal_corpus(80, 1);
    index_t size() const noexcept override { return pairs.size(); }
    PairLengths lengths(index_t epoch, index_t i) const override { return pairs.lengths(epoch, i); }
    void read(index_t epoch, index_t i, EncodedPair& out) const override {
      if (i == 40) throw IoError("test", "pair 40 is damaged");
      pairs.read(epoch, i, out);
    }
    std::string fingerprint() const override { return "failing"; }
  };
  const Failing failing;
  auto model = small_model(0);
  Trainer trainer(model, failing, nullptr, {.loop = {.max_steps = 100}, .batch_tokens = 30});
  CHECK(contains(message_of<IoError>([&] { trainer.run(); }), "pair 40 is damaged"));
  CHECK(trainer.epoch() == 0);
}
