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
/// logits: (rows, classes); targets: (rows); log_sum_exp (rows), which may be nullptr, receives what
/// cross_entropy_backward needs; unsmoothed, which may be nullptr, the sum without smoothing; gradient, which
/// may be nullptr or logits, that of the sum times `scale`, in the same pass: for blocks of rows of a large
/// output layer. Summed in the order of the rows, in double.
/// Throws IndexError for a target that is neither ignore_index nor in 0 .. classes - 1, ValueError for a
/// smoothing outside [0, 1].
template <class T>
double cross_entropy_forward(const T* logits, const std::int32_t* targets, index_t rows, index_t classes,
                             const CrossEntropyOptions& options, T* log_sum_exp, double* unsmoothed = nullptr,
                             T* gradient = nullptr, T scale = T(1));

/// dlogits = beta * dlogits + scale * (exp(x - log_sum_exp) - (1 - e) * onehot(target) - e / classes), 0 for
/// ignored rows. beta 0 does not read dlogits, which may be logits.
template <class T>
void cross_entropy_backward(const T* logits, const std::int32_t* targets, const T* log_sum_exp, index_t rows,
                            index_t classes, const CrossEntropyOptions& options, T scale, T* dlogits, T beta);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>
#include <cmath>
#include <limits>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"

namespace eigenformer::detail::kernels {

EIGENFORMER_INLINE index_t count_targets(const std::int32_t* targets, index_t rows,
                                         std::int32_t ignore_index) {
  index_t count = 0;
  for (index_t r = 0; r < rows; ++r) count += targets[r] != ignore_index ? 1 : 0;
  return count;
}

namespace detail {

inline void check_cross_entropy(const std::int32_t* targets, index_t rows, index_t classes,
                                const CrossEntropyOptions& options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    throw ValueError("cross_entropy",
                     {"label_smoothing is ", options.label_smoothing, ", must be at least 0 and at most 1"});
  }
  for (index_t r = 0; r < rows; ++r) {
    if (targets[r] != options.ignore_index && (targets[r] < 0 || targets[r] >= classes)) {
      throw IndexError("cross_entropy",
                       {"target ", targets[r], " at position ", r, " is outside the ", classes, " classes"});
    }
  }
}

/// The loss of one row, from its target's logit, its log-sum-exp and the sum of its logits. Without smoothing
/// the sum is not used, because it may be -inf.
inline double cross_entropy_loss(double target_logit, double log_sum_exp, double sum, index_t classes,
                                 double smoothing) {
  if (target_logit == -std::numeric_limits<double>::infinity() && smoothing < 1) return -target_logit;
  if (smoothing == 0) return log_sum_exp - target_logit;
  const double uniform = smoothing * (log_sum_exp - sum / static_cast<double>(classes));
  return smoothing == 1 ? uniform : (1 - smoothing) * (log_sum_exp - target_logit) + uniform;
}

/// The loss of a row, with and without smoothing.
struct RowLoss {
  double loss = 0, unsmoothed = 0;
};

template <class T>
struct CrossEntropyRows {
  /// losses and lse: (rows); lse and gradient may be nullptr, and gradient may be logits.
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* logits, T* gradient, const std::int32_t* targets,
                                            index_t rows, index_t classes, CrossEntropyOptions options,
                                            T scale, RowLoss* losses, T* lse) {
    const double smoothing = options.label_smoothing;
    using W = Simd<T, Bytes>;
    using Row = RowReduction<T, Bytes>;
    for (index_t r = 0; r < rows; ++r) {
      const T* x = logits + r * classes;
      T* g = shifted(gradient, r * classes);
      const bool ignored = targets[r] == options.ignore_index;
      const T largest = ignored && lse == nullptr ? -Row::infinity : Row::max(x, classes);
      const T shift = largest == -Row::infinity ? T(0) : largest;
      const T total = smoothing == 0 || ignored ? T(0) : Row::sum(x, classes);
      const T target_logit = ignored ? T(0) : x[targets[r]];
      const T exps = ignored && lse == nullptr ? T(1) : Row::sum_exp(x, shift, g, classes);
      const double log_sum = static_cast<double>(shift) + std::log(static_cast<double>(exps));
      if (lse != nullptr) lse[r] = static_cast<T>(log_sum);
      losses[r] = {};
      if (!ignored) {
        const auto logit = static_cast<double>(target_logit);
        losses[r] = {cross_entropy_loss(logit, log_sum, static_cast<double>(total), classes, smoothing),
                     cross_entropy_loss(logit, log_sum, 0, classes, 0)};
      }
      if (g == nullptr) continue;
      if (ignored || exps == T(0)) {
        std::fill_n(g, classes, T(0));
        continue;
      }
      const T factor = scale / exps;
      const T uniform = static_cast<T>(static_cast<double>(scale) * smoothing / static_cast<double>(classes));
      for (index_t i = 0; i < classes; i += W::lanes) {
        typename W::V v;
        W::load(v, g + i, classes - i);
        v = v * factor - uniform;
        W::store(g + i, classes - i, v);
      }
      g[targets[r]] -= static_cast<T>(static_cast<double>(scale) * (1 - smoothing));
    }
  }
};

template <class T>
struct CrossEntropyGradient {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, const std::int32_t* targets, const T* lse,
                                            index_t rows, index_t classes, CrossEntropyOptions options,
                                            T scale, T* dx, T beta) {
    using W = Simd<T, Bytes>;
    const double smoothing = options.label_smoothing;
    const T uniform = static_cast<T>(static_cast<double>(scale) * smoothing / static_cast<double>(classes));
    for (index_t r = 0; r < rows; ++r, x += classes, dx += classes) {
      // A row that is -inf throughout has no gradient either.
      if (targets[r] == options.ignore_index || lse[r] == -std::numeric_limits<T>::infinity()) {
        if (beta == T(0)) std::fill_n(dx, classes, T(0));
        continue;
      }
      for (index_t i = 0; i < classes; i += W::lanes) {
        typename W::V v;
        W::load(v, x + i, classes - i);
        v -= lse[r];
        SimdMath<T, Bytes>::exp_bounded(v);
        v = v * scale - uniform;
        W::store_sum(dx + i, classes - i, v, beta);
      }
      dx[targets[r]] -= static_cast<T>(static_cast<double>(scale) * (1 - smoothing));
    }
  }
};

}  // namespace detail

template <class T>
double cross_entropy_forward(const T* logits, const std::int32_t* targets, index_t rows, index_t classes,
                             const CrossEntropyOptions& options, T* log_sum_exp, double* unsmoothed,
                             T* gradient, T scale) {
  detail::check_cross_entropy(targets, rows, classes, options);
  const auto row_losses = pool_array<detail::RowLoss>(rows);
  parallel_for(rows, row_grain(classes, math_grain), [&](index_t begin, index_t end) {
    const index_t at = begin * classes;
    dispatch<detail::CrossEntropyRows<T>>(logits + at, shifted(gradient, at), targets + begin, end - begin,
                                          classes, options, scale, row_losses.get() + begin,
                                          shifted(log_sum_exp, begin));
  });
  detail::RowLoss total;
  for (index_t r = 0; r < rows; ++r) {
    total.loss += row_losses[r].loss;
    total.unsmoothed += row_losses[r].unsmoothed;
  }
  if (unsmoothed != nullptr) *unsmoothed = total.unsmoothed;
  return total.loss;
}

template <class T>
void cross_entropy_backward(const T* logits, const std::int32_t* targets, const T* log_sum_exp, index_t rows,
                            index_t classes, const CrossEntropyOptions& options, T scale, T* dlogits,
                            T beta) {
  detail::check_cross_entropy(targets, rows, classes, options);
  parallel_for(rows, row_grain(classes, math_grain), [&](index_t begin, index_t end) {
    const index_t at = begin * classes;
    dispatch<detail::CrossEntropyGradient<T>>(logits + at, targets + begin, log_sum_exp + begin, end - begin,
                                              classes, options, scale, dlogits + at, beta);
  });
}

EIGENFORMER_KERNEL(cross_entropy_forward)
EIGENFORMER_KERNEL(cross_entropy_backward)

}  // namespace eigenformer::detail::kernels
#endif
