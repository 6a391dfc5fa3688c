#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/tensor/view.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

namespace detail {

template <class X>
inline constexpr bool has_elements = !std::is_void_v<typename ElementOf<X>::type>;

// Two operands with elements of one type, which need not be floating-point; one may be a number.
template <class A, class B>
concept Comparable = (has_elements<A> && (Number<B> || are_all_of_one_type<A, B>)) ||
                     (Number<A> && has_elements<B>);

// Whether f holds for the elements of both, with broadcasting.
template <class T, class F>
Tensor<bool> test_pairs(const char* op, const Tensor<T>& a, const Tensor<T>& b, F f) {
  require_defined(op, a, b);
  Tensor<bool> y(kernels::broadcast_shape(op, a.shape(), b.shape()));
  if (y.numel() == 0) return y;
  const auto loop = broadcast_loop<2>(y.shape(), {&a.shape(), &b.shape()});
  const index_t step_a = loop.inner_stride(0), step_b = loop.inner_stride(1), row = loop.inner_size();
  for_rounds(loop, 1 << 12, [&, f](index_t begin, index_t end, index_t skip, index_t n) {
    auto at = loop.offsets(begin);
    for (index_t round = begin; round < end; ++round, at.next()) {
      const T* u = a.data() + at[0] + skip * step_a;
      const T* v = b.data() + at[1] + skip * step_b;
      bool* to = y.data() + round * row + skip;
      for (index_t i = 0; i < n; ++i) to[i] = f(u[i * step_a], v[i * step_b]);
    }
  });
  return y;
}

// Whether f holds for two values that are ordered so.
constexpr bool holds(kernels::Comparison f, std::partial_ordering order) {
  using enum kernels::Comparison;
  return f == equal        ? order == 0
         : f == not_equal  ? order != 0
         : f == less       ? order < 0
         : f == less_equal ? order <= 0
         : f == greater    ? order > 0
                           : order >= 0;
}

// The order of an integer and a number, neither rounded to the other's type.
template <class N>
std::partial_ordering order_of(std::int64_t u, N x) {
  if constexpr (std::is_integral_v<N>) {
    return std::cmp_less(u, x)    ? std::partial_ordering::less
           : std::cmp_equal(u, x) ? std::partial_ordering::equivalent
                                  : std::partial_ordering::greater;
  } else {
    constexpr N limit = 9223372036854775808.0;  // 2^63
    if (x != x) return std::partial_ordering::unordered;
    if (x >= limit) return std::partial_ordering::less;
    if (x < -limit) return std::partial_ordering::greater;
    const N below = std::floor(x);
    const auto whole = static_cast<std::int64_t>(below);
    return u == whole && x != below ? std::partial_ordering::less : std::partial_ordering(u <=> whole);
  }
}

// The comparison that holds for (b, a) where f holds for (a, b).
constexpr kernels::Comparison mirrored(kernels::Comparison f) {
  using enum kernels::Comparison;
  return f == less            ? greater
         : f == less_equal    ? greater_equal
         : f == greater       ? less
         : f == greater_equal ? less_equal
                              : f;
}

template <class A, class B>
Tensor<bool> compare(const char* op, kernels::Comparison f, const A& a, const B& b) {
  const OpScope scope = scope_of(op);
  using T = element_t<A, B>;
  if constexpr (Number<A>) {
    return compare(op, mirrored(f), b, a);
  } else if constexpr (!std::is_floating_point_v<T>) {
    const Tensor<T>& left = tensor_of(a);
    require_defined(op, left);
    // A double, which the kernels compare, holds every int32_t exactly, and not every int64_t.
    constexpr bool exact = sizeof(T) < sizeof(std::int64_t);
    if constexpr (exact && Number<B>) {
      return compare(op, f, left.template to<double>(), b);
    } else if constexpr (exact) {
      require_defined(op, tensor_of(b));
      return compare(op, f, left.template to<double>(), tensor_of(b).template to<double>());
    } else if constexpr (Number<B>) {
      return test_pairs(op, left, left, [f, b](T u, T) { return holds(f, order_of(u, b)); });
    } else {
      return test_pairs(op, left, tensor_of(b), [f](T u, T v) { return holds(f, u <=> v); });
    }
  } else if constexpr (Number<B>) {
    return compare(op, f, a, Tensor<T>::scalar(static_cast<T>(b)));
  } else {
    const Tensor<T>& left = tensor_of(a);
    const Tensor<T>& right = tensor_of(b);
    require_defined(op, left, right);
    Tensor<bool> y(kernels::broadcast_shape(op, left.shape(), right.shape()));
    kernels::compare<T>(f, left.data(), left.shape(), right.data(), right.shape(), y.data());
    return y;
  }
}

// The gradient of the operand that `mask` chose where it equals `side`.
template <class T>
void chosen_into(const GradientSlot<T>& slot, const Tensor<bool>& mask, const Tensor<T>& dy, bool side) {
  const Tensor<T> zero = Tensor<T>::scalar(T(0));
  const Tensor<T>& a = side ? dy : zero;
  const Tensor<T>& b = side ? zero : dy;
  const bool direct = slot.shape == dy.shape() && slot.beta == T(0);
  Tensor<T> g = direct ? Tensor<T>() : Tensor<T>(dy.shape());
  kernels::where<T>(mask.data(), mask.shape(), a.data(), a.shape(), b.data(), b.shape(),
                    direct ? slot.data : g.data());
  if (!direct) sum_into(slot, g);
}

}  // namespace detail

/// Whether a < b, element by element, with broadcasting. Operands are Tensors, Vars or Eigen objects of one
/// element type (float, double, int32_t, int64_t or bool); one may be a number. A number is converted to
/// float or double; for other types, the exact values are compared: less(ids, 2.5) is true for 2. Comparisons
/// with NaN are false, but not_equal is true. Throws ShapeError when the shapes do not broadcast.
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> less(const A& a, const B& b) {
  return detail::compare("less", detail::kernels::Comparison::less, a, b);
}

/// Whether a <= b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> less_equal(const A& a, const B& b) {
  return detail::compare("less_equal", detail::kernels::Comparison::less_equal, a, b);
}

/// Whether a > b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> greater(const A& a, const B& b) {
  return detail::compare("greater", detail::kernels::Comparison::greater, a, b);
}

/// Whether a >= b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> greater_equal(const A& a, const B& b) {
  return detail::compare("greater_equal", detail::kernels::Comparison::greater_equal, a, b);
}

/// Whether a == b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> equal(const A& a, const B& b) {
  return detail::compare("equal", detail::kernels::Comparison::equal, a, b);
}

/// Whether a != b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> not_equal(const A& a, const B& b) {
  return detail::compare("not_equal", detail::kernels::Comparison::not_equal, a, b);
}

/// a where the mask is true and b where it is false, all three broadcast together. Elements that are not
/// chosen have no effect, even NaN, and a gradient of 0. Throws ShapeError when the shapes do not broadcast.
template <class T>
[[nodiscard]] Var<T> where(const Tensor<bool>& mask, const Var<T>& a, const std::type_identity_t<Var<T>>& b) {
  const OpScope scope = detail::scope_of("where", mask, a, b);
  const Shape operands = detail::kernels::broadcast_shape("where", a.shape(), b.shape());
  Tensor<T> y(detail::kernels::broadcast_shape("where", mask.shape(), operands));
  detail::kernels::where<T>(mask.data(), mask.shape(), a.value().data(), a.shape(), b.value().data(),
                            b.shape(), y.data());
  if (detail::not_recorded(y, a, b)) return y;
  // da = mask ? dy : 0, db = mask ? 0 : dy, each summed over the dimensions in which it was broadcast.
  return record("where", std::move(y), {a, b}, SavedTensors(mask), [mask](Backward<T>& back) {
    if (const auto da = back.grad(0)) detail::chosen_into(da, mask, back.dy(), true);
    if (const auto db = back.grad(1)) detail::chosen_into(db, mask, back.dy(), false);
  });
}

/// The same for other operands, one of which may be a number.
template <class A, class B>
requires detail::ConvertedPair<A, B>
[[nodiscard]] Var<element_t<A, B>> where(const Tensor<bool>& mask, const A& a, const B& b) {
  using T = element_t<A, B>;
  return where(mask, detail::operand<T>(a), detail::operand<T>(b));
}

namespace detail {

template <class X, class F>
Tensor<bool> test_elements(const char* op, const X& given, F f) {
  const auto& x = tensor_of(given);
  require_defined(op, x);
  Tensor<bool> y(x.shape());
  const auto* from = x.data();
  bool* to = y.data();
  parallel_for(x.numel(), index_t{1} << 14, [=](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) to[i] = f(from[i]);
  });
  return y;
}

}  // namespace detail

/// Whether both are true, element by element, with broadcasting. Throws ShapeError when the shapes do not
/// broadcast.
[[nodiscard]] inline Tensor<bool> logical_and(const Tensor<bool>& a, const Tensor<bool>& b) {
  return detail::test_pairs("logical_and", a, b, [](bool u, bool v) { return u && v; });
}

/// Whether at least one is true, element by element, with broadcasting. Throws ShapeError when the shapes do
/// not broadcast.
[[nodiscard]] inline Tensor<bool> logical_or(const Tensor<bool>& a, const Tensor<bool>& b) {
  return detail::test_pairs("logical_or", a, b, [](bool u, bool v) { return u || v; });
}

/// Whether exactly one is true, element by element, with broadcasting. Throws ShapeError when the shapes do
/// not broadcast.
[[nodiscard]] inline Tensor<bool> logical_xor(const Tensor<bool>& a, const Tensor<bool>& b) {
  return detail::test_pairs("logical_xor", a, b, [](bool u, bool v) { return u != v; });
}

/// Whether the element is false.
[[nodiscard]] inline Tensor<bool> logical_not(const Tensor<bool>& x) {
  return detail::test_elements("logical_not", x, [](bool v) { return !v; });
}

/// Whether the element is NaN.
template <Operand X>
[[nodiscard]] Tensor<bool> isnan(const X& x) {
  return detail::test_elements("isnan", x, [](element_t<X> v) { return std::isnan(v); });
}

/// Whether the element is an infinity.
template <Operand X>
[[nodiscard]] Tensor<bool> isinf(const X& x) {
  return detail::test_elements("isinf", x, [](element_t<X> v) { return std::isinf(v); });
}

/// Whether the element is neither NaN nor an infinity.
template <Operand X>
[[nodiscard]] Tensor<bool> isfinite(const X& x) {
  return detail::test_elements("isfinite", x, [](element_t<X> v) { return std::isfinite(v); });
}

/// Whether |a - b| <= atol + rtol |b|, element by element, with broadcasting; equal infinities are close, and
/// NaNs with equal_nan. Throws ShapeError when the shapes do not broadcast, ValueError for a negative or NaN
/// rtol or atol.
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Tensor<bool> isclose(const A& a, const B& b, double rtol = 1e-5, double atol = 1e-8,
                                   bool equal_nan = false) {
  using T = element_t<A, B>;
  if (!(rtol >= 0) || !(atol >= 0)) {
    throw ValueError("isclose",
                     {"rtol is ", rtol, " and atol ", atol, ", expected numbers that are not negative"});
  }
  decltype(auto) x = detail::operand<T>(a);
  decltype(auto) y = detail::operand<T>(b);
  return detail::test_pairs("isclose", x.value(), y.value(), [=](T u, T v) {
    if (u == v || (equal_nan && std::isnan(u) && std::isnan(v))) return true;
    return std::isfinite(u) && std::isfinite(v) &&
           std::abs(u - v) <= static_cast<T>(atol) + std::abs(static_cast<T>(rtol) * v);
  });
}

}  // namespace eigenformer
