#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/generation/decoding/next_tokens.hpp"
#include "eigenformer/generation/search/rules.hpp"
#include "eigenformer/generation/search/sentence_search.hpp"
#include "eigenformer/generation/search/step_scores.hpp"

namespace eigenformer {

namespace detail {

/// The search itself. inputs: the places of the prompts' inputs in the caller's list.
template <class T>
std::vector<std::vector<Hypothesis>> search_beams(NextTokens<T>& model, const Prompts& prompts,
                                                  std::span<const std::size_t> inputs,
                                                  const GenerationOptions& options) {
  std::vector<std::vector<Hypothesis>> results(prompts.size());
  const ProcessorList processors("generation", options);
  const ProcessorInput scale = beam_rule(options).processor_input(options);
  StepScores<T> scores(processors, scale);
  std::vector<std::optional<SentenceSearch>> searches;
  for (std::size_t i = 0; i < prompts.size(); ++i) searches.emplace_back(std::in_place, i, options);
  std::vector<LogitsStep> steps;
  std::vector<Continuation> continuations;
  std::vector<std::int32_t> parents, ids;
  Tensor<T> logits = model.begin(prompts, options.prefix_length);
  scores.use(model.columns(), model.vocabulary_size());
  for (index_t t = 0; t < options.max_length && !searches.empty(); ++t) {
    const bool last = t + 1 == options.max_length;
    steps.clear();
    for (const auto& search : searches) {
      for (const Hypothesis& h : search->growing()) {
        steps.push_back({inputs[search->input()], t, prompts[search->input()], h.ids,
                         scale == ProcessorInput::log_probabilities});
      }
    }
    scores.find(logits, steps, 2 * options.beam_size);
    parents.clear();
    ids.clear();
    std::size_t row = 0;
    for (auto& search : searches) {
      continuations.clear();
      const std::size_t first_row = row;
      for (std::size_t h = 0; h < search->growing().size(); ++h, ++row) {
        const double before = search->growing()[h].log_probability;
        if (last && options.force_end) {
          continuations.push_back({before, h, 0, options.end_id});
          continue;
        }
        for (std::size_t i = 0; i < scores.candidates(); ++i) {
          const auto [log_probability, id] = scores.candidate(row, i);
          if (!(log_probability > -std::numeric_limits<double>::infinity())) break;
          continuations.push_back({before + log_probability, h, i, id});
        }
      }
      std::vector<Hypothesis>& result = results[search->input()];
      if (continuations.empty()) {  // every next token is forbidden: the sentence ends with what it has
        result = std::move(*search).result(std::max<index_t>(1, t));
        search.reset();
        continue;
      }
      const std::size_t rows_before = parents.size();
      search->advance(continuations, t, [&](std::size_t parent, std::int32_t id) {
        parents.push_back(static_cast<std::int32_t>(first_row + parent));
        ids.push_back(id);
      });
      if (last || search->done(t + 1)) {
        parents.resize(rows_before);
        ids.resize(rows_before);
        result = std::move(*search).result(t + 1);
        search.reset();
      }
    }
    std::erase_if(searches, [](const auto& search) { return !search.has_value(); });
    if (!searches.empty()) logits = model.step(parents, ids);
  }
  return results;
}

EIGENFORMER_INSTANCE(std::vector<std::vector<Hypothesis>> search_beams(NextTokens<float>&, const Prompts&,
                                                                       std::span<const std::size_t>,
                                                                       const GenerationOptions&))
EIGENFORMER_INSTANCE(std::vector<std::vector<Hypothesis>> search_beams(NextTokens<double>&, const Prompts&,
                                                                       std::span<const std::size_t>,
                                                                       const GenerationOptions&))

// Searches one batch. places: of its inputs in the caller's list.
template <class M>
std::vector<std::vector<Hypothesis>> search_batch(const M& model, const Context<ValueOf<M>>& ctx,
                                                  std::span<const typename M::Input> inputs,
                                                  std::span<const std::size_t> places,
                                                  const GenerationOptions& options) {
  require_id("generation", "end_id", options.end_id, static_cast<index_t>(model.vocabulary_size()), 0);
  if (!models::HasPrompt<M> && options.prefix_length > static_cast<index_t>(options.prefix_ids.size()) + 1) {
    throw ValueError("generation", "prefix_length is " + std::to_string(options.prefix_length) +
                                       ", must be at most " + std::to_string(options.prefix_ids.size() + 1) +
                                       ", the begin_id and the prefix_ids");
  }
  if (inputs.empty()) return {};
  const Prompts prompts = make_prompts("generation", model, inputs, options);
  ModelNextTokens<M> next("generation", model, ctx, inputs);
  if (options.shortlist != nullptr) next.use(*options.shortlist, inputs, options.end_id);
  return search_beams<ValueOf<M>>(next, prompts, places, options);
}

}  // namespace detail

/// Finds the best texts for inputs, all at once, with what the model keeps of earlier tokens (its key/value
/// cache).
///
/// model: any that generation/model.hpp describes. An input gets the same result alone and in any batch. Beam
/// size 1 is greedy search: the likeliest token each time, up to the end symbol. Returns, for each input,
/// options.num_hypotheses texts or as many as there are, the best first. Throws ValueError for impossible
/// options and for logits that are not numbers. Wu et al. 2016, section 7.
template <class M>
std::vector<std::vector<Hypothesis>> beam_search(const M& model, const Context<detail::ValueOf<M>>& ctx,
                                                 std::span<const typename detail::InputOf<M>::type> inputs,
                                                 const GenerationOptions& options = {}) {
  options.validate();
  std::vector<std::size_t> places(inputs.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  return detail::search_batch(model, ctx, inputs, places, options);
}

}  // namespace eigenformer
