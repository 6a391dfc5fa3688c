#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// Where a text stands when its next token is chosen.
struct LogitsStep {
  std::size_t input;                        ///< the place of its input in the list that was given
  index_t step;                             ///< 0 for the first token
  std::span<const std::int32_t> prompt;     ///< begin_id and prefix_ids, or the model's prompt and prefix_ids
  std::span<const std::int32_t> generated;  ///< the tokens after them
  bool normalised;                          ///< the scores are log-probabilities; else logits
};

/// Changes the scores of a text's next token. -infinity forbids a token; NaN and +infinity are errors.
///
/// A search calls its processors in this order: the options' `processors` as they stand in the list, then
/// repetition penalty, no-repeat n-grams, minimum length, forbidden ids. What they see depends on the search:
/// log-probabilities in beams of GNMT's and Hugging Face's rules, logits in sampling, in greedy search by
/// Hugging Face's rule and in CTranslate2's, which normalises afterwards.
///
/// A processor is called from several threads at once and must not change. Derive from BasicProcessor to
/// write its code once for float and double, or use logits_processor().
class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;
  /// scores: one for each id of the vocabulary.
  virtual void operator()(const LogitsStep& step, std::span<float> scores) const = 0;
  virtual void operator()(const LogitsStep& step, std::span<double> scores) const = 0;
};

using LogitsProcessors = std::vector<std::shared_ptr<const LogitsProcessor>>;

/// Base of a processor with one `template <class T> void process(const LogitsStep&, std::span<T>) const`.
template <class Derived>
class BasicProcessor : public LogitsProcessor {
 public:
  void operator()(const LogitsStep& step, std::span<float> scores) const final {
    static_cast<const Derived&>(*this).process(step, scores);
  }
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

/// A processor from a function of (const LogitsStep&, auto scores).
template <class F>
std::shared_ptr<const LogitsProcessor> logits_processor(F f) {
  return std::make_shared<detail::FunctionProcessor<F>>(std::move(f));
}

}  // namespace eigenformer
