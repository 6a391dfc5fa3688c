#pragma once

#include <algorithm>

#include "eigenformer/autograd/linalg/matrices.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/linalg/factor.hpp"

namespace eigenformer {

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
Var<T> cholesky_factor(const Var<T>& a) {
  const OpScope scope = scope_of("cholesky", a);
  const Matrices of("cholesky", a.shape(), true);
  const index_t n = of.rows;
  Tensor<T> l(a.shape());
  for (index_t i = 0; i < of.count; ++i) {
    if (!kernels::cholesky(a.value().data() + i * n * n, n, l.data() + i * n * n)) {
      refuse_matrix("cholesky", i, a.shape(), "is not positive definite, expected one that is");
    }
  }
  // da = the symmetric part of l^-T phi(l^T dl) l^-1, phi(x) the lower triangle with half of the diagonal.
  return record_matrices("cholesky", l, a, of, SavedTensors(l), [l, n](index_t i, const T* dy, T* da) {
    kernels::cholesky_backward(l.data() + i * n * n, dy + i * n * n, n, da);
  });
}

template <class T>
QR<T> qr_factors(const Var<T>& a) {
  const OpScope scope = scope_of("qr", a);
  const Matrices of("qr", a.shape(), false);
  const index_t m = of.rows, n = of.cols, k = std::min(m, n);
  const index_t of_q = m * k, all = of_q + k * n;
  Tensor<T> y(Shape{of.count, all});
  for (index_t i = 0; i < of.count; ++i) {
    T* q = y.data() + i * all;
    kernels::qr(a.value().data() + i * m * n, m, n, q, q + of_q);
  }
  // da = (dq + q copyltu(r dr^T - dq^T q)) r^-T; the kernel says more.
  const Var<T> rows =
      record_matrices("qr", y, a, of, SavedTensors(y), [y, m, n, of_q, all](index_t i, const T* dy, T* da) {
        const T *q = y.data() + i * all, *dq = dy + i * all;
        kernels::qr_backward(q, q + of_q, dq, dq + of_q, m, n, da);
      });
  return {factor_of(rows, 0, of_q, a.shape().with(-1, k)),
          factor_of(rows, of_q, k * n, a.shape().with(-2, k))};
}

template <class T>
SVD<T> svd_factors(const Var<T>& a) {
  const OpScope scope = scope_of("svd", a);
  const Matrices of("svd", a.shape(), false);
  const index_t m = of.rows, n = of.cols, k = std::min(m, n);
  const index_t of_u = m * k, all = of_u + k + k * n;
  Tensor<T> y(Shape{of.count, all});
  for (index_t i = 0; i < of.count; ++i) {
    T* u = y.data() + i * all;
    if (!kernels::svd(a.value().data() + i * m * n, m, n, u, u + of_u, u + of_u + k)) {
      refuse_matrix("svd", i, a.shape(), "has NaN or infinity, expected finite numbers");
    }
  }
  // da = u (skew(u^T du) / e diag(s) + diag(s) skew(v^T dv) / e + diag(ds)) v^T + ...; the kernel says more.
  const Var<T> rows = record_matrices(
      "svd", y, a, of, SavedTensors(y), [y, m, n, k, of_u, all](index_t i, const T* dy, T* da) {
        const T *u = y.data() + i * all, *du = dy + i * all;
        kernels::svd_backward(u, u + of_u, u + of_u + k, du, du + of_u, du + of_u + k, m, n, da);
      });
  const Shape u = a.shape().with(-1, k);
  return {factor_of(rows, 0, of_u, u), factor_of(rows, of_u, k, u.without(-2)),
          factor_of(rows, of_u + k, k * n, a.shape().with(-2, k))};
}

template <class T>
Eigh<T> eigh_factors(const Var<T>& a) {
  const OpScope scope = scope_of("eigh", a);
  const Matrices of("eigh", a.shape(), true);
  const index_t n = of.rows, all = n + n * n;
  Tensor<T> y(Shape{of.count, all});
  for (index_t i = 0; i < of.count; ++i) {
    T* w = y.data() + i * all;
    if (!kernels::eigh(a.value().data() + i * n * n, n, w, w + n)) {
      refuse_matrix("eigh", i, a.shape(), "has NaN or infinity, expected finite numbers");
    }
  }
  // da = v (diag(dw) + skew(v^T dv) / 2 / e) v^T, e[i, j] = w[j] - w[i].
  const Var<T> rows =
      record_matrices("eigh", y, a, of, SavedTensors(y), [y, n, all](index_t i, const T* dy, T* da) {
        const T *w = y.data() + i * all, *dw = dy + i * all;
        kernels::eigh_backward(w, w + n, dw, dw + n, n, da);
      });
  return {factor_of(rows, 0, n, a.shape().without(-1)), factor_of(rows, n, n * n, a.shape())};
}

}  // namespace detail

/// The lower triangular L with L L^T = x for each positive definite matrix (..., n, n), of which the lower
/// triangle is read. The gradient is symmetric, as PyTorch's. Throws ShapeError for another shape, ValueError
/// for a matrix that is not positive definite, or has NaN there, with its number in the batch. Gradient:
/// Murray (2016), arXiv:1602.07527.
template <Operand X>
[[nodiscard]] Var<element_t<X>> cholesky(const X& x) {
  return detail::cholesky_factor<element_t<X>>(detail::operand<element_t<X>>(x));
}

/// x = q r for each matrix (..., m, n), reduced; by Householder reflections, so the diagonal of r has either
/// sign. The gradient is finite where the first min(m, n) columns are independent. Throws ShapeError for a
/// rank below 2. Gradient: Liao et al. (2019), arXiv:1903.09650.
template <Operand X>
[[nodiscard]] QR<element_t<X>> qr(const X& x) {
  return detail::qr_factors<element_t<X>>(detail::operand<element_t<X>>(x));
}

/// x = u diag(s) vh for each matrix (..., m, n), reduced. Pairs of singular vectors have either sign.
/// Gradients through u and vh are finite where the singular values differ and are not 0, those of s always.
/// Throws ShapeError for a rank below 2, ValueError for NaN and infinity. Gradient: Townsend (2016),
/// "Differentiating the singular value decomposition".
template <Operand X>
[[nodiscard]] SVD<element_t<X>> svd(const X& x) {
  return detail::svd_factors<element_t<X>>(detail::operand<element_t<X>>(x));
}

/// Eigenvalues and eigenvectors of each symmetric matrix (..., n, n), of which the lower triangle is read.
/// Eigenvectors have either sign; gradients through them are finite where the eigenvalues differ, and
/// symmetric as PyTorch's. Throws ShapeError for another shape, ValueError for NaN and infinity. Gradient:
/// Giles (2008), "Collected matrix derivative results for forward and reverse mode algorithmic
/// differentiation".
template <Operand X>
[[nodiscard]] Eigh<element_t<X>> eigh(const X& x) {
  return detail::eigh_factors<element_t<X>>(detail::operand<element_t<X>>(x));
}

}  // namespace eigenformer
