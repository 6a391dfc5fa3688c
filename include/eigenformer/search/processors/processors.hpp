#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// The text and step for which the next token is chosen. Its spans are valid during the call only.
struct LogitsStep {
  std::size_t input;                        ///< the index of its input in the caller's list
  index_t step;                             ///< 0 for the first token
  std::span<const std::int32_t> prompt;     ///< begin_id or the model's prompt, then the forced prefixes
  std::span<const std::int32_t> generated;  ///< the tokens after the prompt
  bool normalised;                          ///< whether the scores are log-probabilities; else logits
};

/// Changes the scores of a text's next token before it is chosen. -infinity forbids a token; NaN and
/// +infinity are errors.
///
/// A search calls its processors in this order: the options' `processors` in the order of the list, then
/// repetition penalty, no-repeat n-grams, minimum length, forbidden ids. The scores are log-probabilities in
/// beam search by the rules gnmt, marian and huggingface, and logits in sampling, in greedy search by the
/// rule huggingface, and by the rule ctranslate2, which normalises afterwards.
///
/// Processors are called from several threads at once and must not change. Derive from BasicProcessor to
/// write the code once for float and double, or use logits_processor().
class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;
  /// Changes the scores in place; scores: one for each id of the vocabulary.
  virtual void operator()(const LogitsStep& step, std::span<float> scores) const = 0;
  /// The same in double.
  virtual void operator()(const LogitsStep& step, std::span<double> scores) const = 0;
};

/// Processors in the order in which they are called; none may be null.
using LogitsProcessors = std::vector<std::shared_ptr<const LogitsProcessor>>;

/// The base of a processor that defines `template <class T> void process(const LogitsStep&, std::span<T>)
/// const`.
template <class Derived>
class BasicProcessor : public LogitsProcessor {
 public:
  /// Calls Derived::process().
  void operator()(const LogitsStep& step, std::span<float> scores) const final {
    static_cast<const Derived&>(*this).process(step, scores);
  }
  /// Calls Derived::process().
  void operator()(const LogitsStep& step, std::span<double> scores) const final {
    static_cast<const Derived&>(*this).process(step, scores);
  }
};

namespace detail {

template <class F>
class FunctionProcessor final : public BasicProcessor<FunctionProcessor<F>> {
 public:
  explicit FunctionProcessor(F f) : f_(std::move(f)) {}
  template <class T>
  void process(const LogitsStep& step, std::span<T> scores) const {
    f_(step, scores);
  }

 private:
  F f_;
};

}  // namespace detail

/// Creates a processor from a function (const LogitsStep&, auto scores), which must accept spans of float and
/// double.
template <class F>
std::shared_ptr<const LogitsProcessor> logits_processor(F f) {
  return std::make_shared<detail::FunctionProcessor<F>>(std::move(f));
}

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

/// Forbids ids; those outside the vocabulary are ignored.
class SuppressedTokens final : public BasicProcessor<SuppressedTokens> {
 public:
  /// ids: never produced.
  explicit SuppressedTokens(std::vector<std::int32_t> ids) : ids_(std::move(ids)) {}
  /// Changes one row of scores; called by the base class.
  template <class T>
  void process(const LogitsStep&, std::span<T> scores) const {
    for (const std::int32_t id : ids_) forbid(scores, id);
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
    if (step.step < min_length_) forbid(scores, end_id_);
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
    if (n < 1) throw ValueError("no_repeat_ngrams", {"n is ", n, ", must be at least 1"});
  }
  /// Changes one row of scores; called by the base class.
  template <class T>
  void process(const LogitsStep& step, std::span<T> scores) const {
    const std::size_t length = step.prompt.size() + step.generated.size();
    for (std::size_t end = n_ - 1; end < length; ++end) {
      std::size_t same = 0;
      while (same < n_ - 1 && token_at(step, end - 1 - same) == token_at(step, length - 1 - same)) {
        ++same;
      }
      if (same == n_ - 1) forbid(scores, token_at(step, end));
    }
  }

 private:
  std::size_t n_;
};

/// Lowers the scores of tokens that occur in the prompt or the text: a positive score is divided by the
/// penalty, a negative one multiplied, once per token however often it occurs (Keskar et al. 2019,
/// section 4.1).
class RepetitionPenalty final : public BasicProcessor<RepetitionPenalty> {
 public:
  /// penalty: 1 has no effect. Throws ValueError unless it is positive and finite.
  explicit RepetitionPenalty(double penalty) : penalty_(penalty) {
    if (!(penalty > 0) || !std::isfinite(penalty)) {
      throw ValueError("repetition_penalty", {"penalty is ", penalty, ", must be positive and finite"});
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

/// The processors of some options, in the order that LogitsProcessor describes.
class ProcessorList {
 public:
  /// op: the name in messages. Throws ValueError for a null
  /// processor.
  template <class Options>
  ProcessorList(const char* op, const Options& options) : processors_(options.processors) {
    for (std::size_t i = 0; i < processors_.size(); ++i) {
      if (processors_[i] == nullptr)
        throw ValueError(op, {"processors[", i, "] is null, must be a LogitsProcessor"});
    }
    if (options.repetition_penalty != 1)
      processors_.push_back(std::make_shared<RepetitionPenalty>(options.repetition_penalty));
    changes_values_ = !processors_.empty();
    if (options.no_repeat_ngram_size > 0)
      processors_.push_back(std::make_shared<NoRepeatNgrams>(options.no_repeat_ngram_size));
    if (options.min_length > 0)
      processors_.push_back(std::make_shared<MinimumLength>(options.min_length, options.end_id));
    if (!options.forbidden_ids.empty())
      processors_.push_back(std::make_shared<SuppressedTokens>(options.forbidden_ids));
  }

  /// Whether processors may do more than forbid tokens, so that scores must be checked.
  bool changes_values() const noexcept { return changes_values_; }

  /// Calls all processors in order.
  template <class T>
  void operator()(const LogitsStep& step, std::span<T> scores) const {
    for (const auto& processor : processors_) (*processor)(step, scores);
  }

 private:
  LogitsProcessors processors_;
  bool changes_values_ = false;
};

/// Throws ValueError if a row of logits or of processed scores contains NaN or +infinity.
template <class T>
void require_numbers(const char* op, std::span<const T> row, std::size_t input, index_t step,
                     bool processed) {
  for (std::size_t id = 0; id < row.size(); ++id) {
    if (row[id] < std::numeric_limits<T>::infinity()) continue;
    const std::string place = "for input " + std::to_string(input) + " at step " + std::to_string(step) +
                              ", " + (std::isnan(row[id]) ? "NaN" : "+infinity") + " for id " +
                              std::to_string(id);
    if (processed)
      throw ValueError(op, {"scores are not numbers after a logits processor, ", place,
                            "; a processor may use -infinity, which forbids a token"});
    throw ValueError(op,
                     {"the model's logits are not numbers, ", place,
                      "; check that its weights are finite (training with too large a learning rate makes "
                      "NaN) and that values do not overflow"});
  }
}

}  // namespace detail

}  // namespace eigenformer
