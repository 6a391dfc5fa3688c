#pragma once

#include "eigenformer/kernels/normalization/layer_norm-inl.hpp"
#include "eigenformer/kernels/normalization/rms_norm.hpp"

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
