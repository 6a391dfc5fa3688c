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
  const OpScope scope(Runtime::instance().profiler(), op);
  require_defined(op, x);
  const Shape kept = kernels::reduced_shape(x.shape(), axes, true);
  const T factor = mean ? static_cast<T>(kept.numel()) / static_cast<T>(x.numel()) : T(1);
  Tensor<T> y(kernels::reduced_shape(x.shape(), axes, keepdims));
  kernels::reduce_sum<T>(x.value().data(), x.shape(), axes, y.data(), factor, T(0));
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  return record(op, std::move(y), {x}, SavedTensors(), [kept, factor](Backward<T>& back) {
    if (const auto dx = back.grad(0)) {
      kernels::broadcast_to<T>(back.dy().data(), kept, dx.data, dx.shape, factor, dx.beta);
    }
  });
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
template <class T>
[[nodiscard]] Var<T> max(const Var<T>& x, const std::vector<index_t>& axes = {}, bool keepdims = false) {
  const OpScope scope(Runtime::instance().profiler(), "max");
  detail::require_defined("max", x);
  Tensor<T> y(detail::kernels::reduced_shape(x.shape(), axes, keepdims));
  if (x.numel() == 0 && y.numel() > 0) {
    throw ValueError("max", {"input of shape ", x.shape(), " has no entries, must have at least one"});
  }
  detail::kernels::reduce_max<T>(x.value().data(), x.shape(), axes, y.data());
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  // dx = dy / (number of entries equal to y) where x = y (or both are NaN), 0 elsewhere.
  return record("max", y, {x}, SavedTensors(x, y), [x = x.value(), y, axes](Backward<T>& back) {
    if (const auto dx = back.grad(0)) {
      detail::kernels::reduce_max_backward<T>(x.data(), x.shape(), axes, y.data(), back.dy().data(), dx.data,
                                              dx.beta);
    }
  });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> max(const X& x, const std::vector<index_t>& axes = {},
                                    bool keepdims = false) {
  return max(detail::operand<element_t<X>>(x), axes, keepdims);
}

}  // namespace eigenformer
