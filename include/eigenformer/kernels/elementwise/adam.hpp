#pragma once

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail::kernels {

/// One step of Adam (Kingma and Ba 2015) in PyTorch's form, or of AdamW (Loshchilov and Hutter 2019) when
/// decoupled: g = grad_scale * g; decoupled: p *= 1 - lr * weight_decay, otherwise g += weight_decay * p; m
/// += (1 - beta1) * (g - m); v = beta2 * v + (1 - beta2) * g^2; p -= lr / (1 - beta1^step) * m / (sqrt(v) /
/// sqrt(1 - beta2^step) + eps). p, g, m, v: n elements; step counts from 1. Throws ValueError for a step
/// below 1.
template <class T>
void adam_step(T* p, const T* g, T* m, T* v, index_t n, double lr, double beta1, double beta2, double eps,
               double weight_decay, bool decoupled, index_t step, double grad_scale);

/// One step of stochastic gradient descent in PyTorch's form:
/// g = grad_scale * g + weight_decay * p; momentum: buffer = momentum * buffer + g (buffer = g when `first`),
/// then g = buffer, or g += momentum * buffer with nesterov; p -= lr * g. buffer: n elements, or nullptr with
/// momentum 0; unread when `first`.
template <class T>
void sgd_step(T* p, const T* g, T* buffer, index_t n, double lr, double momentum, bool nesterov,
              double weight_decay, bool first, double grad_scale);

/// Sum of the squares of n elements, in double, in chunks of fixed size: for a gradient's norm.
template <class T>
double sum_of_squares(const T* x, index_t n);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/elementwise/adam-inl.hpp"
#endif
