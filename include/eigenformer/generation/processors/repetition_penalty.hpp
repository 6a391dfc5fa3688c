#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/generation/processors/logits_processor.hpp"

namespace eigenformer {

/// Lowers the scores of tokens that occur in the prompt or the text: a positive score is divided by the
/// penalty, a negative one multiplied, once per token however often it occurs (Keskar et al. 2019,
/// section 4.1).
class RepetitionPenalty final : public BasicProcessor<RepetitionPenalty> {
 public:
  /// penalty: 1 has no effect. Throws ValueError unless it is positive and finite.
  explicit RepetitionPenalty(double penalty) : penalty_(penalty) {
    if (!(penalty > 0) || !std::isfinite(penalty)) {
      throw ValueError("repetition_penalty",
                       "penalty is " + std::to_string(penalty) + ", must be positive and finite");
    }
  }
  /// Changes one row of scores; called by the base class.
  template <class T>
  void process(const LogitsStep& step, std::span<T> scores) const {
    std::vector<std::int32_t> seen(step.prompt.begin(), step.prompt.end());
    seen.insert(seen.end(), step.generated.begin(), step.generated.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    const T penalty = static_cast<T>(penalty_);
    for (const std::int32_t id : seen) {
      if (id < 0 || static_cast<std::size_t>(id) >= scores.size()) continue;
      T& score = scores[static_cast<std::size_t>(id)];
      score = score < 0 ? score * penalty : score / penalty;
    }
  }

 private:
  double penalty_;
};

/// Creates a RepetitionPenalty for a list of processors. Throws as its constructor.
inline std::shared_ptr<const LogitsProcessor> repetition_penalty(double penalty) {
  return std::make_shared<RepetitionPenalty>(penalty);
}

}  // namespace eigenformer
