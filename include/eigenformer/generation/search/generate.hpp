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

#include "eigenformer/generation/search/beam_search.hpp"

namespace eigenformer {

/// How many inputs are decoded together.
struct BatchGenerationOptions {
  index_t batch_size = 32;      ///< inputs of a batch; batches are spread over the threads
  index_t batch_tokens = 4096;  ///< source tokens of a batch

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"batch_size", "maximum sentences decoded together", Allowed::positive},
          self.batch_size);
    visit(OptionField{"batch_tokens", "maximum source tokens decoded together", Allowed::positive},
          self.batch_tokens);
  }

  /// Throws ValueError that names an impossible field.
  void validate() const { validate_fields("generation", *this); }
};

namespace detail {

/// Ranges of `order`, which is sorted here by length, the longest first, so that no thread is left with the
/// longest batch at the end. Throws ValueError for an impossible batch size.
inline std::vector<std::pair<std::size_t, std::size_t>> length_batches(const std::vector<index_t>& lengths,
                                                                       const BatchGenerationOptions& batching,
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

/// Calls run(batch) for each: whole batches side by side need no waiting for each other; a few of them are
/// better served by threads within each product.
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
      for (std::size_t i = next++; i < batches.size(); i = next++) run(batches[i]);
    }
  });
}

}  // namespace detail

/// The best texts for inputs: translations of source sentences (token ids with their end symbol, as the model
/// was trained), continuations of prompts, or whatever the model's Input is. Inputs of like length are
/// decoded together; results come in the order of the inputs and do not depend on the batches.
///
/// model: any that generation/model.hpp describes. Throws ValueError for impossible options and for logits
/// that are not numbers, IndexError for an id outside the vocabulary.
template <class M>
std::vector<std::vector<Hypothesis>> generate(const M& model, const Context<detail::ValueOf<M>>& ctx,
                                              std::span<const typename detail::InputOf<M>::type> inputs,
                                              const GenerationOptions& options = {},
                                              const BatchGenerationOptions& batching = {}) {
  using Input = typename M::Input;
  options.validate();
  detail::require_one_prefix_each("generation", options.prefixes.size(), inputs.size());
  detail::require_one_constraint_list_each("generation", options.constraints.size(), inputs.size());
  if (options.attention) detail::require_attention_maps<M>("attention weights are requested");
  std::vector<index_t> lengths;
  for (const Input& input : inputs) lengths.push_back(detail::input_length(model, input));
  std::vector<std::size_t> order;
  const auto batches = detail::length_batches(lengths, batching, order);
  std::vector<std::vector<Hypothesis>> results(inputs.size());
  detail::each_batch(batches, [&](const std::pair<std::size_t, std::size_t>& range) {
    const auto places = std::span<const std::size_t>(order).subspan(range.first, range.second - range.first);
    std::vector<Input> batch;
    for (const std::size_t i : places) batch.push_back(inputs[i]);
    auto found = detail::search_batch(model, ctx, std::span<const Input>(batch), places, options);
    for (std::size_t k = 0; k < places.size(); ++k) results[places[k]] = std::move(found[k]);
    if constexpr (detail::HasAttentionMaps<M>) {
      if (!options.attention) return;
      // A pass over the finished sentence: a search would have to carry the weights of all it gives up.
      for (std::size_t k = 0; k < places.size(); ++k) {
        for (Hypothesis& h : results[places[k]]) {
          h.attention = std::make_shared<const AttentionMaps>(
              detail::hypothesis_maps(model, ctx, batch[k], places[k], h, options));
        }
      }
    }
  });
  return results;
}

}  // namespace eigenformer
