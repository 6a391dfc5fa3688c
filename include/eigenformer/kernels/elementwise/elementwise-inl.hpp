#pragma once

#include <Eigen/Core>
#include <type_traits>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// n numbers as Eigen's array. Eigen is used for loops of a single operation: with two, -m flags would
/// determine whether they are rounded once or twice.
template <class T>
auto array(T* x, index_t n) {
  using Array = Eigen::Array<std::remove_const_t<T>, Eigen::Dynamic, 1>;
  return Eigen::Map<std::conditional_t<std::is_const_v<T>, const Array, Array>>(x, n);
}

template <UnaryOp op, class T>
struct UnaryForward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, T* y, index_t n) {
    using W = Simd<T, Bytes>;
    using Math = SimdMath<T, Bytes>;
    for (index_t i = 0; i < n; i += W::lanes) {
      typename W::V v;
      W::load(v, x + i, n - i, T(1));
      if constexpr (op == UnaryOp::negate) v = -v;
      if constexpr (op == UnaryOp::absolute) v = v < T(0) ? -v : v + T(0);
      if constexpr (op == UnaryOp::square) v = v * v;
      if constexpr (op == UnaryOp::reciprocal) v = T(1) / v;
      if constexpr (op == UnaryOp::sqrt) W::sqrt(v);
      if constexpr (op == UnaryOp::exp) Math::exp(v);
      if constexpr (op == UnaryOp::log) Math::log(v);
      if constexpr (op == UnaryOp::erf) Math::erf(v);
      W::store(y + i, n - i, v);
    }
  }
};

/// Whether unary_backward needs x; otherwise it needs y (negate: neither).
constexpr bool unary_backward_takes_input(UnaryOp op) {
  return op == UnaryOp::absolute || op == UnaryOp::square || op == UnaryOp::log || op == UnaryOp::erf;
}

template <UnaryOp op, class T>
struct UnaryBackward {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x_or_y, const T* dy, T* dx, T beta, index_t n) {
    using W = Simd<T, Bytes>;
    using Math = SimdMath<T, Bytes>;
    for (index_t i = 0; i < n; i += W::lanes) {
      typename W::V v{}, g;
      if constexpr (op != UnaryOp::negate) W::load(v, x_or_y + i, n - i, T(1));
      W::load(g, dy + i, n - i);
      if constexpr (op == UnaryOp::negate) g = -g;
      if constexpr (op == UnaryOp::absolute) g = v < T(0) ? -g : (v > T(0) ? g : typename W::V{});
      if constexpr (op == UnaryOp::square) g = T(2) * v * g;
      if constexpr (op == UnaryOp::reciprocal) g = -(v * v) * g;
      if constexpr (op == UnaryOp::sqrt) g = g / (T(2) * v);
      if constexpr (op == UnaryOp::exp) g = v * g;
      if constexpr (op == UnaryOp::log) g = g / v;
      if constexpr (op == UnaryOp::erf) {
        v = -(v * v);
        Math::exp(v);
        g = T(1.12837916709551257390) * v * g;
      }
      W::store_sum(dx + i, n - i, g, beta);
    }
  }
};

template <template <UnaryOp, class> class Body, class T, class... Args>
void dispatch_unary(UnaryOp op, Args... args) {
  switch (op) {
    case UnaryOp::negate:
      return dispatch<Body<UnaryOp::negate, T>>(args...);
    case UnaryOp::absolute:
      return dispatch<Body<UnaryOp::absolute, T>>(args...);
    case UnaryOp::square:
      return dispatch<Body<UnaryOp::square, T>>(args...);
    case UnaryOp::reciprocal:
      return dispatch<Body<UnaryOp::reciprocal, T>>(args...);
    case UnaryOp::sqrt:
      return dispatch<Body<UnaryOp::sqrt, T>>(args...);
    case UnaryOp::exp:
      return dispatch<Body<UnaryOp::exp, T>>(args...);
    case UnaryOp::log:
      return dispatch<Body<UnaryOp::log, T>>(args...);
    case UnaryOp::erf:
      return dispatch<Body<UnaryOp::erf, T>>(args...);
  }
}

/// y = alpha * x + beta * y, or y = x * m + beta * y where there is an m.
template <class T>
struct LinearCombination {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(T alpha, const T* x, const T* m, T beta, T* y, index_t n) {
    using W = Simd<T, Bytes>;
    W::each(n, [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA {
      typename W::V v, w;
      W::load(v, x + i, count);
      if (m != nullptr) {
        W::load(w, m + i, count);
        v *= w;
      } else {
        v *= alpha;
      }
      W::store_sum(y + i, count, v, beta);
    });
  }
};

template <class T>
void linear_combination(T alpha, const T* x, const T* m, T beta, T* y, index_t n) {
  parallel_for(n, simple_grain, [&](index_t begin, index_t end) {
    dispatch<LinearCombination<T>>(alpha, x + begin, m == nullptr ? m : m + begin, beta, y + begin,
                                   end - begin);
  });
}

}  // namespace detail

template <class T>
void unary(UnaryOp op, const T* x, T* y, index_t n) {
  parallel_for(n, math_grain, [&](index_t begin, index_t end) {
    detail::dispatch_unary<detail::UnaryForward, T>(op, x + begin, y + begin, end - begin);
  });
}

template <class T>
void unary_backward(UnaryOp op, const T* x, const T* y, const T* dy, T* dx, T beta, index_t n) {
  const T* operand = detail::unary_backward_takes_input(op) ? x : y;
  parallel_for(n, math_grain, [&](index_t begin, index_t end) {
    detail::dispatch_unary<detail::UnaryBackward, T>(op, op == UnaryOp::negate ? operand : operand + begin,
                                                     dy + begin, dx + begin, beta, end - begin);
  });
}

template <class T>
void axpby(T alpha, const T* x, T beta, T* y, index_t n) {
  detail::linear_combination<T>(alpha, x, nullptr, beta, y, n);
}

template <class T>
void multiply_add(const T* a, const T* b, T* out, T beta, index_t n) {
  detail::linear_combination<T>(T(1), a, b, beta, out, n);
}

template <class T>
void add(const T* a, const T* b, T* out, index_t n) {
  parallel_for(n, simple_grain, [&](index_t begin, index_t end) {
    detail::array(out + begin, end - begin) =
        detail::array(a + begin, end - begin) + detail::array(b + begin, end - begin);
  });
}

template <class T>
void add_scalar(const T* x, T value, T* y, index_t n) {
  parallel_for(n, simple_grain, [&](index_t begin, index_t end) {
    detail::array(y + begin, end - begin) = detail::array(x + begin, end - begin) + value;
  });
}

EIGENFORMER_KERNEL(unary)
EIGENFORMER_KERNEL(unary_backward)
EIGENFORMER_KERNEL(axpby)
EIGENFORMER_KERNEL(multiply_add)
EIGENFORMER_KERNEL(add)
EIGENFORMER_KERNEL(add_scalar)

}  // namespace eigenformer::detail::kernels
