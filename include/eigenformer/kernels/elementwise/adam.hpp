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
#include <algorithm>
#include <cmath>
#include <limits>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/simd/pack.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// The factors of a step, computed once in double.
template <class T>
struct AdamNumbers {
  T grad_scale, decay_gradient, decay_weight;  // g = g * grad_scale + decay_gradient * p; p *= decay_weight
  T one_minus_beta1, beta2, one_minus_beta2;
  T inverse_root_correction, eps, step_size;
};

/// Flushes denormal numbers to zero. The moments of a parameter without gradients, such
/// as the embedding of a rare word, shrink by a factor each step until they are denormal and stay so, and
/// arithmetic on denormal numbers takes many times as long on some CPUs.
template <int Bytes, class T>
EIGENFORMER_ALWAYS_INLINE void clear_denormal(typename Simd<T, Bytes>::V& x) {
  using P = Pack<T, Bytes>;
  const P pack = P::of(x);
  x = select(abs(pack) < P(std::numeric_limits<T>::min()), P(T(0)), pack).v;
}

template <class T>
struct AdamStep {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(T* p, const T* g, T* m, T* v, index_t n, AdamNumbers<T> a) {
    using W = Simd<T, Bytes>;
    using V = typename W::V;
    for (index_t i = 0; i < n; i += W::lanes) {
      V parameter, gradient, first, second;
      W::load(parameter, p + i, n - i);
      W::load(gradient, g + i, n - i);
      W::load(first, m + i, n - i);
      W::load(second, v + i, n - i);
      gradient = gradient * a.grad_scale + a.decay_gradient * parameter;
      first += (gradient - first) * a.one_minus_beta1;
      second = second * a.beta2 + a.one_minus_beta2 * gradient * gradient;
      clear_denormal<Bytes, T>(first);
      clear_denormal<Bytes, T>(second);
      W::store(m + i, n - i, first);
      W::store(v + i, n - i, second);
      W::sqrt(second);
      const V root = second * a.inverse_root_correction + a.eps;
      parameter = parameter * a.decay_weight - a.step_size * first / root;
      W::store(p + i, n - i, parameter);
    }
  }
};

template <class T>
struct SgdStep {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(T* p, const T* g, T* buffer, index_t n, T lr, T momentum,
                                            bool nesterov, T weight_decay, bool first, T grad_scale) {
    using W = Simd<T, Bytes>;
    using V = typename W::V;
    for (index_t i = 0; i < n; i += W::lanes) {
      V parameter, gradient;
      W::load(parameter, p + i, n - i);
      W::load(gradient, g + i, n - i);
      gradient = gradient * grad_scale + weight_decay * parameter;
      if (buffer != nullptr) {
        V velocity = gradient;
        if (!first) {
          W::load(velocity, buffer + i, n - i);
          velocity = velocity * momentum + gradient;
          clear_denormal<Bytes, T>(velocity);
        }
        W::store(buffer + i, n - i, velocity);
        gradient = nesterov ? gradient + momentum * velocity : velocity;
      }
      parameter -= lr * gradient;
      W::store(p + i, n - i, parameter);
    }
  }
};

template <class T>
struct SumOfSquares {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, index_t n, double* out) {
    // Sixteen sums in double for vectors of any width, so that every instruction set has the same order.
    constexpr index_t width = Bytes / 8, parts = 16 / width;
    using W = Simd<double, Bytes>;
    using Narrow = Simd<T, static_cast<int>(width * sizeof(T))>;
    typename W::V sums[parts]{};
    index_t i = 0;
    for (; i + 16 <= n; i += 16) {
      for (index_t part = 0; part < parts; ++part) {
        const typename Narrow::V narrow = Narrow::at(x + i + part * width).v;
        const typename W::V v = __builtin_convertvector(narrow, typename W::V);
        sums[part] += v * v;
      }
    }
    for (index_t part = 0; i < n && part < parts; ++part) {
      typename Narrow::V narrow;
      Narrow::load(narrow, x + i + part * width, n - i - part * width);
      const typename W::V v = __builtin_convertvector(narrow, typename W::V);
      sums[part] += v * v;
    }
    double lanes[16];
    for (index_t part = 0; part < parts; ++part) W::at(lanes + part * width).v = sums[part];
    for (index_t half = 8; half > 0; half /= 2) {
      for (index_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    *out = lanes[0];
  }
};

}  // namespace detail

template <class T>
void adam_step(T* p, const T* g, T* m, T* v, index_t n, double lr, double beta1, double beta2, double eps,
               double weight_decay, bool decoupled, index_t step, double grad_scale) {
  if (step < 1) throw ValueError("adam", {"step is ", step, ", must be at least 1"});
  const auto t = static_cast<double>(step);
  const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
  const detail::AdamNumbers<T> numbers{static_cast<T>(grad_scale),
                                       static_cast<T>(decoupled ? 0 : weight_decay),
                                       static_cast<T>(decoupled ? 1 - lr * weight_decay : 1),
                                       static_cast<T>(1 - beta1),
                                       static_cast<T>(beta2),
                                       static_cast<T>(1 - beta2),
                                       static_cast<T>(1 / std::sqrt(correction2)),
                                       static_cast<T>(eps),
                                       static_cast<T>(lr / correction1)};
  parallel_for(n, simple_grain, [&](index_t begin, index_t end) {
    dispatch<detail::AdamStep<T>>(p + begin, g + begin, m + begin, v + begin, end - begin, numbers);
  });
}

template <class T>
void sgd_step(T* p, const T* g, T* buffer, index_t n, double lr, double momentum, bool nesterov,
              double weight_decay, bool first, double grad_scale) {
  parallel_for(n, simple_grain, [&](index_t begin, index_t end) {
    dispatch<detail::SgdStep<T>>(p + begin, g + begin, shifted(buffer, begin), end - begin,
                                 static_cast<T>(lr), static_cast<T>(momentum), nesterov,
                                 static_cast<T>(weight_decay), first, static_cast<T>(grad_scale));
  });
}

template <class T>
double sum_of_squares(const T* x, index_t n) {
  if (n <= 0) return 0;
  const index_t chunk = 16384, chunks = (n + chunk - 1) / chunk;
  const auto sums = pool_array<double>(chunks);
  parallel_each(chunks, 4, [&](index_t c) {
    dispatch<detail::SumOfSquares<T>>(x + c * chunk, std::min(chunk, n - c * chunk), sums.get() + c);
  });
  double total = 0;
  for (index_t c = 0; c < chunks; ++c) total += sums[c];
  return total;
}

EIGENFORMER_KERNEL(adam_step)
EIGENFORMER_KERNEL(sgd_step)
EIGENFORMER_KERNEL(sum_of_squares)

}  // namespace eigenformer::detail::kernels
#endif
