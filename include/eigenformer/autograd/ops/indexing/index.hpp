#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/elementwise/compare.hpp"
#include "eigenformer/autograd/ops/shape/axes.hpp"
#include "eigenformer/autograd/ops/shape/rearrange.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/tensor/view.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"

namespace eigenformer {

template <class T>
Var<T> Var<T>::operator()(const Index& a, const Index& b, const Index& c, const Index& d, const Index& e,
                          const Index& f, const Index& g, const Index& h) const {
  return detail::viewed("index", *this,
                        detail::indexed_view(shape(), std::array<Index, 8>{a, b, c, d, e, f, g, h}));
}

/// x with one part replaced by `values`, broadcast to it: assign(x, {ef::all, 1}, v) is NumPy's x[:, 1] = v,
/// but x stays as it is. A Tensor's own part is assigned to directly: t(ef::all, 1) = v. Throws as x(...),
/// and ShapeError when the values do not broadcast to the part.
template <class T>
[[nodiscard]] Var<T> assign(const Var<T>& x, std::initializer_list<Index> indices,
                            const std::type_identity_t<Var<T>>& values) {
  const OpScope scope = detail::scope_of("assign", x, values);
  const detail::StridedView part =
      detail::indexed_view(x.shape(), std::span<const Index>(indices.begin(), indices.size()));
  const detail::StridedView from = detail::broadcast_view("assign", values.shape(), part.shape);
  Tensor<T> y = x.value().clone();
  detail::copy_view(y.data(), part, values.value().data(), from);
  if (detail::not_recorded(y, x, values)) return y;
  // dx = dy outside the part, 0 inside; dvalues = dy of the part, summed over what was broadcast.
  return record("assign", std::move(y), {x, values}, SavedTensors(), [part](Backward<T>& back) {
    if (back.needs(1)) {
      Tensor<T> inside(part.shape);
      detail::copy_view(inside.data(), detail::whole_view(part.shape), back.dy().data(), part);
      if (const auto dv = back.grad(1)) detail::sum_into(dv, inside);
    }
    if (back.needs(0)) {
      Tensor<T> outside = back.dy().clone();
      const Tensor<T> zero = Tensor<T>::scalar(T(0));
      detail::copy_view(outside.data(), part, zero.data(),
                        detail::broadcast_view("assign", Shape{}, part.shape));
      back.pass(0, std::move(outside));
    }
  });
}
/// The same for other operands; the values may be a number.
template <class X, class V>
requires(Operand<X>&& detail::ConvertedPair<X, V>)
    [[nodiscard]] Var<element_t<X>> assign(const X& x, std::initializer_list<Index> indices,
                                           const V& values) {
  using T = element_t<X>;
  return assign(detail::operand<T>(x), indices, detail::operand<T>(values));
}

/// x where the mask is false, `value` (a number, or an operand of one element) where it is true. Throws
/// ShapeError unless the mask broadcasts to x and the value has one element.
template <class X, class V>
requires(Operand<X>&& detail::OperandPair<X, V>)
    [[nodiscard]] Var<element_t<X>> masked_fill(const X& x, const Tensor<bool>& mask, const V& value) {
  using T = element_t<X>;
  const Var<T>& v = detail::operand<T>(x);
  const Var<T>& fill = detail::operand<T>(value);
  detail::require_defined("masked_fill", v, mask, fill);
  (void)detail::broadcast_view("masked_fill", mask.shape(), v.shape());
  return where(mask, detail::reshaped("masked_fill", fill, Shape{}), v);
}

/// The elements where the mask is true, in row-major order, as a vector; x and mask broadcast together.
/// NumPy's x[mask]. Throws ShapeError when the shapes do not broadcast.
template <Operand X>
[[nodiscard]] Var<element_t<X>> masked_select(const X& x, const Tensor<bool>& mask) {
  const Var<element_t<X>>& v = x;
  const OpScope scope = detail::scope_of("masked_select", v, mask);
  const Shape shape = detail::kernels::broadcast_shape("masked_select", v.shape(), mask.shape());
  const detail::StridedView view = detail::broadcast_view("masked_select", mask.shape(), shape);
  Tensor<bool> flags(shape);
  detail::copy_view(flags.data(), detail::whole_view(shape), mask.data(), view);
  using T = element_t<X>;
  const auto all = shape == v.shape() ? v : broadcast_to(v, shape);
  const index_t count = std::count(flags.span().begin(), flags.span().end(), true);
  Tensor<T> y(Shape{count});
  // Without a branch, which could not be predicted: the next element overwrites one that is not selected.
  for (index_t i = 0, k = 0; k < count; k += flags.data()[i] ? 1 : 0, ++i)
    y.data()[k] = all.value().data()[i];
  if (detail::not_recorded(y, all)) return y;
  // dx = dy at the elements that were selected, 0 elsewhere.
  return detail::record_one("masked_select", std::move(y), all, SavedTensors(flags),
                            [flags](const auto& dx, const Tensor<T>& dy) {
                              const T* g = dy.data();
                              for (index_t i = 0; i < flags.numel(); ++i)
                                dx.put(i, flags.data()[i] ? *g++ : T(0));
                            });
}

/// The indices of the elements that are not zero, in row-major order, as PyTorch's nonzero and NumPy's
/// argwhere: (count, rank of x). x: a Tensor or Var of any type, or an Eigen object. NaN is not zero.
template <class X>
requires detail::has_elements<X>
[[nodiscard]] Tensor<std::int64_t> nonzero(const X& x) {
  const auto& t = detail::tensor_of(x);
  using T = typename detail::ElementOf<X>::type;
  detail::require_defined("nonzero", t);
  const auto* const from = t.data();
  index_t count = 0;
  for (index_t i = 0; i < t.numel(); ++i) count += from[i] == T(0) ? 0 : 1;
  Tensor<std::int64_t> found(Shape{count, t.rank()});
  const index_t outer = std::max<index_t>(0, t.rank() - 1), row = t.rank() == 0 ? 1 : t.dim(-1);
  std::array<std::int64_t, static_cast<std::size_t>(Shape::max_rank)> at{};
  std::int64_t* to = found.data();
  for (index_t begin = 0; begin < t.numel(); begin += row) {
    index_t here = 0;  // of this row; the next one overwrites what is not counted
    if (t.rank() > 0) {
      for (index_t i = 0; i < row && here < count; ++i) {
        to[here * t.rank() + outer] = i;
        here += from[begin + i] == T(0) ? 0 : 1;
      }
    }
    for (index_t axis = 0; axis < outer; ++axis) {
      const std::int64_t entry = at[static_cast<std::size_t>(axis)];
      for (index_t k = 0; k < here; ++k) to[k * t.rank() + axis] = entry;
    }
    to += here * t.rank();
    count -= here;
    for (index_t axis = outer; axis-- > 0;) {
      std::int64_t& index = at[static_cast<std::size_t>(axis)];
      if (++index < t.dim(axis)) break;
      index = 0;
    }
  }
  return found;
}

/// Where each value belongs in a sorted row: the number of its entries below the value, with `right` at most
/// the value; NaN belongs at the end. sorted: (n), or (..., n) for values (..., m) of the same sizes before
/// the last. Returns the shape of the values. Operands of one type. Throws ShapeError when the shapes do not
/// fit.
template <class S, class V>
requires(detail::has_elements<S>&& detail::has_elements<V>&& detail::are_all_of_one_type<S, V>)
    [[nodiscard]] Tensor<std::int64_t> searchsorted(const S& sorted, const V& values, bool right = false) {
  const auto& s = detail::tensor_of(sorted);
  const auto& v = detail::tensor_of(values);
  detail::require_defined("searchsorted", s, v);
  const bool one = s.rank() == 1;
  if (s.rank() < 1 || (!one && (s.rank() != v.rank() || s.shape().with(-1, 1) != v.shape().with(-1, 1)))) {
    throw ShapeError("searchsorted",
                     {"a sorted tensor of shape ", s.shape(), " for values of shape ", v.shape(),
                      " must have rank 1 or their sizes but for the last"},
                     {s.shape(), v.shape()});
  }
  Tensor<std::int64_t> found(v.shape());
  const index_t n = s.dim(-1), m = one ? v.numel() : v.dim(-1);
  detail::parallel_each(v.numel(), 1 << 12, [&](index_t i) {
    const auto* row = s.data() + (one ? 0 : i / m * n);
    const auto value = v.data()[i];
    index_t low = 0, high = n;
    while (low < high) {
      const index_t middle = low + (high - low) / 2;
      // Of NaN both are true.
      const bool above = right ? !(row[middle] > value) : !(row[middle] >= value);
      (above ? low : high) = above ? middle + 1 : middle;
    }
    found.data()[i] = low;
  });
  return found;
}

}  // namespace eigenformer
