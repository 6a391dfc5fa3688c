#include "eigenformer/core/tensor/eigen_tensor.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::message_of;
using eigenformer::testing::values;

TEST_CASE("as_eigen_tensor: a tensor of any rank without a copy") {
  Tensor<float> t = Tensor<float>::arange(24).reshape({2, 3, 4});
  auto view = as_eigen_tensor<3>(t);
  CHECK(view.dimension(0) == 2);
  CHECK(view.dimension(2) == 4);
  CHECK(view(1, 2, 3) == 23);
  CHECK(view(0, 1, 2) == 6);
  view(1, 0, 0) = -1;
  CHECK(t.at({1, 0, 0}) == -1);
  const Tensor<float>& constant = t;
  CHECK(as_eigen_tensor<3>(constant)(0, 2, 1) == 9);
  as_eigen_tensor<3>(t) = as_eigen_tensor<3>(constant) * 2.0F;
  CHECK(t.at({1, 2, 3}) == 46);
  Tensor<float> other = Tensor<float>::zeros({2, 3, 4});
  auto target = as_eigen_tensor<3>(other);
  target = view;
  CHECK(target.data() == other.data());
  CHECK(values(other) == values(t));
  target = as_eigen_tensor<3>(constant) + view - as_eigen_tensor<3>(constant);
  CHECK(values(other) == values(t));
  const Tensor<double> vector = Tensor<double>::arange(5);
  CHECK(as_eigen_tensor<1>(vector)(4) == 4);
  const auto accepts = []<class U>(U&& x) {
    return requires { as_eigen_tensor<3>(static_cast<U&&>(x)); };
  };
  CHECK(accepts(t));
  CHECK_FALSE(accepts(Tensor<float>()));
}

TEST_CASE("as_eigen_tensor: another rank and memory given back are errors") {
  Tensor<float> t = Tensor<float>::zeros({2, 3});
  CHECK(message_of<ShapeError>([&] { (void)as_eigen_tensor<3>(t); }) ==
        "[as_eigen_tensor] tensor of shape (2, 3) must have rank 3");
  CHECK_THROWS_AS(
      [] {
        const Tensor<float> gone = Tensor<float>::without_storage({2, 3});
        (void)as_eigen_tensor<2>(gone);
      }(),
      ValueError);
}

TEST_CASE("from_eigen_tensor: expressions of both layouts arrive in row-major order") {
  Eigen::Tensor<double, 3> column_major(2, 3, 4);
  Eigen::Tensor<double, 3, Eigen::RowMajor> row_major(2, 3, 4);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) column_major(i, j, k) = row_major(i, j, k) = 12 * i + 4 * j + k;
    }
  }
  const Tensor<double> expected = Tensor<double>::arange(24).reshape({2, 3, 4});
  CHECK(from_eigen_tensor(column_major).shape() == expected.shape());
  CHECK(values(from_eigen_tensor(column_major)) == values(expected));
  CHECK(values(from_eigen_tensor(row_major)) == values(expected));
  CHECK(values(from_eigen_tensor(column_major + column_major.constant(1.0)))[23] == 24);
  const Tensor<double> sums = from_eigen_tensor(row_major.sum(Eigen::array<int, 1>{2}));
  CHECK(sums.shape() == Shape{2, 3});
  CHECK(values(sums) == std::vector<double>{6, 22, 38, 54, 70, 86});
  CHECK(values(from_eigen_tensor(as_eigen_tensor<3>(expected))) == values(expected));
}
