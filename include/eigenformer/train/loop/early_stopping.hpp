#pragma once

#include <limits>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// Which of two measurements is better.
enum class Better {
  lower,  ///< as for a loss
  higher  ///< as for BLEU
};

/// Tracks the best validation, and stops after `patience` validations without improvement.
class EarlyStopping {
 public:
  /// patience: validations without improvement after which stop() is true; 0: never.
  explicit EarlyStopping(index_t patience = 0, Better better = Better::lower)
      : patience_(patience), better_(better), best_(worst(better)) {}

  /// Records a validation's value; returns true when it is the best so far, which NaN never is.
  bool update(double value) {
    if (improves(value)) {
      best_ = value;
      without_improvement_ = 0;
      return true;
    }
    ++without_improvement_;
    return false;
  }

  /// Whether a value is better than best(); false for NaN. Records nothing.
  bool improves(double value) const noexcept {
    return better_ == Better::lower ? value < best_ : value > best_;
  }
  /// Whether `patience` validations in a row brought no improvement.
  bool stop() const noexcept { return patience_ > 0 && without_improvement_ >= patience_; }
  /// The best value so far; before the first it is worst().
  double best() const noexcept { return best_; }
  /// The number of validations since the best one.
  index_t without_improvement() const noexcept { return without_improvement_; }
  /// Restores a saved best() and without_improvement().
  void restore(double best, index_t without_improvement) noexcept {
    best_ = best;
    without_improvement_ = without_improvement;
  }

  /// A value worse than every number: infinity, or -infinity when higher is better.
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
