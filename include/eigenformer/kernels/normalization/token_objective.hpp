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
#include <algorithm>
#include <cmath>
#include <limits>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/normalization/cross_entropy.hpp"
#include "eigenformer/kernels/normalization/softmax.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// The results of TokenObjectiveRows for a row and its copy.
struct TokenSums {
  double words = 0, unsmoothed = 0;
  double forward = 0, backward = 0;  // KL(p1 || p2), KL(p2 || p1)
  double distillation = 0;
};

template <class T>
struct TokenObjectiveRows {
  template <int Bytes>
  struct Row {
    using W = Simd<T, Bytes>;
    using V = typename W::V;
    using Math = SimdMath<T, Bytes>;
    // In place of -inf, so that the difference of ids that are impossible in both copies is 0. NaN stays NaN.
    static constexpr T floor = T(-1e30);

    EIGENFORMER_ALWAYS_INLINE static void load(V& v, const T* x, index_t n) {
      W::load(v, x, n, floor);
      v = v < floor ? floor - V{} : v;
    }

    /// KL(p || q) of log-probabilities.
    EIGENFORMER_ALWAYS_INLINE static double divergence(const T* p, const T* q, index_t n) {
      V sum{};
      for (index_t i = 0; i < n; i += W::lanes) {
        V a, b;
        load(a, p + i, n - i);
        load(b, q + i, n - i);
        V e = a;
        Math::exp_bounded(e);
        sum += e * (a - b);
      }
      return static_cast<double>(W::sum(sum));
    }

    /// log(sum(exp(lp / temperature))); lp: log-probabilities.
    EIGENFORMER_ALWAYS_INLINE static T normaliser(const T* lp, T inverse, index_t n) {
      if (inverse == T(1)) return T(0);
      const T largest = std::max(RowReduction<T, Bytes>::max(lp, n), floor) * inverse;
      V sum{};
      for (index_t i = 0; i < n; i += W::lanes) {
        V v;
        load(v, lp + i, n - i);
        v = v * inverse - largest;
        Math::exp_bounded(v);
        sum += v;
      }
      return largest + std::log(W::sum(sum));
    }

    /// KL(q || p) of probabilities q and p = exp(lp / temperature - shift).
    EIGENFORMER_ALWAYS_INLINE static double from_teacher(const T* q, const T* lp, T inverse, T shift,
                                                         index_t n) {
      V sum{};
      for (index_t i = 0; i < n; i += W::lanes) {
        V a, b;
        W::load(b, q + i, n - i);
        load(a, lp + i, n - i);
        const T least = std::numeric_limits<T>::min();
        V log_q = b > least ? b : least - V{};
        Math::log(log_q);
        sum += b * (log_q - (a * inverse - shift));
      }
      return static_cast<double>(W::sum(sum));
    }

    /// g = words (p - uniform) + teacher (p_T - q) + copies (p (lp - other - kl) + p - p_other), of which lp
    /// and other are log-probabilities and `keep` receives lp. g may be lp.
    struct Slopes {
      T words, uniform, teacher, inverse, copies;
    };
    EIGENFORMER_ALWAYS_INLINE static void gradient(const V& lp, const V& p, const V& other, const V& p_other,
                                                   const V& q, T shift, T kl, const Slopes& s, V& g) {
      g = s.words * p - s.uniform;
      if (s.teacher != T(0)) {
        V soft = lp * s.inverse - shift;
        Math::exp_bounded(soft);
        g += s.teacher * (soft - q);
      }
      if (s.copies != T(0)) g += s.copies * (p * (lp - other - kl) + p - p_other);
    }
  };

  /// logits: log-probabilities, the second copy `stride` behind the first.
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(T* logits, const T* teacher, const std::int32_t* targets,
                                            index_t rows, index_t copies, index_t stride, index_t classes,
                                            TokenObjective o, T scale, bool gradient, TokenSums* sums) {
    using R = Row<Bytes>;
    using W = typename R::W;
    using V = typename W::V;
    const double share = static_cast<double>(scale) / static_cast<double>(copies);
    const double words = o.distillation > 0 ? share * (1 - o.distillation) : share;
    const T inverse = static_cast<T>(1 / o.temperature);
    const typename R::Slopes slopes{
        static_cast<T>(words), static_cast<T>(words * o.label_smoothing / static_cast<double>(classes)),
        teacher == nullptr ? T(0) : static_cast<T>(share * o.distillation * o.temperature), inverse,
        copies == 2 ? static_cast<T>(static_cast<double>(scale) * o.divergence / 4) : T(0)};
    for (index_t r = 0; r < rows; ++r) {
      T* first = logits + r * classes;
      T* second = copies == 2 ? first + stride : nullptr;
      const T* q = shifted(teacher, r * classes);
      TokenSums& sum = sums[r];
      sum = {};
      if (targets[r] == o.ignore_index) {
        if (gradient) std::fill_n(first, classes, T(0));
        if (gradient && second != nullptr) std::fill_n(second, classes, T(0));
        continue;
      }
      T shifts[2] = {T(0), T(0)};
      for (index_t c = 0; c < copies; ++c) {
        const T* lp = c == 0 ? first : second;
        const auto target = static_cast<double>(lp[targets[r]]);
        const double total =
            o.label_smoothing == 0 ? 0.0 : static_cast<double>(RowReduction<T, Bytes>::sum(lp, classes));
        sum.unsmoothed += cross_entropy_loss(target, 0, 0, classes, 0);
        sum.words += cross_entropy_loss(target, 0, total, classes, o.label_smoothing);
        if (q == nullptr) continue;
        shifts[c] = R::normaliser(lp, inverse, classes);
        sum.distillation += R::from_teacher(q, lp, inverse, shifts[c], classes);
      }
      if (copies == 2) {
        sum.words /= 2;
        sum.unsmoothed /= 2;
        sum.distillation /= 2;
        sum.forward = R::divergence(first, second, classes);
        sum.backward = R::divergence(second, first, classes);
      }
      if (!gradient) continue;
      const T forward = static_cast<T>(sum.forward), backward = static_cast<T>(sum.backward);
      for (index_t i = 0; i < classes; i += W::lanes) {
        V a, p, b{}, p_b{}, soft{}, g;
        R::load(a, first + i, classes - i);
        p = a;
        R::Math::exp_bounded(p);
        if (q != nullptr) W::load(soft, q + i, classes - i);
        if (second != nullptr) {
          R::load(b, second + i, classes - i);
          p_b = b;
          R::Math::exp_bounded(p_b);
          R::gradient(b, p_b, a, p, soft, shifts[1], backward, slopes, g);
          W::store(second + i, classes - i, g);
        }
        R::gradient(a, p, b, p_b, soft, shifts[0], forward, slopes, g);
        W::store(first + i, classes - i, g);
      }
      const T at_target = static_cast<T>(words * (1 - o.label_smoothing));
      first[targets[r]] -= at_target;
      if (second != nullptr) second[targets[r]] -= at_target;
    }
  }
};

}  // namespace detail

template <class T>
TokenLosses token_objective(T* logits, const T* teacher, const std::int32_t* targets, index_t rows,
                            index_t copies, index_t classes, const TokenObjective& options, T scale,
                            bool gradient) {
  detail::check_cross_entropy(targets, rows, classes, {options.label_smoothing, options.ignore_index});
  if (copies != 1 && copies != 2)
    throw ValueError("token_objective", {"copies is ", copies, ", must be 1 or 2"});
  log_softmax<T>(logits, logits, copies * rows, classes);
  const auto sums = pool_array<detail::TokenSums>(rows);
  parallel_for(rows, row_grain(classes, math_grain), [&](index_t begin, index_t end) {
    const index_t at = begin * classes;
    dispatch<detail::TokenObjectiveRows<T>>(logits + at, shifted(teacher, at), targets + begin, end - begin,
                                            copies, rows * classes, classes, options, scale, gradient,
                                            sums.get() + begin);
  });
  TokenLosses total;
  for (index_t r = 0; r < rows; ++r) {
    total.words += sums[r].words;
    total.unsmoothed += sums[r].unsmoothed;
    total.divergence += (sums[r].forward + sums[r].backward) / 2;
    total.distillation += sums[r].distillation;
  }
  return total;
}

EIGENFORMER_KERNEL(token_objective)

}  // namespace eigenformer::detail::kernels
#endif
