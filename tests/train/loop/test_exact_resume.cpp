#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/schedule.hpp"
#include "eigenformer/train/loop/loop.hpp"
#include "line_model.hpp"
#include "test_tools.hpp"
#include "train/recorder.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// All that a training leaves: bits of its state, of the model told to be the best, and its scheduled
/// validations.
struct Left {
  std::map<std::string, std::vector<double>> tensors;
  std::string values;
  std::vector<double> best_model;
  double best = 0;
  bool operator==(const Left&) const = default;
};

using Schedule = std::function<double(index_t, ExpectedSteps)>;

struct Rates {
  Schedule schedule;
  bool total;
  std::map<index_t, double>& seen;
  bool uses_total() const { return total; }
  double operator()(index_t step, ExpectedSteps expected) const {
    return seen[step] = schedule(step, expected);
  }
};

/// One training of a line, in as many parts as there are options: each goes on from the state that the one
/// before told to save last.
class Parts {
 public:
  Parts() : schedule_([](index_t, ExpectedSteps) { return 0.05; }) {}
  explicit Parts(Schedule schedule) : uses_total(true), schedule_(std::move(schedule)) {}
  bool uses_total = false;
  index_t num_batches = 7;
  std::function<void(index_t)> at_update = [](index_t) {};
  std::vector<TrainingEnd> ends;
  std::vector<TrainingState<double>> checkpoints;
  std::map<index_t, double> rates;

  Left run(const std::vector<LoopOptions>& parts) {
    const std::vector<Points> batches = batches_of_points(num_batches);
    Left left;
    for (LoopOptions options : parts) {
      Line line;
      Adam<double> optimizer(parameters(line));
      Recorder sink;
      // Rises and falls, so that some validations are the best and some are not.
      options.validation.measure = [&] {
        return std::abs(line.slope.value().item() - 0.3) + 0.1 * std::abs(line.offset.value().item());
      };
      options.report_every = 1;
      const Rates rate{schedule_, uses_total, rates};
      TrainingLoop loop(parameters(line), loss_of(line), batches, optimizer, rate, options, sink);
      sink.at_step = [&](index_t step) { at_update(step); };
      sink.at_best = [&] { left.best_model = {line.slope.value().item(), line.offset.value().item()}; };
      sink.at_checkpoint = [&] { checkpoints.push_back(copy(loop.state())); };
      if (!checkpoints.empty()) loop.load(checkpoints.back());
      ends.push_back(loop.run());
      // What asks for the state after run() gets what was told to be saved last.
      CHECK(loop.state().values == checkpoints.back().values);
      left.best = loop.best();
    }
    for (const auto& [name, tensor] : checkpoints.back().tensors) left.tensors[name] = values(tensor);
    left.values = checkpoints.back().values.dump();
    return left;
  }

 private:
  static TrainingState<double> copy(const TrainingState<double>& state) {
    TrainingState<double> own{{}, state.values};
    for (const auto& [name, tensor] : state.tensors) own.tensors.emplace_back(name, tensor.clone());
    return own;
  }
  Schedule schedule_;
};

}  // namespace

TEST_CASE("a training that a limit ended goes on as if it had not: steps, epochs, patience, averages") {
  // 7 batches in threes: 3 updates an epoch, the last of one batch.
  const LoopOptions whole{
      .max_steps = 23, .accumulate = 3, .validate_every = 4, .patience = 9, .average_last = 3, .seed = 5};
  const Left expected = Parts().run({whole});
  for (const index_t first : {index_t{1}, index_t{4}, index_t{7}, index_t{11}, index_t{22}}) {
    CAPTURE(first);
    LoopOptions cut = whole;
    cut.max_steps = first;
    CHECK(Parts().run({cut, whole}) == expected);
    CHECK(Parts().run({cut, cut, whole}) == expected);  // resumed where it had ended
  }
  LoopOptions epochs = whole;
  for (const index_t count : {index_t{1}, index_t{3}}) {
    CAPTURE(count);
    epochs.epochs = count;
    Parts parts;
    CHECK(parts.run({epochs, whole}) == expected);
    CHECK(parts.ends.front() == TrainingEnd::epochs);
  }
  // Where validations are at the ends of epochs.
  LoopOptions by_epoch{.epochs = 6, .validate_every = 0, .average_last = 2};
  LoopOptions some = by_epoch;
  some.epochs = 2;
  LoopOptions within = by_epoch;
  within.max_steps = 10;
  const Left six = Parts().run({by_epoch});
  CHECK(Parts().run({some, by_epoch}) == six);
  CHECK(Parts().run({within, some, by_epoch}) == six);
}

TEST_CASE("a training that ran out of patience goes on with more of it") {
  LoopOptions patient{.max_steps = 120, .validate_every = 2, .patience = 30, .average_last = 2};
  LoopOptions hasty = patient;
  hasty.patience = 2;
  Parts parts;
  const Left resumed = parts.run({hasty, patient});
  CHECK(parts.ends.front() == TrainingEnd::early_stopping);
  Parts uninterrupted;
  CHECK(resumed == uninterrupted.run({patient}));
  CHECK(parts.ends.back() == uninterrupted.ends.back());
}

TEST_CASE("a training that time cut goes on as if there were no clock") {
  const LoopOptions whole{.max_steps = 40, .validate_every = 6, .average_last = 2};
  LoopOptions cut = whole;
  cut.max_minutes = 0.02 / 60;
  Parts parts;
  parts.at_update = [](index_t) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
  const Left resumed = parts.run({cut, cut, whole});
  CHECK(parts.ends.front() == TrainingEnd::max_minutes);
  CHECK(resumed == Parts().run({whole}));
}

TEST_CASE(
    "what a time limit allows is judged at the end of an epoch, too, and the training goes on from there") {
  const LoopOptions options{.max_minutes = 0.05 / 60, .validate_every = 1000};
  Parts parts([](index_t step, ExpectedSteps total) { return schedule::cosine(step, 0.05, 3, total.count); });
  parts.num_batches = 1;
  parts.at_update = [](index_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  parts.run({options});
  const TrainingState<double> judged = parts.checkpoints.front();
  REQUIRE(judged.values.at("expected_steps").get<index_t>() > 0);
  CHECK(judged.values.at("batch").get<index_t>() == 0);
  CHECK(judged.values.at("epoch").get<index_t>() == judged.values.at("step").get<index_t>());
  parts.checkpoints = {judged};
  CHECK_NOTHROW(parts.run({options}));
}

TEST_CASE("the state with what a time limit allows is saved after the validation of its update") {
  const LoopOptions options{.max_minutes = 0.05 / 60, .validate_every = 1};
  Parts parts([](index_t step, ExpectedSteps total) { return schedule::cosine(step, 0.05, 3, total.count); });
  parts.at_update = [](index_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  parts.run({options});
  bool judged = false;
  for (const TrainingState<double>& state : parts.checkpoints) {
    judged = judged || state.values.contains("expected_steps");
    CHECK(state.values.at("validated_step") == state.values.at("step"));
  }
  CHECK(judged);
}

TEST_CASE("what a time limit allows is judged once, is in the state, and rates follow it alone") {
  const auto cosine = [](index_t step, ExpectedSteps total) {
    return schedule::cosine(step, 0.05, 3, total.count);
  };
  const LoopOptions options{.max_minutes = 0.3 / 60, .validate_every = 30};
  Parts first(cosine);
  // Slow until it is judged, then as fast as can be: by the clock there would be many more updates.
  first.at_update = [](index_t step) {
    if (step <= 20) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  const Left expected = first.run({options});
  CHECK(first.ends.front() == TrainingEnd::max_minutes);
  const TrainingState<double> judged = first.checkpoints.front();
  const auto total = judged.values.at("expected_steps").get<index_t>();
  CHECK(judged.values.at("step").get<index_t>() >= 2);
  CHECK(total > 25);
  CHECK(first.rates.rbegin()->first == total);  // where the schedule ends, so does the training
  CHECK(first.rates.rbegin()->second == 0.0);
  for (const auto& [step, rate] : first.rates) {
    if (step > judged.values.at("step").get<index_t>()) CHECK(rate == schedule::cosine(step, 0.05, 3, total));
  }
  // Resumed on a machine of another speed.
  Parts second(cosine);
  second.checkpoints.push_back(judged);
  second.at_update = [&](index_t step) {
    if (step % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  CHECK(second.run({options}) == expected);
  // With time of its own after that, a new run is judged anew.
  Parts third(cosine);
  third.checkpoints.push_back(first.checkpoints.back());
  third.run({options});
  CHECK(third.checkpoints.back().values.at("step").get<index_t>() > total);
}

TEST_CASE("a Trainer that was cut within an epoch and an update of several batches goes on on more threads") {
  const EncodedCorpus corpus = reversal_corpus(90, 1), validation = reversal_corpus(10, 2);
  const auto run = [&](const std::vector<std::pair<index_t, int>>& parts) {
    TrainingState<float> state;
    std::vector<float> weights;
    for (const auto& [steps, threads] : parts) {
      const ThreadScope scope(threads);
      auto model = small_model(0.2f);
      Recorder sink;
      Trainer trainer(model, corpus, &validation,
                      {.loop = {.max_steps = steps, .accumulate = 3, .validate_every = 3, .average_last = 2},
                       .batch_tokens = 60,
                       .warmup = 4},
                      sink);
      if (!state.tensors.empty()) trainer.load(state);
      trainer.run();
      state = trainer.state();
      for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
      weights = weights_of(model);
    }
    std::map<std::string, std::vector<float>> all{{"weights", weights}};
    for (const auto& [name, tensor] : state.tensors) all[name] = values(tensor);
    return std::pair(all, state.values);
  };
  CHECK(run({{4, 1}, {5, 3}, {8, 2}}) == run({{8, 1}}));
}
