#include "eigenformer/autograd/linalg/linalg.hpp"

#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/linalg/linalg_check.hpp"
#include "eigenformer/autograd/ops/linear/matmul.hpp"
#include "eigenformer/core/tensor/creation.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace ef = eigenformer;

TEST_CASE_TEMPLATE("systems: values and gradients as in PyTorch", T, float, double) {
  check_linalg<T>({"solve", "lstsq", "inverse", "det", "slogdet", "sign"},
                  [](const std::string& f, const std::vector<Var<T>>& x) {
                    if (f == "solve") return ef::solve(x[0], x[1]);
                    if (f == "lstsq") return ef::lstsq(x[0], x[1]);
                    if (f == "inverse") return ef::inverse(x[0]);
                    if (f == "det") return ef::det(x[0]);
                    const auto [sign, log] = ef::slogdet(x[0]);
                    return f == "sign" ? Var<T>(sign) : log;
                  });
}

TEST_CASE("systems: gradients, also of one Var in both places") {
  check_op([](const Vars& v) { return ef::solve(v[0], v[1]); }, {random({2, 3, 3}, 1), random({3, 2}, 2)});
  check_op([](const Vars& v) { return ef::solve(v[0], matmul(v[0], v[0])); }, {random({3, 3})});
  for (const Shape& shape : {Shape{2, 5, 3}, Shape{3, 4}, Shape{3, 3}}) {
    check_op([](const Vars& v) { return ef::lstsq(v[0], v[1]); },
             {random(shape, 1), random({shape[-2], 2}, 2)});
  }
  check_op([](const Vars& v) { return ef::inverse(v[0]); }, {random({2, 3, 3})});
  check_op([](const Vars& v) { return ef::det(v[0]); }, {random({2, 4, 4})});
  check_op([](const Vars& v) { return ef::slogdet(v[0]).logabsdet; }, {random({2, 4, 4})});
  // Of rank n - 1 and of rank n - 2: cofactors, which are all 0 for the second.
  check_op([](const Vars& v) { return ef::det(v[0]); },
           {Tensor<double>({3, 3}, {1, 2, 3, 2, 4, 6, 1, 0, 1})});
  check_op([](const Vars& v) { return ef::det(v[0]); },
           {Tensor<double>({3, 3}, {1, 2, 3, 2, 4, 6, 4, 8, 12})});
}

TEST_CASE("systems: singular matrices, NaN and large determinants") {
  Tensor<double> a = random({2, 3, 3});
  a(1, 2, all) = 0;
  CHECK(message_of<ValueError>([&] { (void)ef::solve(a, random({3})); }) ==
        "[solve] matrix 1 of the input of shape (2, 3, 3) is singular, expected an invertible one");
  CHECK(message_of<ValueError>([&] { (void)ef::inverse(a); }) ==
        "[inverse] matrix 1 of the input of shape (2, 3, 3) is singular, expected an invertible one");
  const auto zero = ef::slogdet(a);
  CHECK(ef::det(a).value()(1) == 0);
  CHECK(zero.sign(1) == 0);
  CHECK(zero.logabsdet.value()(1) == -std::numeric_limits<double>::infinity());
  // A matrix of rank 1 has a solution of the least norm.
  const Tensor<double> ones = Tensor<double>::ones({4, 2});
  CHECK(worst_difference(ef::lstsq(ones, Tensor<double>({4}, {1, 2, 3, 4})).value(),
                         Tensor<double>({2}, {1.25, 1.25})) < 1e-12);
  // NaN passes through LU, and is refused by least squares.
  a(1, 2, 2) = std::nan("");
  CHECK(std::isnan(ef::det(a).value()(1)));
  CHECK(std::isnan(ef::slogdet(a).sign(1)));
  CHECK_FALSE(std::isnan(ef::det(a).value()(0)));
  CHECK(std::isnan(ef::inverse(a).value()(1, 2, 2)));
  CHECK(std::isnan(ef::solve(a, random({3})).value()(1, 2)));
  CHECK(
      message_of<ValueError>([&] { (void)ef::lstsq(a, random({3})); }) ==
      "[lstsq] matrix 1 of the input of shape (2, 3, 3) or its right-hand side has NaN or infinity, expected "
      "finite numbers");
  const Tensor<double> large = (eye<double>(300) * -1e10).value();
  CHECK(ef::slogdet(large).logabsdet.item() == doctest::Approx(300 * std::log(1e10)));
  CHECK(ef::slogdet(large).sign.item() == 1);
  CHECK(ef::lstsq(Tensor<double>(Shape{0, 2}), Tensor<double>(Shape{0, 3})).value().shape() == Shape{2, 3});
}

TEST_CASE("systems: shapes that do not fit, and operands of other kinds") {
  const auto shape = [](const auto& f) { return message_of<ShapeError>(f); };
  CHECK(shape([] {
          (void)ef::solve(random({2, 3}), random({2}));
        }) == "[solve] input of shape (2, 3) must be (..., n, n)");
  CHECK(shape([] { (void)ef::det(random({3})); }) == "[det] input of shape (3,) must be (..., n, n)");
  CHECK(shape([] { (void)ef::lstsq(random({3}), random({3})); }) ==
        "[lstsq] input of shape (3,) must have rank 2 or more");
  CHECK(shape([] {
          (void)ef::solve(random({3, 3}), random({4, 2}));
        }) == "[solve] right-hand side of shape (4, 2) must have 3 rows, as the matrices of shape (3, 3)");
  CHECK(contains(shape([] { (void)ef::solve(random({3, 3}), random({})); }), "right-hand side of shape ()"));
  CHECK(contains(shape([] { (void)ef::solve(random({2, 3, 3}), random({4, 3, 1})); }), "do not broadcast"));
  const Eigen::Matrix2d m = Eigen::Matrix2d::Identity() * 2;
  const Eigen::Vector2d v(2, 4);
  CHECK(values(ef::solve(m, v).value()) == std::vector<double>{1, 2});
  CHECK(values(ef::lstsq(m, Tensor<double>({2}, {2, 4})).value()) == std::vector<double>{1, 2});
  CHECK(ef::det(m).item() == 4);
  CHECK(ef::slogdet(m).sign.item() == 1);
  CHECK(values(ef::inverse(m * 1.0).value()) == std::vector<double>{0.5, 0, 0, 0.5});
}
