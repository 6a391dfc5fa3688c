#pragma once

#include <utility>

#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/normalization/softmax.hpp"

namespace eigenformer {

namespace detail {

// What softmax() and log_softmax() do along an axis; the kernels are of rows, and the backward reads the
// output.
template <class T>
Var<T> softmax_along(const char* op, const Var<T>& x, index_t axis,
                     void (*forward)(const T* x, T* y, index_t rows, index_t n),
                     void (*backward)(const T* y, const T* dy, T* dx, T beta, index_t rows, index_t n)) {
  const OpScope scope = scope_of(op, x);
  const index_t a = axis_of(op, axis, x.shape());
  if (a != x.rank() - 1)
    return transpose(softmax_along(op, transpose(x, a, -1), -1, forward, backward), a, -1);
  const index_t rows = x.shape().rows(), n = x.shape().cols();
  Tensor<T> y(x.shape());
  forward(x.value().data(), y.data(), rows, n);
  if (not_recorded(y, x)) return y;
  return record_one(op, y, x, SavedTensors(y), [y, rows, n, backward](const auto& dx, const Tensor<T>& dy) {
    backward(y.data(), dy.data(), dx.data, dx.beta, rows, n);
  });
}

}  // namespace detail

/// exp(x) / sum of exp(x) along an axis, the last by default. x: rank 1 or more. Returns the same shape; -inf
/// gives exactly 0, a row in which all elements are -inf gives zeros, and one with NaN gives NaN. Throws
/// IndexError for an axis outside the rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> softmax(const X& x, index_t axis = -1) {
  using T = element_t<X>;
  // dx = y * (dy - <dy, y>), row by row.
  return detail::softmax_along<T>("softmax", x, axis, detail::kernels::softmax<T>,
                                  detail::kernels::softmax_backward<T>);
}

/// log(softmax(x)) along an axis, the last by default, in nats, without overflow. x: rank 1 or more. Returns
/// the same shape. Throws IndexError for an axis outside the rank.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log_softmax(const X& x, index_t axis = -1) {
  using T = element_t<X>;
  // dx = dy - exp(y) * sum(dy), row by row.
  return detail::softmax_along<T>("log_softmax", x, axis, detail::kernels::log_softmax<T>,
                                  detail::kernels::log_softmax_backward<T>);
}

}  // namespace eigenformer
