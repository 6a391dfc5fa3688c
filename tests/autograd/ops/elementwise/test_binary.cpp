#include "eigenformer/autograd/ops/elementwise/binary.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/tape/functions.hpp"
#include "elementwise_check.hpp"
#include "isa.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace ef = eigenformer;

TEST_CASE_TEMPLATE("functions of two operands and their gradients are PyTorch's", T, float, double) {
  check_pair<T>("pow", [](const Var<T>& a, const Var<T>& b) { return ef::pow(a, b); });
  check_pair<T>("maximum", [](const Var<T>& a, const Var<T>& b) { return ef::maximum(a, b); });
  check_pair<T>("minimum", [](const Var<T>& a, const Var<T>& b) { return ef::minimum(a, b); });
  check_pair<T>("atan2", [](const Var<T>& a, const Var<T>& b) { return ef::atan2(a, b); });
  check_pair<T>("logaddexp", [](const Var<T>& a, const Var<T>& b) { return ef::logaddexp(a, b); });
  check_pair<T>("remainder", [](const Var<T>& a, const Var<T>& b) { return ef::remainder(a, b); });
  for (const std::string op : {"prelu", "prelu1"}) {
    check_pair<T>(
        op, [](const Var<T>& a, const Var<T>& b) { return ef::prelu(a, b); }, "in_a." + op, "in_b." + op);
  }
  check_unary<T>("pow0", [](const Var<T>& x) { return ef::pow(x, 0); });
  check_unary<T>("pow2", [](const Var<T>& x) { return ef::pow(x, 2); });
  check_unary<T>("pow3", [](const Var<T>& x) { return ef::pow(x, -3); });
  check_unary<T>("rpow", [](const Var<T>& x) { return ef::pow(2, x); });
  check_unary<T>("rpow0", [](const Var<T>& x) { return ef::pow(0, x); });
}

TEST_CASE("functions of two operands: gradients and errors") {
  const auto a = positive({3, 1, 2}, 1), b = positive({4, 1}, 2, 2.1, 3);
  check_op([](const Vars& v) { return ef::pow(v[0], v[1]); }, {a, b});
  check_op([](const Vars& v) { return ef::maximum(v[0], v[1]); }, {a, b});
  check_op([](const Vars& v) { return ef::minimum(v[0], v[1]); }, {a, b});
  check_op([](const Vars& v) { return ef::atan2(v[0], v[1]); }, {a, b});
  check_op([](const Vars& v) { return ef::logaddexp(v[0], v[1]); }, {a, b});
  // Quotients far from whole numbers, where it jumps.
  check_op([](const Vars& v) { return ef::remainder(v[0], v[1]); },
           {positive({3, 1, 2}, 1, 5.3, 5.6), positive({4, 1}, 2, 2.1, 2.2)});
  const auto x = away_from_zero({2, 3, 4});
  check_op([](const Vars& v) { return ef::prelu(v[0], v[1]); }, {x, positive({3})});
  check_op([](const Vars& v) { return ef::prelu(v[0], v[1]); }, {x, positive({1})});
  check_op([](const Vars& v) { return ef::prelu(v[0], v[1]); }, {x, positive({})});
  check_op([](const Vars& v) { return ef::prelu(v[0], 0.3); }, {x});
  check_op([](const Vars& v) { return ef::pow(v[0], v[0]); }, {a});
  CHECK_THROWS_AS((void)ef::maximum(Tensor<float>::zeros({2}), Tensor<float>::zeros({3})), ShapeError);
  CHECK_THROWS_AS((void)ef::prelu(x, positive({4})), ShapeError);
  CHECK_THROWS_AS((void)ef::prelu(positive({3}), positive({3})), ShapeError);
}

TEST_CASE_TEMPLATE("remainder: the gradients of an infinite divisor are PyTorch's", T, float, double) {
  const T inf = std::numeric_limits<T>::infinity();
  const auto gradients = ef::grad([](auto a, auto b) { return ef::sum(ef::remainder(a, b)); });
  const auto [da, db] =
      gradients(Tensor<T>({5}, {-1, 1, 0, 2, -3}), Tensor<T>({5}, {inf, inf, inf, -inf, -inf}));
  CHECK(values(da) == std::vector<T>{1, 1, 1, 1, 1});
  CHECK(values(db) == std::vector<T>{1, 0, 0, 1, 0});
}

TEST_CASE("pow: does not depend on neighbours") {
  auto x = Tensor<float>::full({16}, 0x1.ea6266p+12F);
  const auto y = Tensor<float>::full({16}, -0x1.de2cfp+2F);
  const float alone = ef::pow(x, y).value()(5);
  for (const float other : {0.F, -2.F, std::numeric_limits<float>::infinity()}) {
    x(1) = other;
    CHECK(ef::pow(x, y).value()(5) == alone);
  }
}

TEST_CASE("pow: subnormal operands and results, overflow, powers of 1") {
  for (const auto& operands : std::vector<std::pair<float, float>>{{1e-45F, -1.F},
                                                                   {1e-45F, 0.5F},
                                                                   {2.F, -149.F},
                                                                   {2.F, -150.F},
                                                                   {2.F, 128.F},
                                                                   {2.F, 127.9999F},
                                                                   {1.F, 3e38F},
                                                                   {0x1.fffffep-1F, 3e38F},
                                                                   {0x1.000002p0F, 3e38F},
                                                                   {5.F, 0.F},
                                                                   {5.F, -0.F}}) {
    const float a = operands.first, b = operands.second;
    CAPTURE(a);
    CAPTURE(b);
    for_each_isa([&] {
      const float found = ef::pow(Tensor<float>::full({16}, a), Tensor<float>::full({16}, b)).value()(9);
      CHECK(found == static_cast<float>(std::pow(double{a}, double{b})));
    });
  }
}
