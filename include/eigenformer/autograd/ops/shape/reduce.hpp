#pragma once

#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

namespace detail {

// y = factor * sum over axes: dx = factor * dy, repeated along the axes.
template <class T>
Var<T> scaled_sum(const char* op, const Var<T>& x, const std::vector<index_t>& axes, bool keepdims,
                  bool mean) {
  const OpScope scope = scope_of(op, x);
  const Shape kept = kernels::reduced_shape(x.shape(), axes, true);
  const T factor = mean ? static_cast<T>(kept.numel()) / static_cast<T>(x.numel()) : T(1);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  kernels::reduce_sum<T>(x.value().data(), x.shape(), axes, y.data(), factor, T(0));
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  return record_one(op, std::move(y), x, SavedTensors(), [kept, factor](const auto& dx, const Tensor<T>& dy) {
    kernels::broadcast_to<T>(dy.data(), kept, dx.data, dx.shape, factor, dx.beta);
  });
}

[[noreturn]] EIGENFORMER_NOINLINE inline void refuse_no_entries(const char* op, const Shape& shape) {
  throw ValueError(op, {"input of shape ", shape, " has no entries, must have at least one"});
}

// The op whose result y is the largest, smallest or middle entry of x over the axes.
template <class T>
Var<T> record_chosen(const char* op, const Var<T>& x, const std::vector<index_t>& axes, const Tensor<T>& y) {
  if (not_recorded<T>(y, x)) return Var<T>(y);
  // dx = dy / (number of entries equal to y) where x = y (or both are NaN), 0 elsewhere, as in PyTorch.
  return record_one(
      op, y, x, SavedTensors(x, y), [x = x.value(), y, axes](const auto& dx, const Tensor<T>& dy) {
        kernels::reduce_max_backward<T>(x.data(), x.shape(), axes, y.data(), dy.data(), dx.data, dx.beta);
      });
}

// The largest or smallest entries, which `reduce` finds.
template <class T, class F>
Var<T> extremes_over(const char* op, const F& reduce, const Var<T>& x, const std::vector<index_t>& axes,
                     bool keepdims) {
  const OpScope scope = scope_of(op, x);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  if (x.numel() == 0 && y.numel() > 0) refuse_no_entries(op, x.shape());
  reduce(x.value().data(), x.shape(), axes, y.data());
  return record_chosen(op, x, axes, y);
}

}  // namespace detail

/// Sum over the given axes (negative counts from the end; none means all). With keepdims they remain, with
/// size 1. Throws IndexError for an axis outside the rank and ShapeError for one named twice.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sum(const X& x, const std::vector<index_t>& axes = {},
                                    bool keepdims = false) {
  return detail::scaled_sum<element_t<X>>("sum", x, axes, keepdims, false);
}

/// Mean over the given axes (none means all); NaN over no elements. Arguments and errors as for sum().
template <Operand X>
[[nodiscard]] Var<element_t<X>> mean(const X& x, const std::vector<index_t>& axes = {},
                                     bool keepdims = false) {
  return detail::scaled_sum<element_t<X>>("mean", x, axes, keepdims, true);
}

/// Largest entry over the given axes (none means all), NaN if one of them is NaN. Equal largest entries share
/// the gradient evenly, as in PyTorch's amax. Throws as sum(), and ValueError when an axis has no entries.
template <Operand X>
[[nodiscard]] Var<element_t<X>> max(const X& x, const std::vector<index_t>& axes = {},
                                    bool keepdims = false) {
  using T = element_t<X>;
  return detail::extremes_over<T>("max", detail::kernels::reduce_max<T>, x, axes, keepdims);
}

}  // namespace eigenformer
