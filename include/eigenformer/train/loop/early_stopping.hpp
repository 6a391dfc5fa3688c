#pragma once

#include <limits>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// Which of two measurements is the better one: lower for a loss, higher for BLEU.
enum class Better { lower, higher };

/// Remembers the best validation and says when there has been none better for `patience` validations.
class EarlyStopping {
 public:
  /// patience 0: never stops.
  explicit EarlyStopping(index_t patience = 0, Better better = Better::lower)
      : patience_(patience), better_(better), best_(worst(better)) {}

  /// Takes a validation's value; true when it is the best so far. NaN never is.
  bool update(double value) {
    if (improves(value)) {
      best_ = value;
      without_improvement_ = 0;
      return true;
    }
    ++without_improvement_;
    return false;
  }

  /// Whether a value is better than the best so far.
  bool improves(double value) const noexcept {
    return better_ == Better::lower ? value < best_ : value > best_;
  }
  bool stop() const noexcept { return patience_ > 0 && without_improvement_ >= patience_; }
  /// The best value so far; before the first infinity, or -infinity where higher is better.
  double best() const noexcept { return best_; }
  index_t without_improvement() const noexcept { return without_improvement_; }
  /// Goes on from a saved best() and without_improvement().
  void restore(double best, index_t without_improvement) noexcept {
    best_ = best;
    without_improvement_ = without_improvement;
  }

  /// What is worse than every number.
  static double worst(Better better) noexcept {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return better == Better::lower ? infinity : -infinity;
  }

 private:
  index_t patience_;
  Better better_;
  double best_;
  index_t without_improvement_ = 0;
};

}  // namespace eigenformer
