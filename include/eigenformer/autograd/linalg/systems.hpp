#pragma once

#include <utility>

#include "eigenformer/autograd/linalg/matrices.hpp"
#include "eigenformer/autograd/ops/shape/axes.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/linalg/factor.hpp"

namespace eigenformer {

namespace detail {

// Matrices a and b of equal batches.
template <class T>
Var<T> solve_matrices(const Var<T>& a, const Var<T>& b) {
  const Matrices of("solve", a.shape(), true);
  const index_t n = of.rows, k = b.dim(-1), count = of.count;
  Tensor<T> x(b.shape());
  for (index_t i = 0; i < count; ++i) {
    if (!kernels::solve(a.value().data() + i * n * n, b.value().data() + i * n * k, n, k,
                        x.data() + i * n * k)) {
      refuse_matrix("solve", i, a.shape(), "is singular, expected an invertible one");
    }
  }
  if (not_recorded<T>(x, a, b)) return Var<T>(std::move(x));
  // db = a^-T dx, da = -db x^T.
  return record("solve", x, {a, b}, SavedTensors(a, x), [a = a.value(), x, n, k, count](Backward<T>& back) {
    Tensor<T> da(a.shape()), db(x.shape());
    for (index_t i = 0; i < count; ++i) {
      kernels::solve_backward(a.data() + i * n * n, x.data() + i * n * k, back.dy().data() + i * n * k, n, k,
                              da.data() + i * n * n, db.data() + i * n * k);
    }
    back.pass(0, std::move(da));
    back.pass(1, std::move(db));
  });
}

template <class T>
Var<T> lstsq_matrices(const Var<T>& a, const Var<T>& b) {
  const Matrices of("lstsq", a.shape(), false);
  const index_t m = of.rows, n = of.cols, k = b.dim(-1), count = of.count;
  Tensor<T> x(b.shape().with(-2, n));
  for (index_t i = 0; i < count; ++i) {
    if (!kernels::lstsq(a.value().data() + i * m * n, b.value().data() + i * m * k, m, n, k,
                        x.data() + i * n * k)) {
      refuse_matrix("lstsq", i, a.shape(),
                    "or its right-hand side has NaN or infinity, expected finite numbers");
    }
  }
  if (not_recorded<T>(x, a, b)) return Var<T>(std::move(x));
  // db = p^T dx for the pseudoinverse p, da = -db x^T + (b - a x) (p db)^T + p^T x (dx - a^T db)^T.
  return record("lstsq", x, {a, b}, SavedTensors(a, b, x),
                [a = a.value(), b = b.value(), x, m, n, k, count](Backward<T>& back) {
                  Tensor<T> da(a.shape()), db(b.shape());
                  for (index_t i = 0; i < count; ++i) {
                    kernels::lstsq_backward(a.data() + i * m * n, b.data() + i * m * k, x.data() + i * n * k,
                                            back.dy().data() + i * n * k, m, n, k, da.data() + i * m * n,
                                            db.data() + i * m * k);
                  }
                  back.pass(0, std::move(da));
                  back.pass(1, std::move(db));
                });
}

// PyTorch's rule for right-hand sides: b of rank 1, and of a's shape without its last dimension, is vectors,
// else matrices, and batches broadcast.
template <class T, class F>
Var<T> solved(const char* op, const Var<T>& a, const Var<T>& b, bool square, const F& solve) {
  const OpScope scope = scope_of(op, a, b);
  const Matrices of(op, a.shape(), square);
  const bool vectors = b.rank() == 1 || b.shape() == a.shape().without(-1);
  if (b.rank() == 0 || b.dim(vectors ? -1 : -2) != of.rows) {
    throw ShapeError(op,
                     {"right-hand side of shape ", b.shape(), " must have ", of.rows,
                      " rows, as the matrices of shape ", a.shape()},
                     {a.shape(), b.shape()});
  }
  const Var<T> columns = vectors ? reshape(b, b.shape().inserted(-1, 1)) : b;
  const Shape batch_a = a.shape().without(-1).without(-1), batch_b = columns.shape().without(-1).without(-1);
  const Shape batch = kernels::broadcast_shape(op, batch_a, batch_b);
  const auto widened = [&](const Var<T>& v, const Shape& own) {
    return own == batch ? v : broadcast_to(v, batch.inserted(-1, v.dim(-2)).inserted(-1, v.dim(-1)));
  };
  const Var<T> x = solve(widened(a, batch_a), widened(columns, batch_b));
  return vectors ? reshape(x, x.shape().without(-1)) : x;
}

template <class T>
Var<T> inverted(const Var<T>& a) {
  const OpScope scope = scope_of("inverse", a);
  const Matrices of("inverse", a.shape(), true);
  const index_t n = of.rows;
  Tensor<T> y(a.shape());
  for (index_t i = 0; i < of.count; ++i) {
    if (!kernels::inverse(a.value().data() + i * n * n, n, y.data() + i * n * n)) {
      refuse_matrix("inverse", i, a.shape(), "is singular, expected an invertible one");
    }
  }
  // da = -y^T dy y^T.
  return record_matrices("inverse", y, a, of, SavedTensors(y), [y, n](index_t i, const T* dy, T* da) {
    kernels::inverse_backward(y.data() + i * n * n, dy + i * n * n, n, da);
  });
}

// The determinant, or the logarithm of its magnitude, with the signs in `signs`.
template <class T>
Var<T> determinants(const char* op, const Var<T>& a, Tensor<T>* signs) {
  const OpScope scope = scope_of(op, a);
  const Matrices of(op, a.shape(), true);
  const index_t n = of.rows;
  const bool log = signs != nullptr;
  Tensor<T> y(a.shape().without(-1).without(-1));
  if (log) *signs = Tensor<T>(y.shape());
  for (index_t i = 0; i < of.count; ++i) {
    const auto d = kernels::determinant(a.value().data() + i * n * n, n);
    y.data()[i] = log ? d.log : d.value;
    if (log) signs->data()[i] = d.sign;
  }
  // det: da = dy det(a) a^-T, for a singular a the cofactors; log |det|: da = dy a^-T.
  return record_matrices(op, y, a, of, SavedTensors(a, y),
                         [a = a.value(), y, n, log](index_t i, const T* dy, T* da) {
                           const T* from = a.data() + i * n * n;
                           const T d = y.data()[i];
                           if (!log && d == T(0)) {
                             kernels::cofactors(from, dy[i], n, da);
                           } else {
                             kernels::scaled_inverse_transposed(from, log ? dy[i] : dy[i] * d, n, da);
                           }
                         });
}

}  // namespace detail

/// The x with a x = b, by LU with row pivots, as PyTorch's linalg.solve.
///
/// a: (..., n, n); b: (..., n, k), or (n) and of a's shape without its last dimension a vector for each
/// matrix. Batches broadcast; returns b's broadcast shape. Throws ShapeError for other shapes, ValueError for
/// a singular matrix, with its number in the batch. NaN in a gives NaN.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A>> solve(const A& a, const B& b) {
  using T = element_t<A>;
  return detail::solved<T>("solve", detail::operand<T>(a), detail::operand<T>(b), true,
                           detail::solve_matrices<T>);
}

/// The x of the least norm among those for which |a x - b| is the least, by a complete orthogonal
/// decomposition (the solution of PyTorch's linalg.lstsq with driver gelsy). Singular values below epsilon
/// max(m, n) of the largest count as 0; the gradient holds where the rank does not change.
///
/// a: (..., m, n) of any rank; b: (..., m, k), or vectors as for solve(). Returns (..., n, k). Throws as
/// solve(), and ValueError for NaN and infinity.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A>> lstsq(const A& a, const B& b) {
  using T = element_t<A>;
  return detail::solved<T>("lstsq", detail::operand<T>(a), detail::operand<T>(b), false,
                           detail::lstsq_matrices<T>);
}

/// The inverse of each matrix (..., n, n). Throws ShapeError for another shape, ValueError for a singular
/// one; solve() is faster and more exact than a product with the inverse.
template <Operand X>
[[nodiscard]] Var<element_t<X>> inverse(const X& x) {
  return detail::inverted<element_t<X>>(detail::operand<element_t<X>>(x));
}

/// The determinant of each matrix, (..., n, n) to (...). A singular matrix has a gradient, too. Throws
/// ShapeError for another shape.
template <Operand X>
[[nodiscard]] Var<element_t<X>> det(const X& x) {
  return detail::determinants<element_t<X>>("det", detail::operand<element_t<X>>(x), nullptr);
}

/// What slogdet() returns, each of shape (...).
template <class T>
struct SignLogDet {
  Tensor<T> sign;    ///< of the determinant, 0 for a singular matrix
  Var<T> logabsdet;  ///< logarithm of its magnitude, -infinity for a singular matrix
};
/// Sign and logarithm of the magnitude of the determinant of each matrix (..., n, n), without overflow. The
/// gradient of a singular matrix is not finite. Throws ShapeError for another shape.
template <Operand X>
[[nodiscard]] SignLogDet<element_t<X>> slogdet(const X& x) {
  using T = element_t<X>;
  SignLogDet<T> result;
  result.logabsdet = detail::determinants<T>("slogdet", detail::operand<T>(x), &result.sign);
  return result;
}

}  // namespace eigenformer
