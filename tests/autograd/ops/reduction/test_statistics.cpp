#include "eigenformer/autograd/ops/reduction/reduce.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "reduction_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

const std::vector<std::vector<index_t>> axes_lists = {{},     {0},    {1},    {2},      {-1},
                                                      {0, 1}, {1, 2}, {2, 0}, {-3, -1}, {0, 1, 2}};

}  // namespace

TEST_CASE("min, prod, var, std, norm, logsumexp: gradients over every list of axes") {
  const auto x = random({2, 3, 5});
  for (const auto& axes : axes_lists) {
    for (const bool keep : {false, true}) {
      check_op([&](const Vars& v) { return ef::min(v[0], axes, keep); }, {x});
      check_op([&](const Vars& v) { return ef::prod(v[0], axes, keep); }, {away_from_zero({2, 3, 5})});
      check_op([&](const Vars& v) { return ef::var(v[0], axes, keep); }, {x});
      check_op([&](const Vars& v) { return ef::std(v[0], axes, keep, 0.5); }, {x});
      check_op([&](const Vars& v) { return ef::norm(v[0], axes, keep); }, {x});
      check_op([&](const Vars& v) { return ef::norm(v[0], axes, keep, 1); }, {x});
      check_op([&](const Vars& v) { return ef::norm(v[0], axes, keep, inf); }, {x});
      check_op([&](const Vars& v) { return ef::logsumexp(v[0], axes, keep); }, {x});
    }
  }
  check_op([](const Vars& v) { return ef::min(v[0]); }, {random({})});
  check_op([](const Vars& v) { return ef::prod(v[0]); }, {random({})});
  check_op([](const Vars& v) { return ef::logsumexp(v[0]); }, {random({})});
}

TEST_CASE_TEMPLATE("reductions and their gradients are PyTorch's: ties, zeros, NaN, infinities, nothing", T,
                   float, double) {
  // Where these are NaN the gradients differ: max() and min() pass theirs to the NaN, the factors beside a
  // NaN have the product as gradient, sign(NaN) is NaN, and rows of -infinity have none in logsumexp().
  check_fixture<T>(
      "min", [](const Var<T>& x, const auto& axes) { return ef::min(x, axes); }, false);
  check_fixture<T>(
      "max", [](const Var<T>& x, const auto& axes) { return ef::max(x, axes); }, false);
  check_fixture<T>(
      "prod", [](const Var<T>& x, const auto& axes) { return ef::prod(x, axes); }, false);
  check_fixture<T>(
      "norm1", [](const Var<T>& x, const auto& axes) { return ef::norm(x, axes, false, 1); }, false);
  check_fixture<T>(
      "norminf", [](const Var<T>& x, const auto& axes) { return ef::norm(x, axes, false, inf); }, false);
  check_fixture<T>(
      "logsumexp", [](const Var<T>& x, const auto& axes) { return ef::logsumexp(x, axes); }, false);
  check_fixture<T>("norm2", [](const Var<T>& x, const auto& axes) { return ef::norm(x, axes); });
  check_fixture<T>("var", [](const Var<T>& x, const auto& axes) { return ef::var(x, axes); });
  check_fixture<T>("var0", [](const Var<T>& x, const auto& axes) { return ef::var(x, axes, false, 0); });
  check_fixture<T>("std", [](const Var<T>& x, const auto& axes) { return ef::std(x, axes); });
}

TEST_CASE("reductions: shapes with keepdims, and of one element") {
  const Tensor<float> x = Tensor<float>::full({2, 3, 4}, 2);
  CHECK(ef::min(x, {1}, true).shape() == Shape{2, 1, 4});
  CHECK(ef::prod(x, {0, -1}, true).shape() == Shape{1, 3, 1});
  CHECK(ef::prod(x, {0, -1}).shape() == Shape{3});
  CHECK(ef::var(x, {2}, true).shape() == Shape{2, 3, 1});
  CHECK(ef::std(x).shape() == Shape{});
  CHECK(ef::norm(x, {}, true).shape() == Shape{1, 1, 1});
  CHECK(ef::logsumexp(x, {0}, true).shape() == Shape{1, 3, 4});
  CHECK(ef::prod(x, {0}).value()(1, 2) == 4);
  // No degree of freedom is left.
  CHECK(std::isnan(ef::var(Tensor<float>::scalar(3)).item()));
  CHECK(ef::var(Tensor<float>::scalar(3), {}, false, 0).item() == 0);
  CHECK(ef::logsumexp(Tensor<float>({2}, {1000, 1000})).item() == doctest::Approx(1000 + std::log(2.0)));
}

TEST_CASE("std and norm: the gradient at zero is zero") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::zeros({3}));
  tape.backward(ef::std(x) + ef::norm(x));
  CHECK(values(tape.gradient(x)) == std::vector<double>{0, 0, 0});
}

TEST_CASE("gradients beside NaN and infinities") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto gradient = [](const Tensor<double>& at, auto&& f) {
    Tape<double> tape;
    const Var<double> x = tape.variable(at);
    tape.backward(f(x));
    return values(tape.gradient(x));
  };
  CHECK(gradient(Tensor<double>({3}, {1, nan, 1}), [](const auto& x) { return ef::min(x); }) ==
        std::vector<double>{0, 1, 0});
  CHECK(gradient(Tensor<double>({2}, {-inf, -inf}), [](const auto& x) { return ef::logsumexp(x); }) ==
        std::vector<double>{0, 0});
  const auto products = gradient(Tensor<double>({2}, {nan, 3}), [](const auto& x) { return ef::prod(x); });
  CHECK(products[0] == 3);
  CHECK(std::isnan(products[1]));
  const auto signs =
      gradient(Tensor<double>({2}, {nan, -3}), [](const auto& x) { return ef::norm(x, {}, false, 1); });
  CHECK(signs == std::vector<double>{0, -1});  // as PyTorch's
}

TEST_CASE("prod: the gradient of zeros is exact") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>({3, 3}, {2, 0, 5, 0, 3, 0, 1, 2, 3}));
  tape.backward(sum(ef::prod(x, {1})));
  CHECK(values(tape.gradient(x)) == std::vector<double>{0, 10, 0, 0, 0, 0, 6, 3, 2});
}

TEST_CASE("reductions: axes that do not exist or come twice, entries and p that are missing") {
  const Var<float> x = Tensor<float>::zeros({2, 3}), none = Tensor<float>(Shape{3, 0});
  CHECK_THROWS_AS((void)ef::min(x, {2}), IndexError);
  CHECK_THROWS_AS((void)ef::prod(x, {-3}), IndexError);
  CHECK_THROWS_AS((void)ef::var(x, {0, 0}), ShapeError);
  CHECK_THROWS_AS((void)ef::norm(x, {1, -1}), ShapeError);
  CHECK_THROWS_AS((void)ef::logsumexp(x, {7}), IndexError);
  CHECK(message_of<ValueError>([&] { (void)ef::norm(x, {}, false, 3); }) ==
        "[norm] p is 3, must be 1, 2 or infinity");
  CHECK(message_of<ValueError>([&] { (void)ef::min(none); }) ==
        "[min] input of shape (3, 0) has no entries, must have at least one");
  CHECK(message_of<ValueError>([&] { (void)ef::norm(none, {1}, false, inf); }) ==
        "[norm] input of shape (3, 0) has no entries, must have at least one");
  CHECK(ef::min(none, {0}).shape() == Shape{0});
  CHECK(values(ef::prod(none, {1}).value()) == std::vector<float>{1, 1, 1});
}

TEST_CASE("reductions: the same bits for any number of threads") {
  const Tensor<float> x = random({37, 1003}, 5).to<float>();
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    const Tensor<float> near_one = (x * 0.001f + 1).value();
    return std::vector<std::vector<float>>{
        values(ef::prod(near_one).value()),    values(ef::prod(near_one, {0}).value()),
        values(ef::var(x, {1}).value()),       values(ef::norm(x).value()),
        values(ef::logsumexp(x, {0}).value()), values(ef::min(x, {0}).value())};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
  CHECK(std::isfinite(one[0][0]));
}
