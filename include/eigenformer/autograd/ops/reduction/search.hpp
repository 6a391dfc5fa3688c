#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/compare.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/core/tensor/view.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

// Reductions to counts, truths and places, which have no gradient.

namespace eigenformer {

namespace detail {

// How many elements are not zero.
template <class T>
Tensor<std::int64_t> count_over(const char* op, const Tensor<T>& x, const std::vector<index_t>& axes,
                                bool keepdims) {
  const OpScope scope = scope_of(op, x);
  Tensor<std::int64_t> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  const RowOrder order = row_order(x.shape(), axes);
  const Tensor<T> v = as_rows(x, order);
  fold_rows(
      v.data(), order.rows, order.n, y.data(),
      [](const T* row, index_t count) {
        std::int32_t found = 0;  // as wide as a float, for vectors
        for (index_t i = 0; i < count; ++i) found += row[i] != T(0) ? 1 : 0;
        return static_cast<std::int64_t>(found);
      },
      [](std::int64_t a, std::int64_t b) { return a + b; });
  return y;
}

// The place of the largest (or smallest) along an axis, or in the flattened tensor.
template <class T>
Tensor<std::int64_t> place_over(const char* op, const Tensor<T>& x, std::optional<index_t> axis,
                                bool keepdims, bool smallest) {
  const OpScope scope = scope_of(op, x);
  const std::vector<index_t> axes = axes_of(axis);
  Tensor<std::int64_t> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  const RowOrder order = row_order(x.shape(), axes);
  if (order.n == 0 && y.numel() > 0) refuse_no_entries(op, x.shape());
  if (y.numel() == 0) return y;
  Tensor<T> v = as_rows(x, order);
  if (smallest) {
    Tensor<T> negated(v.shape());
    kernels::unary<T>(kernels::UnaryOp::negate, v.data(), negated.data(), v.numel());
    v = negated;
  }
  Tensor<std::int32_t> places(y.shape());
  kernels::argmax<T>(v.data(), places.data(), order.rows, order.n);
  std::copy(places.span().begin(), places.span().end(), y.span().begin());
  return y;
}

}  // namespace detail

/// How many elements are not zero over the given axes (negative counts from the end; none means all); NaN is
/// not zero. x: a Tensor or Var of any type, or an Eigen object. With keepdims the axes remain, with size 1.
/// Throws as sum().
template <class X>
requires detail::has_elements<X>
[[nodiscard]] Tensor<std::int64_t> count_nonzero(const X& x, const std::vector<index_t>& axes = {},
                                                 bool keepdims = false) {
  return detail::count_over("count_nonzero", detail::tensor_of(x), axes, keepdims);
}

/// Whether an element is not zero; false over no elements. Arguments and errors as for count_nonzero().
template <class X>
requires detail::has_elements<X>
[[nodiscard]] Tensor<bool> any(const X& x, const std::vector<index_t>& axes = {}, bool keepdims = false) {
  const auto count = detail::count_over("any", detail::tensor_of(x), axes, keepdims);
  return detail::test_elements("any", count, [](std::int64_t found) { return found > 0; });
}

/// Whether every element is not zero; true over no elements. Arguments and errors as for count_nonzero().
/// Without arguments, all is an index: x(ef::all, 0).
template <class X>
requires detail::has_elements<X>
[[nodiscard]] Tensor<bool> all(const X& x, const std::vector<index_t>& axes = {}, bool keepdims = false) {
  const auto& v = detail::tensor_of(x);
  const auto count = detail::count_over("all", v, axes, keepdims);
  const index_t n = v.numel() / std::max<index_t>(1, count.numel());
  return detail::test_elements("all", count, [n](std::int64_t found) { return found == n; });
}

/// The place of the largest element along an axis, or without one in the flattened tensor: the first of
/// equals, or of the first NaN. With keepdims the axes remain, with size 1. Throws IndexError for an axis
/// outside the rank, ValueError for one without entries.
template <Operand X>
[[nodiscard]] Tensor<std::int64_t> argmax(const X& x, std::optional<index_t> axis = std::nullopt,
                                          bool keepdims = false) {
  return detail::place_over("argmax", detail::tensor_of(x), axis, keepdims, false);
}

/// The place of the smallest element. NaN, arguments and errors as for argmax().
template <Operand X>
[[nodiscard]] Tensor<std::int64_t> argmin(const X& x, std::optional<index_t> axis = std::nullopt,
                                          bool keepdims = false) {
  return detail::place_over("argmin", detail::tensor_of(x), axis, keepdims, true);
}

}  // namespace eigenformer
