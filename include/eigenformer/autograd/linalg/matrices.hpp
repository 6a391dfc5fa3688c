#pragma once

#include <utility>

#include "eigenformer/autograd/tape/tape.hpp"

// Operands of linear algebra as a batch of matrices.

namespace eigenformer::detail {

// The number, the rows and the columns of the matrices of the last two dimensions.
struct Matrices {
  index_t count, rows, cols;

  // Throws ShapeError for a rank below 2, and with `square` unless the matrices are square.
  EIGENFORMER_NOINLINE Matrices(const char* op, const Shape& shape, bool square)
      : count(1), rows(0), cols(0) {
    if (shape.rank() < 2 || (square && shape[-1] != shape[-2])) {
      throw ShapeError(
          op, {"input of shape ", shape, (square ? " must be (..., n, n)" : " must have rank 2 or more")},
          {shape});
    }
    rows = shape[-2];
    cols = shape[-1];
    count = shape.without(-1).without(-1).numel();
  }
};

[[noreturn]] EIGENFORMER_NOINLINE inline void refuse_matrix(const char* op, index_t i, const Shape& shape,
                                                            const char* what) {
  throw ValueError(op, {"matrix ", i, " of the input of shape ", shape, " ", what});
}

// The op of the matrices a whose result is y: backward(i, dy, da) writes the gradient of matrix i, of the
// gradient dy of y.
template <class T, class F>
Var<T> record_matrices(const char* op, const Tensor<T>& y, const Var<T>& a, const Matrices& of,
                       const SavedTensors& saved, F backward) {
  if (not_recorded<T>(y, a)) return Var<T>(y);
  return record(op, y, {a}, saved,
                [shape = a.shape(), of, backward = std::move(backward)](Backward<T>& back) {
                  Tensor<T> da(shape);
                  for (index_t i = 0; i < of.count; ++i) {
                    backward(i, back.dy().data(), da.data() + i * of.rows * of.cols);
                  }
                  back.pass(0, std::move(da));
                });
}

}  // namespace eigenformer::detail
