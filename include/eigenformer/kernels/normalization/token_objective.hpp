#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// Weights of the terms of token_objective().
struct TokenObjective {
  double label_smoothing = 0;        ///< in [0, 1], as in CrossEntropyOptions
  std::int32_t ignore_index = -100;  ///< rows with this target have loss 0 and gradient 0
  double divergence = 0;             ///< weight alpha of the divergence D between two copies
  double distillation = 0;           ///< share w of the teacher's term, in [0, 1]
  double temperature = 1;            ///< T, of the teacher and of the logits compared with it; above 0
};

/// The terms of token_objective(): sums over the rows, in nats, each a mean over the copies.
struct TokenLosses {
  double words = 0;         ///< the cross entropy with the targets, smoothed
  double unsmoothed = 0;    ///< the same without smoothing
  double divergence = 0;    ///< half of KL(p1 || p2) + KL(p2 || p1), p1 and p2 being those of the two copies
  double distillation = 0;  ///< KL(q || p) at the temperature

  /// The weighted sum of the terms, which training minimises.
  double objective(const TokenObjective& o) const {
    double sum = o.distillation > 0 ? (1 - o.distillation) * words +
                                          o.distillation * o.temperature * o.temperature * distillation
                                    : words;
    if (o.divergence > 0) sum += o.divergence / 2 * divergence;
    return sum;
  }
};

}  // namespace eigenformer

namespace eigenformer::detail::kernels {

/// The loss of rows that ran once, or twice with different dropout, perhaps with a teacher:
///
///     (1 - w) CE + w T^2 KL(q || softmax(x / T)) + alpha / 2 D
///
/// CE, the cross entropy with the targets, and KL, the divergence from the teacher's probabilities q (Hinton
/// et al. 2015, section 2), are means over the copies; D = (KL(p1 || p2) + KL(p2 || p1)) / 2 (Liang et al.
/// 2021, eq. 3 and 4; their loss of two copies, halved).
///
/// logits: (copies * rows, classes), all rows of the first copy before those of the second; overwritten by
/// their gradient times `scale`, or with gradient == false by their log-probabilities. teacher: (rows,
/// classes), probabilities at the temperature, or nullptr; targets: (rows). Summed in the order of the rows,
/// in double. Throws as cross_entropy_forward, and ValueError for copies other than 1 and 2.
template <class T>
TokenLosses token_objective(T* logits, const T* teacher, const std::int32_t* targets, index_t rows,
                            index_t copies, index_t classes, const TokenObjective& options, T scale,
                            bool gradient);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include "eigenformer/kernels/normalization/token_objective-inl.hpp"
#endif
