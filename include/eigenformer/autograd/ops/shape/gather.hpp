#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/kernels/sequence/embedding.hpp"

namespace eigenformer {

/// Rows of a table, times `scale`. table: (vocab, d); ids: any shape, rank at most 5. Returns ids' shape plus
/// d. Rows with padding_index (-1: none) contribute no gradient. Throws IndexError for an id outside the
/// table, naming it, and ValueError for a padding_index outside it.
template <class T>
[[nodiscard]] Var<T> embedding(const Var<T>& table, const Tensor<std::int32_t>& ids, double scale = 1,
                               index_t padding_index = -1) {
  const OpScope scope = detail::scope_of("embedding", table, ids);
  if (table.rank() != 2) {
    throw ShapeError("embedding", {"table of shape ", table.shape(), " must be (vocabulary, d)"},
                     {table.shape()});
  }
  const index_t vocab = table.dim(0), d = table.dim(1), rows = ids.numel();
  if (padding_index < -1 || padding_index >= std::max<index_t>(vocab, 1)) {
    throw ValueError("embedding",
                     {"padding_index is ", padding_index, ", must be an id of the table of shape ",
                      table.shape(), ", or -1 for none"});
  }
  Tensor<T> y(ids.shape().inserted(-1, d));
  detail::kernels::embedding_forward<T>(table.value().data(), vocab, d, ids.data(), rows,
                                        static_cast<T>(scale), y.data());
  // Of the table only these rows are read, and none of them again in backward.
  detail::count_bytes<T>((rows - vocab) * d);
  if (detail::not_recorded(y, table)) return y;
  // dtable[id] += scale dy over the rows with that id.
  return detail::record_one(
      "embedding", std::move(y), table, SavedTensors(ids),
      [ids, rows, vocab, d, scale, padding_index](const auto& dtable, const Tensor<T>& dy) {
        detail::count_bytes<T>(-vocab * d);
        detail::kernels::embedding_backward<T>(dy.data(), ids.data(), rows,
                                               static_cast<std::int32_t>(padding_index),
                                               static_cast<T>(scale), dtable.data, dtable.beta, vocab, d);
      });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> embedding(const X& table, const Tensor<std::int32_t>& ids, double scale = 1,
                                          index_t padding_index = -1) {
  return embedding<element_t<X>>(table, ids, scale, padding_index);
}

namespace detail {

// Throws IndexError unless every index is in 0 .. n-1.
template <IndexNumber I>
void check_indices(const char* op, const Tensor<I>& index, index_t axis, const Shape& shape) {
  const auto n = static_cast<std::uint64_t>(shape[axis]);
  for (index_t i = 0; i < index.numel(); ++i) {
    if (static_cast<std::uint64_t>(index.data()[i]) < n) continue;
    throw IndexError(
        op, {"index ", index.data()[i], " at position ", i, " is outside axis ", axis, " of shape ", shape});
  }
}

// The positions of the elements of a block of shape `part` (its dimensions begin .. end) in a larger one of
// shape `whole`.
inline std::vector<index_t> block_offsets(const Shape& part, const Shape& whole, index_t begin, index_t end) {
  std::vector<index_t> offsets{0};
  for (index_t d = begin; d < end; ++d) {
    std::vector<index_t> next;
    next.reserve(offsets.size() * static_cast<std::size_t>(part[d]));
    for (const index_t base : offsets) {
      for (index_t i = 0; i < part[d]; ++i) next.push_back(base * whole[d] + i);
    }
    offsets = std::move(next);
  }
  return offsets;
}

// Calls visit(position in x, position in index) for the elements of the index, outer blocks in parallel.
// Throws IndexError, naming op, for an index outside the axis; some elements were visited then.
template <IndexNumber I, class Visit>
void visit_gathered(const char* op, const Shape& shape, const Tensor<I>& index, index_t axis,
                    const Visit& visit) {
  const std::vector<index_t> outer = block_offsets(index.shape(), shape, 0, axis);
  const std::vector<index_t> inner = block_offsets(index.shape(), shape, axis + 1, shape.rank());
  const index_t n = shape[axis], taken = index.dim(axis), width = static_cast<index_t>(inner.size());
  const index_t stride = AxisView(shape, axis).inner;
  const index_t block = std::max<index_t>(1, taken * width);
  const I* entries = index.data();
  std::atomic<bool> all_inside = true;
  const auto outside = [n](I i) { return static_cast<std::uint64_t>(i) >= static_cast<std::uint64_t>(n); };
  const auto visit_block = [=, &outer, &inner](index_t o) {
    const index_t first = outer[static_cast<std::size_t>(o)] * n, end = (o + 1) * taken * width;
    index_t at = o * taken * width;
    if (width == 1) {  // as along the last axis
      for (; at < end; ++at) {
        if (outside(entries[at])) return false;
        visit((first + entries[at]) * stride, at);
      }
      return true;
    }
    while (at < end) {
      for (const index_t place : inner) {
        if (outside(entries[at])) return false;
        visit((first + entries[at]) * stride + place, at);
        ++at;
      }
    }
    return true;
  };
  parallel_each(static_cast<index_t>(outer.size()), (1 << 13) / block, [&](index_t o) {
    if (!visit_block(o)) all_inside = false;
  });
  if (!all_inside) check_indices(op, index, axis, shape);
}

// Throws ShapeError unless the index fits a tensor of this shape.
template <IndexNumber I>
void check_gathered(const char* op, const Tensor<I>& index, index_t axis, const Shape& shape) {
  bool fits = index.rank() == shape.rank();
  for (index_t d = 0; fits && d < shape.rank(); ++d) fits = d == axis || index.dim(d) <= shape[d];
  if (!fits) {
    throw ShapeError(op,
                     {"index of shape ", index.shape(), " must have the rank of ", shape,
                      " and be no larger outside axis ", axis},
                     {shape, index.shape()});
  }
}

}  // namespace detail

/// Elements taken along an axis, PyTorch's gather: for axis 1 of rank 3, y[i][j][k] =
/// x[i][index[i][j][k]][k].
///
/// index: int32 or int64, x's rank, and in no other dimension larger than x. Returns index's shape. An
/// element may be taken several times: its gradients are summed. Throws ShapeError when the index does not
/// fit and IndexError for an entry outside the axis.
template <class T, detail::IndexNumber I>
[[nodiscard]] Var<T> gather(const Var<T>& x, index_t axis, const Tensor<I>& index) {
  const OpScope scope = detail::scope_of("gather", x, index);
  const index_t a = detail::axis_of("gather", axis, x.shape());
  detail::check_gathered("gather", index, a, x.shape());
  Tensor<T> y(index.shape());
  const T* from = x.value().data();
  T* to = y.data();
  detail::visit_gathered("gather", x.shape(), index, a,
                         [from, to](index_t in_x, index_t at) { to[at] = from[in_x]; });
  if (detail::not_recorded(y, x)) return y;
  // dx = sum of dy over the places that an element was taken to.
  return detail::record_one(
      "gather", std::move(y), x, SavedTensors(index), [index, a](const auto& dx, const Tensor<T>& dy) {
        dx.start_sum();
        const T* g = dy.data();
        detail::visit_gathered("gather", dx.shape, index, a,
                               [g, to = dx.data](index_t in_x, index_t at) { to[in_x] += g[at]; });
      });
}

/// The same for other operands.
template <detail::Converted X, detail::IndexNumber I>
[[nodiscard]] Var<element_t<X>> gather(const X& x, index_t axis, const Tensor<I>& index) {
  return gather<element_t<X>>(x, axis, index);
}

/// Rows (slices of the first dimension) in the order of `rows`, which may repeat them; PyTorch's
/// index_select. x: (n, ...); rows: (m). Returns (m, ...). Throws IndexError for a row outside x.
template <class T>
[[nodiscard]] Var<T> index_select(const Var<T>& x, const Tensor<std::int32_t>& rows) {
  const OpScope scope = detail::scope_of("index_select", x, rows);
  if (x.rank() < 1 || rows.rank() != 1) {
    throw ShapeError("index_select",
                     {"input of shape ", x.shape(), " must have rows, and the row indices of shape ",
                      rows.shape(), " must have rank 1"},
                     {x.shape(), rows.shape()});
  }
  detail::check_indices("index_select", rows, 0, x.shape());
  const index_t n = x.dim(0), width = detail::AxisView(x.shape(), 0).inner;
  Tensor<T> y(x.shape().with(0, rows.numel()));
  detail::kernels::embedding_forward<T>(x.value().data(), n, width, rows.data(), rows.numel(), T(1),
                                        y.data());
  if (detail::not_recorded(y, x)) return y;
  // dx[r] = sum of dy over the places that row r was taken to.
  return detail::record_one("index_select", std::move(y), x, SavedTensors(rows),
                            [rows, n, width](const auto& dx, const Tensor<T>& dy) {
                              detail::kernels::embedding_backward<T>(dy.data(), rows.data(), rows.numel(), -1,
                                                                     T(1), dx.data, dx.beta, n, width);
                            });
}

/// The same for other operands.
template <detail::Converted X>
[[nodiscard]] Var<element_t<X>> index_select(const X& x, const Tensor<std::int32_t>& rows) {
  return index_select<element_t<X>>(x, rows);
}

}  // namespace eigenformer
