#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"

namespace eigenformer::detail::kernels {

/// y = x * rstd * gamma over each row, rstd = 1 / sqrt(mean of x^2 + eps). Zhang and Sennrich 2019, eq. 4.
///
/// x, y: (rows, n); gamma: (n), or nullptr for 1; rstd: (rows), kept for the backward. y may be x.
template <class T>
void rms_norm_forward(const T* x, const T* gamma, T eps, T* y, T* rstd, index_t rows, index_t n);

/// s = x + dropout(r), y = rms_norm(s), in one pass. x, r, s, y: (rows, n); s is what rms_norm_backward takes
/// as its x, and may be x or r. Others as in rms_norm_forward, dropout as in dropout_rows.
template <class T>
void add_rms_norm_forward(const T* x, const T* r, const RowDropout& dropout, const T* gamma, T eps, T* s,
                          T* y, T* rstd, index_t rows, index_t n);

/// Gradients of rms_norm_forward, from its input and rstd.
///
/// With h = x * rstd and g = gamma * dy: dx = rstd * (g - h * mean(g * h)); dgamma = sum of dy * h over the
/// rows, summed in chunks of rows of fixed size. dx and dgamma may each be nullptr; beta_dx and beta_gamma
/// are 0 (overwrite) or 1 (add). dx may be dy.
template <class T>
void rms_norm_backward(const T* x, const T* gamma, const T* rstd, const T* dy, T* dx, T beta_dx, T* dgamma,
                       T beta_gamma, index_t rows, index_t n);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/normalization/rms_norm-inl.hpp"
#endif
