#include "eigenformer/autograd/ops/reduction/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const std::vector<std::vector<index_t>> axes_lists = {{},     {0},    {1},    {2},      {-1},
                                                      {0, 1}, {1, 2}, {2, 0}, {-3, -1}, {0, 1, 2}};

struct Reduced {
  Tensor<double> sum, largest;
};

Reduced reference(const Tensor<double>& x, const std::vector<index_t>& axes) {
  const auto reduces = [&](index_t axis) {
    return axes.empty() ||
           std::count(axes.begin(), axes.end(), axis) + std::count(axes.begin(), axes.end(), axis - 3) > 0;
  };
  const Shape kept{reduces(0) ? 1 : x.dim(0), reduces(1) ? 1 : x.dim(1), reduces(2) ? 1 : x.dim(2)};
  Reduced r{Tensor<double>::zeros(kept), Tensor<double>::full(kept, -1e300)};
  for (index_t i = 0; i < x.dim(0); ++i) {
    for (index_t j = 0; j < x.dim(1); ++j) {
      for (index_t k = 0; k < x.dim(2); ++k) {
        const index_t a = reduces(0) ? 0 : i, b = reduces(1) ? 0 : j, c = reduces(2) ? 0 : k;
        r.sum.at({a, b, c}) += x.at({i, j, k});
        r.largest.at({a, b, c}) = std::max(r.largest.at({a, b, c}), x.at({i, j, k}));
      }
    }
  }
  return r;
}

}  // namespace

TEST_CASE("sum, mean, max: gradients over every list of axes") {
  for (const auto& axes : axes_lists) {
    for (const bool keep : {false, true}) {
      check_op([&](const Vars& v) { return sum(v[0], axes, keep); }, {random({2, 3, 5})});
      check_op([&](const Vars& v) { return mean(v[0], axes, keep); }, {random({2, 3, 5})});
      check_op([&](const Vars& v) { return max(v[0], axes, keep); }, {random({2, 3, 5})});
    }
  }
  check_op([](const Vars& v) { return sum(v[0]); }, {random({})});
  check_op([](const Vars& v) { return max(v[0]); }, {random({})});
}

TEST_CASE_TEMPLATE("sum, mean, max: values and shapes", T, float, double) {
  const double tolerance = std::is_same_v<T, float> ? 2e-6 : 1e-14;
  const Tensor<double> x = random({4, 7, 33}, 3).to<float>().template to<double>();
  const Var<T> v = x.to<T>();
  for (const auto& axes : axes_lists) {
    const Reduced r = reference(x, axes);
    Tensor<double> average = r.sum.clone();
    for (double& value : average.span())
      value *= static_cast<double>(r.sum.numel()) / static_cast<double>(x.numel());
    CHECK(worst_difference(sum(v, axes, true).value(), r.sum) < tolerance * 40);
    CHECK(worst_difference(mean(v, axes, true).value(), average) < tolerance);
    CHECK(worst_difference(max(v, axes, true).value(), r.largest) == 0);
    CHECK(values(sum(v, axes).value()) == values(sum(v, axes, true).value()));
  }
  CHECK(sum(v).shape() == Shape{});
  CHECK(sum(v, {1}).shape() == Shape{4, 33});
  CHECK(mean(v, {0, -1}).shape() == Shape{7});
  CHECK(max(v, {0, 1, 2}, true).shape() == Shape{1, 1, 1});
}

TEST_CASE("max: entries that tie share the gradient") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::from({2, 3}, {5, 1, 5, 2, 2, 2}));
  tape.backward(sum(max(x, {1}) * Tensor<double>::from({2}, {1, 6})));
  CHECK(values(tape.gradient(x)) == std::vector<double>{0.5, 0, 0.5, 2, 2, 2});
}

TEST_CASE("max: negative numbers and infinities") {
  const float inf = std::numeric_limits<float>::infinity();
  const Var<float> x = Tensor<float>::from({3, 2}, {-3, -2, -inf, -inf, inf, 4});
  CHECK(values(max(x, {1}).value()) == std::vector<float>{-2, -inf, inf});
}

TEST_CASE("max: NaN wins and gets the gradient, as in PyTorch") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::from({2, 3}, {5, nan, 7, 2, 3, 1}));
  const Var<double> y = max(x, {1});
  CHECK(std::isnan(y.value().at({0})));
  CHECK(y.value().at({1}) == 3);
  Gradients<double> none;
  tape.backward(y, Tensor<double>::from({2}, {1, 2}), none);
  CHECK(values(tape.gradient(x)) == std::vector<double>{0, 1, 0, 0, 2, 0});
}

TEST_CASE("sum, mean, max of nothing") {
  const Var<double> x = Tensor<double>(Shape{3, 0});
  CHECK(sum(x).item() == 0);
  CHECK(values(sum(x, {1}).value()) == std::vector<double>{0, 0, 0});
  CHECK(sum(x, {0}).shape() == Shape{0});
  CHECK(std::isnan(mean(x).item()));
  CHECK(max(x, {0}).shape() == Shape{0});
  CHECK(message_of<ValueError>([&] { (void)max(x, {1}); }) ==
        "[max] input of shape (3, 0) has no entries, must have at least one");
  CHECK_THROWS_AS((void)max(x), ValueError);
}

TEST_CASE("sum, mean, max: axes that do not exist or come twice") {
  const Var<float> x = Tensor<float>::zeros({2, 3});
  CHECK_THROWS_AS((void)sum(x, {2}), IndexError);
  CHECK_THROWS_AS((void)mean(x, {-3}), IndexError);
  CHECK_THROWS_AS((void)max(x, {0, 5}), IndexError);
  CHECK_THROWS_AS((void)sum(x, {1, -1}), ShapeError);
  CHECK_THROWS_AS((void)max(x, {0, 0}), ShapeError);
  CHECK_THROWS_AS((void)sum(Var<float>(Tensor<float>::scalar(1)), {0}), IndexError);
}

TEST_CASE("sum: a long float sum keeps its accuracy") {
  const Var<float> x = Tensor<float>::full({1000003}, 0.1f);
  CHECK(static_cast<double>(sum(x).item()) ==
        doctest::Approx(1000003 * static_cast<double>(0.1f)).epsilon(2e-5));
}

TEST_CASE("sum, mean, max: the same bits for any number of threads") {
  const Tensor<float> x = random({301, 1003}, 5).to<float>();
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    const Var<float> v(x);
    return std::vector<std::vector<float>>{values(sum(v).value()), values(sum(v, {0}).value()),
                                           values(mean(v, {1}).value()), values(max(v, {0}).value())};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}
