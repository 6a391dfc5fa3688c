#pragma once

#include <cstdint>
#include <span>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail::kernels {

/// c[t] = f[t] * c[t - 1] + (1 - f[t]) * x[t] in every sequence, each feature by itself. forget (f, in [0,
/// 1]), input (x) and out (c): (rows, d); sequence b has rows offsets[b] to offsets[b] + lengths[b] - 1.
/// Other rows of out are not written. state: (sequences, d), c before the first row of each sequence; on
/// return c after its last row; null: zeros.
template <class T>
void recurrence_forward(const T* forget, const T* input, std::span<const index_t> offsets,
                        std::span<const index_t> lengths, index_t d, T* state, T* out);

/// Where recurrence_backward writes: each becomes beta * its old value + the gradient. Null: not needed.
template <class T>
struct RecurrenceGradients {
  T* forget = nullptr;  ///< (rows, d)
  T forget_beta = 0;    ///< 0 (not read) or 1
  T* input = nullptr;   ///< (rows, d)
  T input_beta = 0;     ///< 0 (not read) or 1
};

/// The gradients of forget and input, from out and its gradient dy, of sequences with an initial state of
/// zeros. Rows that belong to no sequence are not written.
template <class T>
void recurrence_backward(const T* forget, const T* input, const T* out, const T* dy,
                         std::span<const index_t> offsets, std::span<const index_t> lengths, index_t d,
                         const RecurrenceGradients<T>& gradients);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/sequence/recurrence-inl.hpp"
#endif
