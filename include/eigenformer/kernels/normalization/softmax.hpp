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
#include <algorithm>
#include <cmath>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

template <class T>
struct SoftmaxForward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, T* y, index_t rows, index_t n) {
    using W = Simd<T, Bytes>;
    using Row = RowReduction<T, Bytes>;
    for (index_t r = 0; r < rows; ++r, x += n, y += n) {
      const T largest = Row::max(x, n);
      if (largest == -Row::infinity) {
        // All elements are -inf, which gives zeros, or NaN, which the maximum ignores: one makes all NaN.
        T value(0);
        for (index_t i = 0; i < n; ++i) value = x[i] != x[i] ? x[i] : value;
        std::fill_n(y, n, value);
        continue;
      }
      const T factor = T(1) / Row::sum_exp(x, largest, y, n);
      for (index_t i = 0; i < n; i += W::lanes) {
        typename W::V v;
        W::load(v, y + i, n - i);
        v *= factor;
        W::store(y + i, n - i, v);
      }
    }
  }
};

template <class T>
struct SoftmaxBackward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* y, const T* dy, T* dx, T beta, index_t rows, index_t n) {
    using W = Simd<T, Bytes>;
    for (index_t r = 0; r < rows; ++r, y += n, dy += n, dx += n) {
      const T dot = RowReduction<T, Bytes>::dot(y, dy, n);
      for (index_t i = 0; i < n; i += W::lanes) {
        typename W::V p, g;
        W::load(p, y + i, n - i);
        W::load(g, dy + i, n - i);
        g = p * (g - dot);
        W::store_sum(dx + i, n - i, g, beta);
      }
    }
  }
};

template <class T>
struct LogSoftmaxForward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, T* y, index_t rows, index_t n) {
    using W = Simd<T, Bytes>;
    using Row = RowReduction<T, Bytes>;
    for (index_t r = 0; r < rows; ++r, x += n, y += n) {
      const T largest = Row::max(x, n);
      const T shift = largest == -Row::infinity ? T(0) : largest;
      const T exps = Row::sum_exp(x, shift, nullptr, n);
      // A row in which all elements are -inf stays unchanged. The maximum ignores NaN, which must not be
      // lost.
      const T rest = exps == T(0) ? T(0) : std::log(exps);
      for (index_t i = 0; i < n; i += W::lanes) {
        typename W::V v;
        W::load(v, x + i, n - i);
        v = (v - shift) - rest;
        W::store(y + i, n - i, v);
      }
    }
  }
};

template <class T>
struct LogSoftmaxBackward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* y, const T* dy, T* dx, T beta, index_t rows, index_t n) {
    using W = Simd<T, Bytes>;
    using V = typename W::V;
    for (index_t r = 0; r < rows; ++r, y += n, dy += n, dx += n) {
      const T total = RowReduction<T, Bytes>::sum(dy, n);
      for (index_t i = 0; i < n; i += W::lanes) {
        V p, g;
        W::load(p, y + i, n - i);
        W::load(g, dy + i, n - i);
        SimdMath<T, Bytes>::exp(p);
        g -= p * total;
        W::store_sum(dx + i, n - i, g, beta);
      }
    }
  }
};

}  // namespace detail

template <class T>
void softmax(const T* x, T* y, index_t rows, index_t n) {
  parallel_for(rows, row_grain(n, math_grain), [&](index_t begin, index_t end) {
    dispatch<detail::SoftmaxForward<T>>(x + begin * n, y + begin * n, end - begin, n);
  });
}

template <class T>
void softmax_backward(const T* y, const T* dy, T* dx, T beta, index_t rows, index_t n) {
  parallel_for(rows, row_grain(n, simple_grain), [&](index_t begin, index_t end) {
    const index_t at = begin * n;
    dispatch<detail::SoftmaxBackward<T>>(y + at, dy + at, dx + at, beta, end - begin, n);
  });
}

template <class T>
void log_softmax(const T* x, T* y, index_t rows, index_t n) {
  parallel_for(rows, row_grain(n, math_grain), [&](index_t begin, index_t end) {
    dispatch<detail::LogSoftmaxForward<T>>(x + begin * n, y + begin * n, end - begin, n);
  });
}

template <class T>
void log_softmax_backward(const T* y, const T* dy, T* dx, T beta, index_t rows, index_t n) {
  parallel_for(rows, row_grain(n, math_grain), [&](index_t begin, index_t end) {
    const index_t at = begin * n;
    dispatch<detail::LogSoftmaxBackward<T>>(y + at, dy + at, dx + at, beta, end - begin, n);
  });
}

EIGENFORMER_KERNEL(softmax)
EIGENFORMER_KERNEL(softmax_backward)
EIGENFORMER_KERNEL(log_softmax)
EIGENFORMER_KERNEL(log_softmax_backward)

}  // namespace eigenformer::detail::kernels
#endif
