#include "eigenformer/autograd/ops/reduction/cumulative.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "reduction_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("cumprod, logcumsumexp, cummax, cummin: gradients along every axis") {
  for (const index_t axis : {0, 1, 2, -1}) {
    check_op([&](const Vars& v) { return ef::cumprod(v[0], axis); }, {away_from_zero({3, 4, 5})});
    check_op([&](const Vars& v) { return ef::logcumsumexp(v[0], axis); }, {random({3, 4, 5})});
    check_op([&](const Vars& v) { return ef::cummax(v[0], axis).values; }, {random({3, 4, 5})});
    check_op([&](const Vars& v) { return ef::cummin(v[0], axis).values; }, {random({3, 4, 5})});
  }
  check_op([](const Vars& v) { return ef::logcumsumexp(v[0], 0); }, {random({3, 70})});
}

TEST_CASE_TEMPLATE("cumprod, logcumsumexp, cummax, cummin are PyTorch's", T, float, double) {
  // Factors beside a NaN have the product as gradient, and -infinities have none in logcumsumexp().
  check_fixture<T>(
      "cumprod", [](const Var<T>& x, const auto& axes) { return ef::cumprod(x, axes[0]); }, false);
  check_fixture<T>(
      "logcumsumexp", [](const Var<T>& x, const auto& axes) { return ef::logcumsumexp(x, axes[0]); }, false);
  check_fixture<T>("cummax", [](const Var<T>& x, const auto& axes) { return ef::cummax(x, axes[0]).values; });
  check_fixture<T>("cummin", [](const Var<T>& x, const auto& axes) { return ef::cummin(x, axes[0]).values; });
  for (const bool smallest : {false, true}) {
    const std::string op = smallest ? "index.cummin" : "index.cummax";
    for_each_result(op, [&](const std::string& source, const auto& axes, const std::string& rest) {
      const auto x = reductions().get<T>("in." + source);
      const auto expected = values(reductions().file().template tensor<std::int64_t>(op + "." + rest));
      CHECK(values((smallest ? ef::cummin(x, axes[0]) : ef::cummax(x, axes[0])).indices) == expected);
    });
  }
}

TEST_CASE("cumprod: the gradient of zeros is exact; logcumsumexp: large and infinite entries") {
  const double inf = std::numeric_limits<double>::infinity();
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>({4}, {2, 0, 3, 0}));
  tape.backward(sum(ef::cumprod(x, 0)));
  CHECK(values(tape.gradient(x)) == std::vector<double>{1, 8, 0, 0});
  const Tensor<double> large({4}, {-inf, 1000, 1000, inf});
  const auto y = ef::logcumsumexp(large, 0).value();
  CHECK(y(0) == -inf);
  CHECK(y(2) == doctest::Approx(1000 + std::log(2.0)));
  CHECK(y(3) == inf);
  Tape<double> other;
  const Var<double> v = other.variable(Tensor<double>({3}, {-inf, -inf, 0}));
  other.backward(sum(ef::logcumsumexp(v, 0)));
  CHECK(values(other.gradient(v)) == std::vector<double>{0, 0, 1});
}

TEST_CASE("cumulative ops: threads do not change the result, and axes that do not exist") {
  const Tensor<float> x = random({40, 301}, 5).to<float>();
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    return values((ef::logcumsumexp(x, 0) + ef::cumprod(x, 1) + ef::cummax(x, 0).values).value());
  };
  const auto one = run(1);
  CHECK(run(3) == one);
  CHECK_THROWS_AS((void)ef::cumprod(x, 2), IndexError);
  CHECK_THROWS_AS((void)ef::cummax(x, -3), IndexError);
  CHECK_THROWS_AS((void)ef::logcumsumexp(Tensor<float>::scalar(1), 0), IndexError);
  CHECK(ef::cummin(Tensor<float>(Shape{0, 2}), 0).indices.shape() == Shape{0, 2});
}
