#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// Equal shapes, each kind of broadcasting, and both at once.
const std::vector<std::pair<Shape, Shape>> broadcasts = {{Shape{2, 3, 5}, Shape{2, 3, 5}},
                                                         {Shape{2, 3, 5}, Shape{5}},
                                                         {Shape{2, 3, 5}, Shape{3, 1}},
                                                         {Shape{2, 3, 5}, Shape{2, 1, 1}},
                                                         {Shape{2, 3, 5}, Shape{1, 3, 5}},
                                                         {Shape{2, 3, 5}, Shape{}},
                                                         {Shape{2, 1, 5}, Shape{3, 1}},
                                                         {Shape{7, 1, 3}, Shape{2, 1, 5, 1}},
                                                         {Shape{1}, Shape{4}},
                                                         {Shape{}, Shape{}},
                                                         {Shape{4, 1}, Shape{1, 1, 7}}};

template <class F>
void check_broadcasts(F&& op) {
  for (const auto& shapes : broadcasts) {
    const Shape& a = shapes.first;
    const Shape& b = shapes.second;
    CAPTURE(a.str());
    CAPTURE(b.str());
    check_op([&](const Vars& v) { return op(v[0], v[1]); }, {random(a, 1), away_from_zero(b, 2)});
    check_op([&](const Vars& v) { return op(v[0], v[1]); }, {random(b, 3), away_from_zero(a, 4)});
    // One operand is a constant.
    const Tensor<double> constant = away_from_zero(b, 5);
    check_op([&](const Vars& v) { return op(v[0], Var<double>(constant)); }, {random(a, 6)});
    check_op([&](const Vars& v) { return op(Var<double>(constant), v[0]); }, {away_from_zero(a, 7)});
  }
}

}  // namespace

TEST_CASE("add, subtract, multiply, divide: gradients with every kind of broadcasting") {
  check_broadcasts([](const auto& a, const auto& b) { return add(a, b); });
  check_broadcasts([](const auto& a, const auto& b) { return subtract(a, b); });
  check_broadcasts([](const auto& a, const auto& b) { return multiply(a, b); });
  check_broadcasts([](const auto& a, const auto& b) { return divide(a, b); });
}

TEST_CASE_TEMPLATE("arithmetic: values", T, float, double) {
  const Var<T> a = Tensor<T>::from({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor<T> b = Tensor<T>::from({3}, {10, 20, 40});
  CHECK(values(add(a, b).value()) == std::vector<T>{11, 22, 43, 14, 25, 46});
  CHECK(values(subtract(a, b).value()) == std::vector<T>{-9, -18, -37, -6, -15, -34});
  CHECK(values(multiply(a, b).value()) == std::vector<T>{10, 40, 120, 40, 100, 240});
  CHECK(values(divide(Var<T>(b), a).value()) == std::vector<T>{10, 10, T(40) / T(3), 2.5, 4, T(40) / T(6)});
  CHECK(add(a, b).shape() == Shape{2, 3});
  CHECK(multiply(Var<T>(Tensor<T>::ones({4, 1})), Tensor<T>::ones({1, 7})).shape() == Shape{4, 7});
  CHECK(add(Var<T>(Tensor<T>(Shape{0, 3})), b).shape() == Shape{0, 3});
}

TEST_CASE_TEMPLATE("arithmetic: numbers and operators", T, float, double) {
  const Var<T> x = Tensor<T>::from({3}, {1, -2, 4});
  const Tensor<T> t = Tensor<T>::from({3}, {2, 4, 8});
  CHECK(values((x + 1).value()) == std::vector<T>{2, -1, 5});
  CHECK(values((1 + x).value()) == std::vector<T>{2, -1, 5});
  CHECK(values((x - 0.5).value()) == std::vector<T>{0.5, -2.5, 3.5});
  CHECK(values((index_t{3} - x).value()) == std::vector<T>{2, 5, -1});
  CHECK(values((x * 2).value()) == std::vector<T>{2, -4, 8});
  CHECK(values((0.5f * x).value()) == std::vector<T>{0.5, -1, 2});
  CHECK(values((x * 1).value()) == std::vector<T>{1, -2, 4});
  CHECK(values((x * 0).value()) == std::vector<T>{0, 0, 0});
  CHECK(values((x / 4).value()) == std::vector<T>{0.25, -0.5, 1});
  CHECK(values((4 / x).value()) == std::vector<T>{4, -2, 1});
  CHECK(values((-x).value()) == std::vector<T>{-1, 2, -4});
  CHECK(values((x + x).value()) == std::vector<T>{2, -4, 8});
  CHECK(values((x + t).value()) == std::vector<T>{3, 2, 12});
  CHECK(values((t + x).value()) == std::vector<T>{3, 2, 12});
  CHECK(values((t - x).value()) == std::vector<T>{1, 6, 4});
  CHECK(values((t * x).value()) == std::vector<T>{2, -8, 32});
  CHECK(values((t / x).value()) == std::vector<T>{2, -2, 2});
  CHECK(values((t / t).value()) == std::vector<T>{1, 1, 1});
  CHECK(values((t * 2 + 1).value()) == std::vector<T>{5, 9, 17});
  CHECK(values((8 / t - t).value()) == std::vector<T>{2, -2, -7});
  CHECK(values(((t + t) * t - t).value()) == std::vector<T>{6, 28, 120});
}

TEST_CASE("arithmetic: an op leaves its operands as they were") {
  const Tensor<double> a = random({5, 7}, 1), b = random({7}, 2);
  const auto kept_a = values(a), kept_b = values(b);
  Tape<double> tape;
  const Var<double> x = tape.variable(a), y = tape.variable(b);
  const Var<double> z = (x + y) * (x - y) / (square(y) + 1) + exp(-x) * 2 - 1;
  tape.backward(sum(z));
  CHECK(values(a) == kept_a);
  CHECK(values(b) == kept_b);
}

TEST_CASE("arithmetic: gradients of numbers and of the functions of one operand") {
  check_op([](const Vars& v) { return v[0] + 3; }, {random({2, 5})});
  check_op([](const Vars& v) { return v[0] - 3; }, {random({2, 5})});
  check_op([](const Vars& v) { return 3 - v[0]; }, {random({2, 5})});
  check_op([](const Vars& v) { return v[0] * 2.5; }, {random({2, 5})});
  check_op([](const Vars& v) { return v[0] * 1; }, {random({2, 5})});
  check_op([](const Vars& v) { return v[0] / 2.5; }, {random({2, 5})});
  check_op([](const Vars& v) { return 2.5 / v[0]; }, {away_from_zero({2, 5})});
  check_op([](const Vars& v) { return negate(v[0]); }, {random({2, 3, 5})});
  check_op([](const Vars& v) { return exp(v[0]); }, {random({2, 3, 5})});
  check_op([](const Vars& v) { return log(v[0]); }, {positive({2, 3, 5})});
  check_op([](const Vars& v) { return sqrt(v[0]); }, {positive({2, 3, 5})});
  check_op([](const Vars& v) { return square(v[0]); }, {random({2, 3, 5})});
  check_op([](const Vars& v) { return log(v[0]); }, {positive({})});
}

TEST_CASE_TEMPLATE("exp, log, sqrt, square, negate: values, for sizes around the vectors'", T, float,
                   double) {
  const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-14;
  for (const index_t n : {1, 3, 7, 8, 9, 15, 16, 17, 33, 100}) {
    const Tensor<double> x = positive({n}, 3, 0.01, 9.0);
    const Var<T> v = x.to<T>();
    Tensor<double> e(Shape{n}), l(Shape{n}), r(Shape{n}), s(Shape{n}), m(Shape{n});
    for (index_t i = 0; i < n; ++i) {
      const double exact = static_cast<double>(v.value().data()[i]);
      e.data()[i] = std::exp(exact);
      l.data()[i] = std::log(exact);
      r.data()[i] = std::sqrt(exact);
      s.data()[i] = exact * exact;
      m.data()[i] = -exact;
    }
    CHECK(worst_difference(exp(v).value(), e) < tolerance);
    CHECK(worst_difference(log(v).value(), l) < tolerance);
    CHECK(worst_difference(sqrt(v).value(), r) < tolerance);
    CHECK(worst_difference(square(v).value(), s) < tolerance);
    CHECK(worst_difference(negate(v).value(), m) == 0);
  }
}

TEST_CASE("log and sqrt outside their domain") {
  const Var<float> x = Tensor<float>::from({3}, {0, -1, 4});
  CHECK(log(x).value().at({0}) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(log(x).value().at({1})));
  CHECK(sqrt(x).value().at({0}) == 0);
  CHECK(std::isnan(sqrt(x).value().at({1})));
  CHECK(sqrt(x).value().at({2}) == 2);
}

TEST_CASE("arithmetic: the same Var as both operands") {
  check_op([](const Vars& v) { return v[0] + v[0]; }, {random({3, 4})});
  check_op([](const Vars& v) { return v[0] - v[0]; }, {random({3, 4})});
  check_op([](const Vars& v) { return v[0] * v[0]; }, {random({3, 4})});
  check_op([](const Vars& v) { return v[0] / v[0]; }, {away_from_zero({3, 4})});
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::from({2}, {3, -5}));
  tape.backward(sum(x * x + x + x));
  CHECK(values(tape.gradient(x)) == std::vector<double>{8, -8});
}

TEST_CASE("arithmetic: gradients that are shared and not copied do not run into each other") {
  // Residual connections: the gradient of each sum is handed to both branches, which then add their own to
  // it.
  check_op(
      [](const Vars& v) {
        const auto h = v[0] + square(v[0]);
        const auto g = h + v[1] * h;
        return g + h + v[1];
      },
      {random({3, 4}, 1), random({3, 4}, 2)});
  // The same gradient goes to three leaves, one of which gets more.
  Tape<double> tape;
  const Var<double> a = tape.variable(Tensor<double>::ones({2}));
  const Var<double> b = tape.variable(Tensor<double>::ones({2}));
  const Var<double> c = tape.variable(Tensor<double>::ones({2}));
  tape.backward(sum((a + b) + (c + a * 10)));
  CHECK(values(tape.gradient(a)) == std::vector<double>{11, 11});
  CHECK(values(tape.gradient(b)) == std::vector<double>{1, 1});
  CHECK(values(tape.gradient(c)) == std::vector<double>{1, 1});
}

TEST_CASE("arithmetic: shapes that do not broadcast are named") {
  const Var<float> a = Tensor<float>::zeros({2, 3});
  const Var<float> b = Tensor<float>::zeros({4});
  CHECK(contains(message_of<ShapeError>([&] { (void)add(a, b); }),
                 "[add] shapes (2, 3) and (4,) do not broadcast"));
  CHECK(contains(message_of<ShapeError>([&] { (void)subtract(a, b); }), "[subtract] shapes (2, 3) and (4,)"));
  CHECK(contains(message_of<ShapeError>([&] { (void)multiply(a, b); }), "[multiply] shapes (2, 3) and (4,)"));
  CHECK(contains(message_of<ShapeError>([&] { (void)divide(a, b); }), "[divide] shapes (2, 3) and (4,)"));
  try {
    (void)add(a, b);
  } catch (const ShapeError& error) {
    REQUIRE(error.shapes().size() == 2);
    CHECK(error.shapes()[0] == Shape{2, 3});
    CHECK(error.shapes()[1] == Shape{4});
  }
}

TEST_CASE("arithmetic: constants record nothing") {
  Tape<float> tape;
  const Var<float> x = tape.variable(Tensor<float>::ones({2}));
  const auto size = tape.size();
  const Var<float> c = Tensor<float>::ones({2});
  CHECK_FALSE((c * c + 1).recorded());
  CHECK_FALSE((x.detach() * 2).recorded());
  CHECK(tape.size() == size);
  CHECK((x * c).recorded());
}

TEST_CASE("arithmetic: the profiler sees forward and backward of every op under its name") {
  Profiler& profiler = Runtime::instance().profiler();
  profiler.clear();
  profiler.start();
  {
    Tape<float> tape;
    const Var<float> x = tape.variable(Tensor<float>::ones({2, 3}));
    tape.backward(sum(exp(x) * x));
  }
  profiler.stop();
  int multiply_forward = 0, multiply_backward = 0, exp_backward = 0;
  for (const OpProfile& p : profiler.report()) {
    if (p.op == "multiply") (p.backward ? multiply_backward : multiply_forward) += static_cast<int>(p.calls);
    if (p.op == "exp" && p.backward) exp_backward += static_cast<int>(p.calls);
  }
  profiler.clear();
  CHECK(multiply_forward == 1);
  CHECK(multiply_backward == 1);
  CHECK(exp_backward == 1);
}
