#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// The default length of the linear warm-up, in updates, for a training of `total` updates: 400, or a quarter
/// of the total if that is less, and at least 1.
inline index_t fitted_warmup(index_t total) noexcept { return std::clamp<index_t>(total / 4, 1, 400); }

namespace detail {

// The warm-up of one training: as given, or fitted once to the expected number of updates. Reports a fitted
// or an overlong warm-up when it is decided.
class Warmup {
 public:
  // given: updates, or empty. say: receives notices.
  Warmup(std::optional<index_t> given, std::function<void(const std::string&)> say)
      : given_(given), say_(std::move(say)) {}

  // Updates of warm-up for the next update. total: expected updates in all. settled: whether that is final;
  // until then the warm-up may still get shorter.
  index_t at(index_t total, bool settled) {
    if (decided_) return *decided_;
    const index_t updates = given_.value_or(fitted_warmup(total));
    if (!settled) return updates;
    decided_ = updates;
    const std::string expected = std::to_string(total) + " expected updates";
    if (given_ && updates > total / 2) {
      say_("the warm-up of " + std::to_string(updates) + " updates takes most of the " + expected +
           ": the learning rate reaches its peak late or never");
    } else if (!given_ && updates == total / 4 && updates > 0) {
      say_("warm-up: " + std::to_string(updates) + " updates, a quarter of the " + expected);
    }
    return updates;
  }

  // For the training state: empty before it is decided.
  std::optional<index_t> decided() const noexcept { return decided_; }
  // Restores decided(). A warm-up given now takes precedence.
  void restore(std::optional<index_t> decided) noexcept { decided_ = given_ ? given_ : decided; }

 private:
  std::optional<index_t> given_;
  std::function<void(const std::string&)> say_;
  std::optional<index_t> decided_;
};

}  // namespace detail

}  // namespace eigenformer
