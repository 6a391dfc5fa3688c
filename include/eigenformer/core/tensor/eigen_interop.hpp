#pragma once

#include <Eigen/Core>
#include <memory>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

/// A row-major Eigen matrix of any size.
template <class T>
using EigenMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A tensor of rank >= 1 as an Eigen map of (product of leading dimensions, last dimension), without a copy.
template <class T>
Eigen::Map<EigenMatrix<T>> as_eigen(Tensor<T>& t) {
  return {t.data(), t.shape().rows(), t.shape().cols()};
}
template <class T>
Eigen::Map<const EigenMatrix<T>> as_eigen(const Tensor<T>& t) {
  return {t.data(), t.shape().rows(), t.shape().cols()};
}

/// A (rows, cols) tensor with the values of any Eigen expression; it copies, as Eigen is column-major by
/// default.
template <class Derived>
Tensor<typename Derived::Scalar> from_eigen(const Eigen::DenseBase<Derived>& expression) {
  Tensor<typename Derived::Scalar> t(Shape{expression.rows(), expression.cols()});
  as_eigen(t) = expression.derived();
  return t;
}

/// A (rows, cols) tensor over the memory of a row-major Eigen matrix, without a copy. The matrix must outlive
/// the tensor unless it is handed over in the shared pointer.
template <class T>
Tensor<T> borrow(EigenMatrix<T>& matrix) {
  return Tensor<T>::borrow(matrix.data(), Shape{matrix.rows(), matrix.cols()});
}
template <class T>
Tensor<T> borrow(std::shared_ptr<EigenMatrix<T>> matrix) {
  T* data = matrix->data();
  const Shape shape{matrix->rows(), matrix->cols()};
  return Tensor<T>::borrow(data, shape, std::move(matrix));
}

}  // namespace eigenformer
