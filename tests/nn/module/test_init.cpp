#include <doctest/doctest.h>

#include <cmath>

#include "eigenformer/nn/module/init.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
using eigenformer::testing::values;

TEST_CASE("xavier_uniform fills the whole interval and has its variance") {
  RandomGenerator rng(3);
  const auto w = init::xavier_uniform<double>({60, 100}, rng);
  const double bound = std::sqrt(6.0 / 160);
  double largest = 0, mean = 0, square = 0;
  for (const double x : w.span()) {
    largest = std::max(largest, std::abs(x));
    mean += x / 6000;
    square += x * x / 6000;
  }
  CHECK(largest < bound);
  CHECK(largest > 0.99 * bound);
  CHECK(std::abs(mean) < 0.05 * bound);
  CHECK(square == doctest::Approx(bound * bound / 3).epsilon(0.05));
  const auto doubled = [&] {
    RandomGenerator again(3);
    return init::xavier_uniform<double>({60, 100}, again, 2.0);
  }();
  CHECK(doubled.at({7, 9}) == doctest::Approx(2 * w.at({7, 9})));
  CHECK(contains(message_of<ShapeError>([&] { (void)init::xavier_uniform<double>({3}, rng); }),
                 "(3,) must be (out, in)"));
}

TEST_CASE("kaiming_uniform fills the interval of PyTorch's") {
  RandomGenerator rng(3);
  for (const double a : {0.0, 2.0}) {
    const auto w = init::kaiming_uniform<double>({60, 5, 4, 3}, rng, a);
    const double bound = std::sqrt(6.0 / ((1 + a * a) * 60));
    double largest = 0;
    for (const double x : w.span()) largest = std::max(largest, std::abs(x));
    CHECK(largest < bound);
    CHECK(largest > 0.99 * bound);
  }
  CHECK(contains(message_of<ShapeError>([&] { (void)init::kaiming_uniform<double>({3}, rng); }),
                 "(3,) must be (out, in, ...)"));
}

TEST_CASE("normal has the given mean and deviation, and a seed fixes the values") {
  RandomGenerator rng(4), again(4);
  const auto w = init::normal<float>({50, 60}, rng, 2.0, 0.5);
  double mean = 0, square = 0;
  for (const float x : w.span()) mean += static_cast<double>(x) / 3000;
  for (const float x : w.span())
    square += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean) / 3000;
  CHECK(mean == doctest::Approx(2.0).epsilon(0.02));
  CHECK(std::sqrt(square) == doctest::Approx(0.5).epsilon(0.05));
  CHECK(values(w) == values(init::normal<float>({50, 60}, again, 2.0, 0.5)));
}
