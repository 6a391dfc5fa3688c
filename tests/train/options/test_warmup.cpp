#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/train/options/options.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("fitted_warmup: 400 updates, or a quarter of a short training") {
  CHECK(detail::fitted_warmup(1'000'000) == 400);
  CHECK(detail::fitted_warmup(1601) == 400);
  CHECK(detail::fitted_warmup(1000) == 250);
  CHECK(detail::fitted_warmup(3) == 1);
  CHECK(detail::fitted_warmup(0) == 1);
}

namespace {

struct Said {
  std::vector<std::string> notices;
  detail::Warmup warmup(std::optional<index_t> given) {
    return {given, [this](const std::string& text) { notices.push_back(text); }};
  }
};

}  // namespace

TEST_CASE("Warmup: it is fitted once, when the updates that are expected are settled, and that is said") {
  Said said;
  auto warmup = said.warmup({});
  CHECK(warmup.at(100'000, false) == 400);
  CHECK(warmup.at(100'000, false) == 400);
  CHECK(!warmup.decided());
  CHECK(said.notices.empty());
  CHECK(warmup.at(200, true) == 50);
  CHECK(warmup.decided() == 50);
  CHECK(warmup.at(100, true) == 50);  // once
  REQUIRE(said.notices.size() == 1);
  CHECK(contains(said.notices[0], "warm-up: 50 updates, a quarter of the 200 expected updates"));
  auto longer = said.warmup({});
  CHECK(longer.at(5000, true) == 400);
  CHECK(said.notices.size() == 1);
  auto resumed = said.warmup({});
  resumed.restore(75);
  CHECK(resumed.at(100'000, true) == 75);
  CHECK(said.notices.size() == 1);
}

TEST_CASE("Warmup: what was given stays, with a notice where it leaves little of the training") {
  Said said;
  auto warmup = said.warmup(400);
  CHECK(warmup.at(1'000'000, false) == 400);
  CHECK(warmup.at(500, true) == 400);
  REQUIRE(said.notices.size() == 1);
  CHECK(contains(said.notices[0], "the warm-up of 400 updates takes most of the 500 expected updates"));
  auto shorter = said.warmup(100);
  CHECK(shorter.at(500, true) == 100);
  auto none = said.warmup(0);
  CHECK(none.at(500, true) == 0);
  CHECK(said.notices.size() == 1);
  auto resumed = said.warmup(30);
  resumed.restore(75);
  CHECK(resumed.at(1000, true) == 30);
}

namespace {

std::vector<double> rates(const Recorder& sink) {
  std::vector<double> all;
  for (const StepReport& r : sink.steps) all.push_back(r.learning_rate);
  return all;
}

}  // namespace

TEST_CASE("Trainer: the warm-up of a short training fits, and a resumed training has the same") {
  const EncodedCorpus corpus = reversal_corpus(200, 1);
  TrainingOptions options{.loop = {.max_steps = 40, .report_every = 1}, .batch_tokens = 60};
  auto model = small_model(0.1), other = small_model(0.1);
  Recorder whole, part;
  Trainer(model, corpus, nullptr, options, whole).run();
  CHECK(whole.steps.at(9).learning_rate == 1e-3);  // a quarter
  CHECK(whole.steps.at(4).learning_rate == doctest::Approx(5e-4));
  CHECK(whole.steps.at(39).learning_rate == doctest::Approx(5e-4));  // sqrt(10 / 40)
  CHECK(contains(whole.notices.at(0), "warm-up: 10 updates"));

  Trainer first(other, corpus, nullptr, options, part);
  std::stop_source stop;
  part.at_step = [&](index_t step) {
    if (step == 7) stop.request_stop();
  };
  CHECK(first.run(stop.get_token()) == TrainingEnd::interrupted);
  const auto state = first.state();
  CHECK(state.values.at("warmup") == 10);
  auto third = small_model(0.1, 9);
  Recorder rest;
  options.loop.max_steps = 40;
  Trainer second(third, corpus, nullptr, options, rest);
  second.load(state);
  second.run();
  std::vector<double> both = rates(part);
  for (const double rate : rates(rest)) both.push_back(rate);
  CHECK(both == rates(whole));
  CHECK(weights_of(third) == weights_of(model));
  CHECK(rest.notices.empty());
}

TEST_CASE("Trainer: the warm-up of a training that time limits is fitted to its speed, once") {
  const EncodedCorpus corpus = reversal_corpus(200, 1);
  const TrainingOptions options{.loop = {.max_steps = 1'000'000, .max_minutes = 0.005, .report_every = 1},
                                .batch_tokens = 60};
  auto model = small_model(0.1);
  Recorder sink;
  std::vector<nlohmann::json> saved;
  Trainer trainer(model, corpus, nullptr, options, sink);
  // 5 ms an update: no more than 60 of them.
  sink.at_step = [](index_t) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  sink.at_checkpoint = [&] { saved.push_back(trainer.state().values); };
  CHECK(trainer.run() == TrainingEnd::max_minutes);
  REQUIRE(!saved.empty());
  CHECK(saved[0].at("warmup").is_null());
  const auto expected = saved[0].at("expected_steps").get<index_t>();
  CHECK(expected <= 70);
  const auto state = trainer.state();
  CHECK(state.values.at("warmup") == detail::fitted_warmup(expected));
  CHECK(contains(sink.notices.at(0), "a quarter of the " + std::to_string(expected)));
  CHECK(sink.steps.at(0).learning_rate == 1e-3 / 400);
  CHECK(sink.steps.at(0).time_limit == doctest::Approx(0.3));
  CHECK(sink.steps.at(0).step_limit == 1'000'000);

  // From the state that was saved right after the judgement, a training has the same warm-up.
  Recorder rest;
  Trainer resumed(model, corpus, nullptr, options, rest);
  auto early = state;
  early.values = saved[0];
  resumed.load(early);
  std::stop_source stop;
  rest.at_step = [&](index_t) { stop.request_stop(); };
  resumed.run(stop.get_token());
  CHECK(resumed.state().values.at("warmup") == detail::fitted_warmup(expected));
  REQUIRE(rest.steps.size() == 1);
  CHECK(rest.steps[0].learning_rate ==
        sink.steps.at(static_cast<std::size_t>(rest.steps[0].step) - 1).learning_rate);
}
