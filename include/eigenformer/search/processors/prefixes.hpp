#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/search/processors/forbidding.hpp"
#include "eigenformer/search/processors/logits_processor.hpp"

namespace eigenformer {

namespace detail {

// Forbids all but these ids.
template <class T>
void forbid_others(std::span<T> scores, std::span<const std::int32_t> allowed) {
  std::vector<std::pair<std::size_t, T>> kept;
  for (const std::int32_t id : allowed) {
    if (id >= 0 && static_cast<std::size_t>(id) < scores.size())
      kept.emplace_back(static_cast<std::size_t>(id), scores[static_cast<std::size_t>(id)]);
  }
  std::fill(scores.begin(), scores.end(), -std::numeric_limits<T>::infinity());
  for (const auto& [id, score] : kept) scores[id] = score;
}

}  // namespace detail

/// Forces a text to begin with given tokens, which are part of the result and add their log-probabilities to
/// it. SearchOptions::prefix_ids do neither.
class ForcedPrefix final : public BasicProcessor<ForcedPrefix> {
 public:
  /// ids: the first tokens, the prompt not counted.
  explicit ForcedPrefix(std::vector<std::int32_t> ids) : ids_(std::move(ids)) {}
  /// Changes one row of scores; called by the base class.
  template <class T>
  void process(const LogitsStep& step, std::span<T> scores) const {
    const auto at = static_cast<std::size_t>(step.step);
    if (at < ids_.size()) detail::forbid_others(scores, std::span(ids_).subspan(at, 1));
  }

 private:
  std::vector<std::int32_t> ids_;
};

/// Allows only the ids that a function returns for the text so far (constrained decoding, De Cao et al.
/// 2021). When it returns none, the text ends there.
class PrefixAllowed final : public BasicProcessor<PrefixAllowed> {
 public:
  /// Returns the ids allowed next, in any order; called from several threads at once.
  using Function = std::function<std::vector<std::int32_t>(const LogitsStep& step)>;
  /// allowed: must not be empty.
  explicit PrefixAllowed(Function allowed) : allowed_(std::move(allowed)) {}
  /// Changes one row of scores; called by the base class.
  template <class T>
  void process(const LogitsStep& step, std::span<T> scores) const {
    detail::forbid_others<T>(scores, allowed_(step));
  }

 private:
  Function allowed_;
};

/// Creates a ForcedPrefix for a list of processors.
inline std::shared_ptr<const LogitsProcessor> forced_prefix(std::vector<std::int32_t> ids) {
  return std::make_shared<ForcedPrefix>(std::move(ids));
}

/// Creates a PrefixAllowed for a list of processors. allowed: a function of the tokens generated so far
/// (std::span<const std::int32_t>) or of the LogitsStep.
template <class F>
std::shared_ptr<const LogitsProcessor> prefix_allowed(F allowed) {
  if constexpr (std::is_invocable_v<const F&, const LogitsStep&>) {
    return std::make_shared<PrefixAllowed>(std::move(allowed));
  } else {
    return std::make_shared<PrefixAllowed>([f = std::move(allowed)](const LogitsStep& step) {
      return std::vector<std::int32_t>(f(step.generated));
    });
  }
}

}  // namespace eigenformer
