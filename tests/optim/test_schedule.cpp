#include <doctest/doctest.h>

#include <cmath>

#include "eigenformer/optim/schedule.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

TEST_CASE("noam is equation 3 of Vaswani et al.") {
  for (const index_t step : {1, 7, 3999, 4000, 4001, 100000}) {
    const auto s = static_cast<double>(step);
    CHECK(schedule::noam(step, 512) ==
          doctest::Approx(std::pow(512.0, -0.5) * std::min(std::pow(s, -0.5), s * std::pow(4000.0, -1.5))));
  }
  CHECK(schedule::noam(4000, 512, 4000, 2.0) == doctest::Approx(2 * 0.000698771242968684));
}

TEST_CASE("each schedule rises linearly to its peak and then goes its way") {
  using namespace schedule;
  CHECK(constant(1, 0.5, 4) == 0.125);
  CHECK(constant(4, 0.5, 4) == 0.5);
  CHECK(constant(1000, 0.5, 4) == 0.5);
  CHECK(constant(1, 0.5) == 0.5);
  CHECK(inverse_square_root(100, 1e-3, 400) == doctest::Approx(0.25e-3));
  CHECK(inverse_square_root(400, 1e-3, 400) == doctest::Approx(1e-3));
  CHECK(inverse_square_root(1600, 1e-3, 400) == doctest::Approx(0.5e-3));
  CHECK(inverse_square_root(4, 1.0) == 0.5);
  CHECK(cosine(5, 1.0, 10, 110) == 0.5);
  CHECK(cosine(10, 1.0, 10, 110) == 1.0);
  CHECK(cosine(60, 1.0, 10, 110) == doctest::Approx(0.5));
  CHECK(cosine(35, 1.0, 10, 110, 0.2) == doctest::Approx(0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5))));
  CHECK(cosine(110, 1.0, 10, 110, 0.2) == doctest::Approx(0.2));
  CHECK(cosine(5000, 1.0, 10, 110, 0.2) == doctest::Approx(0.2));
}

TEST_CASE("warmup_stable_decay stays at the peak and falls as 1 - sqrt in the last part") {
  using namespace schedule;
  CHECK(decay(0) == 1);
  CHECK(decay(0.8) == 1);
  CHECK(decay(0.85) == doctest::Approx(0.5));  // a quarter of the decay
  CHECK(decay(1) == doctest::Approx(0).epsilon(1e-12));
  CHECK(decay(1.5) == decay(1));
  CHECK(decay(0.5, 1) == doctest::Approx(1 - std::sqrt(0.5)));
  CHECK(warmup_stable_decay(1, 0.5, 4, 100) == 0.125);
  for (const index_t step : {4, 50, 81}) CHECK(warmup_stable_decay(step, 0.5, 4, 100) == 0.5);
  CHECK(warmup_stable_decay(86, 0.5, 4, 100) == doctest::Approx(0.25));
  CHECK(warmup_stable_decay(100, 0.5, 4, 100) == doctest::Approx(0.5 * (1 - std::sqrt(0.95))));
  CHECK(warmup_stable_decay(6, 0.5, 2, 10, 0.5) == 0.5);
  CHECK(warmup_stable_decay(7, 0.5, 2, 10, 0.5) == doctest::Approx(0.5 * (1 - std::sqrt(0.2))));
}

TEST_CASE("schedules refuse impossible arguments") {
  using namespace schedule;
  CHECK(message_of<ValueError>([] { (void)constant(0, 1.0); }) == "[constant] step is 0, must be at least 1");
  CHECK(contains(message_of<ValueError>([] { (void)constant(1, -1.0); }), "peak is -1"));
  CHECK(contains(message_of<ValueError>([] { (void)inverse_square_root(1, 1.0, -4); }), "warmup is -4"));
  CHECK(contains(message_of<ValueError>([] { (void)noam(1, 0); }), "d_model is 0"));
  CHECK(contains(message_of<ValueError>([] { (void)noam(1, 512, 0); }), "warmup is 0"));
  CHECK(contains(message_of<ValueError>([] { (void)cosine(1, 1.0, 10, 10); }),
                 "total is 10, must exceed warmup"));
  CHECK(contains(message_of<ValueError>([] { (void)cosine(1, 1.0, 1, 10, 2.0); }), "floor is 2"));
  CHECK(contains(message_of<ValueError>([] { (void)decay(0.5, 0); }), "share is 0"));
  CHECK(contains(message_of<ValueError>([] { (void)decay(std::nan("")); }), "done is NaN"));
  CHECK(contains(message_of<ValueError>([] { (void)warmup_stable_decay(1, 1.0, 1, 0); }), "total is 0"));
}
