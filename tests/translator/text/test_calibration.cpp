#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "test_tools.hpp"
#include "translator/text/calibration.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("bins, expected calibration error and Brier score of a table made by hand") {
  const std::vector<double> confidences = {0.95, 1.0, 0.91, 0.55, 0.5, 0.0}, right = {1, 1, 0, 1, 0, 0.25};
  const Calibration c = calibration(confidences, right);
  REQUIRE(c.bins.size() == 10);
  CHECK(c.bins[9].count == 3);  // 1 is in the last bin
  CHECK(c.bins[9].confidence == doctest::Approx(2.86 / 3));
  CHECK(c.bins[9].right == doctest::Approx(2.0 / 3));
  CHECK(c.bins[5].count == 2);
  CHECK(c.bins[0].count == 1);
  CHECK(c.confidence == doctest::Approx(3.91 / 6));
  CHECK(c.right == doctest::Approx(3.25 / 6));
  CHECK(c.expected_error ==
        doctest::Approx((std::abs(2.86 - 2) + std::abs(1.05 - 1) + std::abs(0 - 0.25)) / 6));
  CHECK(c.brier == doctest::Approx((0.05 * 0.05 + 0 + 0.91 * 0.91 + 0.45 * 0.45 + 0.25 + 0.0625) / 6));
  CHECK(contains(c.str(), "0.9 to 1.0          3  0.953  0.667\n"));
  CHECK_FALSE(contains(c.str(), "0.1 to 0.2"));
  // 0.29 * 100 is less than 29 in double.
  const Calibration fine = calibration(std::vector<double>{0.29, 0.05}, std::vector<double>{1, 0}, 100);
  CHECK(fine.bins[29].count == 1);
  CHECK(contains(fine.str(), "0.290 to 0.300          1  0.290  1.000\n"));
  CHECK(contains(fine.str(), "all                     2  0.170  0.500"));
  const auto refusal = [](std::vector<double> p, std::vector<double> r, index_t bins = 10) {
    return message_of<ValueError>([&] { (void)calibration(p, r, bins); });
  };
  CHECK(contains(refusal({0.5}, {}), "1 confidences and 0 outcomes"));
  CHECK(contains(refusal({1.5}, {1}), "prediction 0 has a confidence or outcome of 1.5"));
  CHECK(contains(refusal({0.5}, {1}, 0), "bins is 0"));
}

TEST_CASE("a fit finds the scale that the outcomes were drawn by, and mends the calibration") {
  RandomGenerator rng(3);
  const ConfidenceScale truth{.slope = 0.6, .offset = -0.8};
  std::vector<double> probabilities, right, fitted;
  for (int i = 0; i < 20000; ++i) {
    const double p = rng.uniform();
    probabilities.push_back(p);
    right.push_back(rng.uniform() < truth(p) ? 1 : 0);
  }
  const ConfidenceScale scale = fit_confidence(probabilities, right);
  CHECK(scale.slope == doctest::Approx(0.6).epsilon(0.05));
  CHECK(scale.offset == doctest::Approx(-0.8).epsilon(0.05));
  for (const double p : probabilities) fitted.push_back(scale(p));
  CHECK(calibration(probabilities, right).expected_error > 0.1);
  CHECK(calibration(fitted, right).expected_error < 0.02);
  // What is certain and wrong does not break it.
  probabilities.insert(probabilities.end(), {0, 1});
  right.insert(right.end(), {1, 0});
  CHECK(std::isfinite(fit_confidence(probabilities, right).slope));
  CHECK(contains(message_of<ValueError>([] {
                   (void)fit_confidence(std::vector<double>{0.5, 0.6}, std::vector<double>{1, 1});
                 }),
                 "2 of them right: expected equal numbers, some right, some not"));
  for (const double wrong : {std::numeric_limits<double>::quiet_NaN(), -0.5, 1.5}) {
    CAPTURE(wrong);
    CHECK(contains(message_of<ValueError>([wrong] {
                     (void)fit_confidence(std::vector<double>{0.5, wrong}, std::vector<double>{1, 0});
                   }),
                   "word 1 has a probability or outcome of "));
  }
}

TEST_CASE("a word is right where the reference has it, as often as it has it") {
  const std::vector<WordConfidence> words = {{"der", 1}, {"Hund", 1}, {"der", 1}, {"Katze.", 1}};
  CHECK(right_words(words, "Hund  der Katze .") == std::vector<double>{1, 1, 0, 0});
  CHECK(right_words(words, "") == std::vector<double>(4));
}
