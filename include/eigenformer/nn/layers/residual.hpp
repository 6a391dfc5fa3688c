#pragma once

#include <utility>

#include "eigenformer/autograd/ops/elementwise/dropout.hpp"
#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/module/optional_module.hpp"

namespace eigenformer {

namespace detail {

/// A sub-layer with its residual connection: norm(x + dropout(f(x))) (post-norm), or with norm_first x +
/// dropout(f(norm(x))) (pre-norm). f: Var -> Var of the same shape. Throws ShapeError if f changes the shape.
template <class T, class F>
[[nodiscard]] Var<T> residual(const Context<T>& ctx, const Var<T>& x, const Norm<T>& norm, bool norm_first,
                              double dropout, F&& f) {
  if (norm_first) return add_dropout(ctx, x, Var<T>(f(norm(ctx, x))), dropout);
  return norm.add_and_norm(ctx, x, Var<T>(f(x)), dropout);
}

/// A sub-layer of a layer with these options: residual() with two additions. With a sandwich norm, `after`
/// normalises f's output; with layer_drop, training skips the sub-layer for some sequences.
template <class T, class F>
[[nodiscard]] Var<T> sub_layer(const Context<T>& ctx, const Var<T>& x, const Norm<T>& norm,
                               const OptionalModule<Norm<T>>& after, const LayerOptions& options, F&& f) {
  return residual(ctx, x, norm, options.norm_first || options.sandwich_norm, options.residual_dropout(),
                  [&](const Var<T>& rows) {
                    Var<T> y = f(rows);
                    if (after) y = (*after)(ctx, y);
                    return stochastic_depth(ctx, y, options.layer_drop);
                  });
}

}  // namespace detail

/// Options of a Residual.
struct ResidualOptions {
  index_t size = defaults::d_model;    ///< features of a row
  double dropout = defaults::dropout;  ///< rate on the sub-layer's output, in training
  bool norm_first = false;  ///< normalise the sub-layer's input (pre-norm) instead of the sum (post-norm)
  double layer_norm_eps = defaults::layer_norm_eps;  ///< added to the variance
};

/// "Add and norm" around anything callable: post-norm as in Vaswani et al. 2017, 3.1, or pre-norm (Xiong et
/// al. 2020).
///
///     ef::Residual<float> around({.size = 12, .dropout = 0.1, .norm_first = true});
///     auto y = around(ctx, x, [&](const auto& h) { return network(ctx, h); });
template <class T = float>
struct Residual {
  using value_type = T;  ///< element type, float or double

  LayerNorm<T> norm;  ///< of the sum, or with norm_first of the sub-layer's input
  double dropout;     ///< rate on the sub-layer's output, in training
  bool norm_first;    ///< pre-norm instead of post-norm

  /// Throws ValueError that names the invalid field.
  explicit Residual(const ResidualOptions& options)
      : norm({.size = options.size, .eps = options.layer_norm_eps}),
        dropout(options.dropout),
        norm_first(options.norm_first) {
    detail::require_rate("residual", "dropout", dropout);
    name_parameters(*this);
  }

  /// x: (..., size); f: Var -> Var of the same shape, called once. Returns the same shape. Throws ShapeError
  /// if f changes the shape.
  template <class F>
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, F&& f) const {
    return detail::residual(ctx, x, norm, norm_first, dropout, std::forward<F>(f));
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) { visit("norm", self.norm); }
};

EIGENFORMER_MODULE_INSTANCES(Residual)

}  // namespace eigenformer
