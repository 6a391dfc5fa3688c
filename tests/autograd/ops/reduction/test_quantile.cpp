#include "eigenformer/autograd/ops/reduction/sort.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "reduction_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("median, quantile: gradients along every axis") {
  const Tensor<double> q({3}, {0.1, 1, 0.45});
  for (const index_t axis : {0, 1, 2, -1}) {
    for (const bool keep : {false, true}) {
      check_op([&](const Vars& v) { return ef::median(v[0], axis, keep).values; }, {random({3, 4, 5})});
      check_op([&](const Vars& v) { return ef::quantile(v[0], 0.7, axis, keep); }, {random({3, 4, 5})});
      check_op([&](const Vars& v) { return ef::quantile(v[0], q, axis, keep); }, {random({3, 4, 5})});
    }
  }
  check_op([](const Vars& v) { return ef::median(v[0]); }, {random({3, 4})});
  check_op([](const Vars& v) { return ef::quantile(v[0], 0.3); }, {random({3, 4})});
  check_op([&](const Vars& v) { return ef::quantile(v[0], q); }, {random({3, 4})});
}

TEST_CASE_TEMPLATE("median, quantile are PyTorch's: ties, NaN, infinities", T, float, double) {
  const auto q = reductions().get<T>("in.quantiles");
  check_fixture<T>("quantile",
                   [](const Var<T>& x, const auto& axes) { return ef::quantile(x, 0.3, axes[0]); });
  check_fixture<T>("quantiles",
                   [&](const Var<T>& x, const auto& axes) { return ef::quantile(x, q, axes[0]); });
  // Which one of equal medians has the gradient is PyTorch's choice.
  for_each_result("out.median", [&](const std::string& source, const auto& axes, const std::string& rest) {
    const auto found = ef::median(reductions().get<T>("in." + source), axes[0]);
    check_all_close(found.values.value(), reductions().get<double>("out.median." + rest), 1e-7);
  });
  for (const std::string source : {"x", "y"}) {
    for (const std::string op : {"median_all", "quantile_all"}) {
      const std::string key = op + "." + source + ".0";
      CAPTURE(key);
      Tape<T> tape;
      const Var<T> x = tape.variable(reductions().get<T>("in." + source));
      const Var<T> y = op == "median_all" ? ef::median(x) : ef::quantile(x, 0.3);
      check_all_close(y.value(), reductions().get<double>("out." + key), 1e-6);
      Gradients<T> none;
      tape.backward(y, reductions().get<T>("in.cotangent." + key), none);
      check_all_close(tape.gradient(x), reductions().get<double>("grad_in." + key), 1e-5);
    }
  }
}

TEST_CASE("median: the lower of two, where it is, NaN") {
  const double nan = std::nan("");
  const Tensor<double> x({2, 4}, {4, 1, 3, 2, 7, nan, 5, nan});
  const auto found = ef::median(x, 1);
  CHECK(found.values.value()(0) == 2);
  CHECK(std::isnan(found.values.value()(1)));
  CHECK(values(found.indices) == std::vector<std::int64_t>{3, 1});
  CHECK(ef::median(x, -1, true).indices.shape() == Shape{2, 1});
  CHECK(ef::median(Tensor<float>({4}, {4, 1, 3, 2})).item() == 2);
  CHECK(ef::median(Tensor<float>::scalar(3)).item() == 3);
  CHECK(ef::quantile(Tensor<float>({4}, {4, 1, 3, 2}), 0.5).item() == 2.5f);
  CHECK(ef::quantile(x, Tensor<double>({3}, {0, 0.5, 1}), 0, true).shape() == Shape{3, 1, 4});
  CHECK(ef::quantile(x, Tensor<double>({3}, {0, 0.5, 1}), 1).shape() == Shape{3, 2});
  CHECK(ef::quantile(x, 0.5, std::nullopt, true).shape() == Shape{1, 1});
}

TEST_CASE("median, quantile: what is refused") {
  const Tensor<float> x = Tensor<float>::zeros({2, 3}), none(Shape{2, 0});
  CHECK(message_of<ValueError>([&] { (void)ef::median(none, 1); }) ==
        "[median] input of shape (2, 0) has no entries, must have at least one");
  CHECK_THROWS_AS((void)ef::median(none), ValueError);
  CHECK_THROWS_AS((void)ef::quantile(none, 0.5, 1), ValueError);
  CHECK(ef::median(none, 0).values.shape() == Shape{0});
  CHECK(message_of<ValueError>([&] { (void)ef::quantile(x, 1.5, 0); }) ==
        "[quantile] q is 1.5, must be in [0, 1]");
  CHECK_THROWS_AS((void)ef::quantile(x, Tensor<float>::zeros({1, 1}), 0), ShapeError);
  CHECK_THROWS_AS((void)ef::quantile(x, 0.5, 2), IndexError);
  CHECK_THROWS_AS((void)ef::median(x, 2), IndexError);
}
