#include "eigenformer/autograd/ops/indexing/index.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

namespace ef = eigenformer;
using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("index: a Var's part has a Tensor's values, and gradients") {
  const Tensor<double> x = random({3, 4, 5});
  const Var<double> v(x);
  const auto y = v(ef::all, ef::range(1, 3), -1, ef::newaxis);
  CHECK(y.shape() == Shape{3, 2, 1});
  CHECK(values(y.value()) == values(x(ef::all, ef::range(1, 3), -1, ef::newaxis)));
  CHECK(v(1).shape() == Shape{4, 5});
  CHECK(v(1, 2, 3).item() == x(1, 2, 3));
  check_op([](const Vars& a) { return a[0](ef::all, ef::range(1, 3), -1, ef::newaxis); },
           {random({3, 4, 5})});
  check_op([](const Vars& a) { return a[0](ef::ellipsis, ef::range(-1, 0, -2)); }, {random({3, 5})});
  check_op([](const Vars& a) { return a[0](2); }, {random({3, 5})});
  check_op([](const Vars& a) { return a[0](2, 1); }, {random({3, 5})});
  CHECK_THROWS_AS((void)v(3), IndexError);
}

TEST_CASE("a part of a tensor is an operand") {
  Tensor<double> x({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(ef::sum(x(ef::all, 1)).item() == 7);
  CHECK(values((x(0, ef::all) + x(1, ef::all)).value()) == std::vector<double>{5, 7, 9});
  x(0, ef::all) = (x(0, ef::all) * 2).value();
  CHECK(values(x) == std::vector<double>{2, 4, 6, 4, 5, 6});
}

TEST_CASE("assign: a part replaced, with gradients of both operands") {
  const Var<double> x(Tensor<double>({2, 3}, {1, 2, 3, 4, 5, 6}));
  CHECK(values(ef::assign(x, {ef::all, 1}, 0).value()) == std::vector<double>{1, 0, 3, 4, 0, 6});
  CHECK(values(ef::assign(x, {1}, x(0)).value()) == std::vector<double>{1, 2, 3, 1, 2, 3});
  CHECK(x.value()(0, 1) == 2);
  check_op(
      [](const Vars& v) {
        return ef::assign(v[0], {ef::all, ef::range(0, 4, 2)}, v[1]);
      },
      {random({3, 4}), random({3, 1}, 2)});
  check_op([](const Vars& v) { return ef::assign(v[0], {1}, v[1]); }, {random({3, 4}), random({}, 2)});
  CHECK(message_of<ShapeError>([&] { (void)ef::assign(x, {0}, Tensor<double>::zeros({2})); }) ==
        "[assign] shape (2,) does not broadcast to shape (3,)");
}
