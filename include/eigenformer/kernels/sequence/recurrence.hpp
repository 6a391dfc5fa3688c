#pragma once

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
#include <vector>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

template <class T>
struct RecurrenceForward {
  static constexpr bool plain_loops = true;
  /// One sequence; c: (d), its state.
  EIGENFORMER_ALWAYS_INLINE static void run(const T* forget, const T* input, index_t length, index_t d, T* c,
                                            T* out) {
    for (index_t t = 0; t < length; ++t) {
      for (index_t j = 0; j < d; ++j) {
        const T f = forget[t * d + j];
        c[j] = f * c[j] + (T(1) - f) * input[t * d + j];
      }
      for (index_t j = 0; j < d; ++j) out[t * d + j] = c[j];
    }
  }
};

template <class T>
struct RecurrenceBackward {
  static constexpr bool plain_loops = true;
  /// One sequence. g: (d), zeros: the gradient of the state after the row.
  EIGENFORMER_ALWAYS_INLINE static void run(const T* forget, const T* input, const T* out, const T* dy,
                                            index_t length, index_t d, T* g, T* dforget, T forget_beta,
                                            T* dinput, T input_beta) {
    for (index_t t = length; t-- > 0;) {
      const index_t at = t * d;
      for (index_t j = 0; j < d; ++j) g[j] += dy[at + j];
      if (dinput != nullptr) {
        for (index_t j = 0; j < d; ++j) {
          const T old = input_beta == T(0) ? T(0) : input_beta * dinput[at + j];
          dinput[at + j] = old + (T(1) - forget[at + j]) * g[j];
        }
      }
      if (dforget != nullptr) {
        for (index_t j = 0; j < d; ++j) {
          const T before = t == 0 ? T(0) : out[at - d + j];
          const T old = forget_beta == T(0) ? T(0) : forget_beta * dforget[at + j];
          dforget[at + j] = old + (before - input[at + j]) * g[j];
        }
      }
      for (index_t j = 0; j < d; ++j) g[j] *= forget[at + j];
    }
  }
};

}  // namespace detail

template <class T>
void recurrence_forward(const T* forget, const T* input, std::span<const index_t> offsets,
                        std::span<const index_t> lengths, index_t d, T* state, T* out) {
  const auto sequences = static_cast<index_t>(lengths.size());
  parallel_for(sequences, row_grain(d, simple_grain), [&](index_t begin, index_t end) {
    std::vector<T> own;
    for (index_t b = begin; b < end; ++b) {
      const auto i = static_cast<std::size_t>(b);
      if (state == nullptr) own.assign(static_cast<std::size_t>(d), T(0));
      dispatch<detail::RecurrenceForward<T>>(forget + offsets[i] * d, input + offsets[i] * d, lengths[i], d,
                                             state == nullptr ? own.data() : state + b * d,
                                             out + offsets[i] * d);
    }
  });
}

template <class T>
void recurrence_backward(const T* forget, const T* input, const T* out, const T* dy,
                         std::span<const index_t> offsets, std::span<const index_t> lengths, index_t d,
                         const RecurrenceGradients<T>& gradients) {
  const auto sequences = static_cast<index_t>(lengths.size());
  parallel_for(sequences, row_grain(d, simple_grain), [&](index_t begin, index_t end) {
    std::vector<T> g;
    for (index_t b = begin; b < end; ++b) {
      const index_t length = lengths[static_cast<std::size_t>(b)];
      const index_t first = offsets[static_cast<std::size_t>(b)] * d;
      g.assign(static_cast<std::size_t>(d), T(0));
      dispatch<detail::RecurrenceBackward<T>>(forget + first, input + first, out + first, dy + first, length,
                                              d, g.data(), shifted(gradients.forget, first),
                                              gradients.forget_beta, shifted(gradients.input, first),
                                              gradients.input_beta);
    }
  });
}

EIGENFORMER_KERNEL(recurrence_forward)
EIGENFORMER_KERNEL(recurrence_backward)

}  // namespace eigenformer::detail::kernels
#endif
