#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/search/processors/logits_processor.hpp"

namespace eigenformer {

namespace detail {

// Ids outside the vocabulary are ignored: they are never produced.
template <class T>
void forbid(std::span<T> scores, std::int32_t id) {
  if (id >= 0 && static_cast<std::size_t>(id) < scores.size())
    scores[static_cast<std::size_t>(id)] = -std::numeric_limits<T>::infinity();
}

// The i-th token of the prompt followed by the generated text.
inline std::int32_t token_at(const LogitsStep& step, std::size_t i) {
  return i < step.prompt.size() ? step.prompt[i] : step.generated[i - step.prompt.size()];
}

}  // namespace detail

/// Forbids ids; those outside the vocabulary are ignored.
class SuppressedTokens final : public BasicProcessor<SuppressedTokens> {
 public:
  /// ids: never produced.
  explicit SuppressedTokens(std::vector<std::int32_t> ids) : ids_(std::move(ids)) {}
  /// Changes one row of scores; called by the base class.
  template <class T>
  void process(const LogitsStep&, std::span<T> scores) const {
    for (const std::int32_t id : ids_) detail::forbid(scores, id);
  }

 private:
  std::vector<std::int32_t> ids_;
};

/// Forbids the end symbol until a text has min_length tokens.
class MinimumLength final : public BasicProcessor<MinimumLength> {
 public:
  /// min_length: tokens before the end symbol, the prompt not counted.
  MinimumLength(index_t min_length, std::int32_t end_id) : min_length_(min_length), end_id_(end_id) {}
  /// Changes one row of scores; called by the base class.
  template <class T>
  void process(const LogitsStep& step, std::span<T> scores) const {
    if (step.step < min_length_) detail::forbid(scores, end_id_);
  }

 private:
  index_t min_length_;
  std::int32_t end_id_;
};

/// Forbids the tokens that would repeat an n-gram of the prompt and the text (Paulus et al. 2018,
/// section 2.5).
class NoRepeatNgrams final : public BasicProcessor<NoRepeatNgrams> {
 public:
  /// n: the size of the n-grams. Throws ValueError when n is below 1.
  explicit NoRepeatNgrams(index_t n) : n_(static_cast<std::size_t>(n)) {
    if (n < 1) throw ValueError("no_repeat_ngrams", "n is " + std::to_string(n) + ", must be at least 1");
  }
  /// Changes one row of scores; called by the base class.
  template <class T>
  void process(const LogitsStep& step, std::span<T> scores) const {
    const std::size_t length = step.prompt.size() + step.generated.size();
    for (std::size_t end = n_ - 1; end < length; ++end) {
      std::size_t same = 0;
      while (same < n_ - 1 &&
             detail::token_at(step, end - 1 - same) == detail::token_at(step, length - 1 - same)) {
        ++same;
      }
      if (same == n_ - 1) detail::forbid(scores, detail::token_at(step, end));
    }
  }

 private:
  std::size_t n_;
};

}  // namespace eigenformer
