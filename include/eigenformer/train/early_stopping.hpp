#pragma once

#include <limits>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// Remembers the best validation loss and says when there has been none better for `patience` validations.
class EarlyStopping {
 public:
  /// patience 0: never stops.
  explicit EarlyStopping(index_t patience = 0) : patience_(patience) {}

  /// Takes a validation loss; true when it is the best so far. NaN never is.
  bool update(double loss) {
    if (loss < best_) {
      best_ = loss;
      without_improvement_ = 0;
      return true;
    }
    ++without_improvement_;
    return false;
  }

  bool stop() const noexcept { return patience_ > 0 && without_improvement_ >= patience_; }
  double best() const noexcept { return best_; }
  index_t without_improvement() const noexcept { return without_improvement_; }
  void restore(double best, index_t without_improvement) noexcept {
    best_ = best;
    without_improvement_ = without_improvement;
  }

 private:
  index_t patience_;
  double best_ = std::numeric_limits<double>::infinity();
  index_t without_improvement_ = 0;
};

}  // namespace eigenformer
