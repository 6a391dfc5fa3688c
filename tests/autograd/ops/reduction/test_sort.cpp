#include "eigenformer/autograd/ops/reduction/sort.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/reduction/cumulative.hpp"
#include "reduction_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Places = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("cumsum, sort, topk: gradients along every axis") {
  for (const index_t axis : {0, 1, 2, -1}) {
    check_op([&](const Vars& v) { return ef::cumsum(v[0], axis); }, {random({3, 4, 5})});
    check_op([&](const Vars& v) { return ef::sort(v[0], axis).values; }, {random({3, 4, 5})});
    check_op([&](const Vars& v) { return ef::sort(v[0], axis, true).values; }, {random({3, 4, 5})});
    check_op([&](const Vars& v) { return ef::topk(v[0], 2, axis).values; }, {random({3, 4, 5})});
    check_op([&](const Vars& v) { return ef::topk(v[0], 3, axis, false).values; }, {random({3, 4, 5})});
  }
  check_op([](const Vars& v) { return ef::cumsum(v[0], 0); }, {random({3, 70})});
}

TEST_CASE_TEMPLATE("cumsum, sort, topk are PyTorch's: ties, NaN, infinities, nothing", T, float, double) {
  check_fixture<T>("cumsum", [](const Var<T>& x, const auto& axes) { return ef::cumsum(x, axes[0]); });
  check_fixture<T>("sort", [](const Var<T>& x, const auto& axes) { return ef::sort(x, axes[0]).values; });
  check_fixture<T>("sort_down",
                   [](const Var<T>& x, const auto& axes) { return ef::sort(x, axes[0], true).values; });
  for (const bool down : {false, true}) {
    const std::string op = down ? "index.sort_down" : "index.sort";
    for_each_result(op, [&](const std::string& source, const auto& axes, const std::string& rest) {
      const auto x = reductions().get<T>("in." + source);
      const auto expected = values(reductions().file().template tensor<std::int64_t>(op + "." + rest));
      CHECK(values(ef::argsort(x, axes[0], down)) == expected);
      CHECK(values(ef::sort(x, axes[0], down).indices) == expected);
    });
  }
  for (const bool largest : {false, true}) {
    const std::string op = largest ? "topk" : "topk_small";
    for_each_result("out." + op, [&](const std::string& source, const auto& axes, const std::string& rest) {
      const auto top = ef::topk(reductions().get<T>("in." + source), 2, axes[0], largest);
      check_all_close(top.values.value(), reductions().get<double>("out." + op + "." + rest), 1e-7);
    });
  }
}

TEST_CASE("sort, argsort, topk: equal entries keep their order, NaN is above all") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Tensor<float> x({7}, {2, nan, 1, 2, inf, nan, 1});
  CHECK(values(ef::argsort(x)) == Places{2, 6, 0, 3, 4, 1, 5});
  CHECK(values(ef::argsort(x, 0, true)) == Places{1, 5, 4, 0, 3, 2, 6});
  CHECK(values(ef::topk(x, 4).indices) == Places{1, 5, 4, 0});
  CHECK(values(ef::topk(x, 3, 0, false).indices) == Places{2, 6, 0});
  CHECK(values(ef::topk(x, 3, 0, false).values.value()) == std::vector<float>{1, 1, 2});
  CHECK(ef::topk(x, 0).values.shape() == Shape{0});
  CHECK(ef::sort(Tensor<float>(Shape{0, 2}), 0).indices.shape() == Shape{0, 2});
}

TEST_CASE("topk: the first k of all in order, for every k") {
  const Tensor<double> x = random({2, 40}, 7);
  for (const bool largest : {false, true}) {
    const auto order = ef::argsort(x, 1, largest);
    for (index_t k = 0; k <= 40; ++k) {
      CHECK(values(ef::topk(x, k, 1, largest).indices) == values(order(ef::all, ef::range(0, k))));
    }
  }
}

TEST_CASE("cumsum: doubles add up, and threads do not change the result") {
  const Tensor<float> x = Tensor<float>::full({2, 300001}, 0.1f);
  CHECK(static_cast<double>(ef::cumsum(x, 1).value()(1, 300000)) ==
        doctest::Approx(300001 * static_cast<double>(0.1f)).epsilon(1e-7));
  const Tensor<float> y = random({40, 301}, 5).to<float>();
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    return values((ef::cumsum(y, 0) + ef::cumsum(y, 1) + ef::sort(y, 0).values).value());
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

TEST_CASE("cumsum, sort, topk: axes and k that do not exist") {
  const Tensor<float> x = Tensor<float>::zeros({2, 3});
  CHECK_THROWS_AS((void)ef::cumsum(x, 2), IndexError);
  CHECK_THROWS_AS((void)ef::sort(x, -3), IndexError);
  CHECK_THROWS_AS((void)ef::argsort(Tensor<float>::scalar(1)), IndexError);
  CHECK(message_of<ValueError>([&] { (void)ef::topk(x, 4); }) ==
        "[topk] k is 4, must be 0 to 3, the entries of axis -1 of shape (2, 3)");
  CHECK_THROWS_AS((void)ef::topk(x, -1), ValueError);
}

TEST_CASE("topk by a heap: NaN, -0 and ties, from both ends") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float v[] = {0.F, -0.F, nan, -nan, 1.F, -1e-45F, 1e-45F};
  Tensor<float> x({100, 2});
  for (index_t i = 0; i < 200; ++i) x.data()[i] = v[i * 7919 % 13 % 7];
  for (const bool down : {false, true}) {
    for (const index_t k : {1, 5, 12, 13, 99, 100}) {
      CAPTURE(k);
      const auto order = ef::argsort(x, 0, down);
      CHECK(values(ef::topk(x, k, 0, down).indices) == values(order(ef::range(0, k))));
      for (index_t i = 1; i < 100; ++i) {  // equal entries in their order
        const float a = x(order(i - 1, 0), 0), b = x(order(i, 0), 0);
        if (a == b || (a != a && b != b)) CHECK(order(i - 1, 0) < order(i, 0));
      }
    }
  }
}
