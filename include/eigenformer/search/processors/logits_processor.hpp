#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"

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

}  // namespace eigenformer
