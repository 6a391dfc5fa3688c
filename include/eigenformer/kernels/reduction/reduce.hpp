#pragma once

#include <cstdint>
#include <span>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer::detail::kernels {

/// The shape after a reduction over `axes` (negative counts from the end; none means all): with keep, they
/// stay with size 1, otherwise they go. Throws IndexError for an axis outside the rank, ShapeError for one
/// named twice.
Shape reduced_shape(const Shape& shape, std::span<const index_t> axes, bool keep);

/// y = beta * y + scale * sum of x over `axes` (none means all). x: shape; y: reduced_shape. beta is 0 (y is
/// not read) or 1. Partial sums have a fixed order and size.
template <class T>
void reduce_sum(const T* x, const Shape& shape, std::span<const index_t> axes, T* y, T scale, T beta);

/// y = largest of x over `axes` (none means all); -inf over nothing. NaN where one of them is NaN, as in
/// PyTorch.
template <class T>
void reduce_max(const T* x, const Shape& shape, std::span<const index_t> axes, T* y);

/// y = smallest of x over `axes` (none means all); inf over nothing, NaN where one of them is NaN.
template <class T>
void reduce_min(const T* x, const Shape& shape, std::span<const index_t> axes, T* y);

/// y = product of x over `axes` (none means all); 1 over nothing.
template <class T>
void reduce_prod(const T* x, const Shape& shape, std::span<const index_t> axes, T* y);

/// y = sum of x * x over `axes` (none means all).
template <class T>
void reduce_square_sum(const T* x, const Shape& shape, std::span<const index_t> axes, T* y);

/// Gradient of reduce_max and reduce_min: dx = beta * dx + dy / (number of entries equal to y) where x equals
/// y, 0 elsewhere; NaN equals NaN here.
template <class T>
void reduce_max_backward(const T* x, const Shape& shape, std::span<const index_t> axes, const T* y,
                         const T* dy, T* dx, T beta);

/// out = beta * out + scale * g summed to the shape of an operand that was broadcast: `to` broadcasts to
/// `from`, the shape of g. Throws ShapeError where it does not.
template <class T>
void reduce_to_shape(const T* g, const Shape& from, T* out, const Shape& to, T scale, T beta);

/// out[j] = beta * out[j] + sum over r of x[r][j]: a bias's gradient. x: (rows, n), out: (n).
template <class T>
void sum_rows(const T* x, T* out, T beta, index_t rows, index_t n);

/// out[r] = index of the largest entry of row r, the first of equals, or of the first NaN, as in PyTorch.
/// x: (rows, n), n at least 1.
template <class T>
void argmax(const T* x, std::int32_t* out, index_t rows, index_t n);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/reduction/reduce-inl.hpp"
#endif
