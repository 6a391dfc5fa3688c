#pragma once

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail::kernels {

/// y = exp(x - max) / sum over each row. x, y: (rows, n); y may be x. An entry -inf gives exactly 0; a row
/// that is -inf throughout gives zeros, one with NaN only NaN.
template <class T>
void softmax(const T* x, T* y, index_t rows, index_t n);

/// dx = y * (dy - <dy, y>), row by row; all (rows, n). beta 0 overwrites dx without reading it, 1 adds; dx
/// may be dy.
template <class T>
void softmax_backward(const T* y, const T* dy, T* dx, T beta, index_t rows, index_t n);

/// y = x - log(sum(exp(x))) over each row, in nats. x, y: (rows, n); y may be x. A row that is -inf
/// throughout stays so.
template <class T>
void log_softmax(const T* x, T* y, index_t rows, index_t n);

/// dx = dy - exp(y) * sum(dy), row by row, y being the log-probabilities; all (rows, n). beta as in
/// softmax_backward.
template <class T>
void log_softmax_backward(const T* y, const T* dy, T* dx, T beta, index_t rows, index_t n);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/normalization/softmax-inl.hpp"
#endif
