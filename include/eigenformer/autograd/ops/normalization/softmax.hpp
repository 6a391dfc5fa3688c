#pragma once

#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/normalization/softmax.hpp"

namespace eigenformer {

/// exp(x) / sum of exp(x) along an axis, the last by default. x: rank 1 or more. Returns the same shape; -inf
/// gives exactly 0, a row in which all elements are -inf gives zeros, and one with NaN gives NaN. Throws
/// IndexError for an axis outside the rank.
template <class T>
[[nodiscard]] Var<T> softmax(const Var<T>& x, index_t axis = -1) {
  const OpScope scope(Runtime::instance().profiler(), "softmax");
  detail::require_defined("softmax", x);
  const index_t a = detail::axis_of("softmax", axis, x.shape());
  if (a != x.rank() - 1) return transpose(softmax(transpose(x, a, -1)), a, -1);
  const index_t rows = x.shape().rows(), n = x.shape().cols();
  Tensor<T> y(x.shape());
  detail::kernels::softmax<T>(x.value().data(), y.data(), rows, n);
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  // dx = y * (dy - <dy, y>), row by row.
  return record("softmax", y, {x}, SavedTensors(y), [y, rows, n](Backward<T>& back) {
    if (const auto dx = back.grad(0)) {
      detail::kernels::softmax_backward<T>(y.data(), back.dy().data(), dx.data, dx.beta, rows, n);
    }
  });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> softmax(const X& x, index_t axis = -1) {
  return softmax(detail::operand<element_t<X>>(x), axis);
}

/// log(softmax(x)) along an axis, the last by default, in nats, without overflow. x: rank 1 or more. Returns
/// the same shape. Throws IndexError for an axis outside the rank.
template <class T>
[[nodiscard]] Var<T> log_softmax(const Var<T>& x, index_t axis = -1) {
  const OpScope scope(Runtime::instance().profiler(), "log_softmax");
  detail::require_defined("log_softmax", x);
  const index_t a = detail::axis_of("log_softmax", axis, x.shape());
  if (a != x.rank() - 1) return transpose(log_softmax(transpose(x, a, -1)), a, -1);
  const index_t rows = x.shape().rows(), n = x.shape().cols();
  Tensor<T> y(x.shape());
  detail::kernels::log_softmax<T>(x.value().data(), y.data(), rows, n);
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  // dx = dy - exp(y) * sum(dy), row by row.
  return record("log_softmax", y, {x}, SavedTensors(y), [y, rows, n](Backward<T>& back) {
    if (const auto dx = back.grad(0)) {
      detail::kernels::log_softmax_backward<T>(y.data(), back.dy().data(), dx.data, dx.beta, rows, n);
    }
  });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> log_softmax(const X& x, index_t axis = -1) {
  return log_softmax(detail::operand<element_t<X>>(x), axis);
}

}  // namespace eigenformer
