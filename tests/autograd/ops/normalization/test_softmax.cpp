#include "eigenformer/autograd/ops/normalization/softmax.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("softmax, log_softmax: gradients along every axis") {
  const Shape shape{2, 3, 7};
  for (const index_t axis : {-1, 2, 1, 0, -3}) {
    CAPTURE(axis);
    check_op([&](const Vars& v) { return softmax(v[0], axis); }, {random(shape)});
    check_op([&](const Vars& v) { return log_softmax(v[0], axis); }, {random(shape)});
  }
  check_op([](const Vars& v) { return softmax(v[0]); }, {random({23})});
  check_op([](const Vars& v) { return log_softmax(v[0]); }, {random({5, 1})});
}

TEST_CASE_TEMPLATE("softmax: values against plain loops", T, float, double) {
  const Tensor<double> x = random({3, 4, 5}, 8);
  for (const index_t axis : {0, 1, 2}) {
    const Tensor<T> y = softmax(Var<T>(x.to<T>()), axis).value();
    const Tensor<T> log_y = log_softmax(Var<T>(x.to<T>()), axis).value();
    REQUIRE(y.shape() == x.shape());
    for (index_t i = 0; i < 3; ++i) {
      for (index_t j = 0; j < 4; ++j) {
        for (index_t k = 0; k < 5; ++k) {
          double sum = 0;
          for (index_t s = 0; s < x.dim(axis); ++s) {
            sum += std::exp(x.at({axis == 0 ? s : i, axis == 1 ? s : j, axis == 2 ? s : k}));
          }
          const double p = std::exp(x.at({i, j, k})) / sum;
          CHECK(static_cast<double>(y.at({i, j, k})) == doctest::Approx(p).epsilon(2e-6));
          CHECK(static_cast<double>(log_y.at({i, j, k})) == doctest::Approx(std::log(p)).epsilon(2e-6));
        }
      }
    }
  }
}

TEST_CASE("softmax: large inputs do not overflow, -inf is exactly 0") {
  const float inf = std::numeric_limits<float>::infinity();
  const Var<float> x = Tensor<float>::from({3, 3}, {1000, 1000, -inf, -1e30f, 5, 5, 0, -2000, 90});
  const Tensor<float> y = softmax(x).value();
  CHECK(values(y.rows(0, 2)) == std::vector<float>{0.5f, 0.5f, 0, 0, 0.5f, 0.5f});
  CHECK(y.at({2, 2}) == 1);
  const Tensor<float> l = log_softmax(x).value();
  CHECK(l.at({0, 0}) == doctest::Approx(std::log(0.5)));
  CHECK(l.at({0, 2}) == -inf);
  CHECK(l.at({2, 1}) == doctest::Approx(-2090));
}

TEST_CASE("softmax: a row of -inf alone gives zeros and zero gradients") {
  const double inf = std::numeric_limits<double>::infinity();
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::from({2, 3}, {-inf, -inf, -inf, 0, 1, 2}));
  const Var<double> y = softmax(x);
  CHECK(values(y.value().rows(0, 1)) == std::vector<double>{0, 0, 0});
  tape.backward(sum(y * Tensor<double>::from({3}, {1, 2, 4})));
  const auto g = values(tape.gradient(x));
  CHECK(std::vector<double>(g.begin(), g.begin() + 3) == std::vector<double>{0, 0, 0});
  for (const double value : g) CHECK(std::isfinite(value));
}

TEST_CASE("softmax: rows sum to 1 and do not depend on their neighbours") {
  const Tensor<float> x = random({5, 33}, 4).to<float>();
  const Tensor<float> whole = softmax(Var<float>(x)).value();
  for (index_t r = 0; r < 5; ++r) {
    const Tensor<float> alone = softmax(Var<float>(x.rows(r, 1).clone())).value();
    CHECK(values(alone) == values(whole.rows(r, 1)));
    double total = 0;
    for (const float p : alone.span()) total += static_cast<double>(p);
    CHECK(total == doctest::Approx(1).epsilon(1e-6));
  }
}

TEST_CASE("softmax: empty tensors, and axes that do not exist") {
  CHECK(softmax(Var<float>(Tensor<float>(Shape{0, 4}))).shape() == Shape{0, 4});
  CHECK(softmax(Var<float>(Tensor<float>(Shape{4, 0}))).shape() == Shape{4, 0});
  const Var<float> x = Tensor<float>::zeros({2, 3});
  CHECK(message_of<IndexError>([&] { (void)softmax(x, 2); }) ==
        "[softmax] axis 2 does not exist in shape (2, 3)");
  CHECK(message_of<IndexError>([&] { (void)log_softmax(x, -3); }) ==
        "[log_softmax] axis -3 does not exist in shape (2, 3)");
  CHECK_THROWS_AS((void)softmax(Var<float>(Tensor<float>::scalar(1))), IndexError);
}
