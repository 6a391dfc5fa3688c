#pragma once

#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
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

template <class A, class B>
Tensor<bool> compare(const char* op, kernels::Comparison f, const A& a, const B& b) {
  const OpScope scope(Runtime::instance().profiler(), op);
  using T = element_t<A, B>;
  if constexpr (Number<A>) {
    return compare(op, f, Tensor<T>::scalar(static_cast<T>(a)), b);
  } else if constexpr (Number<B>) {
    return compare(op, f, a, Tensor<T>::scalar(static_cast<T>(b)));
  } else if constexpr (!std::is_floating_point_v<T>) {
    // The kernels compare floats and doubles; a double holds every int32_t exactly.
    const Tensor<T>& left = tensor_of(a);
    const Tensor<T>& right = tensor_of(b);
    require_defined(op, left, right);
    return compare(op, f, left.template to<double>(), right.template to<double>());
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
/// element type (float, double, int32_t or bool); one may be a number, converted to that type. Comparisons
/// with NaN are false, but not_equal is true. Throws ShapeError when the shapes do not broadcast.
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> less(const A& a, const B& b) {
  return detail::compare("less", kernels::Comparison::less, a, b);
}

/// Whether a <= b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> less_equal(const A& a, const B& b) {
  return detail::compare("less_equal", kernels::Comparison::less_equal, a, b);
}

/// Whether a > b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> greater(const A& a, const B& b) {
  return detail::compare("greater", kernels::Comparison::greater, a, b);
}

/// Whether a >= b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> greater_equal(const A& a, const B& b) {
  return detail::compare("greater_equal", kernels::Comparison::greater_equal, a, b);
}

/// Whether a == b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> equal(const A& a, const B& b) {
  return detail::compare("equal", kernels::Comparison::equal, a, b);
}

/// Whether a != b, element by element; operands, NaN and errors as for less().
template <class A, class B>
requires detail::Comparable<A, B>
[[nodiscard]] Tensor<bool> not_equal(const A& a, const B& b) {
  return detail::compare("not_equal", kernels::Comparison::not_equal, a, b);
}

/// a where the mask is true and b where it is false, all three broadcast together. Elements that are not
/// chosen have no effect, even NaN, and a gradient of 0. Throws ShapeError when the shapes do not broadcast.
template <class T>
[[nodiscard]] Var<T> where(const Tensor<bool>& mask, const Var<T>& a, const std::type_identity_t<Var<T>>& b) {
  const OpScope scope(Runtime::instance().profiler(), "where");
  detail::require_defined("where", mask, a, b);
  const Shape operands = kernels::broadcast_shape("where", a.shape(), b.shape());
  Tensor<T> y(kernels::broadcast_shape("where", mask.shape(), operands));
  kernels::where<T>(mask.data(), mask.shape(), a.value().data(), a.shape(), b.value().data(), b.shape(),
                    y.data());
  if (detail::not_recorded<T>(y, a, b)) return Var<T>(std::move(y));
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

}  // namespace eigenformer
