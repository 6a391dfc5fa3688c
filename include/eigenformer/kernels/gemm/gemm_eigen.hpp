#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <type_traits>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/gemm/gemm_driver.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"

// Products by Eigen: the portable backend.

namespace eigenformer::detail::kernels::detail {

/// A row-major matrix with rows `stride` elements apart, as Eigen sees it.
template <class T>
auto eigen_rows(T* data, index_t rows, index_t columns, index_t stride) {
  using Matrix = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Given = std::conditional_t<std::is_const_v<T>, const Matrix, Matrix>;
  return Eigen::Map<Given, Eigen::Unaligned, Eigen::OuterStride<>>(data, rows, columns,
                                                                   Eigen::OuterStride<>(stride));
}

/// C (m, n) += alpha * A (m, k) B (k, n), all row-major.
///
/// Eigen has one order of summation for whole groups of rows and others for the rest, for one row alone and
/// for small matrices. An incomplete group of rows is filled with zeros, so that a row's result does not
/// depend on the number of rows.
template <class T>
EIGENFORMER_NOINLINE void eigen_product(index_t m, index_t n, index_t k, T alpha, const T* a, index_t lda,
                                        const T* b, index_t ldb, T* c, index_t ldc) {
  constexpr index_t group = 8;
  const index_t whole = n + k < 32 ? 0 : m / group * group;
  const GemmScratch<3> memory;
  T* const x = memory->template reserve<T>(group * (k + n));
  T* const y = x + group * k;
  for (index_t i = 0; i < m;) {
    const bool direct = i < whole;
    const index_t rows = direct ? whole : std::min(group, m - i);
    if (!direct) {
      std::fill_n(x, group * (k + n), T(0));
      for (index_t r = 0; r < rows; ++r) {
        std::copy_n(a + (i + r) * lda, k, x + r * k);
        std::copy_n(c + (i + r) * ldc, n, y + r * n);
      }
    }
    auto result = direct ? eigen_rows(c, whole, n, ldc) : eigen_rows(y, group, n, n);
    const auto left = direct ? eigen_rows(a, whole, k, lda) : eigen_rows<const T>(x, group, k, k);
    result.noalias() += (alpha * left) * eigen_rows(b, k, n, ldb);
    for (index_t r = 0; r < rows && !direct; ++r) std::copy_n(y + r * n, n, c + (i + r) * ldc);
    i += rows;
  }
}

/// Reads an operand B that is not stored as a row-major matrix: writes columns [first, first + count)
/// of all k rows to out (k, count).
template <class T>
struct EigenColumns {
  const void* context = nullptr;
  void (*write)(const void* context, index_t first, index_t count, T* out) = nullptr;
};

/// out (rows, columns) = a block of op(matrix), rounded to bfloat16 if so.
template <class T>
void eigen_copy(const T* from, index_t ld, bool transpose, index_t rows, index_t columns, bool rounded,
                T* out) {
  auto to = eigen_rows(out, rows, columns, columns);
  if (transpose) {
    to = eigen_rows(from, columns, rows, ld).transpose();
  } else {
    to = eigen_rows(from, rows, columns, ld);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (rounded) {
      for (index_t i = 0; i < rows * columns; ++i) out[i] = rounded_to_bf16(out[i]);
    }
  }
}

inline constexpr index_t eigen_block = 128;

/// Calls f(i0, rows, j0, columns) for blocks of C of fixed size, so that the order of summation does not
/// depend on the threads.
template <class F>
void eigen_blocks(index_t m, index_t n, index_t k, const F& f) {
  const index_t across = (n + eigen_block - 1) / eigen_block,
                count = (m + eigen_block - 1) / eigen_block * across;
  parallel_each(count, gemm_threads(m, n, k) > 1 ? 1 : count, [&](index_t i) {
    const index_t i0 = i / across * eigen_block, j0 = i % across * eigen_block;
    f(i0, std::min(eigen_block, m - i0), j0, std::min(eigen_block, n - j0));
  });
}

/// A whole product; `packed`, if it can write columns, replaces B. With `rounded`, the inputs are rounded to
/// bfloat16.
template <class T>
void eigen_gemm(const GemmProblem<T>& g, bool rounded, const EigenColumns<T>& packed = {}) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0 || g.alpha == T(0)) {
    gemm_empty(g);
    return;
  }
  eigen_blocks(g.m, g.n, g.k, [&](index_t i0, index_t rows, index_t j0, index_t columns) {
    const GemmScratch<0> memory_a;
    const GemmScratch<1> memory_b;
    const T* a = g.a + i0 * g.lda;
    const T* b = packed.write == nullptr ? g.b + j0 : nullptr;
    index_t lda = g.lda, ldb = g.ldb;
    if (g.transpose_a || rounded) {
      T* const copy = memory_a->template reserve<T>(rows * g.k);
      eigen_copy(g.transpose_a ? g.a + i0 : a, lda, g.transpose_a, rows, g.k, rounded, copy);
      a = copy;
      lda = g.k;
    }
    if (packed.write != nullptr || g.transpose_b || rounded) {
      T* const copy = memory_b->template reserve<T>(columns * g.k);
      if (packed.write != nullptr) {
        packed.write(packed.context, j0, columns, copy);
      } else {
        eigen_copy(g.transpose_b ? g.b + j0 * ldb : b, ldb, g.transpose_b, g.k, columns, rounded, copy);
      }
      b = copy;
      ldb = columns;
    }
    if (g.beta != T(1)) scale_rows(g, i0, i0 + rows, j0, j0 + columns);
    T* const c = g.c + i0 * g.ldc + j0;
    eigen_product(rows, columns, g.k, g.alpha, a, lda, b, ldb, c, g.ldc);
    finish_block(g, i0, rows, j0, columns);
  });
}

}  // namespace eigenformer::detail::kernels::detail
