#include "eigenformer/autograd/ops/elementwise/binary.hpp"

#include <doctest/doctest.h>

#include "elementwise_check.hpp"

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
