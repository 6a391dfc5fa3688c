#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

struct AttentionMaps;  // search/decoding/attention_maps.hpp

/// A text found for an input.
struct Hypothesis {
  std::vector<std::int32_t> ids;  ///< without begin and end symbol, prompt and forced prefixes
  double log_probability = 0;     ///< sum over its tokens and the end symbol, in nats
  double score = 0;               ///< ranks texts, see SearchRule; log_probability in sampling
  bool finished = false;          ///< whether it ended with the end symbol
  std::shared_ptr<const AttentionMaps> attention = {};  ///< with SearchOptions::attention, else null
  /// With token_scores, the log-probability of each token and of the end symbol of a finished text, in nats;
  /// they sum to log_probability. Else empty.
  std::vector<double> token_log_probabilities{};
  /// Indices of the input's constraints that the text does not meet. Of finished texts, and of unfinished
  /// ones, those with more of them rank lower.
  std::vector<std::size_t> unmet{};
};

namespace detail {

/// Returns what to add to the score of a hypothesis that has ended or was cut off; an empty function:
/// nothing.
using EndScore = std::function<double(std::size_t input, const Hypothesis& ended)>;

}  // namespace detail

/// The state of an input's search after a step. Its spans are valid during the call only.
struct SearchProgress {
  std::size_t input;  ///< the index of the input in the caller's list
  index_t step;       ///< tokens of each growing text
  index_t group;      ///< the group of a diverse beam; else 0
  /// The growing texts, the likeliest first, without scores. In sampling: all texts of the input in order,
  /// including finished ones.
  std::span<const Hypothesis> growing;
  /// The texts that have ended, the best first: by the end symbol, or where every next token is forbidden. In
  /// sampling empty.
  std::span<const Hypothesis> finished;
};

/// Observes searches while they run, and may end them.
class SearchObserver {
 public:
  virtual ~SearchObserver() = default;
  /// Called after each step for each input (and group of a diverse beam) whose search is running, on the
  /// searching threads, concurrently for different inputs. Returning false ends the search of the input (or
  /// group) with the texts it has, finished or not, the best first; other inputs are not affected. An
  /// exception is rethrown to the caller of the search, after the threads that decode other batches have
  /// ended; no text is returned.
  virtual bool operator()(const SearchProgress& progress) const = 0;
};

namespace detail {

template <class F>
class FunctionObserver final : public SearchObserver {
 public:
  explicit FunctionObserver(F f) : f_(std::move(f)) {}
  bool operator()(const SearchProgress& progress) const override { return f_(progress); }

 private:
  F f_;
};

}  // namespace detail

/// Creates an observer from a function (const SearchProgress&) that returns whether to continue.
template <class F>
std::shared_ptr<const SearchObserver> search_observer(F f) {
  return std::make_shared<detail::FunctionObserver<F>>(std::move(f));
}

}  // namespace eigenformer
