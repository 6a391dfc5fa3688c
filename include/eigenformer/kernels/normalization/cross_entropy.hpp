#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail::kernels {

/// Options of the cross entropy between logits and target ids.
struct CrossEntropyOptions {
  /// The share of the uniform distribution over all classes in the target, in [0, 1], as in PyTorch.
  double label_smoothing = 0;
  std::int32_t ignore_index = -100;  ///< rows with this target have loss 0 and gradient 0
};

/// Number of targets other than ignore_index. targets: (rows).
index_t count_targets(const std::int32_t* targets, index_t rows, std::int32_t ignore_index);

/// The sum of the rows' losses, in nats:
/// loss = log(sum(exp(x))) - (1 - e) * x[target] - e * mean(x), e being the label smoothing (Szegedy et al.
/// 2016).
///
/// logits: (rows, classes); targets: (rows); losses (rows) and log_sum_exp (rows), each may be nullptr,
/// receive the rows' losses (0 for ignored rows) and what cross_entropy_backward needs; unsmoothed, which may
/// be nullptr, the sum without smoothing. Summed in the order of the rows, in double.
/// Throws IndexError for a target that is neither ignore_index nor in 0 .. classes - 1, ValueError for a
/// smoothing outside [0, 1].
template <class T>
double cross_entropy_forward(const T* logits, const std::int32_t* targets, index_t rows, index_t classes,
                             const CrossEntropyOptions& options, T* losses, T* log_sum_exp,
                             double* unsmoothed = nullptr);

/// dlogits = beta * dlogits + s_r * (exp(x - log_sum_exp) - (1 - e) * onehot(target) - e / classes), 0 for
/// ignored rows. s_r is scale, times row_scales[r] unless that is nullptr. beta 0 does not read dlogits,
/// which may be logits.
template <class T>
void cross_entropy_backward(const T* logits, const std::int32_t* targets, const T* log_sum_exp, index_t rows,
                            index_t classes, const CrossEntropyOptions& options, T scale, const T* row_scales,
                            T* dlogits, T beta);

/// cross_entropy_forward, and logits overwritten by their gradient times `scale`, in one pass over the rows:
/// for blocks of rows of a large output layer. losses: (rows) or nullptr; unsmoothed: as above. Returns the
/// sum of the rows' losses.
template <class T>
double cross_entropy_forward_backward(T* logits, const std::int32_t* targets, index_t rows, index_t classes,
                                      const CrossEntropyOptions& options, T scale, T* losses,
                                      double* unsmoothed = nullptr);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/normalization/cross_entropy-inl.hpp"
#endif
