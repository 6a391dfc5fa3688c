#pragma once

#include <algorithm>
#include <utility>

#include "eigenformer/autograd/ops/shape/axes.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/linalg/factor.hpp"

// Linear algebra: the operands are batches of matrices, in the last two dimensions.

namespace eigenformer {

namespace detail {

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
  if (not_recorded(y, a)) return y;
  return record(op, y, {a}, saved,
                [shape = a.shape(), of, backward = std::move(backward)](Backward<T>& back) {
                  Tensor<T> da(shape);
                  for (index_t i = 0; i < of.count; ++i) {
                    backward(i, back.dy().data(), da.data() + i * of.rows * of.cols);
                  }
                  back.pass(0, std::move(da));
                });
}

// Matrices a and b of equal batches.
template <class T>
Var<T> solve_matrices(const Var<T>& a, const Var<T>& b) {
  const Matrices of("solve", a.shape(), true);
  const index_t n = of.rows, k = b.dim(-1), count = of.count;
  Tensor<T> x(b.shape());
  for (index_t i = 0; i < count; ++i) {
    if (!kernels::linalg::solve(a.value().data() + i * n * n, b.value().data() + i * n * k, n, k,
                                x.data() + i * n * k)) {
      refuse_matrix("solve", i, a.shape(), "is singular, expected an invertible one");
    }
  }
  if (not_recorded(x, a, b)) return x;
  // db = a^-T dx, da = -db x^T.
  return record("solve", x, {a, b}, SavedTensors(a, x), [a = a.value(), x, n, k, count](Backward<T>& back) {
    Tensor<T> da(a.shape()), db(x.shape());
    for (index_t i = 0; i < count; ++i) {
      kernels::linalg::solve_backward(a.data() + i * n * n, x.data() + i * n * k,
                                      back.dy().data() + i * n * k, n, k, da.data() + i * n * n,
                                      db.data() + i * n * k);
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
    if (!kernels::linalg::lstsq(a.value().data() + i * m * n, b.value().data() + i * m * k, m, n, k,
                                x.data() + i * n * k)) {
      refuse_matrix("lstsq", i, a.shape(),
                    "or its right-hand side has NaN or infinity, expected finite numbers");
    }
  }
  if (not_recorded(x, a, b)) return x;
  // db = p^T dx for the pseudoinverse p, da = -db x^T + (b - a x) (p db)^T + p^T x (dx - a^T db)^T.
  return record("lstsq", x, {a, b}, SavedTensors(a, b, x),
                [a = a.value(), b = b.value(), x, m, n, k, count](Backward<T>& back) {
                  Tensor<T> da(a.shape()), db(b.shape());
                  for (index_t i = 0; i < count; ++i) {
                    kernels::linalg::lstsq_backward(a.data() + i * m * n, b.data() + i * m * k,
                                                    x.data() + i * n * k, back.dy().data() + i * n * k, m, n,
                                                    k, da.data() + i * m * n, db.data() + i * m * k);
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

// The op of the matrices a whose result y has `size` numbers for each: forward(a, y) returns false for a
// matrix that is refused, backward(y, dy, da) writes its gradient.
template <class T, class Forward, class F>
Var<T> of_matrices(const char* op, const Var<T>& a, const Matrices& of, Tensor<T> y, index_t size,
                   const Forward& forward, F backward,
                   const char* refused = "has NaN or infinity, expected finite numbers") {
  for (index_t i = 0; i < of.count; ++i) {
    if (!forward(a.value().data() + i * of.rows * of.cols, y.data() + i * size))
      refuse_matrix(op, i, a.shape(), refused);
  }
  return record_matrices(op, y, a, of, SavedTensors(y), [=](index_t i, const T* dy, T* da) {
    backward(y.data() + i * size, dy + i * size, da);
  });
}

// The same of square matrices whose result has their shape.
template <class T>
Var<T> of_square_matrices(const char* op, const Var<T>& a, bool (*forward)(const T*, index_t, T*),
                          void (*backward)(const T*, const T*, index_t, T*), const char* refused) {
  const OpScope scope = scope_of(op, a);
  const Matrices of(op, a.shape(), true);
  const index_t n = of.rows;
  return of_matrices(
      op, a, of, Tensor<T>(a.shape()), n * n, [=](const T* x, T* y) { return forward(x, n, y); },
      [=](const T* y, const T* dy, T* da) { backward(y, dy, n, da); }, refused);
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
    const auto d = kernels::linalg::determinant(a.value().data() + i * n * n, n);
    y.data()[i] = log ? d.log : d.value;
    if (log) signs->data()[i] = d.sign;
  }
  // det: da = dy det(a) a^-T, for a singular a the cofactors; log |det|: da = dy a^-T.
  return record_matrices(op, y, a, of, SavedTensors(a, y),
                         [a = a.value(), y, n, log](index_t i, const T* dy, T* da) {
                           const T* from = a.data() + i * n * n;
                           const T d = y.data()[i];
                           if (!log && d == T(0)) {
                             kernels::linalg::cofactors(from, dy[i], n, da);
                           } else {
                             kernels::linalg::scaled_inverse_transposed(from, log ? dy[i] : dy[i] * d, n, da);
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
  return detail::solved<T>("solve", a, b, true, detail::solve_matrices<T>);
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
  return detail::solved<T>("lstsq", a, b, false, detail::lstsq_matrices<T>);
}

/// The inverse of each matrix (..., n, n). Throws ShapeError for another shape, ValueError for a singular
/// one; solve() is faster and more exact than a product with the inverse.
template <Operand X>
[[nodiscard]] Var<element_t<X>> inverse(const X& x) {
  using T = element_t<X>;
  // da = -y^T dy y^T.
  return detail::of_square_matrices<T>("inverse", x, detail::kernels::linalg::inverse<T>,
                                       detail::kernels::linalg::inverse_backward<T>,
                                       "is singular, expected an invertible one");
}

/// The determinant of each matrix, (..., n, n) to (...). A singular matrix has a gradient, too. Throws
/// ShapeError for another shape.
template <Operand X>
[[nodiscard]] Var<element_t<X>> det(const X& x) {
  return detail::determinants<element_t<X>>("det", x, nullptr);
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
  result.logabsdet = detail::determinants<T>("slogdet", x, &result.sign);
  return result;
}

/// What qr() returns, for matrices (m, n) and r = min(m, n).
template <class T>
struct QR {
  Var<T> q;  ///< orthonormal columns, (..., m, r)
  Var<T> r;  ///< upper triangular, (..., r, n)
};
/// What svd() returns, for matrices (m, n) and r = min(m, n).
template <class T>
struct SVD {
  Var<T> u;   ///< orthonormal columns, (..., m, r)
  Var<T> s;   ///< singular values, the largest first, (..., r)
  Var<T> vh;  ///< orthonormal rows, (..., r, n)
};
/// What eigh() returns.
template <class T>
struct Eigh {
  Var<T> eigenvalues;   ///< the smallest first, (..., n)
  Var<T> eigenvectors;  ///< orthonormal columns, (..., n, n)
};

namespace detail {

// An op has one result: the factors of a matrix are one row of (count, numbers of all factors).
template <class T>
Var<T> factor_of(const Var<T>& rows, index_t first, index_t size, const Shape& shape) {
  return reshape(slice(rows, 1, first, first + size), shape);
}

template <class T>
QR<T> qr_factors(const Var<T>& a) {
  const OpScope scope = scope_of("qr", a);
  const Matrices of("qr", a.shape(), false);
  const index_t m = of.rows, n = of.cols, k = std::min(m, n);
  const index_t of_q = m * k, all = of_q + k * n;
  const auto forward = [=](const T* x, T* q) {
    kernels::linalg::qr(x, m, n, q, q + of_q);
    return true;
  };
  // da = (dq + q copyltu(r dr^T - dq^T q)) r^-T; the kernel says more.
  const auto backward = [=](const T* q, const T* dq, T* da) {
    kernels::linalg::qr_backward(q, q + of_q, dq, dq + of_q, m, n, da);
  };
  const Var<T> rows = of_matrices("qr", a, of, Tensor<T>(Shape{of.count, all}), all, forward, backward);
  return {factor_of(rows, 0, of_q, a.shape().with(-1, k)),
          factor_of(rows, of_q, k * n, a.shape().with(-2, k))};
}

template <class T>
SVD<T> svd_factors(const Var<T>& a) {
  const OpScope scope = scope_of("svd", a);
  const Matrices of("svd", a.shape(), false);
  const index_t m = of.rows, n = of.cols, k = std::min(m, n);
  const index_t of_u = m * k, of_us = of_u + k, all = of_us + k * n;
  const auto forward = [=](const T* x, T* u) {
    return kernels::linalg::svd(x, m, n, u, u + of_u, u + of_us);
  };
  // da = u (skew(u^T du) / e diag(s) + diag(s) skew(v^T dv) / e + diag(ds)) v^T + ...; the kernel says more.
  const auto backward = [=](const T* u, const T* du, T* da) {
    kernels::linalg::svd_backward(u, u + of_u, u + of_us, du, du + of_u, du + of_us, m, n, da);
  };
  const Var<T> rows = of_matrices("svd", a, of, Tensor<T>(Shape{of.count, all}), all, forward, backward);
  const Shape u = a.shape().with(-1, k);
  return {factor_of(rows, 0, of_u, u), factor_of(rows, of_u, k, u.without(-2)),
          factor_of(rows, of_us, k * n, a.shape().with(-2, k))};
}

template <class T>
Eigh<T> eigh_factors(const Var<T>& a) {
  const OpScope scope = scope_of("eigh", a);
  const Matrices of("eigh", a.shape(), true);
  const index_t n = of.rows, all = n + n * n;
  const auto forward = [=](const T* x, T* w) { return kernels::linalg::eigh(x, n, w, w + n); };
  // da = v (diag(dw) + skew(v^T dv) / 2 / e) v^T, e[i, j] = w[j] - w[i].
  const auto backward = [=](const T* w, const T* dw, T* da) {
    kernels::linalg::eigh_backward(w, w + n, dw, dw + n, n, da);
  };
  const Var<T> rows = of_matrices("eigh", a, of, Tensor<T>(Shape{of.count, all}), all, forward, backward);
  return {factor_of(rows, 0, n, a.shape().without(-1)), factor_of(rows, n, n * n, a.shape())};
}

}  // namespace detail

/// The lower triangular L with L L^T = x for each positive definite matrix (..., n, n), of which the lower
/// triangle is read. The gradient is symmetric, as PyTorch's. Throws ShapeError for another shape, ValueError
/// for a matrix that is not positive definite, or has NaN there, with its number in the batch. Gradient:
/// Murray (2016), arXiv:1602.07527.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cholesky(const X& x) {
  using T = element_t<X>;
  // da = the symmetric part of l^-T phi(l^T dl) l^-1, phi(x) the lower triangle with half of the diagonal.
  return detail::of_square_matrices<T>("cholesky", x, detail::kernels::linalg::cholesky<T>,
                                       detail::kernels::linalg::cholesky_backward<T>,
                                       "is not positive definite, expected one that is");
}

/// x = q r for each matrix (..., m, n), reduced; by Householder reflections, so the diagonal of r has either
/// sign. The gradient is finite where the first min(m, n) columns are independent. Throws ShapeError for a
/// rank below 2. Gradient: Liao et al. (2019), arXiv:1903.09650.
template <Operand X>
[[nodiscard]] QR<element_t<X>> qr(const X& x) {
  return detail::qr_factors<element_t<X>>(x);
}

/// x = u diag(s) vh for each matrix (..., m, n), reduced. Pairs of singular vectors have either sign.
/// Gradients through u and vh are finite where the singular values differ and are not 0, those of s always.
/// Throws ShapeError for a rank below 2, ValueError for NaN and infinity. Gradient: Townsend (2016),
/// "Differentiating the singular value decomposition".
template <Operand X>
[[nodiscard]] SVD<element_t<X>> svd(const X& x) {
  return detail::svd_factors<element_t<X>>(x);
}

/// Eigenvalues and eigenvectors of each symmetric matrix (..., n, n), of which the lower triangle is read.
/// Eigenvectors have either sign; gradients through them are finite where the eigenvalues differ, and
/// symmetric as PyTorch's. Throws ShapeError for another shape, ValueError for NaN and infinity. Gradient:
/// Giles (2008), "Collected matrix derivative results for forward and reverse mode algorithmic
/// differentiation".
template <Operand X>
[[nodiscard]] Eigh<element_t<X>> eigh(const X& x) {
  return detail::eigh_factors<element_t<X>>(x);
}

}  // namespace eigenformer
