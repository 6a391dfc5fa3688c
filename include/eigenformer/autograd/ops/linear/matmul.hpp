#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

namespace detail {

// The index of the operand's matrix for each product of a broadcast batch; empty if it has one for each.
inline std::vector<index_t> broadcast_batch_index(const Shape& batch, const Shape& operand_batch) {
  if (batch == operand_batch) return {};
  std::vector<index_t> index(static_cast<std::size_t>(batch.numel()));
  for (std::size_t i = 0; i < index.size(); ++i) {
    auto rest = static_cast<index_t>(i);
    index_t flat = 0, stride = 1;
    for (index_t axis = 1; axis <= operand_batch.rank(); ++axis) {
      const index_t size = batch[-axis];
      const index_t at = rest % size;
      rest /= size;
      if (operand_batch[-axis] != 1) flat += at * stride;
      stride *= operand_batch[-axis];
    }
    index[i] = flat;
  }
  return index;
}

/// The matrices of one operand of a batch of products.
template <class T>
struct BatchOperand {
  const T* data;
  index_t ld;
  index_t size;                         ///< numbers of one matrix
  std::span<const index_t> index = {};  ///< of each product's matrix; empty: each has its own

  index_t matrix_of(index_t product) const {
    return index.empty() ? product : index[static_cast<std::size_t>(product)];
  }
};

/// Where products of a batch are added, such as the gradient of an operand; beta 0 does not read it.
template <class T>
struct BatchSum {
  T* data;
  T beta;
  index_t numel;
  BatchOperand<T> of;  ///< the operand that it has the shape of
};

/// sum += op(x) op(y) for each product of a batch, op(x) being (m, k) and op(y) (k, n).
template <class T>
void add_products(bool transpose_x, bool transpose_y, index_t count, index_t m, index_t n, index_t k,
                  const BatchOperand<T>& x, const BatchOperand<T>& y, const BatchSum<T>& sum) {
  const index_t size = sum.of.size;
  if (count == 0) {
    if (sum.beta == T(0)) std::fill_n(sum.data, sum.numel, T(0));  // no product writes it
    return;
  }
  if (sum.of.index.empty() && x.index.empty() && y.index.empty()) {
    kernels::gemm_batched<T>({.count = count,
                              .m = m,
                              .n = n,
                              .k = k,
                              .a = {x.data, x.ld, x.size, transpose_x},
                              .b = {y.data, y.ld, y.size, transpose_y},
                              .c = sum.data,
                              .ldc = sum.of.ld,
                              .stride_c = size,
                              .beta = sum.beta});
    return;
  }
  std::vector<bool> seen(static_cast<std::size_t>(size == 0 ? 0 : sum.numel / size));
  for (index_t i = 0; i < count && size > 0; ++i) {
    const index_t part = sum.of.matrix_of(i);
    const auto at = static_cast<std::size_t>(part);
    kernels::gemm<T>(transpose_x, transpose_y, m, n, k, T(1), x.data + x.matrix_of(i) * x.size, x.ld,
                     y.data + y.matrix_of(i) * y.size, y.ld, seen[at] ? T(1) : sum.beta,
                     sum.data + part * size, sum.of.ld);
    seen[at] = true;
  }
}

[[noreturn]] EIGENFORMER_NOINLINE inline void refuse_inner(const Shape& a, const Shape& b, bool transpose_a,
                                                           bool transpose_b, index_t k, index_t kb) {
  throw ShapeError("matmul",
                   {"inner dimensions of ", a.str(), (transpose_a ? " transposed" : ""), " and ", b.str(),
                    (transpose_b ? " transposed" : ""), " differ: ", k, " and ", kb},
                   {a, b});
}

template <class T>
Var<T> matmul_of_vectors(const Var<T>& a, const Var<T>& b, bool transpose_a, bool transpose_b);

}  // namespace detail

/// Matrix product of the last two dimensions, with batch dimensions broadcast as NumPy does.
///
/// a: (..., m, k), or (..., k, m) with transpose_a; b: (..., k, n), or (..., n, k) with transpose_b. Returns
/// (..., m, n). An operand of rank 1 is a row (k) as a and a column (k) as b, which the result does not have:
/// (..., m, k) and (k) to (..., m); it cannot be transposed. Throws ShapeError when a rank is 0, inner
/// dimensions differ or batches do not broadcast.
template <class T>
[[nodiscard]] Var<T> matmul(const Var<T>& a, const std::type_identity_t<Var<T>>& b, bool transpose_a = false,
                            bool transpose_b = false) {
  const OpScope scope = detail::scope_of("matmul", a, b);
  const Shape& sa = a.shape();
  const Shape& sb = b.shape();
  if (sa.rank() < 2 || sb.rank() < 2) return detail::matmul_of_vectors<T>(a, b, transpose_a, transpose_b);
  const index_t m = sa[transpose_a ? -1 : -2], k = sa[transpose_a ? -2 : -1];
  const index_t n = sb[transpose_b ? -2 : -1], kb = sb[transpose_b ? -1 : -2];
  if (k != kb) detail::refuse_inner(sa, sb, transpose_a, transpose_b, k, kb);
  const Shape batch_a = sa.without(-1).without(-1), batch_b = sb.without(-1).without(-1);
  const Shape batch = detail::kernels::broadcast_shape("matmul", batch_a, batch_b);
  Tensor<T> y(batch.inserted(-1, m).inserted(-1, n));
  const index_t lda = sa[-1], ldb = sb[-1], count = batch.numel();
  const index_t size_a = m * k, size_b = k * n, size_y = m * n;

  const auto index_a = detail::broadcast_batch_index(batch, batch_a);
  const auto index_b = detail::broadcast_batch_index(batch, batch_b);
  detail::add_products<T>(transpose_a, transpose_b, count, m, n, k, {a.value().data(), lda, size_a, index_a},
                          {b.value().data(), ldb, size_b, index_b},
                          {y.data(), T(0), y.numel(), {y.data(), n, size_y}});

  if (detail::not_recorded(y, a, b)) return y;
  // With y = op(a) op(b): d op(a) = dy op(b)^T and d op(b) = op(a)^T dy; a broadcast operand sums over its
  // products.
  return record("matmul", y, {a, Var<T>(b)}, SavedTensors().add_if(b.recorded(), a).add_if(a.recorded(), b),
                [a = a.value(), b = b.value(), index_a, index_b, transpose_a, transpose_b, m, n, k, lda, ldb,
                 count, size_a, size_b, size_y](Backward<T>& back) {
                  const detail::BatchOperand<T> dy{back.dy().data(), n, size_y};
                  const detail::BatchOperand<T> of_a{a.data(), lda, size_a, index_a};
                  const detail::BatchOperand<T> of_b{b.data(), ldb, size_b, index_b};
                  if (auto da = back.grad(0)) {
                    const detail::BatchSum<T> into{da.data, da.beta, a.numel(), of_a};
                    if (transpose_a) {
                      detail::add_products(transpose_b, true, count, k, m, n, of_b, dy, into);
                    } else {
                      detail::add_products(false, !transpose_b, count, m, k, n, dy, of_b, into);
                    }
                  }
                  if (auto db = back.grad(1)) {
                    const detail::BatchSum<T> into{db.data, db.beta, b.numel(), of_b};
                    if (transpose_b) {
                      detail::add_products(true, transpose_a, count, n, k, m, dy, of_a, into);
                    } else {
                      detail::add_products(!transpose_a, false, count, k, n, m, of_a, dy, into);
                    }
                  }
                });
}

/// The same for other operands.
template <class A, class B>
requires detail::Converted<A, B>
[[nodiscard]] Var<element_t<A>> matmul(const A& a, const B& b, bool transpose_a = false,
                                       bool transpose_b = false) {
  return matmul<element_t<A>>(a, b, transpose_a, transpose_b);
}

namespace detail {

// One of the operands has rank 1.
template <class T>
Var<T> matmul_of_vectors(const Var<T>& a, const Var<T>& b, bool transpose_a, bool transpose_b) {
  const Shape& sa = a.shape();
  const Shape& sb = b.shape();
  const bool row = sa.rank() == 1, column = sb.rank() == 1;
  if (sa.rank() == 0 || sb.rank() == 0 || (row && transpose_a) || (column && transpose_b)) {
    throw ShapeError("matmul",
                     {"operands of shapes ", sa.str(), " and ", sb.str(),
                      " must have rank 1 or more, and 2 or more to be transposed"},
                     {sa, sb});
  }
  const index_t k = sa[transpose_a ? -2 : -1], kb = sb[transpose_b || column ? -1 : -2];
  if (k != kb) refuse_inner(sa, sb, transpose_a, transpose_b, k, kb);
  // The matrices of a batch with one vector are one matrix where their rows are inner dimensions.
  if (!row && !transpose_a) {
    const Shape rows{sa.rows(), k};
    return reshaped("matmul", matmul(reshaped("matmul", a, rows), reshaped("matmul", b, Shape{k, 1})),
                    sa.without(-1));
  }
  if (row && transpose_b) return matmul_of_vectors(b, a, false, false);
  const Var<T> y = matmul(row ? reshaped("matmul", a, Shape{1, k}) : a,
                          column ? reshaped("matmul", b, Shape{k, 1}) : b, transpose_a, transpose_b);
  Shape shape = y.shape();
  if (column) shape = shape.without(-1);
  if (row) shape = shape.without(column ? -1 : -2);
  return reshaped("matmul", y, shape);
}

}  // namespace detail

}  // namespace eigenformer
