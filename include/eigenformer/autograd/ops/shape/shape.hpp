#pragma once

#include <algorithm>
#include <concepts>
#include <initializer_list>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/reduction/permute.hpp"

namespace eigenformer {

namespace detail {

// An axis counted from the front. Throws IndexError naming op.
inline index_t axis_of(const char* op, index_t axis, const Shape& shape) {
  const index_t a = axis < 0 ? axis + shape.rank() : axis;
  if (a < 0 || a >= shape.rank()) {
    throw IndexError(op, {"axis ", axis, " does not exist in shape ", shape});
  }
  return a;
}

// Which axes are named; none means all. Throws IndexError naming op.
inline std::vector<bool> named_axes(const char* op, const std::vector<index_t>& axes, const Shape& shape) {
  std::vector<bool> named(static_cast<std::size_t>(shape.rank()), axes.empty());
  for (const index_t axis : axes) named[static_cast<std::size_t>(axis_of(op, axis, shape))] = true;
  return named;
}

// A tensor seen from one axis: (outer, n, inner).
struct AxisView {
  index_t outer = 1;
  index_t n;
  index_t inner = 1;

  AxisView(const Shape& shape, index_t axis) : n(shape[axis]) {
    for (index_t i = 0; i < shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape[i];
  }
};

// Copies (beta 0) or adds (beta 1) `rows` runs of `n` elements, whose starts are some elements apart.
template <class T>
void copy_rows(const T* x, index_t x_stride, T* y, index_t y_stride, index_t rows, index_t n, T beta) {
  if (n == 0) return;
  parallel_each(rows, (1 << 15) / n, [&](index_t r) {
    const T* from = x + r * x_stride;
    T* to = y + r * y_stride;
    if (beta == T(0)) {
      std::copy_n(from, n, to);
    } else {
      for (index_t i = 0; i < n; ++i) to[i] += from[i];
    }
  });
}

// The same elements in another shape.
template <class T>
Var<T> reshaped(const char* op, const Var<T>& x, const Shape& shape) {
  const OpScope scope = scope_of(op, x);
  Tensor<T> y = x.value().reshape(shape);
  if (not_recorded(y, x)) return y;
  // dx = dy in x's shape.
  return record(op, std::move(y), {x}, [](Backward<T>& back) { back.pass(0, back.dy()); });
}

// The given sizes, of which one that is -1 follows from the others.
EIGENFORMER_NOINLINE inline Shape completed_shape(const Shape& shape, std::vector<index_t> sizes) {
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    *open = 1;
    const index_t rest = Shape(sizes).numel();
    if (rest == 0 || shape.numel() % rest != 0) {
      throw ShapeError(
          "reshape",
          {"tensor of shape ", shape, " has ", shape.numel(), " elements, which are not divisible by ", rest,
           ", the product of the sizes other than -1"},
          {shape});
    }
    *open = shape.numel() / rest;
  }
  return Shape(sizes);
}

// The order of dimensions that swaps two of them.
EIGENFORMER_NOINLINE inline std::vector<index_t> swapped_order(const Shape& shape, index_t a, index_t b) {
  std::vector<index_t> order(static_cast<std::size_t>(shape.rank()));
  std::iota(order.begin(), order.end(), index_t{0});
  std::swap(order[static_cast<std::size_t>(axis_of("transpose", a, shape))],
            order[static_cast<std::size_t>(axis_of("transpose", b, shape))]);
  return order;
}

// The first entry and the number of entries of a slice of an axis that exists.
EIGENFORMER_NOINLINE inline std::pair<index_t, index_t> slice_bounds(const Shape& shape, index_t axis,
                                                                     index_t begin, index_t end) {
  const index_t n = shape[axis];
  const index_t first = begin < 0 ? begin + n : begin;
  const index_t last = end == slice_end ? n : end < 0 ? end + n : end;
  if (first < 0 || last > n || first > last) {
    throw IndexError("slice", {"range ", begin, " to ", (end == slice_end ? "the end" : std::to_string(end)),
                               " does not exist in axis ", axis, " of shape ", shape});
  }
  return {first, last - first};
}

// Entries first .. first + count - 1 of an axis, for the first axis without a copy.
template <class T>
Var<T> sliced(const char* op, const Var<T>& x, index_t axis, index_t first, index_t count) {
  const OpScope scope = scope_of(op, x);
  const AxisView view(x.shape(), axis);
  Tensor<T> y;
  if (axis == 0) {
    y = x.value().rows(first, count);
  } else {
    y = Tensor<T>(x.shape().with(axis, count));
    copy_rows<T>(x.value().data() + first * view.inner, view.n * view.inner, y.data(), count * view.inner,
                 view.outer, count * view.inner, T(0));
  }
  if (not_recorded(y, x)) return y;
  // dx = dy inside the range, 0 outside.
  return record_one(op, std::move(y), x, SavedTensors(),
                    [view, first, count](const auto& dx, const Tensor<T>& dy) {
                      dx.start_sum();
                      copy_rows<T>(dy.data(), count * view.inner, dx.data + first * view.inner,
                                   view.n * view.inner, view.outer, count * view.inner, dx.beta);
                    });
}

}  // namespace detail

/// The same elements in another shape, sharing the storage. Throws ShapeError when their number differs.
template <Operand X>
[[nodiscard]] Var<element_t<X>> reshape(const X& x, const Shape& shape) {
  return detail::reshaped<element_t<X>>("reshape", x, shape);
}
/// reshape() to the given sizes, one of which may be -1: it is computed from the others. Throws ShapeError
/// when they do not fit.
template <Operand X>
[[nodiscard]] Var<element_t<X>> reshape(const X& x, std::initializer_list<index_t> sizes) {
  const Var<element_t<X>>& v = x;
  detail::require_defined("reshape", v);
  return detail::reshaped("reshape", v, detail::completed_shape(v.shape(), sizes));
}

/// Copies the elements with the dimensions in another order: the result's dimension i is x's dimension
/// order[i] (negative counts from the end). Throws ShapeError unless order names every dimension once.
template <class T>
[[nodiscard]] Var<T> permute(const Var<T>& x, const std::vector<index_t>& order) {
  const OpScope scope = detail::scope_of("permute", x);
  Tensor<T> y(detail::kernels::permuted_shape(x.shape(), order));
  detail::kernels::permute<T>(x.value().data(), x.shape(), order, y.data(), T(0));
  // dx = dy with its dimensions back in x's order.
  std::vector<index_t> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    inverse[static_cast<std::size_t>(order[i] < 0 ? order[i] + x.rank() : order[i])] =
        static_cast<index_t>(i);
  }
  if (detail::not_recorded(y, x)) return y;
  return detail::record_one("permute", std::move(y), x, SavedTensors(),
                            [inverse](const auto& dx, const Tensor<T>& dy) {
                              detail::kernels::permute<T>(dy.data(), dy.shape(), inverse, dx.data, dx.beta);
                            });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> permute(const X& x, const std::vector<index_t>& order) {
  return permute<element_t<X>>(x, order);
}

/// Swaps two dimensions, the last two by default, and copies the elements. Throws IndexError for one outside
/// the rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> transpose(const X& x, index_t a = -2, index_t b = -1) {
  const Var<element_t<X>>& v = x;
  detail::require_defined("transpose", v);
  return permute(v, detail::swapped_order(v.shape(), a, b));
}

/// Entries begin .. end - 1 along an axis (negative counts from the end); for the first axis without a copy.
/// Throws IndexError when the axis or one of the bounds is outside, or end is before begin.
template <Operand X>
[[nodiscard]] Var<element_t<X>> slice(const X& x, index_t axis, index_t begin, index_t end = slice_end) {
  const Var<element_t<X>>& v = x;
  detail::require_defined("slice", v);
  const index_t a = detail::axis_of("slice", axis, v.shape());
  const auto [first, count] = detail::slice_bounds(v.shape(), axis, begin, end);
  return detail::sliced("slice", v, a, first, count);
}

/// Concatenates tensors along an axis; their other dimensions must agree.
/// Throws ValueError for an empty list, IndexError for an axis outside the rank, ShapeError when the shapes
/// differ.
template <class T>
[[nodiscard]] Var<T> concat(const std::vector<Var<T>>& parts, index_t axis = 0) {
  const OpScope scope = detail::scope_of("concat");
  if (parts.empty()) throw ValueError("concat", "there must be at least one tensor");
  for (const Var<T>& part : parts) detail::require_defined("concat", part);
  const Shape& front = parts.front().shape();
  const index_t a = detail::axis_of("concat", axis, front);
  index_t total = 0;
  for (const Var<T>& part : parts) {
    if (part.rank() != front.rank() || part.shape().with(a, 0) != front.with(a, 0)) {
      throw ShapeError("concat",
                       {"shapes ", front.str(), " and ", part.shape(), " must agree in all but axis ", a},
                       {front, part.shape()});
    }
    total += part.dim(a);
  }
  Tensor<T> y(front.with(a, total));
  const detail::AxisView view(y.shape(), a);
  std::vector<index_t> offsets;
  index_t offset = 0;
  for (const Var<T>& part : parts) {
    const index_t n = part.dim(a) * view.inner;
    detail::copy_rows<T>(part.value().data(), n, y.data() + offset, view.n * view.inner, view.outer, n, T(0));
    offsets.push_back(offset);
    offset += n;
  }
  if (detail::not_recorded(y, parts)) return y;
  // The gradient of each part is its slice of dy.
  return record("concat", std::move(y), parts, SavedTensors(), [view, offsets](Backward<T>& back) {
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (const auto dx = back.grad(i)) {
        const index_t n = view.outer == 0 ? 0 : dx.shape.numel() / view.outer;
        detail::copy_rows<T>(back.dy().data() + offsets[i], view.n * view.inner, dx.data, n, view.outer, n,
                             dx.beta);
      }
    }
  });
}
/// The same for vectors of other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> concat(const std::vector<X>& parts, index_t axis = 0) {
  return concat(std::vector<Var<element_t<X>>>(parts.begin(), parts.end()), axis);
}
/// The same for operands of any kind in braces.
template <std::same_as<float> T = float>
[[nodiscard]] Var<T> concat(std::initializer_list<std::type_identity_t<Var<T>>> parts, index_t axis = 0) {
  return concat(std::vector<Var<T>>(parts), axis);
}
/// The same for double.
template <std::same_as<double> T = double>
[[nodiscard]] Var<T> concat(std::initializer_list<std::type_identity_t<Var<T>>> parts, index_t axis = 0) {
  return concat(std::vector<Var<T>>(parts), axis);
}

/// Stacks tensors of the same shape along a new axis at position `axis` (negative counts from the end).
/// Throws ValueError for an empty list, IndexError for an axis outside the new rank, ShapeError when the
/// shapes differ.
template <class T>
[[nodiscard]] Var<T> stack(const std::vector<Var<T>>& parts, index_t axis = 0) {
  const OpScope scope = detail::scope_of("stack");
  if (parts.empty()) throw ValueError("stack", "there must be at least one tensor");
  for (const Var<T>& part : parts) detail::require_defined("stack", part);
  const Shape& front = parts.front().shape();
  const index_t a = axis < 0 ? axis + front.rank() + 1 : axis;
  if (a < 0 || a > front.rank()) {
    throw IndexError("stack", {"axis ", axis, " does not exist in a stack of shape ", front.str()});
  }
  const Shape shape = front.inserted(a, 1);
  std::vector<Var<T>> slices;
  for (const Var<T>& part : parts) {
    if (part.shape() != front) {
      throw ShapeError("stack", {"shapes ", front.str(), " and ", part.shape(), " must be equal"},
                       {front, part.shape()});
    }
    slices.push_back(reshape(part, shape));
  }
  return concat(slices, a);
}
/// The same for vectors of other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> stack(const std::vector<X>& parts, index_t axis = 0) {
  return stack(std::vector<Var<element_t<X>>>(parts.begin(), parts.end()), axis);
}
/// The same for operands of any kind in braces.
template <std::same_as<float> T = float>
[[nodiscard]] Var<T> stack(std::initializer_list<std::type_identity_t<Var<T>>> parts, index_t axis = 0) {
  return stack(std::vector<Var<T>>(parts), axis);
}
/// The same for double.
template <std::same_as<double> T = double>
[[nodiscard]] Var<T> stack(std::initializer_list<std::type_identity_t<Var<T>>> parts, index_t axis = 0) {
  return stack(std::vector<Var<T>>(parts), axis);
}

}  // namespace eigenformer
