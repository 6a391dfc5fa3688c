#include "eigenformer/train/plan.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include "folders.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// As Tatoeba's German and English.
constexpr CorpusStatistics tatoeba = {
    .pairs = 164408, .distinct = 131227, .source_tokens = 1506608, .target_tokens = 1632437, .entropy = 5.75};
constexpr Seq2SeqOptions vocabulary{.source_vocab_size = 8000};

// Speeds in proportion to the operations of a token.
double proportional(const Seq2SeqOptions& model, const TrainingOptions&) {
  const auto d = static_cast<double>(model.layer.d_model);
  return 5e9 / (static_cast<double>(model.encoder.num_layers) * 28 * d * d + 8000 * d);
}

TrainingPlan plan_of(double seconds, const CorpusStatistics& corpus = tatoeba) {
  return plan_training(corpus, {.seconds = seconds, .speed = proportional, .model = vocabulary});
}

}  // namespace

TEST_CASE("corpus_statistics counts tokens, distinct targets and the entropy of target tokens") {
  EncodedCorpus corpus;
  for (const auto& target : std::vector<std::vector<std::int32_t>>{{5, 6}, {5, 6}, {6}}) {
    corpus.source.push_back(std::vector<std::int32_t>{7, 8, 9});
    corpus.target.push_back(target);
  }
  const CorpusStatistics s = corpus_statistics(corpus);
  CHECK(s.pairs == 3);
  CHECK(s.distinct == 2);
  CHECK(s.source_tokens == 9);
  CHECK(s.target_tokens == 8);  // 2 + 2 + 1 and three ends
  const double entropy =
      -(2.0 / 8 * std::log(2.0 / 8) + 3.0 / 8 * std::log(3.0 / 8) + 3.0 / 8 * std::log(3.0 / 8));
  CHECK(s.entropy == doctest::Approx(entropy));
  CHECK_THROWS_WITH_AS(static_cast<void>(corpus_statistics(EncodedCorpus{})),
                       doctest::Contains("has no pairs"), ValueError);
}

TEST_CASE("expected_loss is within its error of the trainings that it was fitted to") {
  std::ifstream file(fixtures_folder().parent_path().parent_path() / "docs/figures/training/sweep.jsonl");
  REQUIRE(file);
  std::map<std::string, std::vector<double>> errors;  // by corpus
  for (std::string line; std::getline(file, line);) {
    const auto p = nlohmann::json::parse(line);
    if (!p.at("plain").get<bool>() || p.contains("held_out")) continue;
    const CorpusStatistics corpus{.target_tokens = p.at("target_tokens"), .entropy = p.at("entropy")};
    const double loss = expected_loss(corpus, p.at("layer_weights"), p.at("updates"), p.at("batch"),
                                      p.at("dropout"), p.at("flags").value("bpe_dropout", 0.0));
    errors[p.at("corpus")].push_back(std::log(loss / p.at("best").get<double>()));
  }
  REQUIRE(errors.size() == 8);
  std::size_t near = 0;
  for (const auto& corpus : errors) {
    INFO(corpus.first);
    const std::vector<double>& of_corpus = corpus.second;
    const double mean =
        std::accumulate(of_corpus.begin(), of_corpus.end(), 0.0) / static_cast<double>(of_corpus.size());
    if (std::fabs(mean) < detail::loss_law::relative_error) ++near;
    CHECK(std::fabs(mean) < 0.35);
    // Within a corpus, what a plan compares.
    for (const double error : of_corpus) CHECK(std::fabs(error - mean) < 0.08);
  }
  CHECK(3 * near >= 2 * errors.size());
}

TEST_CASE("validations predict the loss at the end of the trainings that were measured") {
  std::ifstream file(fixtures_folder().parent_path().parent_path() / "docs/figures/training/sweep.jsonl");
  REQUIRE(file);
  std::size_t trainings = 0, near = 0;
  for (std::string line; std::getline(file, line);) {
    const auto p = nlohmann::json::parse(line);
    if (!p.contains("validations")) continue;
    TrainingPlan plan = plan_of(600);
    plan.corpus = {.target_tokens = p.at("target_tokens"), .entropy = p.at("entropy")};
    plan.model.layer.d_model = p.at("d_model");
    plan.model.layer.dim_feedforward = 4 * plan.model.layer.d_model;
    plan.model.encoder.num_layers = plan.model.decoder.num_layers = plan.model.layer.d_model == 64 ? 2 : 3;
    plan.model.layer.dropout = {.rate = p.at("dropout"), .attention = 0.0, .feed_forward = 0.0};
    REQUIRE(detail::layer_weights(plan.model) == p.at("layer_weights").get<double>());
    const double all = p.at("updates"), reached = p.at("best");
    double squares = 0, count = 0;
    for (const auto& [step, loss] : p.at("validations").get<std::vector<std::pair<double, double>>>()) {
      const auto expected = plan.expected_at_end(step, all, loss);
      CHECK(expected.has_value() == (8 * step >= all && step <= 0.8 * all));
      if (!expected) continue;
      squares += std::pow(std::log(*expected / reached), 2);
      ++count;
    }
    REQUIRE(count > 4);
    const double error = std::sqrt(squares / count);
    CHECK(error < 0.06);
    ++trainings;
    if (error < 0.03) ++near;
  }
  REQUIRE(trainings > 8);
  CHECK(3 * near >= 2 * trainings);

  TrainingPlan plan = plan_of(600);
  CHECK(*plan.expected_at_end(4000, 8000, 2.0) < *plan.expected_at_end(6000, 8000, 2.0));
  CHECK_FALSE(plan.expected_at_end(4000, 8000, 0.01));
  CHECK_FALSE(plan.expected_at_end(4000, 8000, std::numeric_limits<double>::quiet_NaN()));
  CHECK_FALSE(plan.expected_at_end(0, 0, 2.0));
  plan.corpus.entropy = 0.5;  // where the law knows nothing but the entropy
  CHECK_FALSE(plan.expected_at_end(4000, 8000, 2.0));
  plan.corpus = tatoeba;
  plan.training.loop.ema_decay = 0.999;
  CHECK_FALSE(plan.expected_at_end(4000, 8000, 2.0));
  plan.training.loop.ema_decay = 0;
  CHECK(plan.expected_at_end(4000, 8000, 2.0).has_value());
  plan.training.schedule = ScheduleKind::cosine;
  CHECK_FALSE(plan.expected_at_end(4000, 8000, 2.0));
}

TEST_CASE("expected_loss falls with tokens, and repeated tokens are worth less than new ones") {
  const double weights = 1e6;
  double before = tatoeba.entropy;
  for (const double updates : {100, 1000, 10000, 100000}) {
    const double loss = expected_loss(tatoeba, weights, updates, 1024);
    CHECK(loss < before);
    before = loss;
  }
  CorpusStatistics small = tatoeba;
  small.target_tokens /= 20;
  CHECK(expected_loss(small, weights, 5000, 1024) > 1.02 * expected_loss(tatoeba, weights, 5000, 1024));
  CHECK(expected_loss(tatoeba, 4 * weights, 10000, 1024) < expected_loss(tatoeba, weights, 10000, 1024));
  CHECK(expected_loss(tatoeba, weights, 250, 8192) > expected_loss(tatoeba, weights, 2000, 1024));
}

TEST_CASE("more time gives larger models and lower losses") {
  index_t size = 0;
  double loss = tatoeba.entropy;
  for (const double minutes : {3, 14, 60, 600}) {
    const TrainingPlan plan = plan_of(60 * minutes);
    INFO(plan.str());
    CHECK(plan.model.layer.d_model >= size);
    CHECK(plan.loss < loss);
    CHECK(plan.training.loop.max_minutes == doctest::Approx(minutes));
    CHECK(plan.training.loop.epochs == 0);
    for (const PlannedLoss& other : plan.others) CHECK(other.loss >= plan.loss);
    CHECK(plan.warnings.empty());
    size = plan.model.layer.d_model;
    loss = plan.loss;
  }
  CHECK(plan_of(180).model.layer.d_model < plan_of(36000).model.layer.d_model);
}

TEST_CASE("a small corpus gets a small model, whatever the time") {
  CorpusStatistics small = tatoeba;
  small.target_tokens = 57000;
  CHECK(plan_of(36000, small).model.layer.d_model == 64);
  small.target_tokens = 209000;
  CHECK(plan_of(36000, small).model.layer.d_model <= 128);
}

TEST_CASE("an update has no more tokens than an epoch") {
  CorpusStatistics tiny{
      .pairs = 60, .distinct = 60, .source_tokens = 500, .target_tokens = 500, .entropy = 4};
  const TrainingPlan plan = plan_training(tiny, {.epochs = 20, .model = vocabulary});
  CHECK(plan.updates == doctest::Approx(20));
  CHECK(plan.epochs == doctest::Approx(20));
  CHECK(plan_training(tiny, {.max_steps = 40, .model = vocabulary}).epochs == doctest::Approx(40));
  CHECK(contains(plan.str(), "about 20 updates of 500 target tokens (20.0 epochs)"));
}

TEST_CASE("a plan keeps what is given, and plans the rest around it") {
  TrainingBudget budget{.seconds = 600, .speed = proportional, .model = vocabulary};
  int sizes = 0;
  budget.speed = [&](const Seq2SeqOptions& model, const TrainingOptions& options) {
    ++sizes;
    CHECK(model.layer.d_model == 96);
    return proportional(model, options);
  };
  budget.given = [](Seq2SeqOptions& model, TrainingOptions& training) {
    model.layer.d_model = 96;
    model.layer.num_heads = 6;
    training.learning_rate = 1e-4;
    training.loop.validate_every = 7;
  };
  const TrainingPlan plan = plan_training(tatoeba, budget);
  CHECK(plan.model.layer.d_model == 96);
  CHECK(plan.model.layer.num_heads == 6);
  CHECK(plan.training.learning_rate == 1e-4);
  CHECK(plan.training.loop.validate_every == 7);
  CHECK(plan.model.layer.norm_first);
  CHECK(plan.training.schedule == ScheduleKind::warmup_stable_decay);
  CHECK(sizes == 1);
  CHECK(plan.others.empty());

  // What goes with a width is that of the next smaller size; heads divide it.
  budget.speed = proportional;
  struct Expected {
    index_t d_model, layers, heads, feed_forward;
    double rate;
  };
  for (const Expected& e : {Expected{256, 3, 4, 1024, 1.5e-3},
                            {300, 3, 4, 1200, 1.5e-3},
                            {130, 3, 2, 520, 3e-3},
                            {30, 2, 2, 120, 4e-3}}) {
    CAPTURE(e.d_model);
    budget.given = [&](Seq2SeqOptions& model, TrainingOptions&) { model.layer.d_model = e.d_model; };
    const TrainingPlan wide = plan_training(tatoeba, budget);
    CHECK(wide.model.layer.d_model == e.d_model);
    CHECK(wide.model.encoder.num_layers == e.layers);
    CHECK(wide.model.decoder.num_layers == e.layers);
    CHECK(wide.model.layer.num_heads == e.heads);
    CHECK(wide.model.layer.dim_feedforward == e.feed_forward);
    CHECK(wide.training.learning_rate == e.rate);
  }
}

TEST_CASE(
    "without a limit a plan ends when validations no longer improve; limits of updates and epochs hold") {
  const TrainingPlan open = plan_training(tatoeba, {.model = vocabulary});
  CHECK(open.training.loop.patience > 0);
  CHECK(open.training.loop.epochs >= 1);
  CHECK(open.tokens_per_second == 0);
  const auto given = [](Seq2SeqOptions&, TrainingOptions& training) { training.loop.patience = 9; };
  CHECK(plan_training(tatoeba, {.model = vocabulary, .given = given}).training.loop.patience == 9);
  const TrainingPlan updates = plan_training(tatoeba, {.max_steps = 1000, .model = vocabulary});
  CHECK(updates.updates == doctest::Approx(1000));
  CHECK(updates.training.loop.patience == 0);
  CHECK(updates.training.loop.max_steps == 1000);
  const TrainingPlan epochs = plan_training(tatoeba, {.epochs = 3, .model = vocabulary});
  CHECK(epochs.epochs == doctest::Approx(3));
  // A size that is given is measured alone.
  CHECK(plan_of(600).str() == plan_of(600).str());
}

TEST_CASE("a hopeless plan says so, and what would help") {
  const TrainingPlan late = plan_of(10);
  REQUIRE(late.warnings.size() == 1);
  CHECK(late.warnings[0].find("updates are too few") != std::string::npos);
  CHECK(late.warnings[0].find("would suffice") != std::string::npos);
  CorpusStatistics tiny = tatoeba;
  tiny.target_tokens = 20000;
  const TrainingPlan small = plan_of(600, tiny);
  REQUIRE_FALSE(small.warnings.empty());
  CHECK(small.warnings.back().find("only 20000 target tokens") != std::string::npos);
}

TEST_CASE("a plan takes no size that does not fit in memory, and times what fits with its batches") {
  TrainingBudget budget{.seconds = 36000, .speed = proportional, .model = vocabulary};
  const index_t unlimited = plan_training(tatoeba, budget).model.layer.d_model;
  REQUIRE(unlimited > 128);
  std::vector<index_t> asked, timed;
  budget.fits = [&](const Seq2SeqOptions& model, TrainingOptions& training) {
    asked.push_back(model.layer.d_model);
    training.batch_tokens /= 2;
    training.loop.accumulate *= 2;
    return model.layer.d_model <= 128;
  };
  budget.speed = [&](const Seq2SeqOptions& model, const TrainingOptions& training) {
    timed.push_back(model.layer.d_model);
    CHECK(training.loop.accumulate == (model.layer.d_model == 64 ? 1 : 2));
    return proportional(model, training);
  };
  const TrainingPlan plan = plan_training(tatoeba, budget);
  CHECK(asked == std::vector<index_t>{96, 128, 192});
  CHECK(timed == std::vector<index_t>{64, 96, 128});
  CHECK(plan.model.layer.d_model == 128);
  CHECK(plan.training.loop.accumulate == 1);  // plan_memory() splits the batches of the training
  CHECK(plan.does_not_fit == 192);
  CHECK(contains(plan.str(), "; d192 does not fit in memory"));

  // A given size is not questioned: there is no other.
  budget.speed = proportional;
  budget.fits = [](const Seq2SeqOptions&, TrainingOptions&) { return false; };
  for (const index_t d_model : {64, 96, 256}) {
    budget.given = [d_model](Seq2SeqOptions& model, TrainingOptions&) { model.layer.d_model = d_model; };
    const TrainingPlan given = plan_training(tatoeba, budget);
    CHECK(given.model.layer.d_model == d_model);
    CHECK(given.does_not_fit == 0);
    CHECK(given.others.empty());
  }
  budget.given = nullptr;
  const TrainingPlan smallest = plan_training(tatoeba, budget);
  CHECK(smallest.model.layer.d_model == 64);
  CHECK(smallest.does_not_fit == 96);
}

TEST_CASE("plan_training refuses budgets that mean nothing") {
  CHECK_THROWS_WITH_AS(static_cast<void>(plan_training(tatoeba, {.seconds = 60, .model = vocabulary})),
                       doctest::Contains("needs speed"), ValueError);
  CHECK_THROWS_WITH_AS(static_cast<void>(plan_training(tatoeba, {.max_steps = -1, .model = vocabulary})),
                       doctest::Contains("negative"), ValueError);
  CHECK_THROWS_AS(static_cast<void>(plan_training({}, {.max_steps = 1, .model = vocabulary})), ValueError);
}

TEST_CASE("measured_speed trains a few updates and counts target tokens; a plan of it trains") {
  EncodedCorpus corpus;
  for (int i = 0; i < 40; ++i) {
    corpus.source.push_back(std::vector<std::int32_t>{4, 5, 6});
    corpus.target.push_back(std::vector<std::int32_t>{6, 5, 4});
  }
  const TrainingSpeed speed = measured_speed(corpus);
  TrainingBudget budget{.max_steps = 2, .speed = speed, .model = {.source_vocab_size = 8}};
  budget.given = [](Seq2SeqOptions& model, TrainingOptions&) {
    model.layer = {.d_model = 8, .num_heads = 2, .dim_feedforward = 16, .dropout = {0}};
  };
  TrainingPlan plan = plan_training(corpus_statistics(corpus), budget);
  CHECK(speed(plan.model, plan.training) > 0);
  RandomGenerator rng(1);
  Seq2SeqTransformer<float> model(plan.model, rng);
  plan.training.loop.validate_every = 0;
  Trainer trainer(model, corpus, nullptr, plan.training);
  CHECK(trainer.run() == TrainingEnd::max_steps);
}

TEST_CASE("a plan has dropout where R-Drop needs it") {
  TrainingBudget budget{.max_steps = 100, .model = vocabulary};
  CHECK(plan_training(tatoeba, budget).model.layer.dropout.rate == 0);
  budget.training.r_drop.weight = 5;
  CHECK(plan_training(tatoeba, budget).model.layer.dropout.rate == 0.1);
}

TEST_CASE("a plan has more dropout where a large model reads its text many times") {
  const CorpusStatistics multi30k = {
      .pairs = 29000, .distinct = 29000, .source_tokens = 414043, .target_tokens = 457325, .entropy = 6.185};
  const auto rate = [&](index_t width, index_t epochs) {
    TrainingBudget budget{.epochs = epochs, .model = vocabulary};
    budget.given = [&](Seq2SeqOptions& model, TrainingOptions&) { model.layer.d_model = width; };
    return plan_training(multi30k, budget).model.layer.dropout.rate;
  };
  CHECK(rate(192, 2) == 0);
  CHECK(rate(192, 8) == 0.1);
  CHECK(rate(192, 20) == 0.2);
  CHECK(rate(192, 36) == 0.3);
  CHECK(rate(64, 36) == 0.2);
}

TEST_CASE("the share of a processor is about one half beside another thread on it") {
  detail::ProcessorShare share;
  const auto spin = [](std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  spin(std::chrono::milliseconds(20));
  const double alone = share.since_last();
  CHECK(alone > 0);
  CHECK(alone <= 1);
#if defined(__linux__)
  double ran = 0;
  if (std::ifstream("/proc/self/schedstat") >> ran && ran > 0) {
    cpu_set_t allowed, one;
    REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    }
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);  // which the thread inherits
    (void)share.since_last();
    std::thread other([&] { spin(std::chrono::milliseconds(300)); });
    spin(std::chrono::milliseconds(300));
    const double beside = share.since_last();
    other.join();
    CHECK(sched_setaffinity(0, sizeof allowed, &allowed) == 0);
    CHECK(beside < 0.7);
    CHECK(beside >= 0.1);
  }
#endif
}
