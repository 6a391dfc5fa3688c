#pragma once

#include <algorithm>
#include <cmath>

#include "eigenformer/autograd/tape/gradients.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"

namespace eigenformer {

/// The result of clip_factor().
struct ClipFactor {
  double norm = 0;     ///< Euclidean norm of all gradients times |scale|; not finite if one of them is not
  double factor = 1;   ///< multiply the gradients by this; pass it to the optimizer's step as grad_scale
  bool finite = true;  ///< false: norm is infinite or NaN; skip this step
};

/// The Euclidean norm of all gradients; a tied parameter counts once, a gradient that was not written as
/// zero.
template <class T>
[[nodiscard]] double global_norm(const Gradients<T>& gradients) {
  double sum = 0;
  for (const auto& entry : gradients.entries()) {
    if (entry.written) sum += detail::kernels::sum_of_squares<T>(entry.value.data(), entry.value.numel());
  }
  return std::sqrt(sum);
}

/// The factor for gradients whose norm is known; otherwise as the other clip_factor().
[[nodiscard]] EIGENFORMER_FUNCTION ClipFactor clip_factor(double norm, double max_norm,
                                                          double grad_scale = 1);

/// The factor that scales gradients to a norm of at most max_norm (Pascanu et al. 2013): min(1, max_norm /
/// (norm + 1e-6)) as in PyTorch's clip_grad_norm_, times `grad_scale`, where norm is that of the scaled
/// gradients. The gradients do not change: passing the factor to the optimizer's step saves a pass over them.
/// max_norm 0: no clipping. Throws ValueError for a negative max_norm.
///
///     const auto clip = ef::clip_factor(gradients, 1.0);
///     if (clip.finite) optimizer.step(gradients, learning_rate, clip.factor);
template <class T>
[[nodiscard]] ClipFactor clip_factor(const Gradients<T>& gradients, double max_norm, double grad_scale = 1) {
  return clip_factor(global_norm(gradients), max_norm, grad_scale);
}

/// Scales gradients in place to a norm of at most max_norm and returns their norm before that, as PyTorch's
/// clip_grad_norm_ does. Gradients whose norm is not finite do not change. max_norm 0: no clipping. Throws
/// ValueError for a negative max_norm.
template <class T>
double clip_global_norm(Gradients<T>& gradients, double max_norm) {
  const ClipFactor clip = clip_factor(gradients, max_norm);
  if (clip.factor != 1) gradients.scale(static_cast<T>(clip.factor));
  return clip.norm;
}

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION ClipFactor clip_factor(double norm, double max_norm, double grad_scale) {
  if (!(max_norm >= 0)) {
    throw ValueError("clip", {"max_norm is ", max_norm, ", must not be negative"});
  }
  ClipFactor result;
  result.norm = norm * std::abs(grad_scale);
  result.finite = std::isfinite(result.norm);
  result.factor = grad_scale;
  if (result.finite && max_norm > 0) result.factor *= std::min(1.0, max_norm / (result.norm + 1e-6));
  return result;
}

}  // namespace eigenformer

#endif
