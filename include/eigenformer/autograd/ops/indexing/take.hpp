#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/autograd/ops/shape/rearrange.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"

namespace eigenformer {

namespace detail {

// Indices counted from the front of a dimension of n. Throws IndexError, naming op, for one outside it.
template <IndexNumber I>
std::vector<index_t> entries_from_front(const char* op, const Tensor<I>& indices, index_t n) {
  require_defined(op, indices);
  std::vector<index_t> entries;
  entries.reserve(static_cast<std::size_t>(indices.numel()));
  for (const I i : indices.span()) {
    if (i < -n || i >= n) {
      throw IndexError(op, {"index ", i, " is outside ", n, " entries"});
    }
    entries.push_back(i < 0 ? static_cast<index_t>(i) + n : static_cast<index_t>(i));
  }
  return entries;
}

// Indices along an axis as gather() takes them: from the front, and broadcast with x outside the axis.
// Returns x's shape, broadcast to them.
template <IndexNumber I>
std::pair<Tensor<std::int64_t>, Shape> along_axis(const char* op, const Shape& shape,
                                                  const Tensor<I>& indices, index_t axis) {
  if (indices.rank() != shape.rank()) {
    throw ShapeError(op, {"indices of shape ", indices.shape(), " must have the rank of ", shape},
                     {shape, indices.shape()});
  }
  const std::vector<index_t> entries = entries_from_front(op, indices, shape[axis]);
  // The axis itself does not broadcast.
  const Shape sizes = kernels::broadcast_shape(op, shape.with(axis, 1), indices.shape().with(axis, 1));
  Tensor<std::int64_t> index(sizes.with(axis, indices.dim(axis)));
  for_each_pair(index.data(), whole_view(index.shape()), entries.data(),
                broadcast_view(op, indices.shape(), index.shape()),
                [](std::int64_t& to, const index_t& from) { to = from; });
  return {index, sizes.with(axis, shape[axis])};
}

}  // namespace detail

/// Entries of an axis by number, as NumPy's take: x (a..., n, b...) and indices (i...) give (a..., i...,
/// b...). Negative indices count from the end; the gradients of an entry that is taken several times are
/// summed. Throws IndexError for an axis or index that does not exist, ShapeError for a result above rank 6.
template <Operand X, detail::IndexNumber I>
[[nodiscard]] Var<element_t<X>> take(const X& x, const Tensor<I>& indices, index_t axis) {
  const Var<element_t<X>>& v = detail::operand<element_t<X>>(x);
  const index_t a = detail::axis_of("take", axis, v.shape());
  const auto y = detail::selected("take", v, a, detail::entries_from_front("take", indices, v.dim(a)));
  std::vector<index_t> sizes(v.shape().begin(), v.shape().end());
  sizes.erase(sizes.begin() + a);
  sizes.insert(sizes.begin() + a, indices.shape().begin(), indices.shape().end());
  return detail::reshaped("take", y, Shape(sizes));
}
/// Elements of the flattened tensor, in the shape of the indices, as PyTorch's take.
template <Operand X, detail::IndexNumber I>
[[nodiscard]] Var<element_t<X>> take(const X& x, const Tensor<I>& indices) {
  const Var<element_t<X>>& v = detail::operand<element_t<X>>(x);
  const auto flat = detail::reshaped("take", v, Shape{v.numel()});
  const auto y = detail::selected("take", flat, 0, detail::entries_from_front("take", indices, v.numel()));
  return detail::reshaped("take", y, indices.shape());
}

/// gather() as NumPy's take_along_axis and PyTorch's take_along_dim: x and indices broadcast outside the
/// axis, and negative indices count from its end. Throws ShapeError when the shapes do not fit, IndexError
/// for an axis or index that does not exist.
template <Operand X, detail::IndexNumber I>
[[nodiscard]] Var<element_t<X>> take_along_axis(const X& x, const Tensor<I>& indices, index_t axis) {
  const Var<element_t<X>>& v = detail::operand<element_t<X>>(x);
  detail::require_defined("take_along_axis", v, indices);
  const index_t a = detail::axis_of("take_along_axis", axis, v.shape());
  const auto [index, shape] = detail::along_axis("take_along_axis", v.shape(), indices, a);
  return gather(shape == v.shape() ? v : broadcast_to(v, shape), a, index);
}

}  // namespace eigenformer
