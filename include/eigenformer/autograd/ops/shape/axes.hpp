#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

// Ops that change dimensions and keep the elements.

namespace eigenformer {

namespace detail {

inline Shape squeezed_shape(const Shape& shape, const std::vector<index_t>& axes) {
  const std::vector<bool> named = named_axes("squeeze", axes, shape);
  std::vector<index_t> sizes;
  for (index_t i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 1 || !named[static_cast<std::size_t>(i)]) sizes.push_back(shape[i]);
  }
  return Shape(sizes);
}

inline Shape flattened_shape(const Shape& shape, index_t first, index_t last) {
  if (shape.rank() == 0) return Shape{1};
  const index_t begin = axis_of("flatten", first, shape), end = axis_of("flatten", last, shape);
  if (begin > end) {
    throw IndexError("flatten", {"axis ", first, " is behind axis ", last, " of shape ", shape,
                                 ", expected before or the same"});
  }
  std::vector<index_t> sizes(shape.begin(), shape.begin() + begin + 1);
  for (index_t i = begin + 1; i < shape.rank(); ++i) {
    if (i <= end) {
      sizes.back() *= shape[i];
    } else {
      sizes.push_back(shape[i]);
    }
  }
  return Shape(sizes);
}

// The shape with dimensions of size 1, as NumPy's atleast_1d, 2d and 3d put them.
inline Shape atleast_shape(const Shape& shape, index_t rank) {
  Shape s = shape;
  if (s.rank() == 0 && rank >= 1) s = s.inserted(0, 1);
  if (s.rank() == 1 && rank >= 2) s = s.inserted(0, 1);
  if (s.rank() == 2 && rank >= 3) s = s.inserted(2, 1);
  return s;
}

template <class T>
Var<T> reordered(const char* op, const Var<T>& x, const std::vector<index_t>& from,
                 const std::vector<index_t>& to) {
  require_defined(op, x);
  if (from.size() != to.size()) {
    throw ValueError(op, {from.size(), " axes to move to ", to.size(), " places, expected as many"});
  }
  constexpr index_t none = -1;
  std::vector<index_t> order(static_cast<std::size_t>(x.rank()), none);
  std::vector<bool> moved(order.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto source = static_cast<std::size_t>(axis_of(op, from[i], x.shape()));
    index_t& place = order[static_cast<std::size_t>(axis_of(op, to[i], x.shape()))];
    if (moved[source] || place != none) {
      throw ValueError(op, "an axis is named twice, expected once");
    }
    place = static_cast<index_t>(source);
    moved[source] = true;
  }
  std::size_t next = 0;
  for (index_t& place : order) {
    while (place == none && moved[next]) ++next;
    if (place == none) place = static_cast<index_t>(next++);
  }
  return permute(x, order);
}

template <class T>
std::vector<Var<T>> split_at(const char* op, const Var<T>& x, const std::vector<index_t>& sizes,
                             index_t axis) {
  require_defined(op, x);
  const index_t a = axis_of(op, axis, x.shape());
  index_t total = 0;
  for (const index_t size : sizes) {
    if (size < 0) throw ValueError(op, {"size ", size, " must not be negative"});
    total += std::min(size, std::numeric_limits<index_t>::max() - total);
  }
  if (total != x.dim(a)) {
    throw ShapeError(
        op, {"sizes sum to ", total, ", must sum to the size of axis ", axis, " of shape ", x.shape()},
        {x.shape()});
  }
  std::vector<Var<T>> parts;
  index_t first = 0;
  for (const index_t size : sizes) {
    parts.push_back(sliced(op, x, a, first, size));
    first += size;
  }
  return parts;
}

// Sizes of at most `size` that sum to n; one of 0 for n = 0, as in PyTorch.
inline std::vector<index_t> equal_sizes(const char* op, index_t n, index_t size) {
  if (size < 1) throw ValueError(op, {"size ", size, " must be positive"});
  std::vector<index_t> sizes(static_cast<std::size_t>(n / size), size);
  if (n % size > 0 || n == 0) sizes.push_back(n % size);
  return sizes;
}

}  // namespace detail

/// The elements repeated along dimensions of size 1, and along new ones in front: PyTorch's expand, but a
/// copy. Throws ShapeError when x does not broadcast to the shape.
template <class T>
[[nodiscard]] Var<T> broadcast_to(const Var<T>& x, const Shape& shape) {
  const OpScope scope = detail::scope_of("broadcast_to", x);
  (void)detail::broadcast_view("broadcast_to", x.shape(), shape);
  Tensor<T> y(shape);
  detail::kernels::broadcast_to<T>(x.value().data(), x.shape(), y.data(), shape, T(1), T(0));
  if (detail::not_recorded(y, x)) return y;
  // dx = dy summed over the dimensions in which x was repeated.
  return detail::record_one(
      "broadcast_to", std::move(y), x, SavedTensors(), [](const auto& dx, const Tensor<T>& dy) {
        detail::kernels::reduce_to_shape<T>(dy.data(), dy.shape(), dx.data, dx.shape, T(1), dx.beta);
      });
}
/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> broadcast_to(const X& x, const Shape& shape) {
  return broadcast_to<element_t<X>>(x, shape);
}

/// Without those of the given dimensions (none means all) whose size is 1. Throws IndexError for an axis
/// outside the rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> squeeze(const X& x, const std::vector<index_t>& axes = {}) {
  const Var<element_t<X>>& v = x;
  return detail::reshaped("squeeze", v, detail::squeezed_shape(v.shape(), axes));
}

/// With a dimension of size 1 at position `axis` of the result; NumPy's expand_dims. Throws IndexError for a
/// position outside the new rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> unsqueeze(const X& x, index_t axis) {
  const Var<element_t<X>>& v = x;
  return detail::reshaped("unsqueeze", v, v.shape().inserted(axis, 1));
}

/// Dimensions first .. last as one; rank 0 becomes rank 1. Throws IndexError for an axis outside the rank,
/// and for first behind last.
template <Operand X>
[[nodiscard]] Var<element_t<X>> flatten(const X& x, index_t first = 0, index_t last = -1) {
  const Var<element_t<X>>& v = x;
  return detail::reshaped("flatten", v, detail::flattened_shape(v.shape(), first, last));
}

/// Of rank 1 at least: rank 0 becomes (1,).
template <Operand X>
[[nodiscard]] Var<element_t<X>> atleast_1d(const X& x) {
  const Var<element_t<X>>& v = x;
  return detail::reshaped("atleast_1d", v, detail::atleast_shape(v.shape(), 1));
}
/// Of rank 2 at least: (n,) becomes (1, n).
template <Operand X>
[[nodiscard]] Var<element_t<X>> atleast_2d(const X& x) {
  const Var<element_t<X>>& v = x;
  return detail::reshaped("atleast_2d", v, detail::atleast_shape(v.shape(), 2));
}
/// Of rank 3 at least: (n,) becomes (1, n, 1), (m, n) becomes (m, n, 1).
template <Operand X>
[[nodiscard]] Var<element_t<X>> atleast_3d(const X& x) {
  const Var<element_t<X>>& v = x;
  return detail::reshaped("atleast_3d", v, detail::atleast_shape(v.shape(), 3));
}

/// Moves dimensions to other places, from[i] to position to[i] of the result; the others keep their order.
/// Copies the elements. Throws IndexError for an axis outside the rank, ValueError for one named twice and
/// for lists of different lengths.
template <Operand X>
[[nodiscard]] Var<element_t<X>> moveaxis(const X& x, const std::vector<index_t>& from,
                                         const std::vector<index_t>& to) {
  return detail::reordered<element_t<X>>("moveaxis", x, from, to);
}
/// The same for one dimension.
template <Operand X>
[[nodiscard]] Var<element_t<X>> moveaxis(const X& x, index_t from, index_t to) {
  return moveaxis(x, std::vector<index_t>{from}, std::vector<index_t>{to});
}
/// Swaps two dimensions and copies the elements: transpose() with both axes given. Throws IndexError for an
/// axis outside the rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> swapaxes(const X& x, index_t a, index_t b) {
  const Var<element_t<X>>& v = x;
  detail::require_defined("swapaxes", v);
  return transpose(v, a, b);
}

/// Parts of the given sizes along an axis, as PyTorch's split. Throws IndexError for an axis outside the
/// rank, ValueError for a negative size, ShapeError unless the sizes sum to that of the axis.
template <Operand X>
[[nodiscard]] std::vector<Var<element_t<X>>> split(const X& x, const std::vector<index_t>& sizes,
                                                   index_t axis = 0) {
  return detail::split_at<element_t<X>>("split", x, sizes, axis);
}
/// Parts of `size` entries along an axis, the last one smaller if need be. Throws ValueError unless the size
/// is positive.
template <Operand X>
[[nodiscard]] std::vector<Var<element_t<X>>> split(const X& x, index_t size, index_t axis = 0) {
  const Var<element_t<X>>& v = x;
  const index_t n = v.dim(detail::axis_of("split", axis, v.shape()));
  return detail::split_at("split", v, detail::equal_sizes("split", n, size), axis);
}
/// At most `chunks` parts of equal size along an axis, the last one smaller if need be, as PyTorch's chunk;
/// of an axis without entries `chunks` empty ones. Throws ValueError unless `chunks` is positive.
template <Operand X>
[[nodiscard]] std::vector<Var<element_t<X>>> chunk(const X& x, index_t chunks, index_t axis = 0) {
  if (chunks < 1) throw ValueError("chunk", {chunks, " chunks asked for, must be positive"});
  const Var<element_t<X>>& v = x;
  const index_t n = v.dim(detail::axis_of("chunk", axis, v.shape()));
  const index_t size = std::max<index_t>(1, n / chunks + (n % chunks > 0));
  const auto sizes = n == 0 ? std::vector<index_t>(static_cast<std::size_t>(chunks), 0)
                            : detail::equal_sizes("chunk", n, size);
  return detail::split_at("chunk", v, sizes, axis);
}
/// The entries of an axis, each without that dimension; PyTorch's unbind. Throws IndexError for an axis
/// outside the rank.
template <Operand X>
[[nodiscard]] std::vector<Var<element_t<X>>> unstack(const X& x, index_t axis = 0) {
  const Var<element_t<X>>& v = x;
  const index_t a = detail::axis_of("unstack", axis, v.shape());
  std::vector<Var<element_t<X>>> parts;
  for (auto& part :
       detail::split_at("unstack", v, std::vector<index_t>(static_cast<std::size_t>(v.dim(a)), 1), a)) {
    parts.push_back(detail::reshaped("unstack", part, v.shape().without(a)));
  }
  return parts;
}

}  // namespace eigenformer
