#pragma once

#include <span>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer::detail::kernels {

/// The shape with dimension i taken from dimension order[i] (negative counts from the end). Throws ShapeError
/// unless order names every dimension once.
Shape permuted_shape(const Shape& shape, std::span<const index_t> order);

/// y = x with its dimensions in another order: y's dimension i is x's dimension order[i]. x: shape; y:
/// permuted_shape(shape, order), apart from x. T: float, double, int32_t or bool. beta 1 adds to y (float and
/// double alone), 0 overwrites.
template <class T>
void permute(const T* x, const Shape& shape, std::span<const index_t> order, T* y, T beta);

/// y = x transposed. x: (batch, rows, cols); y: (batch, cols, rows), apart from x; beta as in permute.
template <class T>
void transpose(const T* x, T* y, index_t batch, index_t rows, index_t cols, T beta);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/reduction/permute-inl.hpp"
#endif
