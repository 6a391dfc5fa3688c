#include <array>
#include <memory>

#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;
using detail::kernels::BinaryOp;
using detail::kernels::Comparison;
using detail::kernels::UnaryOp;

template <BinaryOp op>
struct Op {};

/// Where element `flat` of `out` comes from in an operand that is broadcast to it.
std::size_t source(index_t flat, const Shape& out, const Shape& operand) {
  index_t at = 0, step = 1;
  for (index_t i = 1; i <= out.rank(); ++i) {
    const index_t d = flat % out[-i];
    flat /= out[-i];
    if (i <= operand.rank()) {
      if (operand[-i] != 1) at += d * step;
      step *= operand[-i];
    }
  }
  return static_cast<std::size_t>(at);
}

const std::vector<std::array<Shape, 3>> broadcasts = {
    {Shape{5, 7}, Shape{5, 7}, Shape{5, 7}},
    {Shape{2, 5, 12}, Shape{}, Shape{2, 5, 12}},
    {Shape{1}, Shape{3, 35}, Shape{3, 35}},
    {Shape{2, 5, 12}, Shape{12}, Shape{2, 5, 12}},
    {Shape{2, 5, 12}, Shape{5, 12}, Shape{2, 5, 12}},
    {Shape{2, 5, 12}, Shape{2, 5, 1}, Shape{2, 5, 12}},
    {Shape{2, 1, 12}, Shape{1, 5, 1}, Shape{2, 5, 12}},
    {Shape{3, 1}, Shape{1, 4}, Shape{3, 4}},
    {Shape{2, 1, 3, 1, 17, 1}, Shape{5, 1, 2, 1, 3}, Shape{2, 5, 3, 2, 17, 3}},
    {Shape{}, Shape{}, Shape{}},
    {Shape{0, 3}, Shape{3}, Shape{0, 3}},
    {Shape{1, 3}, Shape{0, 1}, Shape{0, 3}},
    {Shape{300, 131}, Shape{131}, Shape{300, 131}},
    {Shape{70001}, Shape{1}, Shape{70001}},
};

TEST_CASE_TEMPLATE("arithmetic and comparisons with broadcasting equal a plain loop", T, float, double) {
  for_each_isa([&] {
    for (const auto& shapes : broadcasts) {
      const Shape &a_shape = shapes[0], &b_shape = shapes[1], &shape = shapes[2];
      INFO(a_shape.str(), " with ", b_shape.str());
      REQUIRE(detail::kernels::broadcast_shape("test", a_shape, b_shape) == shape);
      REQUIRE(detail::kernels::broadcast_shape("test", b_shape, a_shape) == shape);
      const auto a = random_values<T>(a_shape.numel(), 1), b = random_values<T>(b_shape.numel(), 2);
      std::vector<T> out(static_cast<std::size_t>(shape.numel()));
      const auto check = [&]<BinaryOp op>(Op<op>, auto f) {
        detail::kernels::binary<op>(a.data(), a_shape, b.data(), b_shape, out.data());
        index_t wrong = 0;
        for (index_t i = 0; i < shape.numel(); ++i) {
          wrong += out[static_cast<std::size_t>(i)] ==
                           f(a[source(i, shape, a_shape)], b[source(i, shape, b_shape)])
                       ? 0
                       : 1;
        }
        CHECK(wrong == 0);
      };
      check(Op<BinaryOp::add>(), [](T x, T y) { return x + y; });
      check(Op<BinaryOp::subtract>(), [](T x, T y) { return x - y; });
      check(Op<BinaryOp::multiply>(), [](T x, T y) { return x * y; });
      check(Op<BinaryOp::divide>(), [](T x, T y) { return x / y; });

      const auto flags = std::make_unique<bool[]>(out.size() + 1);
      detail::kernels::compare(Comparison::less, a.data(), a_shape, b.data(), b_shape, flags.get());
      detail::kernels::where(flags.get(), shape, a.data(), a_shape, b.data(), b_shape, out.data());
      index_t wrong = 0;
      for (index_t i = 0; i < shape.numel(); ++i) {
        const T x = a[source(i, shape, a_shape)], y = b[source(i, shape, b_shape)];
        wrong += flags[static_cast<std::size_t>(i)] != (x < y) ? 1 : 0;
        wrong += out[static_cast<std::size_t>(i)] != std::min(x, y) ? 1 : 0;
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("all six comparisons, NaN included") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a = {1, 2, 3, nan}, b = {2, 2, 2, nan};
  const std::array<std::array<bool, 4>, 6> expected = {{{false, true, false, false},
                                                        {true, false, true, true},
                                                        {true, false, false, false},
                                                        {true, true, false, false},
                                                        {false, false, true, false},
                                                        {false, true, true, false}}};
  for (std::size_t op = 0; op < 6; ++op) {
    std::array<bool, 4> out{};
    detail::kernels::compare(static_cast<Comparison>(op), a.data(), Shape{4}, b.data(), Shape{4}, out.data());
    CHECK(out == expected[op]);
  }
}

TEST_CASE("shapes that do not broadcast are named") {
  CHECK_THROWS_WITH_AS(detail::kernels::broadcast_shape("add", Shape{2, 3}, Shape{2}),
                       "[add] shapes (2, 3) and (2,) do not broadcast: dimension -1 is 3 and 2", ShapeError);
  const float x = 1;
  float y[6];
  CHECK_THROWS_AS(detail::kernels::broadcast_to(&x, Shape{2, 1}, y, Shape{1, 3}, 1.0f, 0.0f), ShapeError);
}

TEST_CASE_TEMPLATE("broadcast_to repeats, scales and accumulates", T, float, double) {
  for_each_isa([&] {
    for (const auto& shapes : broadcasts) {
      const Shape &from = shapes[0], &to = shapes[2];
      if (detail::kernels::broadcast_shape("test", from, to) != to) continue;
      const auto x = random_values<T>(from.numel(), 1);
      for (const T beta : {T(0), T(1)}) {
        std::vector<T> out(static_cast<std::size_t>(to.numel()),
                           beta == T(0) ? std::numeric_limits<T>::quiet_NaN() : T(0.5));
        detail::kernels::broadcast_to(x.data(), from, out.data(), to, T(2), beta);
        std::vector<double> expected;
        for (index_t i = 0; i < to.numel(); ++i) {
          expected.push_back(2 * static_cast<double>(x[source(i, to, from)]) +
                             0.5 * static_cast<double>(beta));
        }
        CHECK(worst_error(out, expected) < tolerance<T>);
      }
    }
  });
}

double value(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::negate:
      return -x;
    case UnaryOp::absolute:
      return std::abs(x);
    case UnaryOp::square:
      return x * x;
    case UnaryOp::reciprocal:
      return 1 / x;
    case UnaryOp::sqrt:
      return std::sqrt(x);
    case UnaryOp::exp:
      return std::exp(x);
    case UnaryOp::log:
      return std::log(x);
    case UnaryOp::erf:
      return std::erf(x);
  }
  return 0;
}

TEST_CASE_TEMPLATE("functions of one operand and their gradients equal a plain loop", T, float, double) {
  for_each_isa([&] {
    for (const UnaryOp op : {UnaryOp::negate, UnaryOp::absolute, UnaryOp::square, UnaryOp::reciprocal,
                             UnaryOp::sqrt, UnaryOp::exp, UnaryOp::log, UnaryOp::erf}) {
      CAPTURE(static_cast<int>(op));
      const bool positive = op == UnaryOp::sqrt || op == UnaryOp::log || op == UnaryOp::reciprocal;
      for (const index_t n : edge_sizes) {
        const auto x = random_values<T>(n, 1, positive ? 0.5 : -2, 2), dy = random_values<T>(n, 2);
        std::vector<T> y(x.size());
        detail::kernels::unary(op, x.data(), y.data(), n);
        std::vector<double> expected, gradient, added;
        const double h = 1e-4;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const auto at = static_cast<double>(x[i]);
          expected.push_back(value(op, at));
          gradient.push_back((8 * (value(op, at + h) - value(op, at - h)) -
                              (value(op, at + 2 * h) - value(op, at - 2 * h))) /
                             (12 * h) * static_cast<double>(dy[i]));
          added.push_back(gradient.back() + 0.5);
        }
        CHECK(worst_error(y, expected) < tolerance<T>);
        std::vector<T> dx(x.size(), std::numeric_limits<T>::quiet_NaN());
        detail::kernels::unary_backward(op, x.data(), y.data(), dy.data(), dx.data(), T(0), n);
        CHECK(worst_error(dx, gradient) < std::max(tolerance<T>, 1e-10));
        dx.assign(x.size(), T(0.5));
        detail::kernels::unary_backward(op, x.data(), y.data(), dy.data(), dx.data(), T(1), n);
        CHECK(worst_error(dx, added) < std::max(tolerance<T>, 1e-10));
      }
    }
  });
}

TEST_CASE_TEMPLATE("flat combinations", T, float, double) {
  for_each_isa([&] {
    const T nan = std::numeric_limits<T>::quiet_NaN();
    for (const index_t n : {1, 17, 40001}) {
      const auto a = random_values<T>(n, 1), b = random_values<T>(n, 2), c = random_values<T>(n, 3);
      std::vector<T> scaled(a.size(), nan), added(c), product(a.size(), nan), accumulated(c), sum(a.size()),
          shifted(a.size());
      detail::kernels::axpby(T(3), a.data(), T(0), scaled.data(), n);
      detail::kernels::axpby(T(3), a.data(), T(2), added.data(), n);
      detail::kernels::multiply_add(a.data(), b.data(), product.data(), T(0), n);
      detail::kernels::multiply_add(a.data(), b.data(), accumulated.data(), T(1), n);
      detail::kernels::add(a.data(), b.data(), sum.data(), n);
      detail::kernels::add_scalar(a.data(), T(0.25), shifted.data(), n);
      double worst = 0;
      const auto compare = [&](T actual, T expected) {
        const auto error = std::abs(static_cast<double>(actual - expected));
        if (!(error <= worst)) worst = std::isnan(error) ? 1 : error;
      };
      for (std::size_t i = 0; i < a.size(); ++i) {
        compare(scaled[i], T(3) * a[i]);
        compare(added[i], T(3) * a[i] + T(2) * c[i]);
        compare(product[i], a[i] * b[i]);
        compare(accumulated[i], a[i] * b[i] + c[i]);
        compare(sum[i], a[i] + b[i]);
        compare(shifted[i], a[i] + T(0.25));
      }
      CHECK(worst < tolerance<T>);
    }
  });
}

}  // namespace
