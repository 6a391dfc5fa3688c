#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

namespace detail {

// Operands of the operators.
template <class X>
concept Own = Operand<X> &&
    (is_var<X> || std::is_same_v<X, Tensor<element_t<X>>> || std::is_same_v<X, TensorPart<element_t<X>>>);
template <class A, class B>
concept OwnPair = OperandPair<A, B> &&(Own<A> || Own<B>);

template <kernels::BinaryOp f, class T>
Tensor<T> binary(const char* op, const Tensor<T>& a, const Tensor<T>& b) {
  Tensor<T> y(kernels::broadcast_shape(op, a.shape(), b.shape()));
  kernels::binary<f, T>(a.data(), a.shape(), b.data(), b.shape(), y.data());
  return y;
}

// Adds scale * g to the gradient of an operand that was broadcast to g's shape.
template <class T>
void sum_into(const GradientSlot<T>& slot, const Tensor<T>& g, T scale = T(1)) {
  kernels::reduce_to_shape<T>(g.data(), g.shape(), slot.data, slot.shape, scale, slot.beta);
}

// The output's gradient as that of input i, of the given shape before broadcasting.
template <class T>
void pass_summed(Backward<T>& back, std::size_t i, const Shape& shape) {
  if (shape == back.dy().shape()) {
    back.pass(i, back.dy());
  } else if (const auto slot = back.grad(i)) {
    sum_into(slot, back.dy());
  }
}

// The gradient dy * factor of an operand.
template <class T>
void product_into(const GradientSlot<T>& slot, const Tensor<T>& dy, const Tensor<T>& factor) {
  if (slot.shape == dy.shape() && factor.shape() == dy.shape()) {
    kernels::multiply_add<T>(dy.data(), factor.data(), slot.data, slot.beta, dy.numel());
  } else {
    sum_into(slot, binary<kernels::BinaryOp::multiply>("multiply", dy, factor));
  }
}

// y = factor * x + shift, element by element: dx = factor * dy.
template <class T>
Var<T> affine(const char* op, const Var<T>& x, T factor, T shift) {
  const OpScope scope = scope_of(op, x);
  Tensor<T> y(x.shape());
  const T* from = x.value().data();
  if (factor != T(1)) {
    kernels::axpby<T>(factor, from, T(0), y.data(), x.numel());
    from = y.data();
  }
  if (factor == T(1) || shift != T(0)) kernels::add_scalar<T>(from, shift, y.data(), x.numel());
  if (detail::not_recorded(y, x)) return y;
  return record(op, std::move(y), {x}, SavedTensors(), [factor](Backward<T>& back) {
    if (factor == T(1)) {
      back.pass(0, back.dy());
    } else if (const auto dx = back.grad(0)) {
      kernels::axpby<T>(factor, back.dy().data(), dx.beta, dx.data, back.dy().numel());
    }
  });
}

// What the gradient of a function of each element reads.
enum class Saves { none, x, y };

// forward(x, y, n) of n elements, and backward(saved, dy, dx, beta, n).
template <class T, class Forward, class F>
Var<T> elementwise(const char* op, const Var<T>& x, Saves saves, const Forward& forward, F backward) {
  const OpScope scope = scope_of(op, x);
  Tensor<T> y(x.shape());
  forward(x.value().data(), y.data(), x.numel());
  if (not_recorded(y, x)) return y;
  const Tensor<T> saved = saves == Saves::x ? x.value() : saves == Saves::y ? y : Tensor<T>();
  return record_one(op, std::move(y), x, SavedTensors(saved),
                    [saved, backward](const auto& dx, const Tensor<T>& dy) {
                      backward(saved.data(), dy.data(), dx.data, dx.beta, dy.numel());
                    });
}

template <class T>
Var<T> unary(const char* op, kernels::UnaryOp f, const Var<T>& x, Saves saves) {
  return elementwise(
      op, x, saves, [f](const T* from, T* to, index_t n) { kernels::unary<T>(f, from, to, n); },
      [f](const T* saved, const T* dy, T* dx, T beta, index_t n) {
        kernels::unary_backward<T>(f, saved, saved, dy, dx, beta, n);
      });
}

template <class T>
Var<T> add_vars(const Var<T>& a, const Var<T>& b) {
  const OpScope scope = scope_of("add", a, b);
  Tensor<T> y = binary<kernels::BinaryOp::add>("add", a.value(), b.value());
  if (not_recorded(y, a, b)) return y;
  // da = dy, db = dy, each summed over the dimensions in which it was broadcast (so below, too).
  return record("add", std::move(y), {a, b}, SavedTensors(),
                [sa = a.shape(), sb = b.shape()](Backward<T>& back) {
                  pass_summed(back, 0, sa);
                  pass_summed(back, 1, sb);
                });
}

template <class T>
Var<T> subtract_vars(const Var<T>& a, const Var<T>& b) {
  const OpScope scope = scope_of("subtract", a, b);
  Tensor<T> y = binary<kernels::BinaryOp::subtract>("subtract", a.value(), b.value());
  if (not_recorded(y, a, b)) return y;
  // da = dy, db = -dy.
  return record("subtract", std::move(y), {a, b}, SavedTensors(), [sa = a.shape()](Backward<T>& back) {
    if (const auto db = back.grad(1)) sum_into(db, back.dy(), T(-1));
    pass_summed(back, 0, sa);
  });
}

template <class T>
Var<T> multiply_vars(const Var<T>& a, const Var<T>& b) {
  const OpScope scope = scope_of("multiply", a, b);
  Tensor<T> y = binary<kernels::BinaryOp::multiply>("multiply", a.value(), b.value());
  if (not_recorded(y, a, b)) return y;
  // da = dy * b, db = dy * a; a factor is kept only when the other one needs a gradient.
  return record("multiply", std::move(y), {a, b},
                SavedTensors().add_if(b.recorded(), a).add_if(a.recorded(), b),
                [a = b.recorded() ? a.value() : Tensor<T>(),
                 b = a.recorded() ? b.value() : Tensor<T>()](Backward<T>& back) {
                  if (const auto da = back.grad(0)) product_into(da, back.dy(), b);
                  if (const auto db = back.grad(1)) product_into(db, back.dy(), a);
                });
}

template <class T>
Var<T> divide_vars(const Var<T>& a, const Var<T>& b) {
  const OpScope scope = scope_of("divide", a, b);
  Tensor<T> y = binary<kernels::BinaryOp::divide>("divide", a.value(), b.value());
  if (not_recorded(y, a, b)) return y;
  // da = dy / b, db = -dy * y / b.
  return record("divide", y, {a, b}, SavedTensors(b).add_if(b.recorded(), y),
                [y = b.recorded() ? y : Tensor<T>(), b = b.value()](Backward<T>& back) {
                  const Tensor<T> g = binary<kernels::BinaryOp::divide>("divide", back.dy(), b);
                  if (const auto da = back.grad(0)) sum_into(da, g);
                  if (const auto db = back.grad(1)) {
                    Tensor<T> product(g.shape());
                    kernels::multiply_add<T>(g.data(), y.data(), product.data(), T(0), g.numel());
                    sum_into(db, product, T(-1));
                  }
                });
}

}  // namespace detail

/// a + b with NumPy's broadcasting; one of them may be a number. Throws ShapeError when the shapes do not
/// broadcast.
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> add(const A& a, const B& b) {
  using T = element_t<A, B>;
  if constexpr (detail::Number<A>) {
    return detail::affine<T>("add", b, T(1), static_cast<T>(a));
  } else if constexpr (detail::Number<B>) {
    return detail::affine<T>("add", a, T(1), static_cast<T>(b));
  } else {
    return detail::add_vars<T>(a, b);
  }
}

/// a - b. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> subtract(const A& a, const B& b) {
  using T = element_t<A, B>;
  if constexpr (detail::Number<A>) {
    return detail::affine<T>("subtract", b, T(-1), static_cast<T>(a));
  } else if constexpr (detail::Number<B>) {
    return detail::affine<T>("subtract", a, T(1), -static_cast<T>(b));
  } else {
    return detail::subtract_vars<T>(a, b);
  }
}

/// a * b, element by element: no matrix product. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> multiply(const A& a, const B& b) {
  using T = element_t<A, B>;
  if constexpr (detail::Number<A>) {
    return detail::affine<T>("multiply", b, static_cast<T>(a), T(0));
  } else if constexpr (detail::Number<B>) {
    return detail::affine<T>("multiply", a, static_cast<T>(b), T(0));
  } else {
    return detail::multiply_vars<T>(a, b);
  }
}

/// a / b, element by element. Operands and errors as for add().
template <class A, class B>
requires detail::OperandPair<A, B>
[[nodiscard]] Var<element_t<A, B>> divide(const A& a, const B& b) {
  using T = element_t<A, B>;
  return detail::divide_vars<T>(detail::operand<T>(a), detail::operand<T>(b));
}

/// -x.
template <Operand X>
[[nodiscard]] Var<element_t<X>> negate(const X& x) {
  // dx = -dy.
  return detail::unary<element_t<X>>("negate", detail::kernels::UnaryOp::negate, x, detail::Saves::none);
}

/// e to the power x, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> exp(const X& x) {
  // dx = y dy.
  return detail::unary<element_t<X>>("exp", detail::kernels::UnaryOp::exp, x, detail::Saves::y);
}

/// Natural logarithm, element by element: -inf at 0, NaN below.
template <Operand X>
[[nodiscard]] Var<element_t<X>> log(const X& x) {
  // dx = dy / x.
  return detail::unary<element_t<X>>("log", detail::kernels::UnaryOp::log, x, detail::Saves::x);
}

/// Square root, element by element: NaN below 0.
template <Operand X>
[[nodiscard]] Var<element_t<X>> sqrt(const X& x) {
  // dx = dy / (2 y).
  return detail::unary<element_t<X>>("sqrt", detail::kernels::UnaryOp::sqrt, x, detail::Saves::y);
}

/// x * x, element by element.
template <Operand X>
[[nodiscard]] Var<element_t<X>> square(const X& x) {
  // dx = 2 x dy.
  return detail::unary<element_t<X>>("square", detail::kernels::UnaryOp::square, x, detail::Saves::x);
}

/// add() of the same operands, of which one is a Var or a Tensor: Eigen's operators are those of two Eigen
/// objects and of an Eigen object and a number. The result is a Var.
template <class A, class B>
requires detail::OwnPair<A, B>
[[nodiscard]] auto operator+(const A& a, const B& b) { return add(a, b); }
/// subtract() of the same operands.
template <class A, class B>
requires detail::OwnPair<A, B>
[[nodiscard]] auto operator-(const A& a, const B& b) { return subtract(a, b); }
/// multiply() of the same operands: element by element, no matrix product.
template <class A, class B>
requires detail::OwnPair<A, B>
[[nodiscard]] auto operator*(const A& a, const B& b) { return multiply(a, b); }
/// divide() of the same operands.
template <class A, class B>
requires detail::OwnPair<A, B>
[[nodiscard]] auto operator/(const A& a, const B& b) { return divide(a, b); }
/// negate() of a Var or Tensor.
template <detail::Own X>
[[nodiscard]] auto operator-(const X& x) {
  return negate(x);
}

}  // namespace eigenformer
