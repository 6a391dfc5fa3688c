#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// Updates of linear warm-up of a training of `total` updates, where nobody said how many: 400, or a quarter
/// of all if that is less. A training that ends within its warm-up has never had its learning rate.
inline index_t fitted_warmup(index_t total) noexcept { return std::clamp<index_t>(total / 4, 1, 400); }

namespace detail {

// The warm-up of one training: as given, or fitted to the updates that its limits allow. Where time limits
// them, they are judged once, by the speed of the first updates; the learning rate never depends on the clock
// after that, nor after a resume.
class Warmup {
 public:
  // After so many updates of a run speed is judged.
  static constexpr index_t judged_after = 20;

  // given: updates, or nothing. timed: whether time limits the training. say: takes what people should know.
  Warmup(std::optional<index_t> given, bool timed, std::function<void(const std::string&)> say)
      : given_(given), timed_(timed), say_(std::move(say)) {}

  // As update `step`, the next one, sees it; total: of updates that are expected now.
  index_t at(index_t total) {
    if (decided_) return *decided_;
    if (asked_ == 0) updates_ = given_.value_or(fitted_warmup(total));
    const bool judges = !timed_ || asked_ == judged_after;
    ++asked_;
    if (!judges) return updates_;
    if (!given_) updates_ = std::min(updates_, fitted_warmup(total));
    decided_ = updates_;
    const std::string expected =
        (timed_ ? "about " : "") + std::to_string(total) + " updates that are expected";
    if (given_ && updates_ > total / 2) {
      say_("the warm-up of " + std::to_string(updates_) + " updates takes most of the " + expected +
           ": the learning rate hardly gets to its peak, or never does");
    } else if (!given_ && updates_ < fitted_warmup(unlimited)) {
      say_("warm-up: " + std::to_string(updates_) + " updates, a quarter of the " + expected);
    }
    return updates_;
  }

  // What a training state keeps: nothing before it is decided.
  std::optional<index_t> decided() const noexcept { return decided_; }
  // Goes on from it. What was given now counts all the same.
  void restore(std::optional<index_t> decided) noexcept {
    asked_ = 0;
    decided_ = given_ ? given_ : decided;
  }

 private:
  static constexpr index_t unlimited = index_t{1} << 40;

  std::optional<index_t> given_;
  bool timed_;
  std::function<void(const std::string&)> say_;
  std::optional<index_t> decided_;
  index_t updates_ = 0;
  index_t asked_ = 0;
};

}  // namespace detail

}  // namespace eigenformer
