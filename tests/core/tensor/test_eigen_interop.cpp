#include "eigenformer/core/tensor/eigen_interop.hpp"

#include <memory>
#include <type_traits>
#include <utility>
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

TEST_CASE("Tensor: copies any Eigen expression into row-major order, with the element type deduced") {
  Eigen::MatrixXd column_major(2, 3);
  column_major << 1, 2, 3, 4, 5, 6;
  const Tensor t = column_major;
  CHECK(t.shape() == Shape{2, 3});
  CHECK(values(t) == std::vector<double>{1, 2, 3, 4, 5, 6});
  column_major(0, 0) = 100;
  CHECK(t.at({0, 0}) == 1);
  CHECK(values(Tensor(column_major.transpose() * 2.0)) == std::vector<double>{200, 8, 4, 10, 6, 12});
  CHECK(values(Tensor(column_major.array() + 1.0)) == std::vector<double>{101, 3, 4, 5, 6, 7});
  CHECK(Tensor(Eigen::VectorXf::Ones(3)).shape() == Shape{3});
  CHECK(Tensor(Eigen::MatrixXf(0, 4)).shape() == Shape{0, 4});
}

namespace {

Tensor<float> make() { return Tensor<float>::from({2, 3}, {1, 2, 3, 4, 5, 6}); }

struct Holder {
  Tensor<float> tensor = make();
  const Tensor<float>& value() const { return tensor; }
};

double total(const Tensor<double>& t) {
  double sum = 0;
  for (const double x : t.span()) sum += x;
  return sum;
}

}  // namespace

TEST_CASE("as_eigen: a view of a temporary holds its memory") {
  const auto before = Runtime::instance().pool().statistics().bytes_in_use;
  {
    auto m = as_eigen(make());
    auto a = as_array(Holder().value());
    auto v = as_vector(Holder().value());
    const Tensor<float> other = Tensor<float>::full({2, 3}, -1);  // would take memory given back
    CHECK(m(1, 2) == 6);
    CHECK(a.row(1).sum() == 15);
    CHECK(v.size() == 6);
    CHECK(v(3) == 4);
    m(0, 0) = 7;
    CHECK(m.sum() == 27);
  }
  CHECK(Runtime::instance().pool().statistics().bytes_in_use == before);
  // What is written to a temporary that shares reaches the tensor.
  Tensor<float> t = make();
  as_eigen(t.rows(1, 1)).setZero();
  CHECK(values(t) == std::vector<float>{1, 2, 3, 0, 0, 0});
}

TEST_CASE(
    "as_eigen, as_array, as_vector: expressions are assigned, copies are views, assignments copy values") {
  Tensor<float> t = make(), other = Tensor<float>::zeros({2, 3});
  as_eigen(other) = 2 * as_eigen(t);
  CHECK(values(other) == std::vector<float>{2, 4, 6, 8, 10, 12});
  as_array(other) = as_array(t).square() + 1;
  CHECK(values(other) == std::vector<float>{2, 5, 10, 17, 26, 37});
  auto view = as_array(other);
  auto same = view;
  CHECK(same.data() == other.data());
  view = as_array(t);
  CHECK(view.data() == other.data());
  CHECK(values(other) == values(t));
  as_eigen(other).rowwise() += as_vector(Tensor<float>::from({3}, {10, 20, 30})).transpose();
  CHECK(values(other) == std::vector<float>{11, 22, 33, 14, 25, 36});
  as_vector(other) << 1, 0, 0, 0, 0, 2;
  CHECK(other.at({1, 2}) == 2);
  as_eigen(other).noalias() = as_eigen(t) * EigenMatrix<float>::Identity(3, 3);
  CHECK(values(other) == values(t));
  as_eigen(other) += as_eigen(t);
  CHECK(other.at({1, 0}) == 8);
  const Tensor<float>& constant = t;
  static_assert(!std::is_assignable_v<decltype(as_eigen(constant)(0, 0)), float>);
  const Eigen::Ref<const EigenMatrix<float>> ref = as_eigen(constant);
  CHECK(ref.data() == t.data());
  CHECK_THROWS_AS(as_eigen(Tensor<float>::without_storage({2, 3})), ValueError);
  CHECK(as_vector(Tensor<float>()).size() == 0);
}

TEST_CASE("Tensor: made of any Eigen expression of its element type, in row-major order") {
  Eigen::MatrixXd m(2, 3);
  m << 1, 2, 3, 4, 5, 6;
  const Tensor<double> t = m;
  CHECK(t.shape() == Shape{2, 3});
  CHECK(values(t) == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(values(Tensor<double>(m.transpose())) == std::vector<double>{1, 4, 2, 5, 3, 6});
  CHECK(values(Tensor<double>(m.block(0, 1, 2, 2))) == std::vector<double>{2, 3, 5, 6});
  CHECK(values(Tensor<double>(m.array() * 2)) == std::vector<double>{2, 4, 6, 8, 10, 12});
  CHECK(values(Tensor<double>(m * m.transpose())) == std::vector<double>{14, 32, 32, 77});
  CHECK(values(Tensor<double>(Eigen::Matrix<double, 2, 2, Eigen::RowMajor>::Identity())) ==
        std::vector<double>{1, 0, 0, 1});
  CHECK(values(Tensor<float>(m.cast<float>())).back() == 6);
  const Eigen::Ref<const Eigen::MatrixXd> ref = m.leftCols(2);
  CHECK(values(Tensor<double>(ref)) == std::vector<double>{1, 2, 4, 5});
  std::vector<double> memory{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  using Strided = Eigen::Map<const Eigen::MatrixXd, 0, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;
  CHECK(values(Tensor<double>(Strided(memory.data(), 2, 3, {4, 2}))) ==
        std::vector<double>{0, 4, 8, 2, 6, 10});
  // Arguments of a function convert, as do those of modules.
  CHECK(total(m) == 21);
  CHECK(total(2 * m.row(0)) == 12);
  static_assert(!std::is_constructible_v<Tensor<float>, Eigen::MatrixXd>);
  static_assert(!std::is_constructible_v<Tensor<double>, Eigen::MatrixXi>);
}

TEST_CASE("Tensor: an Eigen vector has rank 1") {
  Eigen::MatrixXf m(2, 3);
  m << 1, 2, 3, 4, 5, 6;
  const Eigen::VectorXf v = m.row(1);
  CHECK(Tensor<float>(v).shape() == Shape{3});
  CHECK(Tensor<float>(v.transpose()).shape() == Shape{3});
  CHECK(Tensor<float>(Eigen::Array3f::Zero()).shape() == Shape{3});
  CHECK(values(Tensor<float>(m.col(1))) == std::vector<float>{2, 5});
  CHECK(Tensor<float>(m.colwise().sum()).shape() == Shape{3});
  CHECK(Tensor<float>(Eigen::VectorXf()).shape() == Shape{0});
  CHECK(Tensor<float>(Eigen::MatrixXf(3, 1)).shape() == Shape{3, 1});
  CHECK(Tensor<float>(Eigen::MatrixXf(0, 4)).shape() == Shape{0, 4});
}

TEST_CASE("borrow: maps, Refs, blocks and vectors are used in place when their elements are adjacent") {
  std::vector<float> memory{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const Tensor<float> mapped = borrow(Eigen::Map<EigenMatrix<float>>(memory.data(), 3, 4));
  CHECK(mapped.data() == memory.data());
  CHECK(mapped.shape() == Shape{3, 4});
  EigenMatrix<float> m = as_eigen(mapped);
  Eigen::Ref<EigenMatrix<float>> ref = m;
  CHECK(borrow(ref).data() == m.data());
  CHECK(borrow(m.middleRows(1, 2)).data() == m.data() + 4);
  CHECK(values(borrow(m.middleRows(1, 2))) == std::vector<float>{5, 6, 7, 8, 9, 10, 11, 12});
  CHECK(borrow(m.row(2)).shape() == Shape{4});
  CHECK(borrow(m.row(2)).data() == m.data() + 8);
  CHECK(borrow(m.block(1, 1, 1, 3)).shape() == Shape{1, 3});
  Eigen::VectorXf v = Eigen::VectorXf::LinSpaced(5, 0, 4);
  CHECK(borrow(v).shape() == Shape{5});
  CHECK(borrow(v).data() == v.data());
  EigenArray<float> array(2, 2);
  CHECK(borrow(array).data() == array.data());
  const auto shared = std::make_shared<Eigen::VectorXf>(v);
  CHECK(borrow(shared).data() == shared->data());

  CHECK_THROWS_AS(borrow(m.leftCols(2)), ValueError);
  CHECK_THROWS_AS(borrow(m.col(1)), ValueError);
  using Strided = Eigen::Map<EigenMatrix<float>, 0, Eigen::OuterStride<>>;
  CHECK_THROWS_AS(borrow(Strided(memory.data(), 2, 3, Eigen::OuterStride<>(5))), ValueError);
  CHECK(borrow(Strided(memory.data(), 2, 3, Eigen::OuterStride<>(3))).data() == memory.data());
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

TEST_CASE("borrow: a null pointer to a matrix is refused") {
  CHECK_THROWS_WITH_AS((void)borrow(std::shared_ptr<EigenMatrix<double>>()),
                       "[borrow] the pointer to the matrix is null, must point to one", ValueError);
}

TEST_CASE("views beyond their tensor and assignments between different sizes are refused") {
  using View = EigenView<EigenMatrix<double>>;
  const Tensor<double> t = Tensor<double>::zeros({2, 3});
  View all(t, 3, 2);
  all(2, 1) = 7;
  CHECK(t.at({1, 2}) == 7);
  CHECK(View(t, 1, 3).size() == 3);
  CHECK(View(t, 0, 100).size() == 0);
  for (const auto& [rows, cols] : {std::pair<index_t, index_t>{100, 100}, {7, 1}, {-1, 3}, {2, -3}}) {
    CHECK_THROWS_WITH_AS(View(t, rows, cols), doctest::Contains("expected at most 6 elements"), ShapeError);
  }
  const index_t large = index_t{1} << 62;
  CHECK_THROWS_AS(View(t, large, 4), ShapeError);
  View row(t, 1, 3);
  CHECK_THROWS_WITH_AS(row = all,
                       doctest::Contains("a view of shape (3, 2) cannot be assigned to one of shape (1, 3)"),
                       ShapeError);
}
