#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"

namespace eigenformer {

/// The formula of a layer normalisation; there are trained weights for both.
enum class LayerNormFormula {
  pytorch,   ///< (x - mean) / sqrt(biased variance + eps): Ba et al. 2016 as PyTorch has it
  teaching,  ///< (x - mean) / (unbiased standard deviation + eps): The Annotated Transformer and its
             ///< descendants
};

}  // namespace eigenformer

namespace eigenformer::detail::kernels {

/// y = (x - mean) * rstd * gamma + beta_param over each row.
///
/// x, y: (rows, n); gamma, beta_param: (n), or (1) with scalar_gain, or nullptr for 1 and 0; mean, rstd:
/// (rows), kept for the backward; rstd is the factor the formula gives. y may be x. With the teaching
/// formula, n must be at least 2; throws ValueError otherwise.
template <class T>
void layer_norm_forward(const T* x, const T* gamma, const T* beta_param, T eps, LayerNormFormula formula,
                        bool scalar_gain, T* y, T* mean, T* rstd, index_t rows, index_t n);

/// s = x + dropout(r), y = layer_norm(s), in one pass: the "add and norm" of a post-norm sub-layer.
///
/// x, r, s, y: (rows, n); s is what layer_norm_backward takes as its x, and may be x or r. Others as in
/// layer_norm_forward, dropout as in dropout_rows.
template <class T>
void add_layer_norm_forward(const T* x, const T* r, const RowDropout& dropout, const T* gamma,
                            const T* beta_param, T eps, LayerNormFormula formula, bool scalar_gain, T* s,
                            T* y, T* mean, T* rstd, index_t rows, index_t n);

/// Gradients of layer_norm_forward, from its input, mean and rstd.
///
/// With h = (x - mean) * rstd and g = gamma * dy: dx = rstd * (g - mean(g) - h * mean(g * h)) (PyTorch's
/// formula; the teaching one divides by n - 1 and the plain standard deviation in the last term); dgamma =
/// sum of dy * h, dbeta = sum of dy over the rows, summed in chunks of rows of fixed size. dx, dgamma, dbeta
/// may each be nullptr; beta_dx and beta_params are 0 (overwrite) or 1 (add). dx may be dy.
template <class T>
void layer_norm_backward(const T* x, const T* gamma, const T* mean, const T* rstd, const T* dy, T eps,
                         LayerNormFormula formula, bool scalar_gain, T* dx, T beta_dx, T* dgamma, T* dbeta,
                         T beta_params, index_t rows, index_t n);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/normalization/layer_norm-inl.hpp"
#endif
