#pragma once

#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

namespace detail {

// A second operand for a tensor of A's element type: a tensor of the same type, or a number.
template <class B, class A>
concept ComparableWith = Number<B> || SameElement<A, B>::value;

template <class A, class B>
Tensor<bool> compare(const char* op, kernels::Comparison f, const A& a, const B& b) {
  const OpScope scope(Runtime::instance().profiler(), op);
  using T = typename A::value_type;
  if constexpr (Number<B>) {
    return compare(op, f, a, Tensor<T>::scalar(static_cast<T>(b)));
  } else if constexpr (!std::is_floating_point_v<T>) {
    // The kernels compare floats and doubles; a double holds every int32_t exactly.
    return compare(op, f, tensor_of(a).template to<double>(), tensor_of(b).template to<double>());
  } else {
    const Tensor<T>& left = tensor_of(a);
    const Tensor<T>& right = tensor_of(b);
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

/// Whether a < b, element by element, with broadcasting. Operands are Tensors or Vars of one element type
/// (float, double, int32_t or bool); b may be a number, converted to that type. Comparisons with NaN are
/// false, but not_equal is true. Throws ShapeError when the shapes do not broadcast.
template <detail::TensorOrVar A, detail::ComparableWith<A> B>
[[nodiscard]] Tensor<bool> less(const A& a, const B& b) {
  return detail::compare("less", kernels::Comparison::less, a, b);
}

/// Whether a <= b, element by element; operands, NaN and errors as for less().
template <detail::TensorOrVar A, detail::ComparableWith<A> B>
[[nodiscard]] Tensor<bool> less_equal(const A& a, const B& b) {
  return detail::compare("less_equal", kernels::Comparison::less_equal, a, b);
}

/// Whether a > b, element by element; operands, NaN and errors as for less().
template <detail::TensorOrVar A, detail::ComparableWith<A> B>
[[nodiscard]] Tensor<bool> greater(const A& a, const B& b) {
  return detail::compare("greater", kernels::Comparison::greater, a, b);
}

/// Whether a >= b, element by element; operands, NaN and errors as for less().
template <detail::TensorOrVar A, detail::ComparableWith<A> B>
[[nodiscard]] Tensor<bool> greater_equal(const A& a, const B& b) {
  return detail::compare("greater_equal", kernels::Comparison::greater_equal, a, b);
}

/// Whether a == b, element by element; operands, NaN and errors as for less().
template <detail::TensorOrVar A, detail::ComparableWith<A> B>
[[nodiscard]] Tensor<bool> equal(const A& a, const B& b) {
  return detail::compare("equal", kernels::Comparison::equal, a, b);
}

/// Whether a != b, element by element; operands, NaN and errors as for less().
template <detail::TensorOrVar A, detail::ComparableWith<A> B>
[[nodiscard]] Tensor<bool> not_equal(const A& a, const B& b) {
  return detail::compare("not_equal", kernels::Comparison::not_equal, a, b);
}

/// a where the mask is true and b where it is false, all three broadcast together. Elements that are not
/// chosen have no effect, even NaN, and a gradient of 0. Throws ShapeError when the shapes do not broadcast.
template <class T>
[[nodiscard]] Var<T> where(const Tensor<bool>& mask, const Var<T>& a, const std::type_identity_t<Var<T>>& b) {
  const OpScope scope(Runtime::instance().profiler(), "where");
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

/// a where the mask is true and the number c where it is false.
template <class T, detail::Number S>
[[nodiscard]] Var<T> where(const Tensor<bool>& mask, const Var<T>& a, S c) {
  return where(mask, a, Var<T>(Tensor<T>::scalar(static_cast<T>(c))));
}

/// The number c where the mask is true and b where it is false.
template <class T, detail::Number S>
[[nodiscard]] Var<T> where(const Tensor<bool>& mask, S c, const Var<T>& b) {
  return where(mask, Var<T>(Tensor<T>::scalar(static_cast<T>(c))), b);
}

}  // namespace eigenformer
