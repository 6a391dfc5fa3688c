#pragma once

#include <algorithm>
#include <utility>

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
  if (detail::not_recorded<T>(y, table)) return Var<T>(std::move(y));
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
  return embedding(detail::operand<element_t<X>>(table), ids, scale, padding_index);
}

}  // namespace eigenformer
