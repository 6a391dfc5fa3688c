#include "eigenformer/autograd/ops/shape/shape.hpp"

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Var<double> counting(const Shape& shape) { return Tensor<double>::arange(shape.numel()).reshape(shape); }

}  // namespace

TEST_CASE("reshape: gradients, values, sharing") {
  check_op([](const Vars& v) { return reshape(v[0], Shape{5, 6}) * 2; }, {random({2, 3, 5})});
  check_op([](const Vars& v) { return reshape(v[0], {-1, 3}); }, {random({2, 3, 5})});
  check_op([](const Vars& v) { return reshape(v[0], Shape{}); }, {random({1, 1})});
  const Var<double> x = counting({2, 6});
  CHECK(reshape(x, Shape{3, 4}).value().data() == x.value().data());
  CHECK(reshape(x, {3, -1}).shape() == Shape{3, 4});
  CHECK(reshape(x, {-1}).shape() == Shape{12});
  CHECK(reshape(x, {4, 3}).shape() == Shape{4, 3});
  CHECK(reshape(counting({0, 4}), {2, -1}).shape() == Shape{2, 0});
}

TEST_CASE("reshape: sizes that do not fit") {
  const Var<double> x = counting({2, 6});
  CHECK(message_of<ShapeError>([&] { (void)reshape(x, Shape{5}); }) ==
        "[reshape] tensor of shape (2, 6) has 12 elements, which do not fit shape (5,)");
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)reshape(x, {5, -1});
                 }),
                 "[reshape] tensor of shape (2, 6) has 12 elements, which are not divisible by 5"));
  CHECK_THROWS_AS((void)reshape(x, {-1, -1}), ShapeError);
  CHECK_THROWS_AS((void)reshape(x, {0, -1}), ShapeError);
  CHECK_THROWS_AS((void)reshape(x, {-2, 6}), ShapeError);
}

TEST_CASE("permute, transpose: gradients") {
  check_op([](const Vars& v) { return permute(v[0], {2, 0, 1}); }, {random({2, 3, 5})});
  check_op([](const Vars& v) { return permute(v[0], {-1, 1, -3}); }, {random({2, 3, 5})});
  check_op([](const Vars& v) { return permute(v[0], {0, 2, 1, 3}); }, {random({2, 3, 5, 4})});
  check_op([](const Vars& v) { return permute(v[0], {3, 1, 5, 0, 4, 2}); }, {random({2, 3, 1, 2, 2, 5})});
  check_op([](const Vars& v) { return transpose(v[0]); }, {random({3, 7})});
  check_op([](const Vars& v) { return transpose(v[0]); }, {random({2, 3, 7})});
  check_op([](const Vars& v) { return transpose(v[0], 0, 2); }, {random({2, 3, 7})});
  check_op([](const Vars& v) { return permute(v[0], {0, 1}); }, {random({2, 3})});
}

TEST_CASE_TEMPLATE("permute: every element lands where the order says", T, float, double) {
  const Var<T> x = Tensor<T>::arange(2 * 3 * 5).reshape({2, 3, 5});
  const Tensor<T> y = permute(x, {1, -1, 0}).value();
  REQUIRE(y.shape() == Shape{3, 5, 2});
  for (index_t i = 0; i < 2; ++i) {
    for (index_t j = 0; j < 3; ++j) {
      for (index_t k = 0; k < 5; ++k) CHECK(y.at({j, k, i}) == x.value().at({i, j, k}));
    }
  }
  const Tensor<T> t = transpose(x, 0).value();
  CHECK(t.shape() == Shape{5, 3, 2});
  CHECK(t.at({4, 1, 1}) == x.value().at({1, 1, 4}));
}

TEST_CASE("permute, transpose: orders that are none") {
  const Var<double> x = counting({2, 3});
  CHECK_THROWS_AS((void)permute(x, {0}), ShapeError);
  CHECK_THROWS_AS((void)permute(x, {0, 0}), ShapeError);
  CHECK_THROWS_AS((void)permute(x, {0, 2}), ShapeError);
  CHECK_THROWS_AS((void)permute(x, {1, -1}), ShapeError);
  CHECK(message_of<IndexError>([&] { (void)transpose(x, 0, 2); }) ==
        "[transpose] axis 2 does not exist in shape (2, 3)");
  CHECK_THROWS_AS((void)transpose(counting({3})), IndexError);
}

TEST_CASE("slice: gradients along every axis") {
  check_op([](const Vars& v) { return slice(v[0], 0, 1, 3); }, {random({4, 3, 5})});
  check_op([](const Vars& v) { return slice(v[0], 1, -2); }, {random({4, 3, 5})});
  check_op([](const Vars& v) { return slice(v[0], -1, 1, -1); }, {random({4, 3, 5})});
  check_op([](const Vars& v) { return slice(v[0], 0, 0) + slice(v[0], 0, 0, 4); }, {random({4, 3})});
  // Slices that overlap add up.
  check_op([](const Vars& v) { return slice(v[0], 0, 0, 3) * slice(v[0], 0, 1, 4); }, {random({4, 3})});
}

TEST_CASE("slice: values") {
  const Var<double> x = counting({2, 3, 4});
  CHECK(values(slice(x, 2, 1, 3).value()) == std::vector<double>{1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22});
  CHECK(values(slice(x, 1, -1).value()) == std::vector<double>{8, 9, 10, 11, 20, 21, 22, 23});
  CHECK(slice(x, 0, 1).shape() == Shape{1, 3, 4});
  CHECK(slice(x, 0, 1).value().data() == x.value().data() + 12);
  CHECK(slice(x, 1, 2, 2).shape() == Shape{2, 0, 4});
  CHECK(slice(x, 1, 0, 0).numel() == 0);
  CHECK(slice(x, 1, 3).shape() == Shape{2, 0, 4});
}

TEST_CASE("slice: an empty slice has a gradient of zeros") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::ones({2, 3}));
  tape.backward(sum(slice(x, 1, 1, 1)));
  CHECK(values(tape.gradient(x)) == std::vector<double>(6, 0.0));
}

TEST_CASE("slice: ranges that do not exist") {
  const Var<double> x = counting({2, 3});
  CHECK(message_of<IndexError>([&] { (void)slice(x, 1, 0, 4); }) ==
        "[slice] range 0 to 4 does not exist in axis 1 of shape (2, 3)");
  CHECK(message_of<IndexError>([&] { (void)slice(x, 1, 4); }) ==
        "[slice] range 4 to the end does not exist in axis 1 of shape (2, 3)");
  CHECK_THROWS_AS((void)slice(x, 1, -4), IndexError);
  CHECK_THROWS_AS((void)slice(x, 1, 2, 1), IndexError);
  CHECK_THROWS_AS((void)slice(x, 1, 0, -4), IndexError);
  CHECK(message_of<IndexError>([&] { (void)slice(x, 2, 0); }) ==
        "[slice] axis 2 does not exist in shape (2, 3)");
  CHECK_THROWS_AS((void)slice(Var<double>(Tensor<double>::scalar(1)), 0, 0), IndexError);
}

TEST_CASE("concat: gradients along every axis, parts of different sizes") {
  check_op([](const Vars& v) { return concat(v, 0); },
           {random({2, 3}, 1), random({4, 3}, 2), random({1, 3}, 3)});
  check_op([](const Vars& v) { return concat(v, 1); }, {random({2, 3}, 1), random({2, 1}, 2)});
  check_op([](const Vars& v) { return concat(v, -2); }, {random({2, 3, 5}, 1), random({2, 4, 5}, 2)});
  check_op([](const Vars& v) { return concat(v); }, {random({3, 2})});
  // One part twice, and a constant between.
  const Tensor<double> constant = random({2, 2}, 9);
  check_op([&](const Vars& v) { return concat({v[0], Var<double>(constant), v[0]}, 1); }, {random({2, 3})});
  // A part without elements.
  check_op([](const Vars& v) { return concat(v, 0); }, {random({2, 3}, 1), random({0, 3}, 2)});
}

TEST_CASE("concat, stack: values") {
  const Var<double> a = Tensor<double>::from({2, 2}, {1, 2, 3, 4});
  const Var<double> b = Tensor<double>::from({2, 1}, {5, 6});
  CHECK(values(concat({a, b}, 1).value()) == std::vector<double>{1, 2, 5, 3, 4, 6});
  CHECK(values(concat({a, a}).value()) == std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4});
  const Var<double> c = a * 10;
  CHECK(stack({a, c}).shape() == Shape{2, 2, 2});
  CHECK(values(stack({a, c}).value()) == std::vector<double>{1, 2, 3, 4, 10, 20, 30, 40});
  CHECK(values(stack({a, c}, 1).value()) == std::vector<double>{1, 2, 10, 20, 3, 4, 30, 40});
  CHECK(values(stack({a, c}, -1).value()) == std::vector<double>{1, 10, 2, 20, 3, 30, 4, 40});
  CHECK(stack({Var<double>(Tensor<double>::scalar(1)), Var<double>(Tensor<double>::scalar(2))}).shape() ==
        Shape{2});
}

TEST_CASE("stack: gradients") {
  for (const index_t axis : {0, 1, 2, -1, -3}) {
    check_op([&](const Vars& v) { return stack(v, axis); },
             {random({2, 3}, 1), random({2, 3}, 2), random({2, 3}, 3)});
  }
}

TEST_CASE("concat, stack: parts that do not fit") {
  const Var<double> a = counting({2, 3}), b = counting({3, 2}), c = counting({6});
  CHECK(message_of<ValueError>([] { (void)concat(std::vector<Var<double>>{}); }) ==
        "[concat] there must be at least one tensor");
  CHECK_THROWS_AS((void)stack(std::vector<Var<double>>{}), ValueError);
  CHECK(message_of<ShapeError>([&] {
          (void)concat({a, b}, 0);
        }) == "[concat] shapes (2, 3) and (3, 2) must agree in all but axis 0");
  CHECK_THROWS_AS((void)concat({a, c}, 0), ShapeError);
  CHECK_THROWS_AS((void)concat({a, a}, 2), IndexError);
  CHECK(message_of<ShapeError>([&] {
          (void)stack({a, b});
        }) == "[stack] shapes (2, 3) and (3, 2) must be equal");
  CHECK_THROWS_AS((void)stack({a, a}, 3), IndexError);
  CHECK_THROWS_AS((void)stack({a, a}, -4), IndexError);
}

TEST_CASE("permute, slice, concat: large tensors give the same for any number of threads") {
  const Tensor<double> x = random({7, 301, 65}, 2);
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    Tape<double> tape;
    const Var<double> v = tape.variable(x);
    const Var<double> y = concat({permute(v, {1, 0, 2}), slice(permute(v, {1, 0, 2}), 2, 3, 50)}, -1);
    tape.backward(sum(y * y));
    return std::vector<std::vector<double>>{values(y.value()), values(tape.gradient(v))};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}
