#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "eigenformer/autograd/tape/gradients.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"

namespace eigenformer {

/// What clipping by the global norm came to.
struct ClippedNorm {
  double norm =
      0;  ///< Euclidean norm of all gradients, times the given scale; infinity or NaN when one is not finite
  double factor = 1;   ///< multiply the gradients by this: give it to the optimizer's step as grad_scale
  bool finite = true;  ///< false: the gradients are of no use, leave this step out
};

/// The Euclidean norm over all gradients, a tied parameter counted once; unwritten ones are zero.
template <class T>
[[nodiscard]] double global_norm(const Gradients<T>& gradients) {
  double sum = 0;
  for (const auto& entry : gradients.entries()) {
    if (entry.written) sum += kernels::sum_of_squares<T>(entry.value.data(), entry.value.numel());
  }
  return std::sqrt(sum);
}

/// How to scale gradients so that their norm is at most max_norm (Pascanu et al. 2013). They are left as they
/// are; the factor, which includes `grad_scale`, goes to the optimizer. max_norm 0 clips nothing. The formula
/// is that of PyTorch's clip_grad_norm_: max_norm / (norm + 1e-6). Throws ValueError for a negative max_norm.
template <class T>
[[nodiscard]] ClippedNorm clip_global_norm(const Gradients<T>& gradients, double max_norm,
                                           double grad_scale = 1) {
  if (!(max_norm >= 0)) {
    throw ValueError("clip_global_norm",
                     "max_norm is " + std::to_string(max_norm) + ", must not be negative");
  }
  ClippedNorm result;
  result.norm = global_norm(gradients) * std::abs(grad_scale);
  result.finite = std::isfinite(result.norm);
  result.factor = grad_scale;
  if (result.finite && max_norm > 0) result.factor *= std::min(1.0, max_norm / (result.norm + 1e-6));
  return result;
}

}  // namespace eigenformer
