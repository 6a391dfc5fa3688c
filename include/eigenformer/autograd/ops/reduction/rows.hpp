#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/core/tensor/view.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"

// A reduction over any axes as one over the rows of a matrix.

namespace eigenformer::detail {

// The order of dimensions that puts those that are reduced last, and whether the elements move by it.
struct RowOrder {
  std::vector<index_t> order;
  bool moves = false;
  index_t rows = 1;  // elements of the result
  index_t n = 1;     // elements that are combined into each of them
};

// Errors as for sum().
EIGENFORMER_NOINLINE inline RowOrder row_order(const Shape& shape, const std::vector<index_t>& axes) {
  (void)kernels::reduced_shape(shape, axes, true);  // checks the axes
  std::array<bool, static_cast<std::size_t>(Shape::max_rank)> reduced{};
  if (axes.empty()) reduced.fill(true);
  for (const index_t a : axes) reduced[static_cast<std::size_t>(a < 0 ? a + shape.rank() : a)] = true;
  RowOrder r;
  for (const bool last : {false, true}) {
    for (index_t d = 0; d < shape.rank(); ++d) {
      if (reduced[static_cast<std::size_t>(d)] != last) continue;
      // Dimensions of size 1 may change places.
      for (const index_t before : r.order) r.moves |= before > d && shape[before] != 1 && shape[d] != 1;
      r.order.push_back(d);
      (last ? r.n : r.rows) *= shape[d];
    }
  }
  return r;
}

// A tensor whose elements in memory are those rows: x itself where they need not move.
template <class T>
Tensor<T> as_rows(const Tensor<T>& x, const RowOrder& r) {
  if (!r.moves || x.numel() == 0) return x;
  const StridedView whole = whole_view(x.shape());
  StridedView from;
  std::array<index_t, static_cast<std::size_t>(Shape::max_rank)> sizes{};
  for (std::size_t i = 0; i < r.order.size(); ++i) {
    sizes[i] = x.shape()[r.order[i]];
    from.strides[i] = whole.strides[static_cast<std::size_t>(r.order[i])];
  }
  from.shape = Shape(std::span<const index_t>(sizes.data(), r.order.size()));
  Tensor<T> rows(from.shape);
  copy_view(rows.data(), whole_view(from.shape), x.data(), from);
  return rows;
}
template <class T>
Var<T> as_rows(const Var<T>& x, const RowOrder& r) {
  return r.moves ? permute(x, r.order) : x;
}

// y[r] = the parts of row r of x (rows, n), each part(first, count), joined in their order by join(a, b):
// parts of a fixed size, so that the result does not depend on the number of threads.
template <class T, class R, class Part, class Join>
void fold_rows(const T* x, index_t rows, index_t n, R* y, const Part& part, const Join& join) {
  constexpr index_t size = 1 << 14;
  const index_t parts = std::max<index_t>(1, (n + size - 1) / size);
  Tensor<R> each(Shape{parts > 1 ? rows * parts : 0});
  R* to = parts > 1 ? each.data() : y;
  parallel_for(rows * parts, std::max<index_t>(1, size / std::max<index_t>(1, n)),
               [&](index_t begin, index_t end) {
                 for (index_t i = begin; i < end; ++i) {
                   const index_t first = i % parts * size;
                   to[i] = part(x + i / parts * n + first, std::min(size, n - first));
                 }
               });
  if (parts == 1) return;
  for (index_t r = 0; r < rows; ++r) {
    y[r] = to[r * parts];
    for (index_t p = 1; p < parts; ++p) y[r] = join(y[r], to[r * parts + p]);
  }
}

}  // namespace eigenformer::detail
