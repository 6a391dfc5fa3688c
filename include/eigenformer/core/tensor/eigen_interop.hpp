#pragma once

#include <Eigen/Core>
#include <memory>
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
    tensor.require_memory("as_eigen");
    return tensor.data();
  }

  Tensor<T> tensor_;
};

namespace detail {

template <class X>
concept AnyTensor = is_instance<std::remove_cvref_t<X>, Tensor>;

// The view of a tensor, read-only if that is const.
template <template <class> class Plain, class X>
auto view_of(X& t, index_t rows, index_t cols) {
  using P = Plain<typename X::value_type>;
  return EigenView<std::conditional_t<std::is_const_v<X>, const P, P>>(t, rows, cols);
}

}  // namespace detail

/// A tensor as a row-major matrix (product of the leading dimensions, last dimension), without a copy; rank 0
/// and 1 are one row: an EigenView of EigenMatrix, read-only for a const tensor, which keeps the storage of a
/// temporary alive. Call Tensor::mark_changed() after writing to values that a tape may have saved. Throws
/// ValueError for a tensor that has a shape but no memory.
template <detail::AnyTensor X>
auto as_eigen(X&& t) {
  return detail::view_of<EigenMatrix>(t, t.shape().rows(), t.shape().cols());
}
/// The same as an EigenArray, for element-wise arithmetic.
template <detail::AnyTensor X>
auto as_array(X&& t) {
  return detail::view_of<EigenArray>(t, t.shape().rows(), t.shape().cols());
}
/// All elements, in row-major order, as an EigenVector, otherwise the same; as_vector(bias).transpose() is a
/// row.
template <detail::AnyTensor X>
auto as_vector(X&& t) {
  return detail::view_of<EigenVector>(t, t.numel(), 1);
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
