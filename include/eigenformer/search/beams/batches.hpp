#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/core/base/stable_sort.hpp"
#include "eigenformer/search/beams/options.hpp"
#include "eigenformer/search/decoding/next_tokens.hpp"
#include "eigenformer/search/model.hpp"

namespace eigenformer {

/// How many inputs are decoded as one batch. An input with more than batch_tokens tokens is a batch of its
/// own.
struct BatchSearchOptions {
  index_t batch_size = 32;      ///< maximum inputs of a batch; batches are spread over the threads
  index_t batch_tokens = 4096;  ///< maximum source tokens of a batch

  /// Visits the fields with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"batch_size", "maximum sentences decoded together", Allowed::positive},
          self.batch_size);
    visit(OptionField{"batch_tokens", "maximum source tokens decoded together", Allowed::positive},
          self.batch_tokens);
  }

  /// Throws ValueError for an invalid field and names it.
  void validate(const char* op = "search") const;
};

namespace detail {

/// Calls run(places) for each batch of inputs of similar length. places: their indices in `lengths`, the
/// longest first (so that no thread ends with the longest batch). Many batches run in parallel, one thread
/// each; few run one after the other, with threads inside each product. Throws ValueError for an invalid
/// batch size.
EIGENFORMER_FUNCTION void each_batch(const std::vector<index_t>& lengths, const BatchSearchOptions& batching,
                                     const std::function<void(std::span<const std::size_t> places)>& run);

template <class M>
index_t input_length(const M& model, const typename M::Input& input) {
  if constexpr (detail::HasInputLength<M>) {
    return static_cast<index_t>(model.input_length(input));
  } else if constexpr (requires {
                         { input.size() } -> std::convertible_to<std::size_t>;
                       }) {
    return static_cast<index_t>(input.size());
  } else {
    static_assert(
        detail::HasInputLength<M>,
        "the model needs `index_t input_length(const Input& input) const`, because its Input has no size()");
    return 1;
  }
}

// The maximum target tokens of each input after prefix_ids by max_length_factor; empty without a factor.
template <class M>
std::vector<index_t> length_limits(const M& model, std::span<const typename M::Input> inputs,
                                   const SearchOptions& options) {
  std::vector<index_t> limits;
  if (options.max_length_factor == 0) return limits;
  for (const auto& input : inputs) {
    const double tokens =
        std::ceil(options.max_length_factor * static_cast<double>(input_length(model, input)));
    limits.push_back(tokens < static_cast<double>(max_steps(options))
                         ? std::max<index_t>(1, static_cast<index_t>(tokens))
                         : max_steps(options));
  }
  return limits;
}

inline void require_id(const char* op, const char* field, std::int32_t id, index_t vocabulary,
                       std::int32_t least) {
  if (id >= least && id < vocabulary) return;
  throw ValueError(op, {field, " is ", id, ", must be ",
                        (id < least ? "at least " + std::to_string(least)
                                    : "below the vocabulary's size " + std::to_string(vocabulary))});
}

/// Throws ValueError unless there is one of `what` per input or none at all.
inline void require_one_each(const char* op, const char* what, std::size_t count, std::size_t inputs) {
  if (count == 0 || count == inputs) return;
  throw ValueError(op,
                   {"there are ", count, " ", what, ", must be ", inputs, ", one for each input, or none"});
}

/// The prompt of each text: begin_id or the model's own prompt, then prefix_ids and the input's own prefix.
/// places: the inputs as indices into the caller's list of prefixes. Throws ValueError for ids outside the
/// vocabulary and an empty prompt.
template <class M>
Prompts make_prompts(const char* op, const M& model, std::span<const typename M::Input> inputs,
                     const SearchOptions& options, std::span<const std::size_t> places) {
  const auto vocabulary = static_cast<index_t>(model.vocabulary_size());
  for (const std::int32_t id : options.prefix_ids) require_id(op, "one of prefix_ids", id, vocabulary, 0);
  Prompts prompts;
  prompts.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if constexpr (detail::HasPrompt<M>) {
      prompts.push_back(model.prompt(inputs[i]));
      if (prompts.back().empty())
        throw ValueError(op, {"prompt ", i, " is empty, must have at least one token"});
    } else {
      if (i == 0) require_id(op, "begin_id", options.begin_id, vocabulary, 0);
      prompts.push_back({options.begin_id});
    }
    std::vector<std::int32_t>& prompt = prompts.back();
    prompt.insert(prompt.end(), options.prefix_ids.begin(), options.prefix_ids.end());
    if (options.prefixes.empty()) continue;
    const std::vector<std::int32_t>& prefix = options.prefixes[places[i]];
    for (const std::int32_t id : prefix) require_id(op, "one of a text's prefix", id, vocabulary, 0);
    prompt.insert(prompt.end(), prefix.begin(), prefix.end());
  }
  return prompts;
}

}  // namespace detail

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void BatchSearchOptions::validate(const char* op) const { validate_fields(op, *this); }

EIGENFORMER_FUNCTION void detail::each_batch(
    const std::vector<index_t>& lengths, const BatchSearchOptions& batching,
    const std::function<void(std::span<const std::size_t> places)>& run) {
  batching.validate();
  const std::vector<std::size_t> order =
      stable_order(lengths.size(), [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::span<const std::size_t>> batches;
  for (std::size_t begin = 0; begin < order.size(); begin += batches.back().size()) {
    std::size_t end = begin;
    index_t tokens = 0;
    while (end < order.size() && static_cast<index_t>(end - begin) < batching.batch_size &&
           (end == begin || tokens + lengths[order[end]] <= batching.batch_tokens)) {
      tokens += lengths[order[end++]];
    }
    batches.push_back(std::span(order).subspan(begin, end - begin));
  }
  const index_t threads = Runtime::instance().threads();
  if (static_cast<index_t>(batches.size()) < 2 * threads) {
    for (const auto& batch : batches) run(batch);
    return;
  }
  std::atomic<std::size_t> next{0};
  parallel_for(threads, 1, [&](index_t begin, index_t end) {
    for (index_t worker = begin; worker < end; ++worker) {
      try {
        for (std::size_t i = next++; i < batches.size(); i = next++) run(batches[i]);
      } catch (...) {
        next = batches.size();  // the other threads begin no further batch
        throw;
      }
    }
  });
}

#endif

}  // namespace eigenformer
