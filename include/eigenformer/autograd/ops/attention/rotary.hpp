#pragma once

#include <type_traits>
#include <utility>

#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/kernels/sequence/rotary.hpp"

namespace eigenformer {

/// Rotates the first table.dim() features of each of the first `heads` heads of a row by the row's position,
/// so that products of two rows depend on the distance of their positions; columns after these heads are
/// unchanged. Su et al. 2021.
///
/// x: (rows, n) or (B, L, n), with rows as in `layout`, n >= heads * head_dim; for example the queries and
/// keys of a fused projection. Returns x's shape. Throws ShapeError when shapes do not fit, ValueError unless
/// the table's dim is in 2 .. head_dim.
template <class T>
[[nodiscard]] Var<T> rotary(const std::type_identity_t<Var<T>>& x, const SequenceLayout& layout,
                            index_t heads, index_t head_dim, const detail::kernels::RotaryTable<T>& table,
                            RotaryPairing pairing = RotaryPairing::adjacent) {
  const OpScope scope = detail::scope_of("rotary", x);
  if (x.rank() < 2 || x.shape().rows() != layout.rows() || heads < 1 || x.shape().cols() < heads * head_dim) {
    throw ShapeError("rotary",
                     {"input of shape ", x.shape(), " must have the ", layout.rows(),
                      " rows of its layout and ", heads, " heads of ", head_dim},
                     {x.shape()});
  }
  if (table.dim() < 2 || table.dim() > head_dim) {
    throw ValueError("rotary", {"dim is ", table.dim(),
                                ", must be at least 2 and at most the head's, which is ", head_dim});
  }
  Tensor<T> y(x.shape());
  const auto keys = layout.row_keys();
  const auto position = [keys](index_t r) {
    return static_cast<index_t>((*keys)[static_cast<std::size_t>(r)].position);
  };
  const index_t rows = layout.rows(), columns = x.shape().cols();
  detail::kernels::rotary<T>(table, pairing, false, x.value().data(), y.data(), T(0), rows, columns, heads,
                             head_dim, position);
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
  return detail::record_one("rotary", std::move(y), x, SavedTensors(),
                            [=](const auto& dx, const Tensor<T>& dy) {
                              detail::kernels::rotary<T>(table, pairing, true, dy.data(), dx.data, dx.beta,
                                                         rows, columns, heads, head_dim, position);
                            });
}

}  // namespace eigenformer
