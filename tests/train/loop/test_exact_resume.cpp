#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <stop_token>
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
  double from;  // the part after which it decays; above 1: it does not
  std::map<index_t, double>& seen;
  bool uses_total() const { return total; }
  bool follows_total() const { return total && from > 1; }
  double decays_from() const { return from; }
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
  /// With warm-up, stable rate and decay.
  static Parts decaying() {
    Parts parts([](index_t step, ExpectedSteps total) {
      return schedule::constant(step, 0.05, 3) * schedule::decay(total.done);
    });
    parts.decays_from = 0.8;
    return parts;
  }
  bool uses_total = false;
  double decays_from = 2;
  index_t num_batches = 7;
  index_t stop_at = -1, decay_at = -1;  // updates of the first part
  std::function<void(index_t)> at_update = [](index_t) {};
  std::vector<TrainingEnd> ends;
  std::vector<TrainingState<double>> checkpoints, before_decay;
  std::vector<std::string> notices;
  std::map<index_t, double> rates;

  Left run(const std::vector<LoopOptions>& parts) {
    const std::vector<Points> batches = batches_of_points(num_batches);
    Left left;
    for (LoopOptions options : parts) {
      std::stop_source stop, decay;
      Line line;
      Adam<double> optimizer(parameters(line));
      Recorder sink;
      // Rises and falls, so that some validations are the best and some are not.
      options.validation.measure = [&] {
        return std::abs(line.slope.value().item() - 0.3) + 0.1 * std::abs(line.offset.value().item());
      };
      options.report_every = 1;
      const Rates rate{schedule_, uses_total, decays_from, rates};
      TrainingLoop loop(parameters(line), loss_of(line), batches, optimizer, rate, options, sink);
      sink.at_step = [&](index_t step) {
        at_update(step);
        if (ends.empty() && step == stop_at) stop.request_stop();
        if (ends.empty() && step == decay_at) decay.request_stop();
      };
      sink.at_best = [&] { left.best_model = {line.slope.value().item(), line.offset.value().item()}; };
      sink.at_checkpoint = [&] { checkpoints.push_back(copy(loop.state())); };
      sink.at_decay = [&] {
        before_decay.push_back(copy(loop.state()));
        checkpoints.push_back(before_decay.back());
      };
      if (!checkpoints.empty()) {
        const bool before = !before_decay.empty() && loop.resumes_before_decay(checkpoints.back());
        loop.load(before ? before_decay.back() : checkpoints.back());
      }
      ends.push_back(loop.run(stop.get_token(), decay.get_token()));
      notices.insert(notices.end(), sink.notices.begin(), sink.notices.end());
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

TEST_CASE("what a time limit allows is corrected as the run goes, and the time is used") {
  const auto cosine = [](index_t step, ExpectedSteps total) {
    return schedule::cosine(step, 0.05, 3, std::max<index_t>(total.count, 4));
  };
  const LoopOptions options{.max_minutes = 0.3 / 60, .validate_every = 30};
  Parts first(cosine);
  // Slow until it is judged, then as fast as can be.
  first.at_update = [](index_t step) {
    if (step <= 20) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  first.run({options});
  CHECK(first.ends.front() == TrainingEnd::max_minutes);
  const TrainingState<double> judged = first.checkpoints.front();
  const auto total = judged.values.at("expected_steps").get<index_t>();
  const auto step = judged.values.at("step").get<index_t>();
  CHECK(total > step);
  CHECK(first.rates.rbegin()->first > total);        // once, the training ended there
  CHECK(first.rates.rbegin()->second < 0.5 * 0.05);  // of the longer training
  CHECK(first.rates.at(step + 1) == schedule::cosine(step + 1, 0.05, 3, total));
  REQUIRE(first.notices.size() >= 2);
  CHECK(first.notices[0] ==
        "the time limit allows about " + std::to_string(total) + " updates at the speed so far");
  CHECK(contains(first.notices[1], " updates, not " + std::to_string(total) + ": the learning rate follows"));
  // Until it has an estimate of its own, a resumed training uses the saved one.
  Parts second(cosine);
  second.checkpoints.push_back(judged);
  second.run({options});
  CHECK(second.rates.at(step + 1) == first.rates.at(step + 1));
}

TEST_CASE("a training whose rates follow the limit says so when it is resumed with another one") {
  Parts parts([](index_t step, ExpectedSteps total) { return schedule::cosine(step, 0.05, 3, total.count); });
  const LoopOptions short_one{.max_steps = 10}, long_one{.max_steps = 20};
  parts.run({short_one, short_one});
  CHECK(parts.notices.empty());
  parts.run({long_one});
  REQUIRE(parts.notices.size() == 1);
  CHECK(
      parts.notices[0] ==
      "the learning rate was planned for 10 updates and now for 20: the result will differ from that of one "
      "training with this limit");
}

TEST_CASE(
    "a training that has decayed goes on from the state before, to the bits of one with the later end") {
  const LoopOptions whole{.max_steps = 30, .accumulate = 3, .validate_every = 4, .average_last = 2};
  const Left expected = Parts::decaying().run({whole});
  for (const index_t first : {index_t{1}, index_t{5}, index_t{11}, index_t{20}, index_t{29}}) {
    CAPTURE(first);
    LoopOptions cut = whole;
    cut.max_steps = first;
    Parts parts = Parts::decaying();
    CHECK(parts.run({cut, whole}) == expected);
    // The last decay is over 24 to 30, the rate before it the peak.
    CHECK(parts.before_decay.back().values.at("step") == 24);
    CHECK(parts.rates.at(24) == 0.05);
    CHECK(parts.rates.at(25) == 0.05);
    CHECK(parts.rates.at(28) == doctest::Approx(0.05 * (1 - std::sqrt(0.5))));
    CHECK(Parts::decaying().run({cut, cut, whole}) == expected);
    CHECK(std::count_if(parts.notices.begin(), parts.notices.end(), [](const std::string& notice) {
            return contains(notice, "the learning rate decays until the end: about ");
          }) == (first == 1 ? 1 : 2));  // one update has no part before its end
  }
  for (const index_t stop : {index_t{3}, index_t{24}, index_t{27}}) {  // before, at and in the decay
    CAPTURE(stop);
    Parts parts = Parts::decaying();
    parts.stop_at = stop;
    CHECK(parts.run({whole, whole}) == expected);
    CHECK(parts.ends.front() == TrainingEnd::interrupted);
  }
  // Asked to finish after 12 updates, it decays over the last fifth of 15.
  Parts early = Parts::decaying();
  early.decay_at = 12;
  CHECK(early.run({whole, whole}) == expected);
  CHECK(early.ends.front() == TrainingEnd::early_decay);
  CHECK(early.before_decay.front().values.at("step") == 12);
  CHECK(contains(early.notices.front(), "about 3 updates, "));
  // Without the state before the decay it is not the same, and says so.
  Parts without = Parts::decaying();
  LoopOptions cut = whole;
  cut.max_steps = 10;
  without.run({cut});
  without.before_decay.clear();
  CHECK(without.run({whole}) != expected);
  CHECK(std::any_of(without.notices.begin(), without.notices.end(), [](const std::string& notice) {
    return contains(notice, "the learning rate had decayed since update 8 and rises again");
  }));
  // A schedule without a decay only stops.
  Parts constant;
  constant.decay_at = 5;
  constant.run({whole});
  CHECK(constant.ends.front() == TrainingEnd::interrupted);
}

TEST_CASE("a schedule that decays at the end does so before patience ends the training, too") {
  LoopOptions patient{.max_steps = 120, .validate_every = 2, .patience = 30};
  LoopOptions hasty = patient;
  hasty.patience = 2;
  Parts parts = Parts::decaying();
  (void)parts.run({hasty});
  CHECK(parts.ends.front() == TrainingEnd::early_stopping);
  REQUIRE(parts.before_decay.size() == 1);
  const auto from = parts.before_decay[0].values.at("step").get<index_t>();
  CHECK(parts.rates.at(from) == 0.05);
  CHECK(parts.rates.rbegin()->first == (5 * from + 3) / 4);  // four fifths of it are over at `from`
  CHECK(parts.rates.rbegin()->second < 0.5 * 0.05);
  // Interrupted in the decay, and resumed when it had ended, it comes to the same end.
  for (const index_t stop : {from + 1, index_t{-1}}) {
    CAPTURE(stop);
    Parts again = Parts::decaying();
    again.stop_at = stop;
    CHECK(again.run({hasty, hasty}) == Parts::decaying().run({hasty}));
    CHECK(again.ends.back() == TrainingEnd::early_stopping);
  }
  // A lower limit than it has reached leaves the end as it was.
  const LoopOptions whole{.max_steps = 30, .validate_every = 4};
  LoopOptions lower = whole;
  lower.max_steps = 12;
  Parts over = Parts::decaying();
  CHECK(over.run({whole, lower}).tensors == Parts::decaying().run({whole}).tensors);
  // With more patience it goes on from the state before.
  CHECK(Parts::decaying().run({hasty, patient}) == Parts::decaying().run({patient}));
}

TEST_CASE("a decay follows the clock where time is the limit, and a run with new time begins before it") {
  const LoopOptions options{.max_minutes = 2.0 / 60, .validate_every = 10};
  Parts parts = Parts::decaying();
  parts.at_update = [](index_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  parts.run({options});
  CHECK(parts.ends.front() == TrainingEnd::max_minutes);
  REQUIRE(parts.before_decay.size() == 1);
  const auto from = parts.before_decay[0].values.at("step").get<index_t>();
  for (auto at = parts.rates.begin(); std::next(at) != parts.rates.end(); ++at) {
    const auto [step, rate] = *std::next(at);
    if (step > 3 && step <= from) CHECK(rate == 0.05);
    if (step > from + 1) CHECK(rate <= at->second);
  }
  CHECK(parts.rates.rbegin()->first > from);
  CHECK(parts.rates.rbegin()->second < 0.05);
  const index_t last = parts.rates.rbegin()->first;
  parts.rates.clear();
  parts.run({options});
  CHECK(parts.rates.begin()->first == from + 1);
  CHECK(parts.rates.begin()->second == 0.05);
  CHECK(parts.rates.rbegin()->first > last);
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
