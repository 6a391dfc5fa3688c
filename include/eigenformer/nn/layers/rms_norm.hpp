#pragma once

#include "eigenformer/nn/layers/norm.hpp"

namespace eigenformer {

/// Options of an RMSNorm.
struct RMSNormOptions {
  index_t size = 0;                       ///< features of a row; required
  double eps = defaults::layer_norm_eps;  ///< added to the mean square
};

/// Divides each row by its root mean square and scales it; no mean, no bias (Zhang and Sennrich 2019;
/// PyTorch's nn.RMSNorm, whose default eps is the machine epsilon of its type). Starts with gain 1.
///
///     ef::RMSNorm<float> norm({.size = 12, .eps = 1e-6});
///     auto y = norm(ctx, x);  // (..., 12) -> (..., 12)
template <class T = float>
struct RMSNorm : Norm<T> {
  /// Throws ValueError that names the invalid field.
  explicit RMSNorm(const RMSNormOptions& given)
      : Norm<T>({.kind = NormKind::rms_norm, .size = given.size, .eps = given.eps}) {}
};

EIGENFORMER_MODULE_INSTANCES(RMSNorm)

}  // namespace eigenformer
