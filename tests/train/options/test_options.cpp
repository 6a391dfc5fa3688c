#include <algorithm>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "eigenformer/train/options/options.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using testing::contains;
using testing::message_of;

namespace {

std::string refusal(const TrainingOptions& options) {
  return message_of<ValueError>([&] { options.validate(); });
}

}  // namespace

TEST_CASE("the defaults are possible, impossible options are refused by name") {
  CHECK_NOTHROW(TrainingOptions{}.validate());
  CHECK(contains(refusal({.loop = {}}), "epochs, max_steps and max_minutes are all 0, one must be positive"));
  CHECK(contains(refusal({.loop = {.epochs = -1}}), "epochs is -1, must not be negative"));
  CHECK(contains(refusal({.loop = {.epochs = 1,
                                   .distributed = {.reduction = Reduction::native,
                                                   .precision = ReductionPrecision::bf16}}}),
                 "reduction_precision is bf16 and reduction is native"));
  CHECK(contains(refusal({.loop = {.max_steps = -1}}), "max_steps is -1"));
  CHECK(contains(refusal({.loop = {.max_minutes = -0.5}}), "max_minutes"));
  CHECK(contains(refusal({.loop = {.max_minutes = std::nan("")}}), "max_minutes"));
  CHECK(contains(refusal({.batch_tokens = 0}), "batch_tokens is 0"));
  CHECK(contains(refusal({.loop = {.accumulate = 0}}), "accumulate is 0"));
  CHECK(contains(refusal({.learning_rate = 0}), "learning_rate is 0"));
  CHECK(contains(refusal({.learning_rate = -1e-3}), "learning_rate is -0.001"));
  CHECK(contains(refusal({.learning_rate = std::numeric_limits<double>::infinity()}), "learning_rate"));
  CHECK(contains(refusal({.learning_rate = 1e4}), "learning_rate is 10000, must be at most 1000"));
  CHECK(contains(refusal({.learning_rate = 2, .weight_decay = 0.5}), "their product must be below 1"));
  CHECK(contains(refusal({.warmup = -1}), "warmup is -1"));
  CHECK(contains(refusal({.beta1 = 1}), "beta1 is 1"));
  CHECK(contains(refusal({.beta2 = -0.1}), "beta2"));
  CHECK(contains(refusal({.adam_eps = -1}), "adam_eps"));
  CHECK(contains(refusal({.weight_decay = -1}), "weight_decay"));
  CHECK(contains(refusal({.loop = {.clip_norm = -1}}), "clip_norm"));
  CHECK(contains(refusal({.label_smoothing = 1}), "label_smoothing is 1, must be in [0, 1)"));
  CHECK(contains(refusal({.loop = {.validate_every = -7}}), "validate_every"));
  CHECK(contains(refusal({.loop = {.patience = -1}}), "patience"));
  CHECK(contains(refusal({.loop = {.average_last = -1}}), "average_last"));
  CHECK(contains(refusal({.loop = {.report_every = 0}}), "report_every"));
}

TEST_CASE("learning rates follow the schedule that was chosen, and learning_rate is the peak of each") {
  TrainingOptions o{.learning_rate = 0.5, .warmup = 10};
  CHECK(o.rate(5, 100) == doctest::Approx(0.25));
  CHECK(o.rate(40, 100) == doctest::Approx(0.25));  // sqrt(10 / 40)
  for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::inverse_square_root,
                                  ScheduleKind::cosine, ScheduleKind::warmup_stable_decay}) {
    o.schedule = kind;
    double peak = 0;
    for (index_t step = 1; step <= 110; ++step) peak = std::max(peak, o.rate(step, 110));
    CHECK(peak == 0.5);
  }
  o.schedule = ScheduleKind::constant;
  CHECK(o.rate(40, 100) == 0.5);
  o.schedule = ScheduleKind::cosine;
  CHECK(o.rate(10, 110) == doctest::Approx(0.5));
  CHECK(o.rate(60, 110) == doctest::Approx(0.25));
  CHECK(o.rate(110, 110) == doctest::Approx(0.0));
  CHECK_NOTHROW((void)o.rate(5, 3));  // an end within the warm-up
  o.schedule = ScheduleKind::warmup_stable_decay;
  CHECK(o.rate(80, 110) == 0.5);
  CHECK(o.rate(100, 110) == schedule::warmup_stable_decay(100, 0.5, 10, 110));
  CHECK(o.rate(20, 110, 10, 0.85) == doctest::Approx(0.25));  // the clock is ahead of the updates
}
