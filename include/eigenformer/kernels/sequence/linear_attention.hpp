#pragma once

#include "eigenformer/kernels/attention/attention_problem.hpp"

namespace eigenformer::detail::kernels {

/// Elements of the state of one sequence and head: head_dim x value_dim sums of features times values, then
/// head_dim sums of features.
inline index_t linear_attention_state_size(index_t head_dim, index_t value_dim) {
  return head_dim * (value_dim + 1);
}

/// state[sequence of keys][head] += the sums over its keys, of a size that does not depend on their number.
///
/// k of the problem: *features* (all positive), v: values. state: (keys->batch(), heads,
/// linear_attention_state_size).
template <class T>
void linear_attention_accumulate(const AttentionProblem<T>& problem, T* state);

/// out = sum over keys of <q, k> v / (sum of <q, k> + 1e-6), for each query and head, from the keys' state.
/// Katharopoulos et al. 2020, eq. 5; the mask, scale and dropout of the problem are ignored.
///
/// q of the problem: features; out: (queries->rows(), heads * value_dim), rows out_stride apart; padding gets
/// zeros.
template <class T>
void linear_attention_apply(const AttentionProblem<T>& problem, const T* state, T* out, index_t out_stride);

/// The same for causal attention (each query attends to keys up to its own position), eq. 9 to 12, in one
/// pass with a state of constant size. Queries and keys have the same layout. state: (queries->batch(),
/// heads, linear_attention_state_size), the sums over earlier keys; on return it includes these.
template <class T>
void linear_attention_causal(const AttentionProblem<T>& problem, T* state, T* out, index_t out_stride);

/// Gradients of both, for dout, given their output (from a state of zeros). Eq. 13 to 15, with the
/// normaliser. gradients are those of features and values; padding gets zeros.
template <class T>
void linear_attention_backward(const AttentionProblem<T>& problem, bool causal, const T* out, const T* dout,
                               index_t out_stride, const AttentionGradients<T>& gradients);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/sequence/linear_attention-inl.hpp"
#endif
