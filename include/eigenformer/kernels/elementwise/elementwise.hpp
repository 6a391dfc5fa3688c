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
#include "eigenformer/kernels/elementwise/broadcast-inl.hpp"
#include "eigenformer/kernels/elementwise/elementwise-inl.hpp"
#endif
