#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"

namespace eigenformer::detail {

/// Dropout of an op's rows as the kernels take it; rate 0 outside training. Throws ValueError for a rate
/// outside [0, 1) and ShapeError when the context's layout does not have that many rows.
template <class T>
struct RowDropoutSite {
  double rate = 0;
  DropoutKey key;
  std::shared_ptr<const std::vector<RowKey>> rows;

  RowDropoutSite() = default;
  RowDropoutSite(const char* op, const Context<T>& ctx, double p, index_t row_count) {
    if (!(p >= 0 && p < 1))
      throw ValueError(op, "dropout rate is " + std::to_string(p) + ", must be in [0, 1)");
    if (!ctx.drops() || p == 0) return;
    rate = p;
    key = ctx.next_dropout();
    if (ctx.rows()) {
      rows = ctx.rows()->row_keys();
      if (static_cast<index_t>(rows->size()) != row_count) {
        throw ShapeError(op, std::to_string(row_count) + " rows do not fit the context's layout of " +
                                 std::to_string(rows->size()) + " rows");
      }
    }
  }
  const RowKey* keys() const noexcept { return rows == nullptr ? nullptr : rows->data(); }
  kernels::RowDropout view() const noexcept { return {rate, key, keys()}; }
};

}  // namespace eigenformer::detail
