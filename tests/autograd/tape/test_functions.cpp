#include "eigenformer/autograd/tape/functions.hpp"

#include <Eigen/Core>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"
#include "eigenformer/autograd/ops/linear/matmul.hpp"
#include "eigenformer/autograd/ops/shape/rearrange.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace ef = eigenformer;

namespace {

const auto squares = [](auto x) { return ef::sum(x * x); };

}  // namespace

TEST_CASE_TEMPLATE("grad of one argument: tensors, Eigen objects, Vars", T, float, double) {
  const Tensor<T> x({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto df = ef::grad(squares);
  const Tensor<T> dx = df(x);
  CHECK(dx.shape() == x.shape());
  CHECK(values(dx) == std::vector<T>{2, 4, 6, 8, 10, 12});
  CHECK(values(df(Var<T>(x))) == values(dx));
  CHECK(values(df(x(1, ef::all))) == std::vector<T>{8, 10, 12});
  const Eigen::MatrixX<T> matrix = Eigen::MatrixX<T>::Constant(3, 2, T(4));
  CHECK(df(matrix).shape() == Shape{3, 2});
  CHECK(df(matrix)(2, 1) == 8);
  CHECK(values(ef::grad([](const Var<T>& v) { return v; })(Tensor<T>::scalar(3))) == std::vector<T>{1});
}

TEST_CASE("grad of numbers") {
  const auto df = ef::grad([](auto x) { return x * x * x; });
  static_assert(std::is_same_v<decltype(df(2.0f)), Tensor<float>>);
  static_assert(std::is_same_v<decltype(df(2)), Tensor<double>>);
  CHECK(df(2.0f).item() == 12);
  CHECK(df(2).item() == 12);
  const auto [da, db] =
      ef::grad([](auto a, auto b) { return ef::sum(a * b); })(Tensor<float>({2}, {1, 2}), 5);
  CHECK(values(da) == std::vector<float>{5, 5});
  CHECK(db.item() == 3);
}

TEST_CASE("grad of several arguments, and of chosen ones") {
  const Tensor<double> a = random({2, 3}, 1), b = random({3, 4}, 2), c = random({4}, 3);
  int recorded = 0;
  const auto f = [&](const auto& u, const auto& v, const auto& w) {
    recorded = (u.recorded() ? 1 : 0) + (v.recorded() ? 2 : 0) + (w.recorded() ? 4 : 0);
    return ef::sum(ef::matmul(u, v) * w);
  };
  const auto [da, db, dc] = ef::grad(f)(a, b, c);
  CHECK(recorded == 7);
  Tape<double> tape;
  const auto va = tape.variable(a), vb = tape.variable(b), vc = tape.variable(c);
  tape.backward(f(va, vb, vc));
  CHECK(values(da) == values(tape.gradient(va)));
  CHECK(values(db) == values(tape.gradient(vb)));
  CHECK(values(dc) == values(tape.gradient(vc)));
  const Tensor<double> second = ef::grad<1>(f)(a, b, c);
  CHECK(recorded == 2);
  CHECK(values(second) == values(db));
  const auto pair = ef::grad<2, 0>(f)(a, b, c);
  CHECK(recorded == 5);
  CHECK(values(std::get<0>(pair)) == values(dc));
  CHECK(values(std::get<1>(pair)) == values(da));
  // An argument that is not read has zeros.
  const auto [dx, dy] = ef::grad([](auto x, auto) { return ef::sum(x); })(a, c);
  CHECK(values(dx) == std::vector<double>(6, 1));
  CHECK(values(dy) == std::vector<double>(4, 0));
}

TEST_CASE("value_and_grad") {
  const auto [value, gradient] = ef::value_and_grad(squares)(Tensor<float>({2}, {3, 4}));
  static_assert(std::is_same_v<decltype(value), const float> || std::is_same_v<decltype(value), float>);
  CHECK(value == 25);
  CHECK(values(gradient) == std::vector<float>{6, 8});
  const auto product = ef::value_and_grad<1>([](auto a, auto b) { return ef::sum(a * b); });
  const auto [v, db] = product(Tensor<float>({2}, {3, 4}), Tensor<float>({2}, {1, 2}));
  CHECK(v == 11);
  CHECK(values(db) == std::vector<float>{3, 4});
}

TEST_CASE("vjp and jacobian") {
  const Tensor<double> a = random({2, 3}, 1), b = random({3, 4}, 2), dy = random({2, 4}, 3);
  const auto f = [](const auto& u, const auto& v) { return ef::matmul(u, v); };
  const auto [y, gradients] = ef::vjp(f, a, b, dy);
  CHECK(values(y) == values(ef::matmul(a, b).value()));
  CHECK(worst_difference(std::get<0>(gradients), ef::matmul(dy, ef::transpose(b)).value()) < 1e-14);
  CHECK(worst_difference(std::get<1>(gradients), ef::matmul(ef::transpose(a), dy).value()) < 1e-14);
  const auto once =
      ef::vjp([](auto x) { return x * x; }, Tensor<double>({2}, {2, 3}), Tensor<double>::ones({2}));
  CHECK(values(once.second) == std::vector<double>{4, 6});

  const auto j = ef::jacobian([&](const auto& u) { return ef::matmul(u, b); }, a);
  REQUIRE(j.shape() == Shape{2, 4, 2, 3});
  for (index_t r = 0; r < 2; ++r) {
    for (index_t c = 0; c < 4; ++c) {
      for (index_t k = 0; k < 3; ++k) {
        CHECK(j(r, c, r, k) == b(k, c));
        CHECK(j(r, c, 1 - r, k) == 0);
      }
    }
  }
  CHECK(ef::jacobian([](auto x) { return x * x; }, 3.0).item() == 6);
  CHECK(ef::jacobian([](auto x) { return x * 2; }, Tensor<float>(Shape{0, 2})).shape() == Shape{0, 2, 0, 2});
}

TEST_CASE("grad: what is refused") {
  const Tensor<double> x = random({3});
  CHECK(message_of<ShapeError>([&] { (void)ef::grad([](auto v) { return v * v; })(x); }) ==
        "[grad] the result of the function has shape (3,), must be a scalar: reduce it, as by sum(), or call "
        "vjp() or jacobian()");
  CHECK(message_of<ValueError>([&] { (void)ef::grad([&](auto) { return ef::sum(Var<double>(x)); })(x); }) ==
        "[grad] the result of the function does not depend on its arguments, must do so");
  CHECK(message_of<ValueError>([&] { (void)ef::jacobian([](auto v) { return v.detach(); }, x); }) ==
        "[jacobian] the result of the function does not depend on its arguments, must do so");
  Tape<double> tape;
  CHECK(
      message_of<ValueError>([&] { (void)ef::value_and_grad(squares)(tape.variable(x)); }) ==
      "[value_and_grad] an argument is recorded on a tape, must be a value: there are no second derivatives");
  CHECK_THROWS_AS((void)ef::vjp([](auto v) { return v * v; }, x, random({2})), ShapeError);
}
