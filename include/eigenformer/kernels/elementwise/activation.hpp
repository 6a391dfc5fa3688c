#pragma once

#include <array>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// Functions applied to each element between linear layers.
enum class Activation {
  none,          ///< x
  relu,          ///< max(x, 0); NaN stays NaN
  gelu,          ///< x * Phi(x), with erf: Hendrycks and Gimpel 2016
  gelu_tanh,     ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): the same paper's approximation
  silu,          ///< x * sigmoid(x)
  sigmoid,       ///< 1 / (1 + exp(-x))
  tanh,          ///< tanh(x)
  relu_squared,  ///< max(x, 0)^2: So et al. 2021 (Primer)
  elu_plus_one,  ///< x + 1 where x > 0, exp(x) elsewhere: the feature map of Katharopoulos et al. 2020
};

namespace detail {

// In the order of the enum's values.
inline constexpr std::array activation_names = {"none",    "relu", "gelu",         "gelu_tanh",   "silu",
                                                "sigmoid", "tanh", "relu_squared", "elu_plus_one"};

}  // namespace detail

namespace detail::kernels {

/// Whether activation_backward needs the output y (relu, sigmoid, tanh, elu_plus_one) or the input x (gelu,
/// gelu_tanh, silu, relu_squared). relu accepts the input as well; `none` reads neither.
constexpr bool activation_backward_takes_output(Activation activation) noexcept {
  return activation == Activation::relu || activation == Activation::sigmoid ||
         activation == Activation::tanh || activation == Activation::elu_plus_one ||
         activation == Activation::none;
}

/// y = f(x) over n elements; y may be x.
template <class T>
void activation_forward(Activation activation, const T* x, T* y, index_t n);

/// dx = beta * dx + f'(x) * dy over n elements. x_or_y: see activation_backward_takes_output. beta 0 does not
/// read dx, which may be dy.
template <class T>
void activation_backward(Activation activation, const T* x_or_y, const T* dy, T* dx, T beta, index_t n);

/// y = f(x) on a tile of rows x cols, rows ldx and ldy elements apart; y may be x. Runs on the calling
/// thread: for the epilogue of a matrix product.
template <class T>
void activation_tile(Activation activation, const T* x, index_t ldx, T* y, index_t ldy, index_t rows,
                     index_t cols);

/// activation_backward on a tile of rows x cols; x_or_y's rows are ldx apart, those of dy and dx ldd. On the
/// calling thread.
template <class T>
void activation_backward_tile(Activation activation, const T* x_or_y, index_t ldx, const T* dy, T* dx,
                              index_t ldd, T beta, index_t rows, index_t cols);

/// y = f(gate) * up on a tile of rows x cols: gated linear units. Dauphin et al. 2017; Shazeer 2020.
///
/// gate, up, y: the tile's first elements, their rows ld_gate, ld_up and ld_y apart; y may be gate or up.
/// Runs on the calling thread: for the epilogue of a matrix product.
template <class T>
void gated_tile(Activation activation, const T* gate, index_t ld_gate, const T* up, index_t ld_up, T* y,
                index_t ld_y, index_t rows, index_t cols);

/// dgate = beta * dgate + f'(gate) * up * dy and dup = beta * dup + f(gate) * dy on a tile of rows x cols.
///
/// gate and up are gated_tile's inputs, rows ld apart; rows of dy, dgate and dup are ld_dy, ld_dgate and
/// ld_dup apart. beta 0 does not read the gradients; dgate or dup may then be dy.
template <class T>
void gated_backward_tile(Activation activation, const T* gate, const T* up, index_t ld, const T* dy,
                         index_t ld_dy, T beta, T* dgate, index_t ld_dgate, T* dup, index_t ld_dup,
                         index_t rows, index_t cols);

}  // namespace detail::kernels

}  // namespace eigenformer

#ifndef EIGENFORMER_COMPILED
#include <algorithm>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// The functions, a vector at a time: forward(v) replaces v by f(v), backward(v, g) multiplies g by f' at v,
/// which is the output or the input by activation_backward_takes_output().
template <Activation activation, class T, int Bytes>
struct ActivationMath {
  using V = typename Simd<T, Bytes>::V;
  using Math = SimdMath<T, Bytes>;
  static constexpr T root_half = T(0.70710678118654752440);         // 1 / sqrt(2)
  static constexpr T inverse_root_2pi = T(0.39894228040143267794);  // 1 / sqrt(2 pi)
  static constexpr T root_2_over_pi = T(0.79788456080286535588);
  static constexpr T cubic = T(0.044715);

  EIGENFORMER_ALWAYS_INLINE static void forward(V& v) {
    if constexpr (activation == Activation::relu) {
      v = v < T(0) ? V{} : v;
    } else if constexpr (activation == Activation::gelu) {
      V cdf = v * root_half;
      Math::erf(cdf);
      v = v * (T(0.5) + T(0.5) * cdf);
    } else if constexpr (activation == Activation::gelu_tanh) {
      V t, slope;
      tanh_argument(v, t, slope);
      Math::tanh(t);
      v = v * (T(0.5) + T(0.5) * t);
    } else if constexpr (activation == Activation::silu) {
      V s = v;
      Math::sigmoid(s);
      v *= s;
    } else if constexpr (activation == Activation::sigmoid) {
      Math::sigmoid(v);
    } else if constexpr (activation == Activation::tanh) {
      Math::tanh(v);
    } else if constexpr (activation == Activation::relu_squared) {
      v = v < T(0) ? V{} : v;
      v *= v;
    } else if constexpr (activation == Activation::elu_plus_one) {
      V e = v;
      Math::exp(e);
      v = v > T(0) ? v + T(1) : e;
    }
  }

  EIGENFORMER_ALWAYS_INLINE static void backward(const V& v, V& g) {
    if constexpr (activation == Activation::relu) {
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE_SIZE__)
      // g++ 12 fails with an internal error in the selection below at -Os.
      for (std::size_t i = 0; i < sizeof(V) / sizeof(T); ++i) g[i] = v[i] <= T(0) ? T(0) : g[i];
#else
      g = v <= T(0) ? V{} : g;
#endif
    } else if constexpr (activation == Activation::gelu) {
      // Phi(x) + x phi(x).
      V cdf = v * root_half, density;
      Math::erf_and_exp(cdf, density);
      g *= T(0.5) + T(0.5) * cdf + v * density * inverse_root_2pi;
    } else if constexpr (activation == Activation::gelu_tanh) {
      V t, slope;
      tanh_argument(v, t, slope);
      Math::tanh(t);
      g *= T(0.5) + T(0.5) * t + T(0.5) * v * (T(1) - t * t) * slope;
    } else if constexpr (activation == Activation::silu) {
      V s = v;
      Math::sigmoid(s);
      g *= s * (T(1) + v * (T(1) - s));
    } else if constexpr (activation == Activation::sigmoid) {
      g *= v * (T(1) - v);
    } else if constexpr (activation == Activation::tanh) {
      g *= T(1) - v * v;
    } else if constexpr (activation == Activation::relu_squared) {
      g = v <= T(0) ? V{} : T(2) * v * g;
    } else if constexpr (activation == Activation::elu_plus_one) {
      // The output is below 1 exactly where the slope is exp(x), which is the output.
      g = v < T(1) ? v * g : g;
    }
  }

 private:
  /// u = sqrt(2 / pi) (x + 0.044715 x^3) and its derivative; x is clamped to where tanh(u) is 1, so that
  /// neither overflows.
  EIGENFORMER_ALWAYS_INLINE static void tanh_argument(const V& v, V& u, V& slope) {
    V x = v > T(64) ? T(64) - V{} : v;
    x = x < T(-64) ? T(-64) - V{} : x;
    const V square = x * x;
    u = root_2_over_pi * (x + cubic * square * x);
    slope = root_2_over_pi * (T(1) + T(3) * cubic * square);
  }
};

template <Activation activation, class T>
struct ActivationForward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, index_t ldx, T* y, index_t ldy, index_t rows,
                                            index_t cols) {
    using W = Simd<T, Bytes>;
    for (index_t r = 0; r < rows; ++r) {
      for (index_t i = 0; i < cols; i += W::lanes) {
        typename W::V v;
        W::load(v, x + r * ldx + i, cols - i);
        ActivationMath<activation, T, Bytes>::forward(v);
        W::store(y + r * ldy + i, cols - i, v);
      }
    }
  }
};

template <Activation activation, class T>
struct ActivationBackward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, index_t ldx, const T* dy, T* dx, index_t ldd, T beta,
                                            index_t rows, index_t cols) {
    using W = Simd<T, Bytes>;
    for (index_t r = 0; r < rows; ++r) {
      for (index_t i = 0; i < cols; i += W::lanes) {
        typename W::V v{}, g;
        if constexpr (activation != Activation::none) W::load(v, x + r * ldx + i, cols - i);
        W::load(g, dy + r * ldd + i, cols - i);
        ActivationMath<activation, T, Bytes>::backward(v, g);
        W::store_sum(dx + r * ldd + i, cols - i, g, beta);
      }
    }
  }
};

/// A body for each activation, in the order of the enum's values.
template <template <Activation, class> class Body, class T>
inline constexpr std::array activation_bodies = {
    dispatch<Body<Activation::none, T>>,        dispatch<Body<Activation::relu, T>>,
    dispatch<Body<Activation::gelu, T>>,        dispatch<Body<Activation::gelu_tanh, T>>,
    dispatch<Body<Activation::silu, T>>,        dispatch<Body<Activation::sigmoid, T>>,
    dispatch<Body<Activation::tanh, T>>,        dispatch<Body<Activation::relu_squared, T>>,
    dispatch<Body<Activation::elu_plus_one, T>>};

constexpr index_t activation_grain(Activation activation) {
  return activation == Activation::none || activation == Activation::relu ||
                 activation == Activation::relu_squared
             ? simple_grain
             : math_grain;
}

}  // namespace detail

template <class T>
void activation_forward(Activation activation, const T* x, T* y, index_t n) {
  parallel_for(n, detail::activation_grain(activation), [&](index_t begin, index_t end) {
    activation_tile<T>(activation, x + begin, 0, y + begin, 0, 1, end - begin);
  });
}

template <class T>
void activation_backward(Activation activation, const T* x_or_y, const T* dy, T* dx, T beta, index_t n) {
  parallel_for(n, detail::activation_grain(activation), [&](index_t begin, index_t end) {
    activation_backward_tile<T>(activation, shifted(x_or_y, begin), 0, dy + begin, dx + begin, 0, beta, 1,
                                end - begin);
  });
}

template <class T>
void activation_tile(Activation activation, const T* x, index_t ldx, T* y, index_t ldy, index_t rows,
                     index_t cols) {
  detail::activation_bodies<detail::ActivationForward, T>[static_cast<std::size_t>(activation)](
      x, ldx, y, ldy, rows, cols);
}

template <class T>
void activation_backward_tile(Activation activation, const T* x_or_y, index_t ldx, const T* dy, T* dx,
                              index_t ldd, T beta, index_t rows, index_t cols) {
  detail::activation_bodies<detail::ActivationBackward, T>[static_cast<std::size_t>(activation)](
      x_or_y, ldx, dy, dx, ldd, beta, rows, cols);
}

EIGENFORMER_KERNEL(activation_forward)
EIGENFORMER_KERNEL(activation_backward)
EIGENFORMER_KERNEL(activation_tile)
EIGENFORMER_KERNEL(activation_backward_tile)

namespace detail {

/// Columns of a strip: activations of it are kept on the stack, so that a loop for each activation need not
/// be compiled once more for gates.
inline constexpr index_t gated_strip = 256;

/// dup = beta * dup + dy * value and dvalue = dy * up for one row.
template <class T>
struct GatedProductBackward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* value, const T* up, const T* dy, T beta, T* dup,
                                            T* dvalue, index_t n) {
    using W = Simd<T, Bytes>;
    for (index_t i = 0; i < n; i += W::lanes) {
      typename W::V v, u, d;
      W::load(v, value + i, n - i);
      W::load(u, up + i, n - i);
      W::load(d, dy + i, n - i);
      v *= d;
      d *= u;
      W::store(dvalue + i, n - i, d);
      W::store_sum(dup + i, n - i, v, beta);
    }
  }
};

}  // namespace detail

template <class T>
void gated_tile(Activation activation, const T* gate, index_t ld_gate, const T* up, index_t ld_up, T* y,
                index_t ld_y, index_t rows, index_t cols) {
  alignas(64) T value[detail::gated_strip];
  for (index_t r = 0; r < rows; ++r) {
    for (index_t c = 0; c < cols; c += detail::gated_strip) {
      const index_t n = std::min(detail::gated_strip, cols - c);
      activation_tile<T>(activation, gate + r * ld_gate + c, 0, value, 0, 1, n);
      dispatch<detail::LinearCombination<T>>(T(1), value, up + r * ld_up + c, T(0), y + r * ld_y + c, n);
    }
  }
}

template <class T>
void gated_backward_tile(Activation activation, const T* gate, const T* up, index_t ld, const T* dy,
                         index_t ld_dy, T beta, T* dgate, index_t ld_dgate, T* dup, index_t ld_dup,
                         index_t rows, index_t cols) {
  alignas(64) T value[detail::gated_strip], dvalue[detail::gated_strip];
  for (index_t r = 0; r < rows; ++r) {
    for (index_t c = 0; c < cols; c += detail::gated_strip) {
      const index_t n = std::min(detail::gated_strip, cols - c);
      const T* const g = gate + r * ld + c;
      activation_tile<T>(activation, g, 0, value, 0, 1, n);
      dispatch<detail::GatedProductBackward<T>>(value, up + r * ld + c, dy + r * ld_dy + c, beta,
                                                dup + r * ld_dup + c, dvalue, n);
      const T* const kept = activation_backward_takes_output(activation) ? value : g;
      activation_backward_tile<T>(activation, kept, 0, dvalue, dgate + r * ld_dgate + c, 0, beta, 1, n);
    }
  }
}

EIGENFORMER_KERNEL(gated_tile)
EIGENFORMER_KERNEL(gated_backward_tile)

}  // namespace eigenformer::detail::kernels
#endif
