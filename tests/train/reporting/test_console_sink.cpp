#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "eigenformer/train/reporting/console_sink.hpp"
#include "test_tools.hpp"
#include "train/recorder.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("what is shown of a training: limits that were set, the time, measures by their names") {
  StepReport r;
  r.epoch = 2;
  r.step = 500;
  r.total_steps = 812;  // by the speed: not shown
  r.step_limit = 9080;
  r.time_limit = 360;
  r.loss = 2;
  r.parts = {{"alignment", 0.5}};
  r.weight_per_second = 1234;
  r.seconds = 65;
  r.remaining_seconds = 295;
  r.learning_rate = 1e-3;
  CHECK(ConsoleSink::text(r) ==
        "epoch 2  step 500/9080  loss 2.000  perplexity 7.4  alignment 0.500  elapsed 1:05/6:00  "
        "ETA 4:55  1234 tokens/s  lr 1.0e-03");
  r.step_limit = 0;
  r.time_limit = 0;
  r.parts.clear();
  CHECK(contains(ConsoleSink::text(r), "step 500  loss"));
  CHECK(contains(ConsoleSink::text(r), "elapsed 1:05  ETA"));

  ValidationReport v;
  v.epoch = 1;
  v.step = 20;
  v.name = "bleu";
  v.value = 12.345;
  v.others = {{"loss", 2}, {"chrf", 30}};
  v.best = true;
  CHECK(ConsoleSink::text(v) ==
        "validation after step 20, epoch 1: loss 2.0000  perplexity 7.389  chrF 30.00  BLEU 12.35  (best so "
        "far)");
  v = {.epoch = 1, .step = 20, .name = "loss", .value = 2, .averaged = 3};
  CHECK(ConsoleSink::text(v) ==
        "validation after step 20, epoch 1, averaged weights: loss 2.0000  perplexity 7.389");
}

TEST_CASE("ConsoleSink: a line in place on a terminal, plain lines every so often elsewhere") {
  StepReport r;
  r.loss = 2;
  std::ostringstream plain, terminal;
  Recorder next;
  {
    ConsoleSink lines(plain, {}, 10, next);
    ConsoleSink line(terminal, [] { return std::size_t{30}; });
    for (int k = 0; k < 50; ++k) {
      r.step = k + 1;
      r.seconds = k;
      lines.on_step(r);
      line.on_step(r);
    }
    lines.on_notice("a notice");
    lines.on_best();
    lines.on_checkpoint();
    CHECK(lines_of(plain.str()) == 6);  // after 0, 10, 20, 30 and 40 seconds, and the notice
    CHECK(contains(plain.str(), "epoch 0  step 11  loss 2.000  perplexity 7.4  elapsed 0:10"));
    CHECK(lines_of(terminal.str()) == 0);
    CHECK(contains(terminal.str(), "\r\033[Kepoch 0  step 50  loss 2.000"));
    CHECK_FALSE(contains(terminal.str(), "perplexity"));  // does not fit 30 columns
    line.on_notice("a notice");
    CHECK(terminal.str().ends_with("\r\033[Ka notice\n"));
    line.silence();
    line.on_step(r);
    line.say("nothing");
    CHECK(terminal.str().ends_with("\r\033[Ka notice\n"));
  }
  CHECK(next.steps.size() == 50);
  CHECK(next.notices == std::vector<std::string>{"a notice"});
  CHECK(next.best == 1);
  CHECK(next.checkpoints == 1);
}

TEST_CASE("ConsoleSink: validations draw a curve on a terminal, and show their sentences") {
  CHECK(ConsoleSink::curve({8, 4.5, 1}) == "  loss 8.000 \u2588\u2585\u2581 1.000");
  CHECK(ConsoleSink::curve({2, std::numeric_limits<double>::quiet_NaN(), 2}) ==
        "  loss 2.000 \u2581 \u2581 2.000");
  CHECK(ConsoleSink::curve({}).empty());
  std::string flat = "  loss 1.000 ";
  for (int i = 0; i < 40; ++i) flat += "\u2581";
  CHECK(ConsoleSink::curve(std::vector<double>(100, 1)) == flat + " 1.000");
  for (const bool terminal : {false, true}) {
    std::ostringstream out;
    ConsoleSink sink(out, terminal ? [] { return std::size_t{80}; } : std::function<std::size_t()>());
    ValidationReport v{.epoch = 1, .step = 10, .name = "bleu", .value = 3, .others = {{"loss", 3}}};
    v.samples = {{"one", "eins", "zwei"}, {"two", "zwei", "drei"}};
    for (const double loss : {3.0, 2.0, 1.5}) {
      v.others[0].value = loss;
      sink.on_validation(v);
    }
    CHECK(contains(out.str(), "  loss 3.000 ") == terminal);
    CHECK(contains(out.str(), "  source     one\n  reference  eins\n  output     zwei\n  source     two\n"));
  }
}

TEST_CASE("ConsoleSink: validations show the loss that is expected at the end, where it is known") {
  std::ostringstream out;
  ConsoleSink sink(out);
  sink.expect([](double updates, double all, double loss) {
    return updates < 20 ? std::nullopt : std::optional(loss * updates / all);
  });
  ValidationReport v{
      .epoch = 1, .step = 10, .name = "bleu", .value = 3, .others = {{"loss", 2}}, .total_steps = 80};
  sink.on_validation(v);
  CHECK_FALSE(contains(out.str(), "expected"));
  v.step = 20;
  sink.on_validation(v);
  CHECK(out.str().ends_with("BLEU 3.00  expected at the end: 0.50\n"));
  v.averaged = 2;
  sink.on_validation(v);
  CHECK(out.str().ends_with("BLEU 3.00\n"));
  v = {.epoch = 1, .step = 20, .name = "bleu", .value = 3, .total_steps = 80};
  sink.on_validation(v);
  CHECK(out.str().ends_with("BLEU 3.00\n"));
}

TEST_CASE("ConsoleSink: a loss that rises, stands still or overfits gives one notice, with what helps") {
  const auto notices = [](const std::vector<double>& training, const std::vector<double>& validation) {
    std::ostringstream out;
    Recorder next;
    ConsoleSink sink(out, {}, 10, next);
    StepReport r;
    ValidationReport v{.name = "loss"};
    for (std::size_t k = 0; k < training.size(); ++k) {
      r.loss = training[k];
      sink.on_step(r);
      if (k >= validation.size()) continue;
      v.value = validation[k];
      sink.on_validation(v);
    }
    return next.notices;
  };
  CHECK(notices({5, 4, 3, 2.5, 2, 1.8, 1.6}, {5, 4.2, 3.5, 3, 2.7, 2.5, 2.4}).empty());
  const auto rises = notices({5, 2, 3.5, 4.5, 9}, {});
  REQUIRE(rises.size() == 1);
  CHECK(contains(rises[0], "risen from 2.000 to 4.500"));
  CHECK(contains(rises[0], "--learning-rate"));
  const auto overfits = notices({5, 4, 3, 2, 1, 0.5, 0.3}, {5, 4, 4.2, 4.5, 5, 6, 7});
  REQUIRE(overfits.size() == 1);
  CHECK(contains(overfits[0], "from 4.000 to 5.000, while the training loss falls: overfitting"));
  CHECK(contains(overfits[0], "--dropout"));
  const auto stalls = notices(std::vector<double>(12, 3.0), {5, 4, 4, 4, 4, 4, 4, 4});
  REQUIRE(stalls.size() == 1);
  CHECK(contains(stalls[0], "hardly changed in 4 validations (4.000)"));
  CHECK(contains(stalls[0], "--schedule wsd"));
}
