#pragma once

#include "eigenformer/kernels/elementwise/activation-inl.hpp"
#include "eigenformer/kernels/elementwise/gated.hpp"

namespace eigenformer::kernels {

namespace detail {

template <Activation activation, class T>
struct GatedForward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* gate, index_t ld_gate, const T* up, index_t ld_up, T* y,
                                            index_t ld_y, index_t rows, index_t cols) {
    using W = Simd<T, Bytes>;
    for (index_t r = 0; r < rows; ++r) {
      for (index_t i = 0; i < cols; i += W::lanes) {
        typename W::V g, u;
        W::load(g, gate + r * ld_gate + i, cols - i);
        W::load(u, up + r * ld_up + i, cols - i);
        ActivationMath<activation, T, Bytes>::forward(g);
        g *= u;
        W::store(y + r * ld_y + i, cols - i, g);
      }
    }
  }
};

template <Activation activation, class T>
struct GatedBackward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* gate, const T* up, index_t ld, const T* dy,
                                            index_t ld_dy, T beta, T* dgate, index_t ld_dgate, T* dup,
                                            index_t ld_dup, index_t rows, index_t cols) {
    using W = Simd<T, Bytes>;
    for (index_t r = 0; r < rows; ++r) {
      for (index_t i = 0; i < cols; i += W::lanes) {
        typename W::V g, u, d, du;
        W::load(g, gate + r * ld + i, cols - i);
        W::load(u, up + r * ld + i, cols - i);
        W::load(d, dy + r * ld_dy + i, cols - i);
        typename W::V value = g;
        ActivationMath<activation, T, Bytes>::forward(value);
        du = d * value;
        d *= u;
        if constexpr (activation_backward_takes_output(activation)) {
          ActivationMath<activation, T, Bytes>::backward(value, d);
        } else {
          ActivationMath<activation, T, Bytes>::backward(g, d);
        }
        if (beta != T(0)) {
          W::load(g, dgate + r * ld_dgate + i, cols - i);
          W::load(u, dup + r * ld_dup + i, cols - i);
          d += beta * g;
          du += beta * u;
        }
        W::store(dgate + r * ld_dgate + i, cols - i, d);
        W::store(dup + r * ld_dup + i, cols - i, du);
      }
    }
  }
};

}  // namespace detail

template <class T>
void gated_tile(Activation activation, const T* gate, index_t ld_gate, const T* up, index_t ld_up, T* y,
                index_t ld_y, index_t rows, index_t cols) {
  detail::dispatch_activation<detail::GatedForward, T>(activation, gate, ld_gate, up, ld_up, y, ld_y, rows,
                                                       cols);
}

template <class T>
void gated_backward_tile(Activation activation, const T* gate, const T* up, index_t ld, const T* dy,
                         index_t ld_dy, T beta, T* dgate, index_t ld_dgate, T* dup, index_t ld_dup,
                         index_t rows, index_t cols) {
  detail::dispatch_activation<detail::GatedBackward, T>(activation, gate, up, ld, dy, ld_dy, beta, dgate,
                                                        ld_dgate, dup, ld_dup, rows, cols);
}

#ifdef EIGENFORMER_INSTANTIATE
#define EIGENFORMER_INSTANTIATE_GATED(T)                                                                     \
  template void gated_tile(Activation, const T*, index_t, const T*, index_t, T*, index_t, index_t, index_t); \
  template void gated_backward_tile(Activation, const T*, const T*, index_t, const T*, index_t, T, T*,       \
                                    index_t, T*, index_t, index_t, index_t);
EIGENFORMER_INSTANTIATE_GATED(float)
EIGENFORMER_INSTANTIATE_GATED(double)
#undef EIGENFORMER_INSTANTIATE_GATED
#endif

}  // namespace eigenformer::kernels
