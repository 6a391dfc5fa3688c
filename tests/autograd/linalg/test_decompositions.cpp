#include "eigenformer/autograd/linalg/linalg.hpp"

#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/linalg/linalg_check.hpp"
#include "eigenformer/autograd/ops/linear/matmul.hpp"
#include "eigenformer/autograd/ops/shape/axes.hpp"
#include "eigenformer/autograd/ops/shape/rearrange.hpp"
#include "eigenformer/core/tensor/creation.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace ef = eigenformer;

namespace {

template <class T>
Var<T> sines(const Var<T>& x) {
  Tensor<T> y(x.shape());
  for (index_t i = 0; i < y.numel(); ++i) y.data()[i] = std::sin(x.value().data()[i]);
  return record("sin", std::move(y), {x}, [x = x.value()](Backward<T>& back) {
    Tensor<T> dx(x.shape());
    for (index_t i = 0; i < x.numel(); ++i) dx.data()[i] = back.dy().data()[i] * std::cos(x.data()[i]);
    back.pass(0, std::move(dx));
  });
}

// The results of generate.py, which do not depend on signs.
template <class T>
Var<T> invariants(const std::string& f, const std::vector<Var<T>>& x) {
  const Shape batch = x[0].shape().without(-1).without(-1);
  const auto row = [&](const Var<T>& v) { return ef::reshape(v, batch.inserted(-1, v.dim(-1) * v.dim(-2))); };
  if (f == "cholesky") return ef::cholesky(x[0]);
  if (f == "qr") {
    const auto [q, r] = ef::qr(x[0]);
    Tensor<T> sign = ef::diagonal(r.value(), 0, -2, -1).value().clone();
    for (T& s : sign.span()) s = s < 0 ? T(-1) : T(1);
    return ef::concat<T>(
        std::vector<Var<T>>{row(q * ef::unsqueeze(sign, -2)), row(r * ef::unsqueeze(sign, -1))}, -1);
  }
  if (f == "svd") {
    const auto [u, s, vh] = ef::svd(x[0]);
    return ef::concat<T>(std::vector<Var<T>>{s, row(ef::matmul(u * ef::unsqueeze(ef::sqrt(s), -2), vh))}, -1);
  }
  const auto [w, v] = ef::eigh(x[0]);
  return ef::concat<T>(
      std::vector<Var<T>>{w, row(ef::matmul(v * ef::unsqueeze(sines(w), -2), v, false, true))}, -1);
}

Var<double> symmetric(const Var<double>& x) { return x + ef::transpose(x); }

}  // namespace

TEST_CASE_TEMPLATE("decompositions: values and gradients as in PyTorch", T, float, double) {
  check_linalg<T>({"cholesky", "qr", "svd", "eigh"}, invariants<T>);
}

TEST_CASE("decompositions: gradients of each factor") {
  const Tensor<double> square = random({2, 4, 4}), tall = random({2, 5, 3}), wide = random({3, 5});
  check_op([](const Vars& v) { return ef::cholesky(matmul(v[0], v[0], false, true)); }, {square});
  check_op([](const Vars& v) { return ef::eigh(symmetric(v[0])).eigenvalues; }, {square});
  check_op([](const Vars& v) { return ef::square(ef::eigh(symmetric(v[0])).eigenvectors); }, {square});
  for (const auto& x : {square, tall, wide}) {
    CAPTURE(x.shape().str());
    check_op([](const Vars& v) { return ef::qr(v[0]).q; }, {x});
    check_op([](const Vars& v) { return ef::qr(v[0]).r; }, {x});
    check_op([](const Vars& v) { return ef::svd(v[0]).s; }, {x});
    check_op([](const Vars& v) { return ef::square(ef::svd(v[0]).u); }, {x});
    check_op([](const Vars& v) { return ef::square(ef::svd(v[0]).vh); }, {x});
  }
}

TEST_CASE("decompositions: products of the factors, shapes, empty matrices") {
  for (const Shape& shape :
       {Shape{2, 5, 3}, Shape{3, 5}, Shape{4, 4}, Shape{70, 60}, Shape{0, 3}, Shape{3, 0}}) {
    CAPTURE(shape.str());
    const Tensor<double> x = random(shape);
    const index_t r = std::min(shape[-1], shape[-2]);
    const auto [q, upper] = ef::qr(x);
    const auto [u, s, vh] = ef::svd(x);
    REQUIRE(s.shape() == shape.without(-1).with(-1, r));
    CHECK(worst_difference(matmul(q, upper).value(), x) < 1e-12);
    CHECK(worst_difference(matmul(u * unsqueeze(s, -2), vh).value(), x) < 1e-12);
    CHECK(worst_difference(ef::triu(upper).value(), upper.value()) == 0);
    const Tensor<double> one = broadcast_to(eye<double>(r), shape.with(-1, r).with(-2, r)).value();
    CHECK(worst_difference(matmul(q, q, true, false).value(), one) < 1e-12);
    CHECK(worst_difference(matmul(u, u, true, false).value(), one) < 1e-12);
    CHECK(worst_difference(matmul(vh, vh, false, true).value(), one) < 1e-12);
  }
  const Tensor<double> x = symmetric(random({40, 40})).value();
  const auto [w, v] = ef::eigh(x);
  CHECK(worst_difference(matmul(v * unsqueeze(w, -2), v, false, true).value(), x) < 1e-12);
  CHECK(w.value()(0) < w.value()(39));
  CHECK(ef::eigh(Tensor<double>(Shape{2, 0, 0})).eigenvectors.shape() == Shape{2, 0, 0});
  CHECK(ef::cholesky(Tensor<double>(Shape{0, 0})).shape() == Shape{0, 0});
  // Only the lower triangle is read.
  const Tensor<double> lower({2, 2}, {4, std::nan(""), 2, 5});
  CHECK(values(ef::cholesky(lower).value()) == std::vector<double>{2, 0, 1, 2});
  CHECK(ef::eigh(lower).eigenvalues.value()(1) == doctest::Approx(6.5615528));
}

TEST_CASE(
    "decompositions: gradients of equal singular values and eigenvalues are finite without the vectors") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>({2, 2}, {3, 0, 0, 3}));
  tape.backward(sum(ef::svd(x).s) + sum(ef::eigh(x).eigenvalues));
  CHECK(worst_difference(tape.gradient(x), Tensor<double>({2, 2}, {2, 0, 0, 2})) < 1e-12);
}

TEST_CASE("decompositions: errors") {
  const double inf = std::numeric_limits<double>::infinity();
  const auto value = [](const auto& f) { return message_of<ValueError>(f); };
  Tensor<double> x({2, 2, 2}, {2, 0, 0, 2, 1, 2, 2, 1});
  CHECK(value([&] { (void)ef::cholesky(x); }) ==
        "[cholesky] matrix 1 of the input of shape (2, 2, 2) is not positive definite, expected one that is");
  x(0, 0, 0) = std::nan("");
  CHECK(contains(value([&] { (void)ef::cholesky(x); }), "matrix 0 of"));
  CHECK(value([&] { (void)ef::svd(x); }) ==
        "[svd] matrix 0 of the input of shape (2, 2, 2) has NaN or infinity, expected finite numbers");
  x(0, 0, 0) = 1;
  x(1, 1, 0) = inf;
  CHECK(
      contains(value([&] { (void)ef::eigh(x); }), "[eigh] matrix 1 of the input of shape (2, 2, 2) has NaN"));
  CHECK(std::isnan(ef::qr(Tensor<double>({1, 1}, {std::nan("")})).r.item()));
  CHECK(message_of<ShapeError>([] {
          (void)ef::cholesky(random({2, 3}));
        }) == "[cholesky] input of shape (2, 3) must be (..., n, n)");
  CHECK(message_of<ShapeError>([] { (void)ef::eigh(random({3})); }) ==
        "[eigh] input of shape (3,) must be (..., n, n)");
  CHECK(message_of<ShapeError>([] { (void)ef::qr(random({3})); }) ==
        "[qr] input of shape (3,) must have rank 2 or more");
  CHECK(contains(message_of<ShapeError>([] { (void)ef::svd(random({})); }), "[svd] input of shape ()"));
  const Eigen::Matrix2f m = Eigen::Matrix2f::Identity() * 4;
  CHECK(ef::cholesky(m).value()(1, 1) == 2);
  CHECK(ef::svd(m).s.value()(0) == 4);
}
