#pragma once

#include <algorithm>
#include <cmath>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

/// Learning rates as functions of the step, which counts from 1, so resuming a training needs no saved state.
/// Each rises linearly over the first `warmup` steps, peak * step / warmup (0: no warm-up). All throw
/// ValueError for a step below 1 or an invalid argument.
namespace eigenformer::schedule {

namespace detail {

inline constexpr double decay_share = 0.2;  // of a training, where nothing else is said

inline void check(const char* op, index_t step, double peak, index_t warmup) {
  if (step < 1) throw ValueError(op, {"step is ", step, ", must be at least 1"});
  if (!(peak >= 0 && std::isfinite(peak))) {
    throw ValueError(op, {"peak is ", peak, ", must be finite and not negative"});
  }
  if (warmup < 0) throw ValueError(op, {"warmup is ", warmup, ", must not be negative"});
}

// The factor of the warm-up.
inline double warm(index_t step, index_t warmup) {
  return step < warmup ? static_cast<double>(step) / static_cast<double>(warmup) : 1.0;
}

}  // namespace detail

/// The peak in every step after the warm-up.
inline double constant(index_t step, double peak, index_t warmup = 0) {
  detail::check("constant", step, peak, warmup);
  return peak * detail::warm(step, warmup);
}

/// The factor of a decay in the last `share` of a training, of which the part `done` (0 to 1) is over: 1
/// before it, then 1 - sqrt of the decay's own part that is over. Hägele et al. 2024 ("1-sqrt"), who find it
/// better than a linear decay. share must be in (0, 1]; throws ValueError otherwise, and for a `done` that is
/// NaN.
inline double decay(double done, double share = detail::decay_share) {
  if (!(share > 0 && share <= 1)) throw ValueError("decay", {"share is ", share, ", must be in (0, 1]"});
  if (std::isnan(done)) throw ValueError("decay", "done is NaN, must be a number");
  if (done >= 1) return 0;  // exactly; the quotient may round
  return 1 - std::sqrt(std::clamp((done - (1 - share)) / share, 0.0, 1.0));
}

/// constant() times decay(): warm-up, stable rate, and a decay over the last `share` of `total` steps. Hu et
/// al. 2024 ("WSD"). Until the decay, rates do not depend on `total`, which must be at least 1.
EIGENFORMER_FUNCTION double warmup_stable_decay(index_t step, double peak, index_t warmup, index_t total,
                                                double share = detail::decay_share);

/// peak sqrt(warmup / step) after the warm-up, peak / sqrt(step) without one.
inline double inverse_square_root(index_t step, double peak, index_t warmup = 0) {
  detail::check("inverse_square_root", step, peak, warmup);
  if (step < warmup) return peak * detail::warm(step, warmup);
  return peak * std::sqrt(static_cast<double>(std::max<index_t>(warmup, 1)) / static_cast<double>(step));
}

/// The peak of noam(): factor / sqrt(d_model warmup), which is 7e-4 for d_model 512, 4000 steps and factor 1.
/// noam(step, d, w, f) equals inverse_square_root(step, noam_peak(d, w, f), w). Throws ValueError unless
/// d_model and warmup are at least 1.
EIGENFORMER_FUNCTION double noam_peak(index_t d_model, index_t warmup = 4000, double factor = 1);

/// factor d_model^-1/2 min(step^-1/2, step warmup^-3/2): Vaswani et al. 2017, eq. 3. The factor is not the
/// peak, which is noam_peak(). warmup must be at least 1.
inline double noam(index_t step, index_t d_model, index_t warmup = 4000, double factor = 1) {
  const double peak = noam_peak(d_model, warmup, factor);
  detail::check("noam", step, peak, warmup);
  return inverse_square_root(step, peak, warmup);
}

/// Falls as half a cosine from the peak, at the end of the warm-up, to `floor` at step `total`, and stays
/// there. Loshchilov and Hutter 2017, eq. 5, without restarts. total must exceed warmup, floor lie between 0
/// and the peak.
EIGENFORMER_FUNCTION double cosine(index_t step, double peak, index_t warmup, index_t total,
                                   double floor = 0);

}  // namespace eigenformer::schedule

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {
namespace schedule {

EIGENFORMER_FUNCTION double warmup_stable_decay(index_t step, double peak, index_t warmup, index_t total,
                                                double share) {
  if (total < 1) {
    throw ValueError("warmup_stable_decay", {"total is ", total, ", must be at least 1"});
  }
  const double before = constant(step, peak, warmup);
  return before * decay(static_cast<double>(step - 1) / static_cast<double>(total), share);
}

EIGENFORMER_FUNCTION double noam_peak(index_t d_model, index_t warmup, double factor) {
  if (d_model < 1) throw ValueError("noam", {"d_model is ", d_model, ", must be positive"});
  if (warmup < 1) {
    throw ValueError("noam", {"warmup is ", warmup, ", must be at least 1"});
  }
  if (!(factor >= 0 && std::isfinite(factor))) {
    throw ValueError("noam", {"factor is ", factor, ", must be finite and not negative"});
  }
  return factor / std::sqrt(static_cast<double>(d_model) * static_cast<double>(warmup));
}

EIGENFORMER_FUNCTION double cosine(index_t step, double peak, index_t warmup, index_t total, double floor) {
  detail::check("cosine", step, peak, warmup);
  if (total <= warmup) {
    throw ValueError("cosine", {"total is ", total, ", must exceed warmup, which is ", warmup});
  }
  if (!(floor >= 0 && floor <= peak)) {
    throw ValueError("cosine", {"floor is ", floor, ", must be between 0 and the peak"});
  }
  if (step < warmup) return peak * detail::warm(step, warmup);
  const double done = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total - warmup));
  return floor + (peak - floor) * 0.5 * (1 + std::cos(3.141592653589793 * done));
}

}  // namespace schedule
}  // namespace eigenformer

#endif
