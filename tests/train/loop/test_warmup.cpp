#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/train/loop/warmup.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("fitted_warmup: 400 updates, or a quarter of a short training") {
  CHECK(fitted_warmup(1'000'000) == 400);
  CHECK(fitted_warmup(1601) == 400);
  CHECK(fitted_warmup(1000) == 250);
  CHECK(fitted_warmup(3) == 1);
  CHECK(fitted_warmup(0) == 1);
}

namespace {

struct Said {
  std::vector<std::string> notices;
  detail::Warmup warmup(std::optional<index_t> given, bool timed) {
    return {given, timed, [this](const std::string& text) { notices.push_back(text); }};
  }
};

}  // namespace

TEST_CASE("Warmup: limits on updates decide at once, and it is said") {
  Said said;
  auto warmup = said.warmup({}, false);
  CHECK(!warmup.decided());
  CHECK(warmup.at(200) == 50);
  CHECK(warmup.decided() == 50);
  CHECK(warmup.at(100) == 50);  // once
  REQUIRE(said.notices.size() == 1);
  CHECK(contains(said.notices[0], "warm-up: 50 updates, a quarter of the 200 updates"));
  auto longer = said.warmup({}, false);
  CHECK(longer.at(5000) == 400);
  CHECK(said.notices.size() == 1);
}

TEST_CASE("Warmup: limits on time decide once, by the speed of the first updates") {
  Said said;
  auto warmup = said.warmup({}, true);
  CHECK(warmup.at(100'000) == 400);
  for (index_t k = 1; k < detail::Warmup::judged_after; ++k) CHECK(warmup.at(10 * k) == 400);
  CHECK(!warmup.decided());
  CHECK(warmup.at(300) == 75);
  CHECK(warmup.at(4000) == 75);
  CHECK(warmup.decided() == 75);
  CHECK(contains(said.notices.at(0), "a quarter of the about 300 updates"));
  auto resumed = said.warmup({}, true);
  resumed.restore(75);
  CHECK(resumed.at(100'000) == 75);
  // Limits on updates hold, whatever the speed.
  auto both = said.warmup({}, true);
  for (index_t k = 0; k < detail::Warmup::judged_after; ++k) (void)both.at(120);
  CHECK(both.at(9000) == 30);
}

TEST_CASE("Warmup: what was given stays, with a notice where it leaves little of the training") {
  Said said;
  auto warmup = said.warmup(400, false);
  CHECK(warmup.at(500) == 400);
  REQUIRE(said.notices.size() == 1);
  CHECK(contains(said.notices[0], "the warm-up of 400 updates takes most of the 500 updates"));
  auto shorter = said.warmup(100, false);
  CHECK(shorter.at(500) == 100);
  auto none = said.warmup(0, false);
  CHECK(none.at(500) == 0);
  CHECK(said.notices.size() == 1);
  auto resumed = said.warmup(30, false);
  resumed.restore(75);
  CHECK(resumed.at(1000) == 30);
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

TEST_CASE("Trainer: a training that time limits goes on with the warm-up that was judged once") {
  const EncodedCorpus corpus = reversal_corpus(200, 1);
  const TrainingOptions options{.loop = {.max_steps = 3000, .max_minutes = 1e-6, .report_every = 1},
                                .batch_tokens = 60};
  auto model = small_model(0.1);
  Trainer trainer(model, corpus, nullptr, options);
  trainer.run();
  auto state = trainer.state();
  CHECK(!state.values.contains("warmup"));  // too early to judge
  state.values["warmup"] = 16;
  state.values["step"] = 3;
  Recorder sink;
  Trainer resumed(model, corpus, nullptr, options, sink);
  resumed.load(state);
  resumed.run();
  REQUIRE(sink.steps.size() == 1);
  CHECK(sink.steps[0].learning_rate == 1e-3 * 4 / 16);
  CHECK(sink.steps[0].time_limit == doctest::Approx(6e-5));
  CHECK(sink.steps[0].step_limit == 3000);
  CHECK(resumed.state().values.at("warmup") == 16);
}
