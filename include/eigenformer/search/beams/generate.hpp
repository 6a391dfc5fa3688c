#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/search/beams/batches.hpp"
#include "eigenformer/search/beams/beam_search.hpp"
#include "eigenformer/search/beams/options.hpp"
#include "eigenformer/search/beams/sampling.hpp"
#include "eigenformer/search/constraints/phrase_constraint.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"

namespace eigenformer {

namespace detail {

/// Throws ValueError if there is no function attention_maps() for the model. what: what needs it, for the
/// message.
template <class M>
void require_attention_maps(const char* what) {
  if (HasAttentionMaps<M>) return;
  throw ValueError("search", {what,
                              ", but there is no function attention_maps(model, ctx, input, target, "
                              "begin_id, prefix) for this model"});
}

/// The attention weights of a hypothesis. place: the index of its input in the caller's list.
template <class M>
AttentionMaps hypothesis_maps(const M& model, const Context<ValueOf<M>>& ctx, const typename M::Input& input,
                              std::size_t place, const Hypothesis& h, const SearchOptions& options) {
  std::vector<std::int32_t> target = options.prefix_ids;
  if (!options.prefixes.empty())
    target.insert(target.end(), options.prefixes[place].begin(), options.prefixes[place].end());
  target.insert(target.end(), h.ids.begin(), h.ids.end());
  return attention_maps(model, ctx, input, target, options.begin_id, options.prefix_length);
}

/// Searches or samples one batch. places: its inputs as indices into the caller's list.
template <class M>
std::vector<std::vector<Hypothesis>> search_batch(const M& model, const Context<ValueOf<M>>& ctx,
                                                  std::span<const typename M::Input> inputs,
                                                  std::span<const std::size_t> places,
                                                  const SearchOptions& options) {
  const auto vocabulary = static_cast<index_t>(model.vocabulary_size());
  require_id("search", "end_id", options.end_id, vocabulary, options.sampling ? -1 : 0);
  if (!detail::HasPrompt<M> && options.prefix_length > static_cast<index_t>(options.prefix_ids.size()) + 1) {
    throw ValueError("search", {"prefix_length is ", options.prefix_length, ", must be at most ",
                                options.prefix_ids.size() + 1, ", the begin_id and the prefix_ids"});
  }
  std::vector<std::int32_t> needed{options.end_id};  // the ids that a shortlist must have
  for (std::size_t i = 0; i < places.size() && !options.constraints.empty(); ++i) {
    const PhraseConstraints& constraints = options.constraints[places[i]];
    require_possible("search", constraints, vocabulary, options.end_id);
    for (const PhraseConstraint& constraint : constraints) {
      for (const auto* forms : {&constraint.forms, &constraint.initial_forms}) {
        for (const auto& form : *forms) needed.insert(needed.end(), form.begin(), form.end());
      }
    }
  }
  EndScore coverage;
  if (options.coverage_penalty > 0) {
    require_attention_maps<M>("a coverage penalty is set");
    if constexpr (HasAttentionMaps<M>) {
      coverage = [&](std::size_t i, const Hypothesis& h) {
        const AttentionMaps maps = hypothesis_maps(model, ctx, inputs[i], places[i], h, options);
        return options.coverage_penalty * coverage_log(maps, h.finished);
      };
    }
  }
  const Prompts prompts = make_prompts("search", model, inputs, options, places);
  ModelNextTokens<M> next(model, ctx, inputs);
  if (options.shortlist != nullptr) next.use(*options.shortlist, inputs, needed);
  const std::vector<index_t> limits = length_limits(model, inputs, options);
  if (options.sampling) return sample_texts<ValueOf<M>>(next, prompts, places, limits, options);
  return search_beams<ValueOf<M>>(next, prompts, places, limits, options, coverage);
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
  if (options.sampling)
    require_one_each("search", "numbers", options.sampling->numbers.size(), inputs.size());
  require_one_each("search", "prefixes", options.prefixes.size(), inputs.size());
  require_one_each("search", "lists of constraints", options.constraints.size(), inputs.size());
  if (options.attention) require_attention_maps<M>("attention weights are requested");
  std::vector<index_t> lengths;
  for (const Input& input : inputs) lengths.push_back(input_length(model, input));
  BatchSearchOptions size = batching;
  if (options.sampling && batching.batch_size > 0)  // all texts of an input are in one batch
    size.batch_size = std::max<index_t>(1, batching.batch_size / options.num_hypotheses);
  std::vector<std::vector<Hypothesis>> results(inputs.size());
  each_batch(lengths, size, [&](std::span<const std::size_t> places) {
    std::vector<Input> batch;
    for (const std::size_t i : places) batch.push_back(inputs[i]);
    auto found = search_batch(model, ctx, std::span<const Input>(batch), places, options);
    for (std::size_t k = 0; k < places.size(); ++k) {
      results[places[k]] = std::move(found[k]);
      if constexpr (HasAttentionMaps<M>) {
        if (!options.attention) continue;
        // A pass over the finished text: during the search the weights of all discarded hypotheses would be
        // kept.
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

/// Generates texts for any number of inputs: translations of source sentences (token ids with the end symbol
/// that the model was trained with), continuations of prompts, or texts for whatever the model's Input is. By
/// beam search (Wu et al. 2016, section 7; greedy search with beam size 1), or by sampling, each with the
/// model's key/value cache.
///
/// model: as in search/model.hpp. Inputs of similar length share a batch, and batches run on the Runtime's
/// threads. Returns a list of texts for each input, in the order of the inputs: options.num_hypotheses, the
/// best first, or fewer if a beam search finds fewer; from sampling all that were drawn, in order. Results do
/// not depend on the batches, unless a shortlist is used; a sampled text depends on its input, the input's
/// number (Sampling::numbers), its own number and the seed, and its log-probability is the same to the last
/// bit. A text ends where every next token is forbidden; in a beam search it ranks as one that max_length
/// cuts off, but before those.
///
/// Throws ValueError for invalid options, for logits that are NaN or +infinity, for an empty prompt, and for
/// a model without attention_maps() when attention weights are requested; ShapeError for logits of another
/// shape than (sequences, vocabulary_size()); and what the model throws, such as IndexError for an id outside
/// the vocabulary.
template <class M>
std::vector<std::vector<Hypothesis>> generate(const M& model, const Context<detail::ValueOf<M>>& ctx,
                                              std::span<const typename detail::InputOf<M>::type> inputs,
                                              const SearchOptions& options = {},
                                              const BatchSearchOptions& batching = {}) {
  return detail::SearchRun<M>::run(model, ctx, inputs, options, batching);
}

}  // namespace eigenformer
