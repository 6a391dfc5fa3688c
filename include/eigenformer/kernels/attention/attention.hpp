#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/attention/attention_problem.hpp"

namespace eigenformer::detail::kernels {

/// out (queries->rows(), heads * value_dim) = attention. Rows of padding, and queries that may attend to
/// nothing, become zero. log_sum_exp (heads, queries->rows()), or nullptr: the logarithm of each softmax's
/// denominator, for backward.
///
/// No Lq x Lk matrix is stored: keys are processed in tiles with a running maximum and sum (Dao et al. 2022,
/// algorithm 1). Tiles begin at fixed keys, so a row's result depends on its own sequence alone, not on the
/// other queries of the call. Throws ValueError for invalid sizes, rates and sequence numbers, ShapeError
/// for a mask that does not fit.
template <class T>
void attention_forward(const AttentionProblem<T>& problem, T* out, index_t out_stride, T* log_sum_exp,
                       const AttentionDistanceWeights<T>& by_distance = {});

/// The gradients for dout, from the out and log_sum_exp that attention_forward wrote; dropout masks are
/// computed again. by_distance.gradient, if given, is the gradient of the sums of weights by distance; out
/// must then be the whole output, to which these sums contribute linearly. Throws as attention_forward does,
/// and ValueError if key_rows is given.
template <class T>
void attention_backward(const AttentionProblem<T>& problem, const T* out, index_t out_stride, const T* dout,
                        index_t dout_stride, const T* log_sum_exp, const AttentionGradients<T>& gradients,
                        const AttentionDistanceWeights<T>& by_distance = {});

/// weights (batch, heads, queries->max_length(), keys->max_length()): the softmax before dropout, zero
/// outside the sequences. log_sum_exp as attention_forward wrote it. Throws as attention_forward does.
template <class T>
void attention_weights(const AttentionProblem<T>& problem, const T* log_sum_exp, T* weights);

/// The gradients of queries, keys and bias for dweights, from the weights that attention_weights wrote, of
/// the same shape; dv is not written. Throws as attention_backward does.
template <class T>
void attention_weights_backward(const AttentionProblem<T>& problem, const T* weights, const T* dweights,
                                const AttentionGradients<T>& gradients);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/attention/attention-inl.hpp"
#endif
