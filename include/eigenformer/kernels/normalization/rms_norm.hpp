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
#include "eigenformer/kernels/normalization/layer_norm.hpp"

namespace eigenformer::detail::kernels {

template <class T>
void rms_norm_forward(const T* x, const T* gamma, T eps, T* y, T* rstd, index_t rows, index_t n) {
  const detail::LayerNormArguments<T> a{gamma, nullptr, eps, false, false, n};
  detail::layer_norm_rows<T, false>(a, x, nullptr, DropoutPlan<T>({}, 0), nullptr, nullptr, y, nullptr, rstd,
                                    rows);
}

template <class T>
void add_rms_norm_forward(const T* x, const T* r, const RowDropout& dropout, const T* gamma, T eps, T* s,
                          T* y, T* rstd, index_t rows, index_t n) {
  const detail::LayerNormArguments<T> a{gamma, nullptr, eps, false, false, n};
  detail::layer_norm_rows<T, false>(a, x, r, DropoutPlan<T>(dropout.key, dropout.rate), dropout.rows, s, y,
                                    nullptr, rstd, rows);
}

template <class T>
void rms_norm_backward(const T* x, const T* gamma, const T* rstd, const T* dy, T* dx, T beta_dx, T* dgamma,
                       T beta_gamma, index_t rows, index_t n) {
  const detail::LayerNormArguments<T> a{gamma, nullptr, T(0), false, false, n};
  T* const no_shift = nullptr;
  detail::layer_norm_gradients<T, false>(a, x, nullptr, rstd, dy, dx, beta_dx, dgamma, no_shift, beta_gamma,
                                         rows);
}

EIGENFORMER_KERNEL(rms_norm_forward)
EIGENFORMER_KERNEL(add_rms_norm_forward)
EIGENFORMER_KERNEL(rms_norm_backward)

}  // namespace eigenformer::detail::kernels
#endif
