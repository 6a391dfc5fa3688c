#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
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
/// b...), and without an axis elements of the flattened tensor. Negative indices count from the end; the
/// gradients of an entry that is taken several times are summed. Throws IndexError for an axis or index that
/// does not exist, ShapeError for a result above rank 6.
template <Operand X, detail::IndexNumber I>
[[nodiscard]] Var<element_t<X>> take(const X& x, const Tensor<I>& indices,
                                     std::optional<index_t> axis = std::nullopt) {
  const Var<element_t<X>>& given = x;
  const auto v = axis ? given : detail::reshaped("take", given, Shape{given.numel()});
  const index_t a = detail::axis_of("take", axis.value_or(0), v.shape());
  const auto y = detail::selected("take", v, a, detail::entries_from_front("take", indices, v.dim(a)));
  std::vector<index_t> sizes(v.shape().begin(), v.shape().end());
  sizes.erase(sizes.begin() + a);
  sizes.insert(sizes.begin() + a, indices.shape().begin(), indices.shape().end());
  return detail::reshaped("take", y, Shape(sizes));
}

/// gather() as NumPy's take_along_axis and PyTorch's take_along_dim: x and indices broadcast outside the
/// axis, and negative indices count from its end. Throws ShapeError when the shapes do not fit, IndexError
/// for an axis or index that does not exist.
template <Operand X, detail::IndexNumber I>
[[nodiscard]] Var<element_t<X>> take_along_axis(const X& x, const Tensor<I>& indices, index_t axis) {
  const Var<element_t<X>>& v = x;
  detail::require_defined("take_along_axis", v, indices);
  const index_t a = detail::axis_of("take_along_axis", axis, v.shape());
  const auto [index, shape] = detail::along_axis("take_along_axis", v.shape(), indices, a);
  return gather(shape == v.shape() ? v : broadcast_to(v, shape), a, index);
}

/// x with values at places along an axis, as NumPy's put_along_axis and PyTorch's scatter: for axis 1 of rank
/// 3, y[i][index[i][j][k]][k] = values[i][j][k]. The indices broadcast to x outside the axis, the values to
/// the indices; negative indices count from the end. Of several values for one place the last one counts.
/// Throws ShapeError when the shapes do not fit, IndexError for an axis or index that does not exist.
template <class T, detail::IndexNumber I>
[[nodiscard]] Var<T> put_along_axis(const Var<T>& x, const Tensor<I>& indices,
                                    const std::type_identity_t<Var<T>>& values, index_t axis) {
  constexpr const char* op = "put_along_axis";
  const OpScope scope = detail::scope_of(op, x, values, indices);
  const index_t a = detail::axis_of(op, axis, x.shape());
  const auto [index, shape] = detail::along_axis(op, x.shape(), indices, a);
  if (shape != x.shape()) {
    throw ShapeError(
        op, {"indices of shape ", indices.shape(), " must broadcast to ", x.shape(), " outside axis ", a},
        {x.shape(), indices.shape()});
  }
  // Which value each element of the result comes from; -1: x's own.
  Tensor<std::int64_t> source = Tensor<std::int64_t>::full(x.shape(), -1);
  detail::visit_gathered(op, x.shape(), index, a,
                         [to = source.data()](index_t in_x, index_t at) { to[in_x] = at; });
  Tensor<T> given(index.shape());
  detail::copy_view(given.data(), detail::whole_view(given.shape()), values.value().data(),
                    detail::broadcast_view(op, values.shape(), given.shape()));
  Tensor<T> y(x.shape());
  for (index_t i = 0; i < y.numel(); ++i) {
    const index_t at = source.data()[i];
    y.data()[i] = at < 0 ? x.value().data()[i] : given.data()[at];
  }
  if (detail::not_recorded(y, x, values)) return y;
  // dx = dy where no value was put; dvalues = dy where each was put, 0 for those that were replaced.
  return record(op, std::move(y), {x, values}, SavedTensors(source),
                [source, shape = index.shape()](Backward<T>& back) {
                  const Tensor<T>& dy = back.dy();
                  if (back.needs(1)) {
                    Tensor<T> g = Tensor<T>::zeros(shape);
                    for (index_t i = 0; i < dy.numel(); ++i) {
                      if (source.data()[i] >= 0) g.data()[source.data()[i]] = dy.data()[i];
                    }
                    if (const auto dv = back.grad(1)) detail::sum_into(dv, g);
                  }
                  if (const auto dx = back.grad(0)) {
                    for (index_t i = 0; i < dy.numel(); ++i)
                      dx.put(i, source.data()[i] >= 0 ? T(0) : dy.data()[i]);
                  }
                });
}
/// The same for other operands; the values may be a number.
template <class X, detail::IndexNumber I, class V>
requires(Operand<X>&& detail::ConvertedPair<X, V>)
    [[nodiscard]] Var<element_t<X>> put_along_axis(const X& x, const Tensor<I>& indices, const V& values,
                                                   index_t axis) {
  using T = element_t<X>;
  return put_along_axis(detail::operand<T>(x), indices, detail::operand<T>(values), axis);
}

/// x plus values at places along an axis, PyTorch's scatter_add: for axis 1 of rank 3,
/// y[i][index[i][j][k]][k] += values[i][j][k], in the order of the values. index: of x's rank, in no other
/// dimension larger than x, of the shape of the values. Throws ShapeError when the shapes do not fit,
/// IndexError for an axis or index that does not exist.
template <class T, detail::IndexNumber I>
[[nodiscard]] Var<T> scatter_add(const Var<T>& x, index_t axis, const Tensor<I>& index,
                                 const std::type_identity_t<Var<T>>& values) {
  const OpScope scope = detail::scope_of("scatter_add", x, values, index);
  const index_t a = detail::axis_of("scatter_add", axis, x.shape());
  if (index.shape() != values.shape()) {
    throw ShapeError(
        "scatter_add",
        {"index of shape ", index.shape(), " must have the shape of the values, ", values.shape()},
        {index.shape(), values.shape()});
  }
  detail::check_gathered("scatter_add", index, a, x.shape());
  Tensor<T> y = x.value().clone();
  detail::visit_gathered(
      "scatter_add", x.shape(), index, a,
      [to = y.data(), from = values.value().data()](index_t in_x, index_t at) { to[in_x] += from[at]; });
  if (detail::not_recorded(y, x, values)) return y;
  // dx = dy; dvalues = dy where each was added.
  return record("scatter_add", std::move(y), {x, values}, SavedTensors(index), [index, a](Backward<T>& back) {
    if (const auto dv = back.grad(1)) {
      const auto visit = [to = dv.data, beta = dv.beta, dy = back.dy().data()](index_t in_x, index_t at) {
        to[at] = beta == T(0) ? dy[in_x] : to[at] + dy[in_x];
      };
      detail::visit_gathered("scatter_add", back.dy().shape(), index, a, visit);
    }
    back.pass(0, back.dy());
  });
}
/// The same for other operands.
template <class X, detail::IndexNumber I, class V>
requires detail::Converted<X, V>
[[nodiscard]] Var<element_t<X>> scatter_add(const X& x, index_t axis, const Tensor<I>& index,
                                            const V& values) {
  return scatter_add<element_t<X>>(x, axis, index, values);
}

/// x plus entry k of the values at entry index[k] of an axis, in the order of the values, as PyTorch's
/// index_add. x: (a..., n, b...), index: (m), values: (a..., m, b...). Throws ShapeError when the shapes do
/// not fit, IndexError for an axis or index that does not exist.
template <class T, detail::IndexNumber I>
[[nodiscard]] Var<T> index_add(const Var<T>& x, index_t axis, const Tensor<I>& index,
                               const std::type_identity_t<Var<T>>& values) {
  const OpScope scope = detail::scope_of("index_add", x, values, index);
  const index_t a = detail::axis_of("index_add", axis, x.shape());
  if (index.rank() != 1 || values.shape() != x.shape().with(a, index.numel())) {
    throw ShapeError(
        "index_add",
        {"index of shape ", index.shape(), " must have rank 1, and values of shape ", values.shape(),
         " must agree with ", x.shape(), " but for one entry in axis ", a, " for each index"},
        {x.shape(), index.shape(), values.shape()});
  }
  detail::check_indices("index_add", index, a, x.shape());
  const detail::AxisView view(x.shape(), a);
  const std::vector<index_t> entries = detail::entries_from_front("index_add", index, view.n);
  Tensor<T> y = x.value().clone();
  const auto taken = static_cast<index_t>(entries.size());
  // Calls add(element of x, element of values, count) for each row of the values.
  const auto for_rows = [view, taken](const std::vector<index_t>& rows, const auto& add) {
    detail::parallel_each(view.outer, 1, [&](index_t o) {
      for (index_t k = 0; k < taken; ++k) {
        add((o * view.n + rows[static_cast<std::size_t>(k)]) * view.inner, (o * taken + k) * view.inner);
      }
    });
  };
  const T* from = values.value().data();
  for_rows(entries, [&](index_t in_x, index_t at) {
    for (index_t i = 0; i < view.inner; ++i) y.data()[in_x + i] += from[at + i];
  });
  if (detail::not_recorded(y, x, values)) return y;
  // dx = dy; entry k of dvalues = entry index[k] of dy.
  return record("index_add", std::move(y), {x, values}, SavedTensors(),
                [view, entries, for_rows](Backward<T>& back) {
                  if (const auto dv = back.grad(1)) {
                    const T* dy = back.dy().data();
                    for_rows(entries, [&](index_t in_x, index_t at) {
                      for (index_t i = 0; i < view.inner; ++i) dv.put(at + i, dy[in_x + i]);
                    });
                  }
                  back.pass(0, back.dy());
                });
}
/// The same for other operands.
template <class X, detail::IndexNumber I, class V>
requires detail::Converted<X, V>
[[nodiscard]] Var<element_t<X>> index_add(const X& x, index_t axis, const Tensor<I>& index, const V& values) {
  return index_add<element_t<X>>(x, axis, index, values);
}

}  // namespace eigenformer
