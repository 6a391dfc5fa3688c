#include "eigenformer/core/tensor/eigen_interop.hpp"

#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::values;

TEST_CASE("as_eigen: maps rows by last dimension without a copy") {
  Tensor<double> t = Tensor<double>::from({2, 1, 3}, {1, 2, 3, 4, 5, 6});
  auto map = as_eigen(t);
  CHECK(map.rows() == 2);
  CHECK(map.cols() == 3);
  CHECK(map(1, 0) == 4);
  map(0, 2) = 30;
  CHECK(t.at({0, 0, 2}) == 30);
  const Tensor<double>& constant = t;
  CHECK(as_eigen(constant).sum() == 1 + 2 + 30 + 4 + 5 + 6);
}

TEST_CASE("as_eigen: rank 0 and 1 are one row, empty stays empty") {
  Tensor<float> scalar = Tensor<float>::scalar(7);
  CHECK(as_eigen(scalar)(0, 0) == 7);
  Tensor<float> vector = Tensor<float>::arange(4);
  CHECK(as_eigen(vector).rows() == 1);
  CHECK(as_eigen(vector).cols() == 4);
  Tensor<float> empty(Shape{3, 0});
  CHECK(as_eigen(empty).size() == 0);
}

TEST_CASE("from_eigen: copies any expression into row-major order") {
  Eigen::MatrixXd column_major(2, 3);
  column_major << 1, 2, 3, 4, 5, 6;
  Tensor<double> t = from_eigen(column_major);
  CHECK(t.shape() == Shape{2, 3});
  CHECK(values(t) == std::vector<double>{1, 2, 3, 4, 5, 6});
  column_major(0, 0) = 100;
  CHECK(t.at({0, 0}) == 1);
  CHECK(values(from_eigen(column_major.transpose() * 2.0)) == std::vector<double>{200, 8, 4, 10, 6, 12});
  CHECK(values(from_eigen(column_major.array() + 1.0)) == std::vector<double>{101, 3, 4, 5, 6, 7});
  CHECK(from_eigen(Eigen::VectorXf::Ones(3)).shape() == Shape{3, 1});
  CHECK(from_eigen(Eigen::MatrixXf(0, 4)).shape() == Shape{0, 4});
}

TEST_CASE("borrow: a row-major matrix is used in place") {
  EigenMatrix<float> matrix(2, 3);
  matrix << 1, 2, 3, 4, 5, 6;
  Tensor<float> t = borrow(matrix);
  CHECK(t.data() == matrix.data());
  t.at({1, 2}) = 60;
  CHECK(matrix(1, 2) == 60);
}

TEST_CASE("borrow: a matrix handed over lives as long as the tensor") {
  auto matrix = std::make_shared<EigenMatrix<double>>(1, 2);
  *matrix << 8, 9;
  const std::weak_ptr<EigenMatrix<double>> watch = matrix;
  {
    const Tensor<double> t = borrow(std::move(matrix));
    CHECK_FALSE(watch.expired());
    CHECK(values(t) == std::vector<double>{8, 9});
  }
  CHECK(watch.expired());
}
