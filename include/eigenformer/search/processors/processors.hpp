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
/// Processors are called from several threads at once and must not change. logits_processor() makes one of
/// code that is written once for float and double.
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

namespace detail {

template <class F>
class FunctionProcessor final : public LogitsProcessor {
 public:
  explicit FunctionProcessor(F f) : f_(std::move(f)) {}
  void operator()(const LogitsStep& step, std::span<float> scores) const override { f_(step, scores); }
  void operator()(const LogitsStep& step, std::span<double> scores) const override { f_(step, scores); }

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

/// Forbids the tokens that would repeat an n-gram of the prompt and the text (Paulus et al. 2018,
/// section 2.5). n: the size of the n-grams, at least 1.
template <class T>
void forbid_repeated_ngrams(const LogitsStep& step, std::span<T> scores, index_t n) {
  const auto before = static_cast<std::size_t>(n) - 1;  // tokens of an n-gram before its last one
  const std::size_t length = step.prompt.size() + step.generated.size();
  for (std::size_t end = before; end < length; ++end) {
    std::size_t same = 0;
    while (same < before && token_at(step, end - 1 - same) == token_at(step, length - 1 - same)) ++same;
    if (same == before) forbid(scores, token_at(step, end));
  }
}

/// Lowers the scores of tokens that occur in the prompt or the text: a positive score is divided by the
/// penalty, a negative one multiplied, once per token however often it occurs (Keskar et al. 2019,
/// section 4.1).
template <class T>
void penalise_repetition(const LogitsStep& step, std::span<T> scores, T penalty) {
  std::vector<std::int32_t> seen(step.prompt.begin(), step.prompt.end());
  seen.insert(seen.end(), step.generated.begin(), step.generated.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const std::int32_t id : seen) {
    if (id < 0 || static_cast<std::size_t>(id) >= scores.size()) continue;
    T& score = scores[static_cast<std::size_t>(id)];
    score = score < 0 ? score * penalty : score / penalty;
  }
}

/// The processors of some options, in the order that LogitsProcessor describes.
class ProcessorList {
 public:
  /// options: valid SearchOptions. Throws ValueError for a null processor.
  template <class Options>
  explicit ProcessorList(const Options& options) : processors_(options.processors) {
    for (std::size_t i = 0; i < processors_.size(); ++i) {
      if (processors_[i] == nullptr)
        throw ValueError("search", {"processors[", i, "] is null, must be a LogitsProcessor"});
    }
    const auto add = [&](auto f) { processors_.push_back(logits_processor(std::move(f))); };
    if (options.repetition_penalty != 1) {
      add([penalty = options.repetition_penalty]<class T>(const LogitsStep& step, std::span<T> scores) {
        penalise_repetition(step, scores, static_cast<T>(penalty));
      });
    }
    changes_values_ = !processors_.empty();
    if (options.no_repeat_ngram_size > 0) {
      add([n = options.no_repeat_ngram_size](const LogitsStep& step, auto scores) {
        forbid_repeated_ngrams(step, scores, n);
      });
    }
    if (options.min_length > 0) {
      add([least = options.min_length, end = options.end_id](const LogitsStep& step, auto scores) {
        if (step.step < least) forbid(scores, end);
      });
    }
    if (!options.forbidden_ids.empty()) {
      add([ids = options.forbidden_ids](const LogitsStep&, auto scores) {
        for (const std::int32_t id : ids) forbid(scores, id);
      });
    }
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
