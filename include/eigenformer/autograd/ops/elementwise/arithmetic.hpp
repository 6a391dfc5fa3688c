#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

namespace detail {

template <class S>
concept Number = std::is_arithmetic_v<S> && !std::is_same_v<S, bool>;

template <class T>
const Tensor<T>& tensor_of(const Tensor<T>& x) {
  return x;
}
template <class T>
const Tensor<T>& tensor_of(const Var<T>& x) {
  return x.value();
}

template <class X>
concept TensorOrVar = requires(const X& x) {
  tensor_of(x);
};

// An operand of arithmetic: a Var or a number.
template <class T>
const Var<T>& operand(const Var<T>& x) {
  return x;
}
template <std::floating_point T>
Var<T> operand(const Tensor<T>& x) {
  return x;
}
template <Number S>
S operand(S c) {
  return c;
}

template <class A, class B>
struct SameElement : std::false_type {};
template <TensorOrVar A, TensorOrVar B>
struct SameElement<A, B> : std::is_same<typename A::value_type, typename B::value_type> {};

template <class A, class B>
concept Operands = (SameElement<A, B>::value || (TensorOrVar<A> && Number<B>) ||
                    (Number<A> && TensorOrVar<B>)) &&
                   requires(const A& a, const B& b) {
  operand(a), operand(b);
};

template <class T>
Tensor<T> binary(const char* op, kernels::BinaryOp f, const Tensor<T>& a, const Tensor<T>& b) {
  Tensor<T> y(kernels::broadcast_shape(op, a.shape(), b.shape()));
  kernels::binary<T>(f, a.data(), a.shape(), b.data(), b.shape(), y.data());
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
    sum_into(slot, binary("multiply", kernels::BinaryOp::multiply, dy, factor));
  }
}

// y = factor * x + shift, element by element: dx = factor * dy.
template <class T>
Var<T> affine(const char* op, const Var<T>& x, T factor, T shift) {
  const OpScope scope(Runtime::instance().profiler(), op);
  Tensor<T> y(x.shape());
  const T* from = x.value().data();
  if (factor != T(1)) {
    kernels::axpby<T>(factor, from, T(0), y.data(), x.numel());
    from = y.data();
  }
  if (factor == T(1) || shift != T(0)) kernels::add_scalar<T>(from, shift, y.data(), x.numel());
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  return record(op, std::move(y), {x}, SavedTensors(), [factor](Backward<T>& back) {
    if (factor == T(1)) {
      back.pass(0, back.dy());
    } else if (const auto dx = back.grad(0)) {
      kernels::axpby<T>(factor, back.dy().data(), dx.beta, dx.data, back.dy().numel());
    }
  });
}

// y = f(x), element by element; the backward reads x, y or neither, by the derivative of f.
template <class T>
Var<T> unary(const char* op, kernels::UnaryOp f, const Var<T>& x, bool reads_x, bool reads_y) {
  const OpScope scope(Runtime::instance().profiler(), op);
  Tensor<T> y(x.shape());
  kernels::unary<T>(f, x.value().data(), y.data(), x.numel());
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  return record(op, y, {x}, SavedTensors().add_if(reads_x, x).add_if(reads_y, y),
                [f, x = reads_x ? x.value() : Tensor<T>(), y = reads_y ? y : Tensor<T>()](Backward<T>& back) {
                  if (const auto dx = back.grad(0)) {
                    kernels::unary_backward<T>(f, x.data(), y.data(), back.dy().data(), dx.data, dx.beta,
                                               back.dy().numel());
                  }
                });
}

}  // namespace detail

/// a + b with NumPy's broadcasting. Throws ShapeError when the shapes do not broadcast.
template <class T>
[[nodiscard]] Var<T> add(const Var<T>& a, const std::type_identity_t<Var<T>>& b) {
  const OpScope scope(Runtime::instance().profiler(), "add");
  Tensor<T> y = detail::binary("add", kernels::BinaryOp::add, a.value(), b.value());
  if (detail::not_recorded<T>(y, a, b)) return Var<T>(std::move(y));
  // da = dy, db = dy, each summed over the dimensions in which it was broadcast (so below, too).
  return record("add", std::move(y), {a, b}, SavedTensors(),
                [sa = a.shape(), sb = b.shape()](Backward<T>& back) {
                  detail::pass_summed(back, 0, sa);
                  detail::pass_summed(back, 1, sb);
                });
}

/// a - b with broadcasting. Throws as add().
template <class T>
[[nodiscard]] Var<T> subtract(const Var<T>& a, const std::type_identity_t<Var<T>>& b) {
  const OpScope scope(Runtime::instance().profiler(), "subtract");
  Tensor<T> y = detail::binary("subtract", kernels::BinaryOp::subtract, a.value(), b.value());
  if (detail::not_recorded<T>(y, a, b)) return Var<T>(std::move(y));
  // da = dy, db = -dy.
  return record("subtract", std::move(y), {a, b}, SavedTensors(), [sa = a.shape()](Backward<T>& back) {
    if (const auto db = back.grad(1)) detail::sum_into(db, back.dy(), T(-1));
    detail::pass_summed(back, 0, sa);
  });
}

/// a * b, element by element, with broadcasting. Throws as add().
template <class T>
[[nodiscard]] Var<T> multiply(const Var<T>& a, const std::type_identity_t<Var<T>>& b) {
  const OpScope scope(Runtime::instance().profiler(), "multiply");
  Tensor<T> y = detail::binary("multiply", kernels::BinaryOp::multiply, a.value(), b.value());
  if (detail::not_recorded<T>(y, a, b)) return Var<T>(std::move(y));
  // da = dy * b, db = dy * a; a factor is kept only when the other one needs a gradient.
  return record("multiply", std::move(y), {a, b},
                SavedTensors().add_if(b.recorded(), a).add_if(a.recorded(), b),
                [a = b.recorded() ? a.value() : Tensor<T>(),
                 b = a.recorded() ? b.value() : Tensor<T>()](Backward<T>& back) {
                  if (const auto da = back.grad(0)) detail::product_into(da, back.dy(), b);
                  if (const auto db = back.grad(1)) detail::product_into(db, back.dy(), a);
                });
}

/// a / b, element by element, with broadcasting. Throws as add().
template <class T>
[[nodiscard]] Var<T> divide(const Var<T>& a, const std::type_identity_t<Var<T>>& b) {
  const OpScope scope(Runtime::instance().profiler(), "divide");
  Tensor<T> y = detail::binary("divide", kernels::BinaryOp::divide, a.value(), b.value());
  if (detail::not_recorded<T>(y, a, b)) return Var<T>(std::move(y));
  // da = dy / b, db = -dy * y / b.
  return record("divide", y, {a, b}, SavedTensors(b).add_if(b.recorded(), y),
                [y = b.recorded() ? y : Tensor<T>(), b = b.value()](Backward<T>& back) {
                  const Tensor<T> g = detail::binary("divide", kernels::BinaryOp::divide, back.dy(), b);
                  if (const auto da = back.grad(0)) detail::sum_into(da, g);
                  if (const auto db = back.grad(1)) {
                    Tensor<T> product(g.shape());
                    kernels::multiply_add<T>(g.data(), y.data(), product.data(), T(0), g.numel());
                    detail::sum_into(db, product, T(-1));
                  }
                });
}

/// x + c.
template <class T, detail::Number S>
[[nodiscard]] Var<T> add(const Var<T>& x, S c) {
  return detail::affine("add", x, T(1), static_cast<T>(c));
}

/// x - c.
template <class T, detail::Number S>
[[nodiscard]] Var<T> subtract(const Var<T>& x, S c) {
  return detail::affine("subtract", x, T(1), -static_cast<T>(c));
}

/// x * c.
template <class T, detail::Number S>
[[nodiscard]] Var<T> multiply(const Var<T>& x, S c) {
  return detail::affine("multiply", x, static_cast<T>(c), T(0));
}

/// x / c.
template <class T, detail::Number S>
[[nodiscard]] Var<T> divide(const Var<T>& x, S c) {
  return divide(x, Var<T>(Tensor<T>::scalar(static_cast<T>(c))));
}

/// c + x.
template <class T, detail::Number S>
[[nodiscard]] Var<T> add(S c, const Var<T>& x) {
  return add(x, c);
}

/// c - x.
template <class T, detail::Number S>
[[nodiscard]] Var<T> subtract(S c, const Var<T>& x) {
  return detail::affine("subtract", x, T(-1), static_cast<T>(c));
}

/// c * x.
template <class T, detail::Number S>
[[nodiscard]] Var<T> multiply(S c, const Var<T>& x) {
  return multiply(x, c);
}

/// c / x.
template <class T, detail::Number S>
[[nodiscard]] Var<T> divide(S c, const Var<T>& x) {
  return divide(Var<T>(Tensor<T>::scalar(static_cast<T>(c))), x);
}

/// -x.
template <class T>
[[nodiscard]] Var<T> negate(const Var<T>& x) {
  // dx = -dy.
  return detail::unary("negate", kernels::UnaryOp::negate, x, false, false);
}

/// e to the power x, element by element.
template <class T>
[[nodiscard]] Var<T> exp(const Var<T>& x) {
  // dx = y dy.
  return detail::unary("exp", kernels::UnaryOp::exp, x, false, true);
}

/// Natural logarithm, element by element: -inf at 0, NaN below.
template <class T>
[[nodiscard]] Var<T> log(const Var<T>& x) {
  // dx = dy / x.
  return detail::unary("log", kernels::UnaryOp::log, x, true, false);
}

/// Square root, element by element: NaN below 0.
template <class T>
[[nodiscard]] Var<T> sqrt(const Var<T>& x) {
  // dx = dy / (2 y).
  return detail::unary("sqrt", kernels::UnaryOp::sqrt, x, false, true);
}

/// x * x, element by element.
template <class T>
[[nodiscard]] Var<T> square(const Var<T>& x) {
  // dx = 2 x dy.
  return detail::unary("square", kernels::UnaryOp::square, x, true, false);
}

/// add() of Vars, Tensors (float or double) and numbers, of which one at most is a number. The result is a
/// Var.
template <class A, class B>
requires detail::Operands<A, B>
[[nodiscard]] auto operator+(const A& a, const B& b) { return add(detail::operand(a), detail::operand(b)); }
/// subtract() of the same operands.
template <class A, class B>
requires detail::Operands<A, B>
[[nodiscard]] auto operator-(const A& a, const B& b) {
  return subtract(detail::operand(a), detail::operand(b));
}
/// multiply() of the same operands: element by element, no matrix product.
template <class A, class B>
requires detail::Operands<A, B>
[[nodiscard]] auto operator*(const A& a, const B& b) {
  return multiply(detail::operand(a), detail::operand(b));
}
/// divide() of the same operands.
template <class A, class B>
requires detail::Operands<A, B>
[[nodiscard]] auto operator/(const A& a, const B& b) {
  return divide(detail::operand(a), detail::operand(b));
}
/// negate().
template <class T>
[[nodiscard]] Var<T> operator-(const Var<T>& x) {
  return negate(x);
}

}  // namespace eigenformer
