#pragma once

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "eigenformer/core/base/config.hpp"

// Eigen's decompositions of one row-major matrix, and the gradients of their results. Functions that return
// bool leave their results undefined where they return false.

namespace eigenformer::detail::kernels::linalg {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
Eigen::Map<const Rows<T>> matrix(const T* x, index_t rows, index_t cols) {
  return {x, rows, cols};
}
template <class T>
Eigen::Map<Rows<T>> matrix(T* x, index_t rows, index_t cols) {
  return {x, rows, cols};
}
// The same where all numbers are read, so that the product of kernels sees a plain matrix.
template <class T>
Matrix<T> copy(const T* x, index_t rows, index_t cols) {
  return matrix(x, rows, cols);
}

// x / divisor, 0 where x is 0: what does not depend on vectors has no gradient there, also between equal
// values.
template <class T>
T quotient(T x, T divisor) {
  return x == T(0) ? T(0) : x / divisor;
}

template <class T>
Matrix<T> symmetric(const Matrix<T>& x) {
  return (x + x.transpose()) / T(2);
}

// A decomposition that finds the rank as LAPACK's gelsy, by PyTorch's limit.
template <class T>
Eigen::CompleteOrthogonalDecomposition<Matrix<T>> orthogonal(const T* a, index_t m, index_t n) {
  Eigen::CompleteOrthogonalDecomposition<Matrix<T>> decomposition;
  decomposition.setThreshold(std::numeric_limits<T>::epsilon() * static_cast<T>(std::max(m, n)));
  decomposition.compute(matrix(a, m, n));
  return decomposition;
}

/// x = a^-1 b for a (n, n) and b (n, k). Returns false for a singular a.
template <class T>
bool solve(const T* a, const T* b, index_t n, index_t k, T* x) {
  if (n == 0) return true;
  const Eigen::PartialPivLU<Matrix<T>> lu(matrix(a, n, n));
  if ((lu.matrixLU().diagonal().array() == T(0)).any()) return false;
  matrix(x, n, k) = lu.solve(copy(b, n, k));
  return true;
}
/// db = a^-T dx and da = -db x^T, Giles (2008), 2.3.1.
template <class T>
void solve_backward(const T* a, const T* x, const T* dx, index_t n, index_t k, T* da, T* db) {
  if (n == 0) return;
  const Matrix<T> transposed = matrix(a, n, n).transpose();
  const Matrix<T> g = Eigen::PartialPivLU<Matrix<T>>(transposed).solve(copy(dx, n, k));
  matrix(da, n, n).noalias() = -g * matrix(x, n, k).transpose();
  matrix(db, n, k) = g;
}

/// y = a^-1. Returns false for a singular a.
template <class T>
bool inverse(const T* a, index_t n, T* y) {
  if (n == 0) return true;
  const Eigen::PartialPivLU<Matrix<T>> lu(matrix(a, n, n));
  if ((lu.matrixLU().diagonal().array() == T(0)).any()) return false;
  matrix(y, n, n) = lu.inverse();
  return true;
}
/// da = -y^T dy y^T, Giles (2008), 2.2.3.
template <class T>
void inverse_backward(const T* y, const T* dy, index_t n, T* da) {
  const Matrix<T> transposed = matrix(y, n, n).transpose();
  const Matrix<T> left = transposed * matrix(dy, n, n);
  matrix(da, n, n).noalias() = -left * transposed;
}

/// The determinant's value, sign and logarithm of the magnitude; 1 of an empty matrix.
template <class T>
struct Determinant {
  T value = 1;  ///< sign * exp(log), but for overflow
  T sign = 1;   ///< -1, 0 or 1, or NaN
  T log = 0;    ///< -infinity for a singular matrix
};
/// The determinant of a (n, n).
template <class T>
Determinant<T> determinant(const T* a, index_t n) {
  Determinant<T> d;
  if (n == 0) return d;
  const Eigen::PartialPivLU<Matrix<T>> lu(matrix(a, n, n));
  d.sign = d.value = static_cast<T>(lu.permutationP().determinant());
  for (index_t i = 0; i < n; ++i) {
    const T pivot = lu.matrixLU()(i, i);
    d.value *= pivot;
    d.sign *= std::isnan(pivot) ? pivot : static_cast<T>((pivot > T(0)) - (pivot < T(0)));
    d.log += std::log(std::abs(pivot));
  }
  return d;
}
/// da = factor a^-T, the gradient of log |det a| for factor 1, Giles (2008), 2.2.4; infinite or NaN for a
/// singular a.
template <class T>
void scaled_inverse_transposed(const T* a, T factor, index_t n, T* da) {
  if (n == 0) return;
  const Matrix<T> transposed = matrix(a, n, n).transpose();
  matrix(da, n, n) = factor * Eigen::PartialPivLU<Matrix<T>>(transposed).inverse();
}
/// da = factor det(a) a^-T for a singular a: its cofactors, U diag(products of the other singular values) V^T
/// with the sign of det(U) det(V).
template <class T>
void cofactors(const T* a, T factor, index_t n, T* da) {
  if (n == 0) return;
  const Matrix<T> x = matrix(a, n, n);
  const Eigen::BDCSVD<Matrix<T>> svd(x, Eigen::ComputeFullU | Eigen::ComputeFullV);
  Eigen::VectorX<T> others(n);
  for (index_t i = 0; i < n; ++i) {
    others[i] = factor;
    for (index_t j = 0; j < n; ++j) {
      if (j != i) others[i] *= svd.singularValues()[j];
    }
  }
  const T sign = svd.matrixU().determinant() * svd.matrixV().determinant() < T(0) ? T(-1) : T(1);
  matrix(da, n, n) = sign * svd.matrixU() * others.asDiagonal() * svd.matrixV().transpose();
}

/// Lower triangular l with l l^T = a, of which the lower triangle is read. Returns false unless a is positive
/// definite.
template <class T>
bool cholesky(const T* a, index_t n, T* l) {
  if (n == 0) return true;
  const Eigen::LLT<Matrix<T>> llt(matrix(a, n, n));
  if (llt.info() != Eigen::Success) return false;
  const Matrix<T> lower = llt.matrixL();
  matrix(l, n, n) = lower;
  return lower.allFinite() && (lower.diagonal().array() > T(0)).all();
}
/// da = the symmetric part of l^-T phi(l^T dl) l^-1, phi(x) the lower triangle with half of the diagonal:
/// Murray (2016), "Differentiation of the Cholesky decomposition", arXiv:1602.07527.
template <class T>
void cholesky_backward(const T* l, const T* dl, index_t n, T* da) {
  if (n == 0) return;
  const Matrix<T> lower = matrix(l, n, n);
  Matrix<T> g = lower.transpose() * matrix(dl, n, n).template triangularView<Eigen::Lower>();
  g.template triangularView<Eigen::StrictlyUpper>().setZero();
  g.diagonal() /= T(2);
  const auto up = lower.transpose().template triangularView<Eigen::Upper>();
  up.solveInPlace(g);
  Matrix<T> other = g.transpose();
  up.solveInPlace(other);
  matrix(da, n, n) = symmetric<T>(other);
}

/// q (m, r) with orthonormal columns and upper triangular r (r, n), r = min(m, n), for a (m, n).
template <class T>
void qr(const T* a, index_t m, index_t n, T* q, T* r) {
  const index_t k = std::min(m, n);
  if (k == 0) return;
  const Eigen::HouseholderQR<Matrix<T>> decomposition(matrix(a, m, n));
  matrix(q, m, k) = decomposition.householderQ() * Matrix<T>::Identity(m, k);
  matrix(r, k, n).setZero();
  matrix(r, k, n).template triangularView<Eigen::Upper>() =
      decomposition.matrixQR().topRows(k).template triangularView<Eigen::Upper>();
}
/// da = (dq + q copyltu(r dr^T - dq^T q)) r^-T for m >= n, copyltu(x) the symmetric matrix with the lower
/// triangle of x: Liao et al. (2019), "Differentiable programming tensor networks", arXiv:1903.09650. For m <
/// n the other columns of a are q r2, so that theirs is q dr2, and dq grows by a2 dr2^T = q r2 dr2^T.
template <class T>
void qr_backward(const T* q_data, const T* r_data, const T* dq_data, const T* dr_data, index_t m, index_t n,
                 T* da) {
  const index_t k = std::min(m, n);
  auto g = matrix(da, m, n);
  if (k == 0) return g.setZero(), void();
  const Matrix<T> q = matrix(q_data, m, k), all = matrix(r_data, k, n);
  Matrix<T> dq = matrix(dq_data, m, k);
  Matrix<T> dr = matrix(dr_data, k, n).template triangularView<Eigen::Upper>();
  if (n > k) {
    const Matrix<T> rest = dr.rightCols(n - k);
    dq.noalias() += q * (all.rightCols(n - k) * rest.transpose());
    g.rightCols(n - k).noalias() = q * rest;
  }
  const Matrix<T> r = all.leftCols(k);
  Matrix<T> x = r * dr.leftCols(k).transpose() - dq.transpose() * q;
  for (index_t j = 1; j < k; ++j) {
    for (index_t i = 0; i < j; ++i) x(i, j) = x(j, i);
  }
  Matrix<T> y = (dq + q * x).transpose();
  r.template triangularView<Eigen::Upper>().solveInPlace(y);
  g.leftCols(k) = y.transpose();
}

/// u (m, r), s (r) from the largest and vh (r, n), r = min(m, n), with u diag(s) vh = a (m, n). Returns false
/// for numbers that are not finite.
template <class T>
bool svd(const T* a, index_t m, index_t n, T* u, T* s, T* vh) {
  const index_t k = std::min(m, n);
  if (k == 0) return true;
  const Matrix<T> x = matrix(a, m, n);
  if (!x.allFinite()) return false;
  const Eigen::BDCSVD<Matrix<T>> decomposition(x, Eigen::ComputeThinU | Eigen::ComputeThinV);
  matrix(u, m, k) = decomposition.matrixU();
  matrix(s, k, 1) = decomposition.singularValues();
  matrix(vh, k, n) = decomposition.matrixV().transpose();
  return decomposition.info() == Eigen::Success;
}
/// da = u (skew(u^T du) / e diag(s) + diag(s) skew(v^T dv) / e + diag(ds)) v^T + (1 - u u^T) du diag(1 / s)
/// v^T + u diag(1 / s) dv^T (1 - v v^T), e[i, j] = s[j]^2 - s[i]^2 and skew(x) = x - x^T: Townsend (2016),
/// "Differentiating the singular value decomposition".
template <class T>
void svd_backward(const T* u_data, const T* s, const T* vh_data, const T* du_data, const T* ds,
                  const T* dvh_data, index_t m, index_t n, T* da) {
  const index_t k = std::min(m, n);
  if (k == 0) return;
  const Matrix<T> u = matrix(u_data, m, k), v = matrix(vh_data, k, n).transpose();
  Matrix<T> du = matrix(du_data, m, k), dv = matrix(dvh_data, k, n).transpose();
  const Matrix<T> of_u = u.transpose() * du, of_v = v.transpose() * dv;
  Matrix<T> middle(k, k);
  for (index_t j = 0; j < k; ++j) {
    for (index_t i = 0; i < k; ++i) {
      const T e = (s[j] - s[i]) * (s[j] + s[i]);
      middle(i, j) = i == j ? ds[i]
                            : quotient((of_u(i, j) - of_u(j, i)) * s[j], e) +
                                  quotient((of_v(i, j) - of_v(j, i)) * s[i], e);
    }
  }
  du.noalias() -= u * of_u;
  dv.noalias() -= v * of_v;
  if (m == k) du.setZero();  // but for rounding
  if (n == k) dv.setZero();
  for (index_t j = 0; j < k; ++j) {
    for (index_t i = 0; i < m; ++i) du(i, j) = quotient(du(i, j), s[j]);
    for (index_t i = 0; i < n; ++i) dv(i, j) = quotient(dv(i, j), s[j]);
  }
  const Matrix<T> left = u * middle + du;
  matrix(da, m, n) = left * v.transpose() + u * dv.transpose();
}

/// Eigenvalues w (n), the smallest first, and eigenvectors v (n, n), in columns, of a symmetric a (n, n), of
/// which the lower triangle is read. Returns false for numbers that are not finite.
template <class T>
bool eigh(const T* a, index_t n, T* w, T* v) {
  if (n == 0) return true;
  const Matrix<T> x = matrix(a, n, n).template triangularView<Eigen::Lower>();
  if (!x.allFinite()) return false;
  const Eigen::SelfAdjointEigenSolver<Matrix<T>> solver(x);
  if (solver.info() != Eigen::Success) return false;
  matrix(w, n, 1) = solver.eigenvalues();
  matrix(v, n, n) = solver.eigenvectors();
  return true;
}
/// da = v (diag(dw) + skew(v^T dv) / 2 / e) v^T, e[i, j] = w[j] - w[i], Giles (2008), 3.1.
template <class T>
void eigh_backward(const T* w, const T* v_data, const T* dw, const T* dv, index_t n, T* da) {
  if (n == 0) return;
  const Matrix<T> v = matrix(v_data, n, n);
  const Matrix<T> x = v.transpose() * matrix(dv, n, n);
  Matrix<T> middle(n, n);
  for (index_t j = 0; j < n; ++j) {
    for (index_t i = 0; i < n; ++i) {
      middle(i, j) = i == j ? dw[i] : quotient((x(i, j) - x(j, i)) / T(2), w[j] - w[i]);
    }
  }
  const Matrix<T> left = v * middle;
  matrix(da, n, n).noalias() = left * v.transpose();
}

/// The x (n, k) of the least norm among those for which |a x - b| is the least, a (m, n) and b (m, k).
/// Returns false for numbers that are not finite.
template <class T>
bool lstsq(const T* a, const T* b, index_t m, index_t n, index_t k, T* x) {
  auto to = matrix(x, n, k);
  to.setZero();
  if (m == 0 || n == 0 || k == 0) return true;
  const Matrix<T> right = matrix(b, m, k);
  if (!matrix(a, m, n).allFinite() || !right.allFinite()) return false;
  to = orthogonal(a, m, n).solve(right);
  return true;
}
/// With p the pseudoinverse of a: db = p^T dx and da = -db x^T + (b - a x) (p db)^T + p^T x (dx - a^T db)^T,
/// from Golub and Pereyra (1973), "The differentiation of pseudo-inverses and nonlinear least squares
/// problems whose variables separate".
template <class T>
void lstsq_backward(const T* a_data, const T* b_data, const T* x_data, const T* dx_data, index_t m, index_t n,
                    index_t k, T* da, T* db) {
  std::fill_n(da, m * n, T(0));
  std::fill_n(db, m * k, T(0));
  if (m == 0 || n == 0 || k == 0) return;
  const Matrix<T> a = matrix(a_data, m, n), b = matrix(b_data, m, k);
  const Matrix<T> x = matrix(x_data, n, k), dx = matrix(dx_data, n, k);
  const Matrix<T> p = orthogonal(a_data, m, n).pseudoInverse();
  const Matrix<T> g = p.transpose() * dx;
  const Matrix<T> rest = b - a * x, step = p * g, other = dx - a.transpose() * g;
  const Matrix<T> back = p.transpose() * x;
  matrix(db, m, k) = g;
  matrix(da, m, n) = rest * step.transpose() + back * other.transpose() - g * x.transpose();
}

}  // namespace eigenformer::detail::kernels::linalg
