#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"

namespace eigenformer {

/// Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate), in training contexts; the
/// identity elsewhere. x: any shape. Throws ValueError for a rate outside [0, 1). Srivastava et al., JMLR 15,
/// 2014.
template <class T>
[[nodiscard]] Var<T> dropout(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x, double rate) {
  const OpScope scope = detail::scope_of("dropout", x);
  const detail::RowDropoutSite<T> site("dropout", ctx, rate, x.shape().rows());
  if (site.rate == 0) return x;
  Tensor<T> y = site.apply(x.value());
  if (detail::not_recorded(y, x)) return y;
  // dx = dy * mask / (1 - rate), the mask drawn again.
  return detail::record_one(
      "dropout", std::move(y), x, SavedTensors(),
      [site](const auto& dx, const Tensor<T>& dy) { site.backward(dy, dx.data, dx.beta); });
}

/// x + dropout(r): the residual connection of a pre-norm sub-layer. x, r: the same shape.
/// Throws ShapeError when the shapes differ, ValueError for a rate outside [0, 1).
template <class T>
[[nodiscard]] Var<T> add_dropout(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                                 const std::type_identity_t<Var<T>>& r, double rate) {
  const OpScope scope = detail::scope_of("add_dropout", x, r);
  detail::require_residual("add_dropout", x, r);
  const index_t rows = x.shape().rows(), n = x.shape().cols();
  const detail::RowDropoutSite<T> site("add_dropout", ctx, rate, rows);
  Tensor<T> y(x.shape());
  if (site.rate == 0) {
    detail::kernels::add<T>(x.value().data(), r.value().data(), y.data(), x.numel());
  } else {
    detail::kernels::dropout_rows<T>(r.value().data(), y.data(), rows, n, n, site.view(), x.value().data());
  }
  if (detail::not_recorded(y, x, r)) return y;
  return record("add_dropout", std::move(y), {x, r}, SavedTensors(), [site](Backward<T>& b) {
    site.pass(b, 1, b.dy());
    b.pass(0, b.dy());
  });
}

namespace detail {

// y = beta * y + x * multiplier, row by row; a dropped row is zero even if x is NaN.
template <class T>
void scale_rows(const T* x, const Tensor<T>& multipliers, T beta, T* y, index_t n) {
  parallel_each(multipliers.numel(), (index_t{1} << 15) / std::max<index_t>(n, 1), [&](index_t r) {
    const T m = multipliers.data()[r];
    const T* in = x + r * n;
    T* out = y + r * n;
    for (index_t i = 0; i < n; ++i) {
      const T scaled = m == T(0) ? T(0) : m * in[i];
      out[i] = beta == T(0) ? scaled : out[i] + scaled;
    }
  });
}

}  // namespace detail

/// Drops whole sequences: each is zero with probability `rate` and scaled by 1 / (1 - rate) otherwise, in
/// training contexts; the identity elsewhere. For the branch of a residual connection. Huang et al. 2016.
///
/// x: (rows, ...), with rows as in ctx.rows(); without a layout all rows are one sequence. The choice depends
/// on the sequence's number and not on the batch. Throws ValueError for a rate outside [0, 1).
template <class T>
[[nodiscard]] Var<T> stochastic_depth(const Context<T>& ctx, const std::type_identity_t<Var<T>>& x,
                                      double rate) {
  detail::require_defined("stochastic_depth", x);
  const index_t rows = x.shape().rows(), n = x.shape().cols();
  const detail::RowDropoutSite<T> site("stochastic_depth", ctx, rate, rows);
  if (site.rate == 0) return x;
  const OpScope scope = detail::scope_of("stochastic_depth");
  Tensor<T> multipliers(Shape{rows});
  std::uint32_t drawn = 0;
  for (index_t r = 0; r < rows; ++r) {
    T& m = multipliers.data()[r];
    const std::uint32_t sequence = site.keys() == nullptr ? 0 : site.keys()[r].sequence;
    if (r > 0 && sequence == drawn) {
      m = multipliers.data()[r - 1];
    } else {
      detail::kernels::dropout_mask_row<T>(site.key, sequence, 0, 0, 0, 1, site.rate, &m);
    }
    drawn = sequence;
  }
  Tensor<T> y(x.shape());
  detail::scale_rows<T>(x.value().data(), multipliers, T(0), y.data(), n);
  if (detail::not_recorded(y, x)) return y;
  // dx = multiplier dy.
  return detail::record_one("stochastic_depth", std::move(y), x, SavedTensors(),
                            [multipliers, n](const auto& dx, const Tensor<T>& dy) {
                              detail::scale_rows<T>(dy.data(), multipliers, dx.beta, dx.data, n);
                            });
}

}  // namespace eigenformer
