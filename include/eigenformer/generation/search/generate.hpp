#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/generation/decoding/attention_maps.hpp"
#include "eigenformer/generation/search/beam_search.hpp"

namespace eigenformer {

/// How many sentences are decoded together.
struct BatchGenerationOptions {
  index_t batch_size = 32;      ///< sentences of a batch; batches are spread over the threads
  index_t batch_tokens = 4096;  ///< source tokens of a batch
};

/// Target sentences for source sentences of token ids (with their end symbol, as the model was trained).
/// Sentences of like length are decoded together; results come in the order of the inputs and do not depend
/// on the batches.
///
/// Throws ValueError for impossible options, IndexError for an id outside the vocabulary.
template <class T>
std::vector<std::vector<Hypothesis>> generate(const Seq2SeqTransformer<T>& model, const Context<T>& ctx,
                                              std::span<const std::vector<std::int32_t>> sources,
                                              const GenerationOptions& options = {},
                                              const BatchGenerationOptions& batching = {}) {
  options.validate();
  if (batching.batch_size < 1 || batching.batch_tokens < 1) {
    throw ValueError("generation", "batch_size and batch_tokens must be at least 1");
  }
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Longest first, so that no thread is left with the longest batch at the end.
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[a].size() > sources[b].size(); });
  std::vector<std::pair<std::size_t, std::size_t>> batches;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    index_t tokens = 0;
    while (end < order.size() && static_cast<index_t>(end - begin) < batching.batch_size &&
           (end == begin ||
            tokens + static_cast<index_t>(sources[order[end]].size()) <= batching.batch_tokens)) {
      tokens += static_cast<index_t>(sources[order[end++]].size());
    }
    batches.emplace_back(begin, end);
    begin = end;
  }

  std::vector<std::vector<Hypothesis>> results(sources.size());
  const auto run = [&](const std::pair<std::size_t, std::size_t>& range) {
    std::vector<std::int32_t> ids;
    std::vector<index_t> lengths;
    for (std::size_t i = range.first; i < range.second; ++i) {
      const auto& source = sources[order[i]];
      ids.insert(ids.end(), source.begin(), source.end());
      lengths.push_back(static_cast<index_t>(source.size()));
    }
    const SequenceLayout layout = SequenceLayout::packed(lengths);
    const Memory<T> memory(
        model.encode(ctx, Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids), layout),
        layout);
    auto found = beam_search(model, ctx, memory, options);
    for (std::size_t i = range.first; i < range.second; ++i) {
      auto& hypotheses = results[order[i]] = std::move(found[i - range.first]);
      if (!options.attention) continue;
      // A pass over the finished sentence: a search would have to carry the weights of all it gives up.
      for (Hypothesis& h : hypotheses) {
        std::vector<std::int32_t> target = options.prefix_ids;
        target.insert(target.end(), h.ids.begin(), h.ids.end());
        h.attention = std::make_shared<const AttentionMaps>(
            attention_maps(model, ctx, sources[order[i]], target, options.begin_id, options.prefix_length));
      }
    }
  };
  // Whole batches side by side need no waiting for each other; a few of them are better served by threads
  // within each product.
  const auto count = static_cast<index_t>(batches.size());
  if (count >= 2 * Runtime::instance().threads()) {
    std::atomic<std::size_t> next{0};
    parallel_for(Runtime::instance().threads(), 1, [&](index_t begin, index_t end) {
      for (index_t worker = begin; worker < end; ++worker) {
        for (std::size_t i = next++; i < batches.size(); i = next++) run(batches[i]);
      }
    });
  } else {
    for (const auto& batch : batches) run(batch);
  }
  return results;
}

EIGENFORMER_INSTANCE(std::vector<std::vector<Hypothesis>> generate(
    const Seq2SeqTransformer<float>&, const Context<float>&, std::span<const std::vector<std::int32_t>>,
    const GenerationOptions&, const BatchGenerationOptions&))
EIGENFORMER_INSTANCE(std::vector<std::vector<Hypothesis>> generate(
    const Seq2SeqTransformer<double>&, const Context<double>&, std::span<const std::vector<std::int32_t>>,
    const GenerationOptions&, const BatchGenerationOptions&))

}  // namespace eigenformer
