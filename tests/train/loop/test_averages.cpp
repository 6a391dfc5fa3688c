#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/optim/sgd.hpp"
#include "eigenformer/train/loop/loop.hpp"
#include "line_model.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"
#include "train/recorder.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Weights = std::pair<double, double>;

/// One batch for each update, with much noise.
Points noisy_points(index_t step) {
  RandomGenerator rng(static_cast<std::uint64_t>(step));
  Points points;
  for (int i = 0; i < 4; ++i) {
    points.x.push_back(rng.normal());
    points.y.push_back(3 * points.x.back() - 2 + 2 * rng.normal());
  }
  return points;
}

double rate(index_t) { return 0.05; }

Weights values_of(const Line& line) { return {line.slope.value().item(), line.offset.value().item()}; }

/// How far a line is from the one without noise.
double distance(const Line& line) {
  return std::hypot(values_of(line).first - 3, values_of(line).second + 2);
}

/// The weights after each update of a training without averages.
std::vector<Weights> path(index_t steps) {
  Line line;
  Sgd<double> optimizer(parameters(line));
  Recorder sink;
  std::vector<Weights> weights;
  sink.at_step = [&](index_t) { weights.push_back(values_of(line)); };
  train(parameters(line), loss_of(line), noisy_points, optimizer, rate,
        {.max_steps = steps, .validate_every = 1000, .report_every = 1}, sink);
  return weights;
}

/// The moving averages along the path.
std::vector<Weights> averages(const std::vector<Weights>& path, double decay) {
  std::vector<Weights> result;
  for (std::size_t n = 0; n < path.size(); ++n) {
    if (n == 0) {
      result.push_back(path[0]);
      continue;
    }
    const double kept = std::min(decay, (1.0 + static_cast<double>(n)) / (10.0 + static_cast<double>(n)));
    const auto mix = [&](double now, double before) { return (1 - kept) * now + kept * before; };
    result.push_back({mix(path[n].first, result.back().first), mix(path[n].second, result.back().second)});
  }
  return result;
}

void check_close_to(const Weights& found, const Weights& expected) {
  CHECK(found.first == doctest::Approx(expected.first).epsilon(1e-12));
  CHECK(found.second == doctest::Approx(expected.second).epsilon(1e-12));
}

}  // namespace

TEST_CASE("ema: validations and on_best see the average; training goes its own way") {
  const std::vector<Weights> raw = path(30), smooth = averages(raw, 0.8);
  Line line;
  Sgd<double> optimizer(parameters(line));
  Recorder sink;
  std::vector<Weights> measured, best, states, updates;
  TrainingLoop<double>* running = nullptr;
  const auto model_of = [](const TrainingState<double>& state) {
    Weights w;
    for (const auto& [name, tensor] : state.tensors) {
      if (name == "model.slope") w.first = tensor.item();
      if (name == "model.offset") w.second = tensor.item();
    }
    return w;
  };
  sink.at_step = [&](index_t) { updates.push_back(values_of(line)); };
  sink.at_best = [&] {
    best.push_back(values_of(line));
    states.push_back(model_of(running->state()));  // of training, also here
  };
  const Validation validation{.measure = [&] {
    measured.push_back(values_of(line));
    return distance(line);
  }};
  TrainingLoop loop(
      parameters(line), loss_of(line), noisy_points, optimizer, rate,
      {.max_steps = 30, .validate_every = 10, .ema_decay = 0.8, .report_every = 1, .validation = validation},
      sink);
  running = &loop;
  {
    const detail::EvaluationWeights none =
        loop.evaluation_weights();  // before the first update there is no average
    CHECK(values_of(line) == Weights{0.5, -1});
  }
  loop.run();
  CHECK(updates == raw);
  REQUIRE(measured.size() == 3);
  for (std::size_t k = 0; k < 3; ++k) check_close_to(measured[k], smooth[10 * k + 9]);
  REQUIRE(!best.empty());
  check_close_to(best[0], smooth[9]);
  CHECK(states[0] == raw[9]);
  CHECK(values_of(line) == raw.back());
  {
    const detail::EvaluationWeights outer = loop.evaluation_weights();
    check_close_to(values_of(line), smooth.back());
    {
      const detail::EvaluationWeights inner = loop.evaluation_weights();
      check_close_to(values_of(line), smooth.back());
    }
    check_close_to(values_of(line), smooth.back());
    CHECK(model_of(loop.state()) == raw.back());
    const TrainingState<double> state = loop.state();
    CHECK(contains(message_of<ValueError>([&] { loop.load(state); }), "evaluation_weights()"));
    CHECK(contains(message_of<ValueError>([&] { loop.run(); }), "evaluation_weights()"));
    check_close_to(values_of(line), smooth.back());
  }
  CHECK(values_of(line) == raw.back());
  // What it is for: of weights that noise moves about, the average is nearer to what they move about.
  const auto far = [](const Weights& w) { return std::hypot(w.first - 3, w.second + 2); };
  const std::vector<Weights> long_path = path(400), long_averages = averages(long_path, 0.98);
  double before = 0, after = 0;
  for (std::size_t k = 300; k < 400; ++k) {
    before += far(long_path[k]);
    after += far(long_averages[k]);
  }
  CHECK(after < 0.6 * before);
}

TEST_CASE("average_best: the best validations' weights are averaged; the mean is kept when it is better") {
  const std::vector<Weights> raw = path(12);
  for (const bool higher : {false, true}) {
    for (const bool keeps : {false, true}) {
      Line line;
      Sgd<double> optimizer(parameters(line));
      Recorder sink;
      std::vector<double> values{5, 2, 4, 3, 9, 2.5, keeps ? 1.5 : 2.1};  // the last is that of the mean
      if (higher) {
        for (double& v : values) v = -v;
      }
      std::size_t asked = 0;
      Weights of_mean, saved;
      const Validation validation{.measure =
                                      [&] {
                                        of_mean = values_of(line);
                                        return values.at(asked++);
                                      },
                                  .better = higher ? Better::higher : Better::lower};
      sink.at_best = [&] { saved = values_of(line); };
      TrainingLoop loop(parameters(line), loss_of(line), noisy_points, optimizer, rate,
                        {.max_steps = 12, .validate_every = 2, .average_best = 3, .validation = validation},
                        sink);
      loop.run();
      REQUIRE(asked == 7);
      // Validations 2, 4 and 6: after updates 4, 8 and 12.
      const Weights mean{(raw[3].first + raw[7].first + raw[11].first) / 3,
                         (raw[3].second + raw[7].second + raw[11].second) / 3};
      check_close_to(of_mean, mean);
      CHECK(contains(sink.notices.back(), "of the best 3 validations"));
      CHECK(loop.best() == (keeps ? values[6] : values[1]));
      check_close_to(saved, keeps ? mean : raw[3]);
      CHECK(values_of(line) == raw.back());
      // The mean is not in the state.
      loop.load(loop.state());
      CHECK(loop.best() == values[1]);
    }
  }
}

TEST_CASE("ema and average_best: a training is interrupted and resumed to the same bits") {
  const auto options_for = [](const Line& line) {
    return LoopOptions{.max_steps = 23,
                       .validate_every = 3,
                       .average_best = 3,
                       .ema_decay = 0.9,
                       .report_every = 1,
                       .validation = {.measure = [&line] { return distance(line); }}};
  };
  const auto tensors_of = [](const TrainingState<double>& state) {
    std::vector<std::pair<std::string, double>> all;
    for (const auto& [name, tensor] : state.tensors) all.emplace_back(name, tensor.item());
    return all;
  };
  struct Ended {
    std::vector<std::pair<std::string, double>> tensors;
    nlohmann::json values;
    std::vector<double> validations;
    Weights best;
  };
  const auto end_of = [&](index_t stop_at, const std::filesystem::path& file, bool resume) {
    Line line;
    Sgd<double> sgd(parameters(line), {.momentum = 0.9});
    Recorder sink;
    std::stop_source stop;
    Ended ended;
    sink.at_step = [&](index_t step) {
      if (step == stop_at) stop.request_stop();
    };
    sink.at_best = [&] { ended.best = values_of(line); };
    TrainingLoop loop(parameters(line), loss_of(line), noisy_points, sgd, rate, options_for(line), sink);
    if (resume) loop.load(load_training_state<double>(file));
    loop.run(stop.get_token());
    if (!file.empty()) save_training_state(file, loop.state());
    ended.tensors = tensors_of(loop.state());
    ended.values = loop.state().values;
    for (const auto& v : sink.validations) ended.validations.push_back(v.value);
    return ended;
  };
  const Ended whole = end_of(-1, {}, false);
  CHECK(std::count_if(whole.tensors.begin(), whole.tensors.end(),
                      [](const auto& t) { return t.first.starts_with("ema."); }) == 2);
  CHECK(whole.values.at("snapshots") == 3);
  const TemporaryFolder folder;
  for (const index_t stop_at : {index_t{1}, index_t{9}, index_t{20}}) {
    CAPTURE(stop_at);
    const auto file = folder.path() / (std::to_string(stop_at) + ".safetensors");
    const Ended first = end_of(stop_at, file, false), rest = end_of(-1, file, true);
    CHECK(rest.tensors == whole.tensors);
    CHECK(rest.values == whole.values);
    std::vector<double> validations = first.validations;
    validations.insert(validations.end(), rest.validations.begin(), rest.validations.end());
    CHECK(validations == whole.validations);
    CHECK((rest.best == Weights{} ? first.best : rest.best) == whole.best);
  }
}

TEST_CASE("ema and average_best may begin and end at a resumption") {
  Line line;
  Sgd<double> optimizer(parameters(line));
  const auto loop_with = [&](const LoopOptions& o) {
    return std::make_unique<TrainingLoop<double>>(parameters(line), loss_of(line), noisy_points, optimizer,
                                                  rate, o);
  };
  LoopOptions plain{.max_steps = 9, .validate_every = 3, .average_last = 2};
  plain.validation.measure = [&] { return distance(line); };
  LoopOptions recipes = plain;
  recipes.average_last = 0;
  recipes.average_best = 2;
  recipes.ema_decay = 0.9;
  auto loop = loop_with(plain);
  loop->run();
  const auto without = loop->state();
  recipes.max_steps = 18;
  loop = loop_with(recipes);
  loop->load(without);
  CHECK(loop->state().values.at("snapshots") == 0);
  loop->run();
  const auto with = loop->state();
  CHECK(with.values.at("ema_updates") == 9);
  CHECK(with.values.at("snapshot_costs").size() == 2);
  loop = loop_with(plain);
  loop->load(with);
  CHECK(loop->state().values.at("snapshots") == 0);
  CHECK_FALSE(loop->state().values.contains("ema_updates"));
}

TEST_CASE("averages that cannot be are refused") {
  Line line;
  Sgd<double> optimizer(parameters(line));
  const auto refusal = [&](const LoopOptions& options) {
    return message_of<ValueError>(
        [&] { train(parameters(line), loss_of(line), noisy_points, optimizer, rate, options); });
  };
  const Validation some{.measure = [] { return 1.0; }};
  CHECK(
      contains(refusal({.max_steps = 2, .average_best = 3}), "average_best is 3, which needs a validation"));
  CHECK(contains(refusal({.max_steps = 2, .average_last = 2, .average_best = 3, .validation = some}),
                 "average_last is 2 and average_best is 3, at most one"));
  CHECK(contains(refusal({.max_steps = 2, .ema_decay = 1}), "ema_decay is 1, must be in [0, 1)"));
}
