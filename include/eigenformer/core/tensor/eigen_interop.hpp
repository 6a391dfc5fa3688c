#pragma once

#include <Eigen/Core>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "eigenformer/core/tensor/tensor.hpp"

// Tensors as Eigen's matrices, arrays and vectors, and Eigen's memory as tensors. Tensor's constructor
// converts an Eigen expression to a tensor. Rank 3 and above: eigen_tensor.hpp.

namespace eigenformer {

/// A row-major matrix of Eigen, of any size: a tensor of rank 2 has this layout.
template <class T>
using EigenMatrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
/// The same for element-wise arithmetic.
template <class T>
using EigenArray = Eigen::Array<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
/// A column vector of Eigen, of any size.
template <class T>
using EigenVector = Eigen::Matrix<T, Eigen::Dynamic, 1>;

/// An Eigen::Map of a tensor that shares the tensor's storage, so it may outlive the tensor, which may be a
/// temporary. Copies are views of the same memory; assignments copy values. (As always with Eigen, `auto` for
/// an expression of a view does not keep the view alive.)
template <class Plain>
class EigenView : public Eigen::Map<Plain> {
  using Map = Eigen::Map<Plain>;
  using T = std::remove_const_t<typename Map::Scalar>;

 public:
  /// The first rows * cols elements of `tensor` as (rows, cols). Throws ValueError for a tensor that has a
  /// shape but no memory, ShapeError for negative sizes and for more elements than the tensor has.
  EigenView(Tensor<T> tensor, index_t rows, index_t cols)
      : Map(checked(tensor, rows, cols), rows, cols), tensor_(std::move(tensor)) {}
  /// A view of the same memory.
  EigenView(const EigenView&) = default;
  /// Copies the values of another view. Throws ShapeError unless it has the same size.
  EigenView& operator=(const EigenView& values) {
    if (values.rows() != this->rows() || values.cols() != this->cols()) {
      const Shape ours{this->rows(), this->cols()}, other{values.rows(), values.cols()};
      throw ShapeError("as_eigen",
                       {"a view of shape ", other.str(), " cannot be assigned to one of shape ", ours.str(),
                        ", expected equal shapes"},
                       {ours, other});
    }
    Map::operator=(values);
    return *this;
  }
  using Map::operator=;

 private:
  static T* checked(Tensor<T>& tensor, index_t rows, index_t cols) {
    if (rows < 0 || cols < 0 || (cols > 0 && rows > tensor.numel() / cols)) {
      throw ShapeError("as_eigen",
                       {"a tensor of shape ", tensor.shape(), " cannot be viewed as (", rows, ", ", cols,
                        "), expected at most ", tensor.numel(), " elements"},
                       {tensor.shape()});
    }
    if (!tensor.defined() && tensor.numel() > 0) {
      throw ValueError("as_eigen", {"the memory of this tensor of shape ", tensor.shape(),
                                    " was released or never allocated"});
    }
    return tensor.data();
  }

  Tensor<T> tensor_;
};

/// A tensor as a row-major matrix (product of the leading dimensions, last dimension), without a copy; rank 0
/// and 1 are one row. Call Tensor::mark_changed() after writing to values that a tape may have saved. Throws
/// ValueError for a tensor that has a shape but no memory.
template <class T>
EigenView<EigenMatrix<T>> as_eigen(Tensor<T>& t) {
  return {t, t.shape().rows(), t.shape().cols()};
}
/// The same for a const tensor, read-only.
template <class T>
EigenView<const EigenMatrix<T>> as_eigen(const Tensor<T>& t) {
  return {t, t.shape().rows(), t.shape().cols()};
}
/// The same for a temporary, whose storage the view keeps alive.
template <class T>
EigenView<EigenMatrix<T>> as_eigen(Tensor<T>&& t) {
  return as_eigen(t);
}

/// A tensor as an array (product of the leading dimensions, last dimension) for element-wise arithmetic,
/// without a copy. Throws as as_eigen().
template <class T>
EigenView<EigenArray<T>> as_array(Tensor<T>& t) {
  return {t, t.shape().rows(), t.shape().cols()};
}
/// The same for a const tensor, read-only.
template <class T>
EigenView<const EigenArray<T>> as_array(const Tensor<T>& t) {
  return {t, t.shape().rows(), t.shape().cols()};
}
/// The same for a temporary, whose storage the view keeps alive.
template <class T>
EigenView<EigenArray<T>> as_array(Tensor<T>&& t) {
  return as_array(t);
}

/// All elements, in row-major order, as a column vector, without a copy; as_vector(bias).transpose() is a
/// row. Throws as as_eigen().
template <class T>
EigenView<EigenVector<T>> as_vector(Tensor<T>& t) {
  return {t, t.numel(), 1};
}
/// The same for a const tensor, read-only.
template <class T>
EigenView<const EigenVector<T>> as_vector(const Tensor<T>& t) {
  return {t, t.numel(), 1};
}
/// The same for a temporary, whose storage the view keeps alive.
template <class T>
EigenView<EigenVector<T>> as_vector(Tensor<T>&& t) {
  return as_vector(t);
}

/// Tensor's constructor for an Eigen expression, with the element type deduced; it copies the values.
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
                     {"the matrix of shape ", eigen_shape(x).str(), " is not contiguous (strides ",
                      x.outerStride(), " and ", x.innerStride(),
                      "), must be contiguous; construct a Tensor from it, which copies the elements"});
  }
  return Tensor<typename Derived::Scalar>::borrow(x.data(), eigen_shape(x), std::move(keep_alive));
}

}  // namespace detail

/// A tensor over the memory of a row-major matrix, array, map, Ref or block, or of a vector, without a copy:
/// rank 1 for a vector type, else (rows, cols). The memory must outlive the tensor. Throws ValueError when
/// the elements are not adjacent.
template <class Derived>
requires(detail::EigenMemory<Derived>) Tensor<typename Derived::Scalar> borrow(Eigen::DenseBase<Derived>& x) {
  return detail::borrow_eigen(x.derived(), nullptr);
}
/// The same for a map or block that is itself a temporary; the memory must outlive the tensor.
template <class Derived>
requires(detail::EigenMemory<Derived> && !detail::EigenOwner<Derived>)
    Tensor<typename Derived::Scalar> borrow(Eigen::DenseBase<Derived>&& x) {
  return detail::borrow_eigen(x.derived(), nullptr);
}
/// The same for a row-major matrix or a vector that the tensor keeps alive. Throws ValueError for a null
/// pointer.
template <class Derived>
// clang-format off
requires(detail::EigenMemory<Derived> && detail::EigenOwner<Derived>)
    Tensor<typename Derived::Scalar> borrow(std::shared_ptr<Derived> x) {
  // clang-format on
  if (x == nullptr) throw ValueError("borrow", "the pointer to the matrix is null, must point to one");
  Derived& values = *x;
  return detail::borrow_eigen(values, std::move(x));
}

}  // namespace eigenformer
