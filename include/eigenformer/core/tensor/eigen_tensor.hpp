#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <unsupported/Eigen/CXX11/Tensor>

#include "eigenformer/core/tensor/tensor.hpp"

// Tensors of any rank in Eigen's Tensor module, which takes seconds to compile: nothing else includes this.

namespace eigenformer {

/// A map of a tensor of rank `Rank` for Eigen's Tensor module, without a copy: as_eigen_tensor<3>(t). Unlike
/// the view of as_eigen() it does not keep the memory alive: the tensor must outlive it, and a temporary does
/// not compile. Read-only for a const tensor. Throws ShapeError for another rank, ValueError for a tensor
/// that has a shape but no memory.
template <int Rank, class X>
requires detail::is_instance<std::remove_const_t<X>, Tensor>
auto as_eigen_tensor(X& t) {
  const Shape& shape = t.shape();
  if (shape.rank() != Rank) {
    throw ShapeError("as_eigen_tensor", {"tensor of shape ", shape, " must have rank ", Rank}, {shape});
  }
  t.require_memory("as_eigen_tensor");
  Eigen::array<Eigen::Index, static_cast<std::size_t>(Rank)> sizes{};
  std::copy(shape.begin(), shape.end(), sizes.begin());
  using Plain = Eigen::Tensor<typename X::value_type, Rank, Eigen::RowMajor>;
  return Eigen::TensorMap<std::conditional_t<std::is_const_v<X>, const Plain, Plain>>(t.data(), sizes);
}
template <int Rank, class X>
void as_eigen_tensor(const X&& t) = delete;

/// A new tensor with the values of an expression of Eigen's Tensor module, of the same rank; the expression
/// may have either storage order.
template <class Derived>
Tensor<std::remove_const_t<typename Derived::Scalar>> from_eigen_tensor(
    const Eigen::TensorBase<Derived, Eigen::ReadOnlyAccessors>& expression) {
  using T = std::remove_const_t<typename Derived::Scalar>;
  constexpr int rank = Eigen::internal::traits<Derived>::NumDimensions;
  constexpr int layout = Eigen::internal::traits<Derived>::Layout;
  static_assert(rank <= Shape::max_rank, "a tensor has at most 6 dimensions");
  const Eigen::Tensor<T, rank, layout> values = static_cast<const Derived&>(expression);
  std::array<index_t, static_cast<std::size_t>(rank)> dims{};
  Eigen::array<int, static_cast<std::size_t>(rank)> reversed{};
  for (int i = 0; i < rank; ++i) {
    dims[static_cast<std::size_t>(i)] = values.dimension(i);
    reversed[static_cast<std::size_t>(i)] = rank - 1 - i;
  }
  Tensor<T> result{Shape(std::span<const index_t>(dims))};
  if constexpr (layout == Eigen::RowMajor) {
    as_eigen_tensor<rank>(result) = values;
  } else {
    as_eigen_tensor<rank>(result) = values.swap_layout().shuffle(reversed);
  }
  return result;
}

}  // namespace eigenformer
