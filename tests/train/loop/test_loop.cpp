#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/sgd.hpp"
#include "isa.hpp"
#include "line_model.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "train/recorder.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

double constant_rate(index_t) { return 0.05; }

/// Slope and offset after gradient descent on the batches, epoch by epoch, `accumulate` batches an update.
std::pair<double, double> plain_descent(const std::vector<Points>& batches, int epochs,
                                        std::size_t accumulate, double clip) {
  double slope = 0.5, offset = -1;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (std::size_t first = 0; first < batches.size(); first += accumulate) {
      const std::size_t last = std::min(first + accumulate, batches.size());
      double ds = 0, d0 = 0, n = 0;
      for (std::size_t k = first; k < last; ++k) {
        for (std::size_t i = 0; i < batches[k].x.size(); ++i) {
          const double error = slope * batches[k].x[i] + offset - batches[k].y[i];
          ds += 2 * error * batches[k].x[i];
          d0 += 2 * error;
          n += 1;
        }
      }
      const double norm = std::hypot(ds / n, d0 / n);
      const double scale = clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1;
      slope -= 0.05 * scale * ds / n;
      offset -= 0.05 * scale * d0 / n;
    }
  }
  return {slope, offset};
}

}  // namespace

TEST_CASE("train descends as a plain loop does: epochs, accumulation by weight, clipping") {
  const std::vector<Points> batches = batches_of_points(7);
  for (const double clip : {0.0, 1.5}) {
    for (const index_t accumulate : {index_t{1}, index_t{3}}) {
      CAPTURE(clip);
      CAPTURE(accumulate);
      Line line;
      Sgd<double> optimizer(parameters(line));
      Recorder sink;
      const auto weighted = WeightedLoss{loss_of(line), [](const Points& p) { return p.x.size(); }};
      const TrainingResult result =
          train(parameters(line), weighted, batches, optimizer, constant_rate,
                {.epochs = 5, .accumulate = accumulate, .clip_norm = clip, .report_every = 1}, sink);
      CHECK(result.end == TrainingEnd::epochs);
      CHECK(result.steps == (accumulate == 1 ? 35 : 15));
      CHECK(result.skipped == 0);
      const auto [slope, offset] = plain_descent(batches, 5, static_cast<std::size_t>(accumulate), clip);
      CHECK(line.slope.value().item() == doctest::Approx(slope).epsilon(1e-12));
      CHECK(line.offset.value().item() == doctest::Approx(offset).epsilon(1e-12));
      REQUIRE(sink.steps.size() == static_cast<std::size_t>(result.steps));
      CHECK(sink.steps.front().total_steps == result.steps);
      CHECK(sink.steps.back().epoch == 5);
      CHECK(sink.steps.back().loss < sink.steps.front().loss);
      CHECK(sink.steps.back().learning_rate == 0.05);
      CHECK(sink.best == 1);  // the latest weights, at the end
    }
  }
}

TEST_CASE("batches may come from a range, from epochs or from a function of the update, to the same end") {
  const std::vector<Points> batches = batches_of_points(6);
  const auto run = [&](auto&& source, const LoopOptions& options) {
    Line line;
    Adam<double> optimizer(parameters(line));
    train(parameters(line), loss_of(line), source, optimizer, constant_rate, options);
    return std::pair(line.slope.value().item(), line.offset.value().item());
  };
  struct Epochs {
    const std::vector<Points>& all;
    index_t num_batches(index_t) const { return 3; }
    Points batch(index_t epoch, index_t k) const {
      return all[static_cast<std::size_t>(3 * (epoch % 2) + k)];
    }
  };
  const auto expected = run(batches, {.max_steps = 9});
  CHECK(run(std::vector<Points>(batches), {.max_steps = 9}) == expected);
  CHECK(run(Epochs{batches}, {.epochs = 3}) == expected);
  const auto one = [&](index_t step) { return batches[static_cast<std::size_t>((step - 1) % 6)]; };
  CHECK(run(one, {.max_steps = 9}) == expected);
  const auto two = [&](index_t step) {
    const auto k = static_cast<std::size_t>(2 * ((step - 1) % 3));
    return std::vector<Points>{batches[k], batches[k + 1]};
  };
  CHECK(run(two, {.max_steps = 9}) == run(batches, {.max_steps = 9, .accumulate = 2}));
  CHECK(run(batches, {.max_steps = 10}) != expected);
}

TEST_CASE("bf16 is what products are in where it is faster, and float32 elsewhere") {
  for_each_isa([] {
    Line line;
    Sgd<double> optimizer(parameters(line));
    Recorder sink;
    std::vector<GemmPrecision> seen;
    const auto loss = [&](const Context<double>& ctx, const Points& points) {
      seen.push_back(ctx.precision());
      return line.loss(ctx, points);
    };
    const auto batches = batches_of_points(2);
    LoopOptions options{.epochs = 1};
    for (const auto wanted : {GemmPrecision::full, GemmPrecision::bf16}) {
      options.precision = wanted;
      train(parameters(line), loss, batches, optimizer, constant_rate, options, sink);
      REQUIRE(!seen.empty());
      const bool bf16 = wanted == GemmPrecision::bf16 && bf16_products_pay();
      for (const auto precision : seen)
        CHECK(precision == (bf16 ? GemmPrecision::bf16 : GemmPrecision::full));
      seen.clear();
    }
  });
}

TEST_CASE("a schedule gets the number of the update, and on request the expected number of updates") {
  const std::vector<Points> batches = batches_of_points(4);
  Line line;
  Sgd<double> optimizer(parameters(line));
  Recorder sink;
  train(
      parameters(line), loss_of(line), batches, optimizer,
      [](index_t step, ExpectedSteps total) { return schedule::cosine(step, 0.1, 2, total.count); },
      {.epochs = 3, .report_every = 1}, sink);
  REQUIRE(sink.steps.size() == 12);
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(sink.steps[i].learning_rate == schedule::cosine(static_cast<index_t>(i) + 1, 0.1, 2, 12));
  }
}

TEST_CASE("any training is interrupted and resumed to the same bits") {
  const auto batch = [](index_t step) { return batches_of_points(1, static_cast<std::uint64_t>(step)); };
  const LoopOptions options{.max_steps = 23, .validate_every = 4, .average_last = 2, .report_every = 1};
  const auto values_of = [](const Line& line) {
    return std::pair(line.slope.value().item(), line.offset.value().item());
  };
  Line whole;
  Sgd<double> optimizer(parameters(whole), {.momentum = 0.9});
  TrainingLoop uninterrupted(parameters(whole), loss_of(whole), batch, optimizer, constant_rate, options);
  CHECK(uninterrupted.run() == TrainingEnd::max_steps);

  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "last.safetensors";
  for (const index_t stop_at : {index_t{3}, index_t{8}, index_t{22}}) {
    CAPTURE(stop_at);
    {
      Line line;
      Sgd<double> sgd(parameters(line), {.momentum = 0.9});
      Recorder sink;
      std::stop_source stop;
      sink.at_step = [&](index_t step) {
        if (step == stop_at) stop.request_stop();
      };
      TrainingLoop loop(parameters(line), loss_of(line), batch, sgd, constant_rate, options, sink);
      CHECK(loop.run(stop.get_token()) == TrainingEnd::interrupted);
      save_training_state(file, loop.state());
    }
    Line line;
    Sgd<double> sgd(parameters(line), {.momentum = 0.9});
    TrainingLoop loop(parameters(line), loss_of(line), batch, sgd, constant_rate, options);
    loop.load(load_training_state<double>(file));
    CHECK(loop.step() == stop_at);
    CHECK(loop.run() == TrainingEnd::max_steps);
    CHECK(values_of(line) == values_of(whole));
    CHECK(loop.state().values == uninterrupted.state().values);
  }
}

TEST_CASE("a metric where higher is better decides what is best and when to stop") {
  const std::vector<Points> batches = batches_of_points(4);
  const std::vector<double> scores{10, 30, 20, 40, 35, 40, 12};
  std::size_t asked = 0;
  Line line;
  Sgd<double> optimizer(parameters(line));
  Recorder sink;
  const Validation bleu{
      .measure = [&] { return scores.at(asked++); }, .better = Better::higher, .name = "BLEU"};
  TrainingLoop loop(parameters(line), loss_of(line), batches, optimizer, constant_rate,
                    {.epochs = 100, .validate_every = 2, .patience = 3, .validation = bleu}, sink);
  CHECK(std::isinf(loop.best()));
  CHECK(loop.best() < 0);
  CHECK(loop.run() == TrainingEnd::early_stopping);
  REQUIRE(sink.validations.size() == 7);
  const std::vector<bool> best{true, true, false, true, false, false, false};
  for (std::size_t i = 0; i < 7; ++i) {
    CHECK(sink.validations[i].name == "BLEU");
    CHECK(sink.validations[i].value == scores[i]);
    CHECK(sink.validations[i].best == best[i]);
  }
  CHECK(sink.best == 3);
  CHECK(loop.best() == 40);

  // What was best is not comparable with another metric.
  const auto state = loop.state();
  TrainingLoop other(parameters(line), loss_of(line), batches, optimizer, constant_rate,
                     {.epochs = 100, .validation = {.measure = [] { return 1.0; }}});
  CHECK(contains(message_of<ValueError>([&] { other.load(state); }),
                 "made with validation \"BLEU\", cannot resume with \"loss\""));
}

TEST_CASE(
    "a mean of weights that validates worse is not the best, and an error of a validation restores the "
    "weights") {
  const std::vector<Points> batches = batches_of_points(4);
  for (const bool fails : {false, true}) {
    Line line;
    Sgd<double> optimizer(parameters(line));
    Recorder sink;
    int asked = 0;
    const auto measure = [&] {
      if (++asked == 3 && fails) throw ValueError("test", "no");
      return double{static_cast<double>(asked)};
    };
    TrainingLoop loop(
        parameters(line), loss_of(line), batches, optimizer, constant_rate,
        {.max_steps = 4, .validate_every = 2, .average_last = 2, .validation = {.measure = measure}}, sink);
    double last = 0;
    sink.at_checkpoint = [&] { last = line.slope.value().item(); };
    if (fails) {
      CHECK_THROWS_AS(loop.run(), ValueError);
    } else {
      CHECK(loop.run() == TrainingEnd::max_steps);
      CHECK(sink.validations.size() == 3);
    }
    CHECK(sink.best == 1);
    CHECK(line.slope.value().item() == last);
  }
}

TEST_CASE("impossible loops are refused") {
  Line line;
  Sgd<double> optimizer(parameters(line));
  const std::vector<Points> batches = batches_of_points(4);
  const auto function = [&](index_t) { return batches[0]; };
  const auto refusal = [&](auto&& source, const LoopOptions& options) {
    return message_of<ValueError>(
        [&] { train(parameters(line), loss_of(line), source, optimizer, constant_rate, options); });
  };
  CHECK(contains(refusal(batches, {}), "epochs, max_steps and max_minutes are all 0"));
  CHECK(contains(refusal(batches, {.max_steps = -2}), "[training] max_steps is -2, must not be negative"));
  CHECK(
      contains(refusal(batches, {.max_steps = 2, .patience = 3}), "patience is 3, which needs a validation"));
  CHECK(contains(refusal(function, {.max_steps = 2, .accumulate = 3}),
                 "accumulate is 3, must be 1 if a function"));
  CHECK(contains(refusal(function, {.epochs = 2}),
                 "have no epochs: max_steps or max_minutes must be positive"));
  CHECK(contains(refusal(std::vector<Points>{}, {.epochs = 2}), "epoch 0 has 0 batches, must be at least 1"));

  Line twin;
  auto both = parameters(line);
  both.push_back(twin.slope.handle());
  Sgd<double> confused(both);
  TrainingLoop loop(both, loss_of(line), batches, confused, constant_rate, {.max_steps = 1});
  CHECK(contains(message_of<ValueError>([&] { (void)loop.state(); }), "two parameters are named 'slope'"));
}
