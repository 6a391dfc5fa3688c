#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/search/beams/beam_search.hpp"

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
  void validate() const;
};

#if EIGENFORMER_DEFINITIONS
EIGENFORMER_FUNCTION void BatchSearchOptions::validate() const { validate_fields("search", *this); }
#endif

namespace detail {

/// Splits inputs into batches of similar length: fills `order` with the indices sorted by length, the longest
/// first (so that no thread ends with the longest batch), and returns ranges of it. Throws ValueError for an
/// invalid batch size.
EIGENFORMER_FUNCTION std::vector<std::pair<std::size_t, std::size_t>> length_batches(
    const std::vector<index_t>& lengths, const BatchSearchOptions& batching, std::vector<std::size_t>& order);

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION std::vector<std::pair<std::size_t, std::size_t>> length_batches(
    const std::vector<index_t>& lengths, const BatchSearchOptions& batching,
    std::vector<std::size_t>& order) {
  batching.validate();
  order.resize(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::pair<std::size_t, std::size_t>> batches;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    index_t tokens = 0;
    while (end < order.size() && static_cast<index_t>(end - begin) < batching.batch_size &&
           (end == begin || tokens + lengths[order[end]] <= batching.batch_tokens)) {
      tokens += lengths[order[end++]];
    }
    batches.emplace_back(begin, end);
    begin = end;
  }
  return batches;
}

#endif

/// Calls run(batch) for each batch: many batches run in parallel, one thread each; few run one after the
/// other, with threads inside each product.
template <class F>
void each_batch(const std::vector<std::pair<std::size_t, std::size_t>>& batches, F&& run) {
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

/// The search of generate() for one type of model: a class template, because compilers agree on the names of
/// its members, and one compiler's file links what another's library holds.
template <class M>
struct SearchRun {
  using Inputs = std::span<const typename InputOf<M>::type>;
  static std::vector<std::vector<Hypothesis>> run(const M& model, const Context<ValueOf<M>>& ctx,
                                                  Inputs inputs, const SearchOptions& options,
                                                  const BatchSearchOptions& batching);
};

template <class M>
std::vector<std::vector<Hypothesis>> SearchRun<M>::run(const M& model, const Context<ValueOf<M>>& ctx,
                                                       Inputs inputs, const SearchOptions& options,
                                                       const BatchSearchOptions& batching) {
  using Input = typename M::Input;
  options.validate();
  require_one_prefix_each("search", options.prefixes.size(), inputs.size());
  require_one_constraint_list_each("search", options.constraints.size(), inputs.size());
  if (options.attention) require_attention_maps<M>("attention weights are requested");
  std::vector<index_t> lengths;
  for (const Input& input : inputs) lengths.push_back(input_length(model, input));
  std::vector<std::size_t> order;
  const auto batches = length_batches(lengths, batching, order);
  std::vector<std::vector<Hypothesis>> results(inputs.size());
  each_batch(batches, [&](const std::pair<std::size_t, std::size_t>& range) {
    const auto places = std::span<const std::size_t>(order).subspan(range.first, range.second - range.first);
    std::vector<Input> batch;
    for (const std::size_t i : places) batch.push_back(inputs[i]);
    auto found = search_batch(model, ctx, std::span<const Input>(batch), places, options);
    for (std::size_t k = 0; k < places.size(); ++k) results[places[k]] = std::move(found[k]);
    if constexpr (HasAttentionMaps<M>) {
      if (!options.attention) return;
      // A pass over the finished text: during the search the weights of all discarded hypotheses would be
      // kept.
      for (std::size_t k = 0; k < places.size(); ++k) {
        for (Hypothesis& h : results[places[k]]) {
          h.attention = std::make_shared<const AttentionMaps>(
              hypothesis_maps(model, ctx, batch[k], places[k], h, options));
        }
      }
    }
  });
  return results;
}

EIGENFORMER_INSTANCE(struct SearchRun<Seq2SeqTransformer<float>>)

}  // namespace detail

/// Beam search for any number of inputs: translations of source sentences (token ids with the end symbol that
/// the model was trained with), continuations of prompts, or texts for whatever the model's Input is.
///
/// model: as in search/model.hpp. Inputs of similar length share a batch, and batches run on the
/// Runtime's threads. Returns a list of texts for each input, in the order of the inputs, the best text
/// first; results do not depend on the batches, unless a shortlist is used. Throws as
/// beam_search(), for example IndexError for an id outside the vocabulary, and ValueError for invalid
/// batching options and for a model without attention_maps() when attention weights are requested.
template <class M>
std::vector<std::vector<Hypothesis>> generate(const M& model, const Context<detail::ValueOf<M>>& ctx,
                                              std::span<const typename detail::InputOf<M>::type> inputs,
                                              const SearchOptions& options = {},
                                              const BatchSearchOptions& batching = {}) {
  return detail::SearchRun<M>::run(model, ctx, inputs, options, batching);
}

}  // namespace eigenformer
