#pragma once

#include <Eigen/Core>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "eigenformer/core/tensor/tensor.hpp"

// Tensors as Eigen's matrices, arrays and vectors, and Eigen's memory as tensors. The way from an Eigen
// expression to a tensor is Tensor's own constructor. Rank 3 and above: eigen_tensor.hpp.

namespace eigenformer {

/// Row-major Eigen types of any size, and a vector.
template <class T>
using EigenMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using EigenArray = Eigen::Array<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using EigenVector = Eigen::Matrix<T, Eigen::Dynamic, 1>;

/// An Eigen::Map of a tensor that holds the tensor's storage, so it may outlive the tensor: that of a
/// temporary is good. A copy is a view of the same memory; an assignment copies values. (As always with
/// Eigen, `auto` on an expression made of a view does not hold the view.)
template <class Plain>
class EigenView : public Eigen::Map<Plain> {
  using Map = Eigen::Map<Plain>;
  using T = std::remove_const_t<typename Map::Scalar>;

 public:
  /// Throws ValueError for a tensor whose memory was given back.
  EigenView(Tensor<T> tensor, index_t rows, index_t cols)
      : Map(checked(tensor), rows, cols), tensor_(std::move(tensor)) {}
  EigenView(const EigenView&) = default;
  EigenView& operator=(const EigenView& values) {
    Map::operator=(values);
    return *this;
  }
  using Map::operator=;

 private:
  static T* checked(Tensor<T>& tensor) {
    if (!tensor.defined() && tensor.numel() > 0) {
      throw ValueError("as_eigen", "the memory of this tensor of shape " + tensor.shape().str() +
                                       " was released or never allocated");
    }
    return tensor.data();
  }

  Tensor<T> tensor_;
};

/// A tensor as a row-major matrix of (product of leading dimensions, last dimension), without a copy; rank 0
/// and 1 are one row. A const tensor gives a view that does not write. Throws ValueError for a tensor without
/// memory.
template <class T>
EigenView<EigenMatrix<T>> as_eigen(Tensor<T>& t) {
  return {t, t.shape().rows(), t.shape().cols()};
}
template <class T>
EigenView<const EigenMatrix<T>> as_eigen(const Tensor<T>& t) {
  return {t, t.shape().rows(), t.shape().cols()};
}
template <class T>
EigenView<EigenMatrix<T>> as_eigen(Tensor<T>&& t) {
  return as_eigen(t);
}

/// The same as an array, for arithmetic by element.
template <class T>
EigenView<EigenArray<T>> as_array(Tensor<T>& t) {
  return {t, t.shape().rows(), t.shape().cols()};
}
template <class T>
EigenView<const EigenArray<T>> as_array(const Tensor<T>& t) {
  return {t, t.shape().rows(), t.shape().cols()};
}
template <class T>
EigenView<EigenArray<T>> as_array(Tensor<T>&& t) {
  return as_array(t);
}

/// All elements, in row-major order, as a column vector; as_vector(bias).transpose() is a row.
template <class T>
EigenView<EigenVector<T>> as_vector(Tensor<T>& t) {
  return {t, t.numel(), 1};
}
template <class T>
EigenView<const EigenVector<T>> as_vector(const Tensor<T>& t) {
  return {t, t.numel(), 1};
}
template <class T>
EigenView<EigenVector<T>> as_vector(Tensor<T>&& t) {
  return as_vector(t);
}

/// Tensor's constructor where the element type is the expression's.
template <class Derived>
Tensor<typename Derived::Scalar> from_eigen(const Eigen::DenseBase<Derived>& expression) {
  return expression;
}

namespace detail {

/// Eigen types with memory of their own that can be written, in a tensor's order.
template <class Derived>
concept EigenMemory = (Derived::Flags & Eigen::DirectAccessBit) != 0 &&
                      (Derived::Flags & Eigen::LvalueBit) != 0 &&
                      (static_cast<bool>(Derived::IsRowMajor) ||
                       static_cast<bool>(Derived::IsVectorAtCompileTime));

template <class Derived>
concept EigenOwner = std::is_base_of_v<Eigen::PlainObjectBase<Derived>, Derived>;

template <class Derived>
Tensor<typename Derived::Scalar> borrow_eigen(Derived& x, std::shared_ptr<void> keep_alive) {
  bool adjacent = x.size() <= 1;
  if constexpr (static_cast<bool>(Derived::IsVectorAtCompileTime)) {
    adjacent = adjacent || x.innerStride() == 1;
  } else {
    adjacent = adjacent ||
               ((x.cols() == 1 || x.innerStride() == 1) && (x.rows() == 1 || x.outerStride() == x.cols()));
  }
  if (!adjacent) {
    throw ValueError("borrow",
                     "the matrix of shape " + eigen_shape(x).str() + " is not contiguous (strides " +
                         std::to_string(x.outerStride()) + " and " + std::to_string(x.innerStride()) +
                         "), must be contiguous; construct a Tensor from it, which copies the elements");
  }
  return Tensor<typename Derived::Scalar>::borrow(x.data(), eigen_shape(x), std::move(keep_alive));
}

}  // namespace detail

/// A tensor over the memory of a row-major matrix, array, map, Ref or block, or of a vector, without a copy:
/// of rank 1 for a vector, else (rows, cols). The memory must outlive the tensor. Throws ValueError when
/// elements lie apart.
template <class Derived>
requires detail::EigenMemory<Derived> Tensor<typename Derived::Scalar> borrow(Eigen::DenseBase<Derived>& x) {
  return detail::borrow_eigen(x.derived(), nullptr);
}
/// The same for a map or block that is a temporary itself.
template <class Derived>
requires(detail::EigenMemory<Derived> && !detail::EigenOwner<Derived>)
    Tensor<typename Derived::Scalar> borrow(Eigen::DenseBase<Derived>&& x) {
  return detail::borrow_eigen(x.derived(), nullptr);
}
/// The same for a row-major matrix or a vector that is handed over: it lives as long as the tensor.
template <class Derived>
requires(detail::EigenMemory<Derived>&& detail::EigenOwner<Derived>) Tensor<typename Derived::Scalar> borrow(
    std::shared_ptr<Derived> x) {
  Derived& values = *x;
  return detail::borrow_eigen(values, std::move(x));
}

}  // namespace eigenformer
