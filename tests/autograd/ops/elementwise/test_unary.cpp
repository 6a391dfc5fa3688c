#include "eigenformer/autograd/ops/elementwise/unary.hpp"

#include <doctest/doctest.h>

#include "elementwise_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace ef = eigenformer;

TEST_CASE_TEMPLATE("functions of one operand and their gradients are PyTorch's", T, float, double) {
  EIGENFORMER_CHECK_UNARY(abs);
  EIGENFORMER_CHECK_UNARY(sign);
  EIGENFORMER_CHECK_UNARY(floor);
  EIGENFORMER_CHECK_UNARY(ceil);
  EIGENFORMER_CHECK_UNARY(round);
  EIGENFORMER_CHECK_UNARY(trunc);
  EIGENFORMER_CHECK_UNARY(exp2);
  EIGENFORMER_CHECK_UNARY(expm1);
  EIGENFORMER_CHECK_UNARY(log1p);
  EIGENFORMER_CHECK_UNARY(log2);
  EIGENFORMER_CHECK_UNARY(log10);
  EIGENFORMER_CHECK_UNARY(rsqrt);
  EIGENFORMER_CHECK_UNARY(reciprocal);
  EIGENFORMER_CHECK_UNARY(sin);
  EIGENFORMER_CHECK_UNARY(cos);
  EIGENFORMER_CHECK_UNARY(tan);
  EIGENFORMER_CHECK_UNARY(asin);
  EIGENFORMER_CHECK_UNARY(acos);
  EIGENFORMER_CHECK_UNARY(atan);
  EIGENFORMER_CHECK_UNARY(sinh);
  EIGENFORMER_CHECK_UNARY(cosh);
  EIGENFORMER_CHECK_UNARY(asinh);
  EIGENFORMER_CHECK_UNARY(acosh);
  EIGENFORMER_CHECK_UNARY(atanh);
  EIGENFORMER_CHECK_UNARY(erf);
  EIGENFORMER_CHECK_UNARY(erfc);
}

TEST_CASE("functions of one operand: gradients") {
  check_op([](const Vars& v) { return ef::abs(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::exp2(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::expm1(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::rsqrt(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::reciprocal(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::sin(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::cos(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::tan(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::atan(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::sinh(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::cosh(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::asinh(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::erf(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::erfc(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::log2(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::log10(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::log1p(v[0]); }, {positive({2, 3}, 1, 0.5, 1.2)});
  check_op([](const Vars& v) { return ef::asin(v[0]); }, {positive({2, 3}, 1, 0.1, 0.8)});
  check_op([](const Vars& v) { return ef::acos(v[0]); }, {positive({2, 3}, 1, 0.1, 0.8)});
  check_op([](const Vars& v) { return ef::atanh(v[0]); }, {positive({2, 3}, 1, 0.1, 0.8)});
  check_op([](const Vars& v) { return ef::acosh(v[0]); }, {positive({2, 3}, 1, 1.2, 2)});
}
