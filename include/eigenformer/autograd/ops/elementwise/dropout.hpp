#pragma once

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
  if (detail::not_recorded<T>(y, x)) return Var<T>(std::move(y));
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
    detail::kernels::dropout_add<T>(x.value().data(), r.value().data(), y.data(), site.keys(), rows, n, n,
                                    rate, site.key);
  }
  if (detail::not_recorded<T>(y, x, r)) return Var<T>(std::move(y));
  return record("add_dropout", std::move(y), {x, r}, SavedTensors(), [site](Backward<T>& b) {
    site.pass(b, 1, b.dy());
    b.pass(0, b.dy());
  });
}

}  // namespace eigenformer
