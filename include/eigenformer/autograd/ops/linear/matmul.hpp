#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

namespace eigenformer {

namespace detail {

// Which matrix of each operand belongs to product i of a broadcast batch.
inline std::vector<index_t> broadcast_batch_index(const Shape& batch, const Shape& operand_batch) {
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

}  // namespace detail

/// Matrix product of the last two dimensions, with batch dimensions broadcast as NumPy does.
///
/// a: (..., m, k), or (..., k, m) with transpose_a; b: (..., k, n), or (..., n, k) with transpose_b. Returns
/// (..., m, n). Throws ShapeError when ranks are below 2, inner dimensions differ or batches do not
/// broadcast.
template <class T>
[[nodiscard]] Var<T> matmul(const Var<T>& a, const std::type_identity_t<Var<T>>& b, bool transpose_a = false,
                            bool transpose_b = false) {
  const OpScope scope(Runtime::instance().profiler(), "matmul");
  const Shape& sa = a.shape();
  const Shape& sb = b.shape();
  if (sa.rank() < 2 || sb.rank() < 2) {
    throw ShapeError("matmul",
                     "operands of shapes " + sa.str() + " and " + sb.str() + " must have rank 2 or more",
                     {sa, sb});
  }
  const index_t m = sa[transpose_a ? -1 : -2], k = sa[transpose_a ? -2 : -1];
  const index_t n = sb[transpose_b ? -2 : -1], kb = sb[transpose_b ? -1 : -2];
  if (k != kb) {
    throw ShapeError("matmul",
                     "inner dimensions of " + sa.str() + (transpose_a ? " transposed" : "") + " and " +
                         sb.str() + (transpose_b ? " transposed" : "") + " differ: " + std::to_string(k) +
                         " and " + std::to_string(kb),
                     {sa, sb});
  }
  const Shape batch_a = sa.without(-1).without(-1), batch_b = sb.without(-1).without(-1);
  const Shape batch = kernels::broadcast_shape("matmul", batch_a, batch_b);
  Tensor<T> y(batch.inserted(-1, m).inserted(-1, n));
  const index_t lda = sa[-1], ldb = sb[-1], count = batch.numel();
  const index_t size_a = m * k, size_b = k * n, size_y = m * n;

  const auto index_a = detail::broadcast_batch_index(batch, batch_a);
  const auto index_b = detail::broadcast_batch_index(batch, batch_b);
  const bool plain = batch_a == batch && batch_b == batch;
  if (plain) {
    kernels::gemm_batched<T>(transpose_a, transpose_b, count, m, n, k, T(1), a.value().data(), lda, size_a,
                             b.value().data(), ldb, size_b, T(0), y.data(), n, size_y);
  } else {
    for (index_t i = 0; i < count; ++i) {
      kernels::gemm<T>(transpose_a, transpose_b, m, n, k, T(1),
                       a.value().data() + index_a[static_cast<std::size_t>(i)] * size_a, lda,
                       b.value().data() + index_b[static_cast<std::size_t>(i)] * size_b, ldb, T(0),
                       y.data() + i * size_y, n);
    }
  }

  // With y = op(a) op(b): d op(a) = dy op(b)^T and d op(b) = op(a)^T dy; a broadcast operand sums over its
  // products.
  return record("matmul", y, {a, Var<T>(b)}, SavedTensors().add_if(b.recorded(), a).add_if(a.recorded(), b),
                [a = a.value(), b = b.value(), index_a, index_b, transpose_a, transpose_b, m, n, k, lda, ldb,
                 count, size_a, size_b, size_y](Backward<T>& back) {
                  const T* dy = back.dy().data();
                  // Calls product(i, into, beta) for each product i of the batch, where `into` is the part of
                  // an operand's gradient that it adds to, and beta 0 where it is the first to write there.
                  const auto each = [&](const auto& slot, index_t numel, index_t size,
                                        const std::vector<index_t>& index, auto&& product) {
                    if (count == 0 && slot.beta == T(0))
                      std::fill_n(slot.data, numel, T(0));  // no product writes it
                    std::vector<bool> seen(static_cast<std::size_t>(size == 0 ? 0 : numel / size));
                    for (index_t i = 0; i < count && size > 0; ++i) {
                      const index_t part = index[static_cast<std::size_t>(i)];
                      const auto at = static_cast<std::size_t>(part);
                      product(i, slot.data + part * size, seen[at] ? T(1) : slot.beta);
                      seen[at] = true;
                    }
                  };
                  if (auto da = back.grad(0)) {
                    each(da, a.numel(), size_a, index_a, [&](index_t i, T* into, T beta) {
                      const T* g = dy + i * size_y;
                      const T* bi = b.data() + index_b[static_cast<std::size_t>(i)] * size_b;
                      if (transpose_a) {
                        kernels::gemm<T>(transpose_b, true, k, m, n, T(1), bi, ldb, g, n, beta, into, lda);
                      } else {
                        kernels::gemm<T>(false, !transpose_b, m, k, n, T(1), g, n, bi, ldb, beta, into, lda);
                      }
                    });
                  }
                  if (auto db = back.grad(1)) {
                    each(db, b.numel(), size_b, index_b, [&](index_t i, T* into, T beta) {
                      const T* g = dy + i * size_y;
                      const T* ai = a.data() + index_a[static_cast<std::size_t>(i)] * size_a;
                      if (transpose_b) {
                        kernels::gemm<T>(true, transpose_a, n, k, m, T(1), g, n, ai, lda, beta, into, ldb);
                      } else {
                        kernels::gemm<T>(!transpose_a, false, k, n, m, T(1), ai, lda, g, n, beta, into, ldb);
                      }
                    });
                  }
                });
}

}  // namespace eigenformer
