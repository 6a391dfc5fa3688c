#pragma once

#include "eigenformer/nn/layers/norm.hpp"

namespace eigenformer {

struct LayerNormOptions {
  index_t size = 0;  ///< of the last dimension; required
  double eps = defaults::layer_norm_eps;
  LayerNormFormula formula = LayerNormFormula::pytorch;
  bool scalar_gain = false;  ///< one gain and one bias for all features
  bool bias = true;
};

/// Normalises each row to mean 0 and variance 1, then scales and shifts it (Ba et al. 2016). Starts with gain
/// 1 and bias 0.
///
///     ef::LayerNorm<float> norm({.size = 12});
///     auto y = norm(ctx, x);  // (..., 12) -> (..., 12)
template <class T = float>
struct LayerNorm : Norm<T> {
  /// Throws ValueError that names the invalid field.
  explicit LayerNorm(const LayerNormOptions& given)
      : Norm<T>({.kind = NormKind::layer_norm,
                 .size = given.size,
                 .eps = given.eps,
                 .formula = given.formula,
                 .scalar_gain = given.scalar_gain,
                 .bias = given.bias}) {}
};

static_assert(std::is_nothrow_move_constructible_v<LayerNorm<float>>);

EIGENFORMER_MODULE_INSTANCES(LayerNorm)

}  // namespace eigenformer
