#pragma once

#include "eigenformer/nn/layers/norm.hpp"

namespace eigenformer {

/// Options of a LayerNorm.
struct LayerNormOptions {
  index_t size = 0;                       ///< features of a row; required
  double eps = defaults::layer_norm_eps;  ///< added to the variance (teaching formula: to the deviation)
  LayerNormFormula formula = LayerNormFormula::pytorch;  ///< PyTorch's, or that of The Annotated Transformer
  bool scalar_gain = false;                              ///< one gain and one bias for all features
  bool bias = true;                                      ///< add a bias
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

EIGENFORMER_MODULE_INSTANCES(LayerNorm)

}  // namespace eigenformer
