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

// The warm-up of one training: as given, or fitted to the updates that are expected, once. What people should
// know of it is said then.
class Warmup {
 public:
  // given: updates, or nothing. say: takes notices.
  Warmup(std::optional<index_t> given, std::function<void(const std::string&)> say)
      : given_(given), say_(std::move(say)) {}

  // Updates of warm-up as the next update sees it. total: of updates that are expected in all. settled:
  // whether that stays so; until then the warm-up may still get shorter.
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

  // What a training state keeps: nothing before it is decided.
  std::optional<index_t> decided() const noexcept { return decided_; }
  // Goes on from it. What was given now counts all the same.
  void restore(std::optional<index_t> decided) noexcept { decided_ = given_ ? given_ : decided; }

 private:
  std::optional<index_t> given_;
  std::function<void(const std::string&)> say_;
  std::optional<index_t> decided_;
};

}  // namespace detail

}  // namespace eigenformer
