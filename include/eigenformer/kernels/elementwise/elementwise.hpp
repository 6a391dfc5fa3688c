#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer::detail::kernels {

/// Arithmetic of two operands.
enum class BinaryOp { add, subtract, multiply, divide };

/// Comparisons of two operands, as IEEE 754 defines them for NaN.
enum class Comparison { equal, not_equal, less, less_equal, greater, greater_equal };

/// Functions of one operand. Activations, tanh and sigmoid among them, are in activation.hpp.
enum class UnaryOp { negate, absolute, square, reciprocal, sqrt, exp, log, erf };

/// The shape of an operation on both operands: aligned at the last dimension, each pair of sizes equal or one
/// of them 1. Throws ShapeError, naming op, otherwise.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

/// out = a (op) b with broadcasting; out has broadcast_shape(a, b) and may be an operand of that shape.
template <BinaryOp op, class T>
void binary(const T* a, const Shape& a_shape, const T* b, const Shape& b_shape, T* out);

/// out = a (op) b with broadcasting, as bools.
template <class T>
void compare(Comparison op, const T* a, const Shape& a_shape, const T* b, const Shape& b_shape, bool* out);

/// out = condition ? a : b with broadcasting; out has the shape that all three broadcast to.
template <class T>
void where(const bool* condition, const Shape& condition_shape, const T* a, const Shape& a_shape, const T* b,
           const Shape& b_shape, T* out);

/// out = beta * out + scale * x, x of shape `from` broadcast to `to`. beta is 0 (out is not read) or 1.
/// Throws ShapeError where `from` does not broadcast to `to`.
template <class T>
void broadcast_to(const T* x, const Shape& from, T* out, const Shape& to, T scale, T beta);

/// y = f(x) over n elements; y may be x.
template <class T>
void unary(UnaryOp op, const T* x, T* y, index_t n);

/// dx = beta * dx + f'(x) * dy over n elements, y = f(x): negate -dy; absolute sign(x) dy; square 2 x dy;
/// reciprocal -y^2 dy; sqrt dy / (2 y); exp y dy; log dy / x; erf 2 / sqrt(pi) exp(-x^2) dy. An operand that
/// the formula does not name may be nullptr. beta 0 does not read dx, which may be dy.
template <class T>
void unary_backward(UnaryOp op, const T* x, const T* y, const T* dy, T* dx, T beta, index_t n);

/// y = alpha * x + beta * y over n elements; beta 0 does not read y. y may be x.
template <class T>
void axpby(T alpha, const T* x, T beta, T* y, index_t n);

/// out = beta * out + a * b, element by element, n elements; beta is 0 (out is not read) or 1. out may be an
/// operand.
template <class T>
void multiply_add(const T* a, const T* b, T* out, T beta, index_t n);

/// out = a + b, element by element, n elements.
template <class T>
void add(const T* a, const T* b, T* out, index_t n);

/// y = x + value over n elements; y may be x.
template <class T>
void add_scalar(const T* x, T value, T* y, index_t n);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <type_traits>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/view.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

EIGENFORMER_INLINE Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  for (index_t i = 1; i <= shorter.rank(); ++i) {
    const index_t m = longer[-i], n = shorter[-i];
    if (m != n && m != 1 && n != 1) {
      throw ShapeError(op,
                       {"shapes ", a.str(), " and ", b.str(), " do not broadcast: dimension -", i, " is ",
                        a[-i], " and ", b[-i]},
                       {a, b});
    }
    if (m == 1) out = out.with(-i, n);
  }
  return out;
}

namespace detail {

template <BinaryOp op, class T>
struct BinaryRows {
  /// Rounds begin .. end - 1 of the outer dimensions, n elements of the inner one, with strides 0 or 1.
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const StridedLoop<2>* loop, const T* a, const T* b, T* out,
                                            index_t begin, index_t end, index_t n) {
    using W = Simd<T, Bytes>;
    using V = typename W::V;
    const bool a_moves = loop->inner_stride(0) != 0, b_moves = loop->inner_stride(1) != 0;
    auto at = loop->offsets(begin);
    for (index_t round = begin; round < end; ++round, at.next()) {
      const T* first = a + at[0];
      const T* second = b + at[1];
      T* to = out + round * n;
      V x, y;
      W::set(x, n > 0 ? *first : T(0));
      W::set(y, n > 0 ? *second : T(0));
      W::each(n, [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA {
        if (a_moves) W::load(x, first + i, count);
        if (b_moves) W::load(y, second + i, count, T(1));
        V z;
        if constexpr (op == BinaryOp::add) z = x + y;
        if constexpr (op == BinaryOp::subtract) z = x - y;
        if constexpr (op == BinaryOp::multiply) z = x * y;
        if constexpr (op == BinaryOp::divide) z = x / y;
        W::store(to + i, count, z);
      });
    }
  }
};

template <class T, class F>
void compare_loop(const StridedLoop<2>& loop, const T* a, const T* b, bool* out, F holds) {
  const index_t step_a = loop.inner_stride(0), step_b = loop.inner_stride(1);
  for_rounds(loop, simple_grain, [&](index_t begin, index_t end, index_t skip, index_t n) {
    auto at = loop.offsets(begin);
    for (index_t round = begin; round < end; ++round, at.next()) {
      const T* x = a + at[0] + skip * step_a;
      const T* y = b + at[1] + skip * step_b;
      bool* to = out + round * n + skip;
      index_t i = 0;
      if (step_a == 1 && step_b == 1) {
        // Blocks of one size, in memory that is not an operand, which compilers make vectors of.
        for (bool block[16]; i + 16 <= n; i += 16) {
          for (index_t k = 0; k < 16; ++k) block[k] = holds(x[i + k], y[i + k]);
          std::copy_n(block, 16, to + i);
        }
      }
      for (; i < n; ++i) to[i] = holds(x[i * step_a], y[i * step_b]);
    }
  });
}

// to = c ? a : b, n elements; steps are 0 or 1.
template <class T>
struct WhereRow {
  template <int lanes>
  struct Flags {
    typedef signed char V __attribute__((vector_size(lanes)));
  };

  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const bool* c, const T* a, index_t step_a, const T* b,
                                            index_t step_b, T* to, index_t n) {
    using W = Simd<T, Bytes>;
    using F = typename Flags<Bytes / static_cast<int>(sizeof(T))>::V;
    typename W::V fixed_a, fixed_b;
    W::set(fixed_a, *a);
    W::set(fixed_b, *b);
    W::each(n, [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA {
      typename W::V x = fixed_a, y = fixed_b;
      if (step_a == 1) W::load(x, a + i, count);
      if (step_b == 1) W::load(y, b + i, count);
      F flags{};
      if (static_cast<index_t>(count) == W::lanes) {
        __builtin_memcpy(&flags, c + i, sizeof(flags));
      } else {
        for (index_t l = 0; l < static_cast<index_t>(count); ++l) flags[l] = c[i + l] ? 1 : 0;
      }
      const auto chosen = __builtin_convertvector(flags, typename W::I);
      x = chosen != 0 ? x : y;
      W::store(to + i, count, x);
    });
  }
};

template <class T>
struct BroadcastRows {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const StridedLoop<1>* loop, const T* x, T* out, index_t begin,
                                            index_t end, index_t n, T scale, T beta) {
    using W = Simd<T, Bytes>;
    const bool moves = loop->inner_stride(0) != 0;
    auto at = loop->offsets(begin);
    for (index_t round = begin; round < end; ++round, at.next()) {
      const T* from = x + at[0];
      T* to = out + round * n;
      W::each(n, [&](index_t i, auto count) EIGENFORMER_INLINE_LAMBDA {
        typename W::V v;
        if (moves) {
          W::load(v, from + i, count);
        } else {
          W::set(v, *from);
        }
        v *= scale;
        W::store_sum(to + i, count, v, beta);
      });
    }
  }
};

}  // namespace detail

template <BinaryOp op, class T>
void binary(const T* a, const Shape& a_shape, const T* b, const Shape& b_shape, T* out) {
  const Shape shape = broadcast_shape("binary", a_shape, b_shape);
  if (shape.numel() == 0) return;
  const auto loop = broadcast_loop<2>(shape, {&a_shape, &b_shape});
  for_rounds(loop, simple_grain, [&](index_t begin, index_t end, index_t skip, index_t n) {
    dispatch<detail::BinaryRows<op, T>>(&loop, a + skip * loop.inner_stride(0),
                                        b + skip * loop.inner_stride(1), out + skip, begin, end, n);
  });
}

template <class T>
void compare(Comparison op, const T* a, const Shape& a_shape, const T* b, const Shape& b_shape, bool* out) {
  const Shape shape = broadcast_shape("compare", a_shape, b_shape);
  if (shape.numel() == 0) return;
  const auto loop = broadcast_loop<2>(shape, {&a_shape, &b_shape});
  switch (op) {
    case Comparison::equal:
      return detail::compare_loop(loop, a, b, out, [](T x, T y) { return x == y; });
    case Comparison::not_equal:
      return detail::compare_loop(loop, a, b, out, [](T x, T y) { return x != y; });
    case Comparison::less:
      return detail::compare_loop(loop, a, b, out, [](T x, T y) { return x < y; });
    case Comparison::less_equal:
      return detail::compare_loop(loop, a, b, out, [](T x, T y) { return x <= y; });
    case Comparison::greater:
      return detail::compare_loop(loop, a, b, out, [](T x, T y) { return x > y; });
    case Comparison::greater_equal:
      return detail::compare_loop(loop, a, b, out, [](T x, T y) { return x >= y; });
  }
}

template <class T>
void where(const bool* condition, const Shape& condition_shape, const T* a, const Shape& a_shape, const T* b,
           const Shape& b_shape, T* out) {
  const Shape shape = broadcast_shape("where", condition_shape, broadcast_shape("where", a_shape, b_shape));
  if (shape.numel() == 0) return;
  const auto loop = broadcast_loop<3>(shape, {&condition_shape, &a_shape, &b_shape});
  const index_t step_c = loop.inner_stride(0), step_a = loop.inner_stride(1), step_b = loop.inner_stride(2);
  for_rounds(loop, simple_grain, [&](index_t begin, index_t end, index_t skip, index_t n) {
    auto at = loop.offsets(begin);
    for (index_t round = begin; round < end; ++round, at.next()) {
      const bool* c = condition + at[0] + skip * step_c;
      const T* x = a + at[1] + skip * step_a;
      const T* y = b + at[2] + skip * step_b;
      T* to = out + round * n + skip;
      if (step_c == 1) {
        dispatch<detail::WhereRow<T>>(c, x, step_a, y, step_b, to, n);
      } else {
        for (index_t i = 0; i < n; ++i) to[i] = *c ? x[i * step_a] : y[i * step_b];
      }
    }
  });
}

template <class T>
void broadcast_to(const T* x, const Shape& from, T* out, const Shape& to, T scale, T beta) {
  if (from.rank() > to.rank() || broadcast_shape("broadcast_to", from, to) != to) {
    throw ShapeError("broadcast_to", {"shape ", from.str(), " does not broadcast to ", to.str()}, {from, to});
  }
  if (to.numel() == 0) return;
  const auto loop = broadcast_loop<1>(to, {&from});
  for_rounds(loop, simple_grain, [&](index_t begin, index_t end, index_t skip, index_t n) {
    dispatch<detail::BroadcastRows<T>>(&loop, x + skip * loop.inner_stride(0), out + skip, begin, end, n,
                                       scale, beta);
  });
}

EIGENFORMER_KERNEL_INSTANCE(binary<BinaryOp::add, float>)
EIGENFORMER_KERNEL_INSTANCE(binary<BinaryOp::add, double>)
EIGENFORMER_KERNEL_INSTANCE(binary<BinaryOp::subtract, float>)
EIGENFORMER_KERNEL_INSTANCE(binary<BinaryOp::subtract, double>)
EIGENFORMER_KERNEL_INSTANCE(binary<BinaryOp::multiply, float>)
EIGENFORMER_KERNEL_INSTANCE(binary<BinaryOp::multiply, double>)
EIGENFORMER_KERNEL_INSTANCE(binary<BinaryOp::divide, float>)
EIGENFORMER_KERNEL_INSTANCE(binary<BinaryOp::divide, double>)
EIGENFORMER_KERNEL(compare)
EIGENFORMER_KERNEL(where)
EIGENFORMER_KERNEL(broadcast_to)

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

/// A body for each UnaryOp, in the order of the enum's values.
template <template <UnaryOp, class> class Body, class T>
inline constexpr std::array unary_bodies = {
    dispatch<Body<UnaryOp::negate, T>>, dispatch<Body<UnaryOp::absolute, T>>,
    dispatch<Body<UnaryOp::square, T>>, dispatch<Body<UnaryOp::reciprocal, T>>,
    dispatch<Body<UnaryOp::sqrt, T>>,   dispatch<Body<UnaryOp::exp, T>>,
    dispatch<Body<UnaryOp::log, T>>,    dispatch<Body<UnaryOp::erf, T>>};

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
    dispatch<LinearCombination<T>>(alpha, x + begin, shifted(m, begin), beta, y + begin, end - begin);
  });
}

}  // namespace detail

template <class T>
void unary(UnaryOp op, const T* x, T* y, index_t n) {
  const auto run = detail::unary_bodies<detail::UnaryForward, T>[static_cast<std::size_t>(op)];
  parallel_for(n, math_grain, [&](index_t begin, index_t end) { run(x + begin, y + begin, end - begin); });
}

template <class T>
void unary_backward(UnaryOp op, const T* x, const T* y, const T* dy, T* dx, T beta, index_t n) {
  const T* operand = detail::unary_backward_takes_input(op) ? x : y;
  const auto run = detail::unary_bodies<detail::UnaryBackward, T>[static_cast<std::size_t>(op)];
  parallel_for(n, math_grain, [&](index_t begin, index_t end) {
    run(shifted(operand, begin), dy + begin, dx + begin, beta, end - begin);
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
#endif
