#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/search/beams/hypothesis.hpp"
#include "eigenformer/search/beams/options.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"
#include "eigenformer/search/decoding/length_limits.hpp"
#include "eigenformer/search/decoding/next_tokens.hpp"

namespace eigenformer {

namespace detail {

/// All ids in the constraints of some inputs, with duplicates.
EIGENFORMER_FUNCTION std::vector<std::int32_t> constraint_ids(const SearchOptions& options,
                                                              std::span<const std::size_t> places);

/// The search itself. inputs: the prompts' inputs as indices into the caller's list; limits: maximum target
/// tokens of each after prefix_ids, empty: as max_length has it. end_score: see EndScore.
template <class T>
std::vector<std::vector<Hypothesis>> search_beams(NextTokens<T>& model, const Prompts& prompts,
                                                  std::span<const std::size_t> inputs,
                                                  std::span<const index_t> limits,
                                                  const SearchOptions& options, const EndScore& end_score);

/// Throws ValueError if there is no function attention_maps() for the model. what: what needs it, for the
/// message.
template <class M>
void require_attention_maps(const char* what) {
  if (HasAttentionMaps<M>) return;
  throw ValueError("search", std::string(what) +
                                 ", but there is no function attention_maps(model, ctx, input, target, "
                                 "begin_id, prefix) for this model");
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

// Searches one batch. places: its inputs as indices into the caller's list.
template <class M>
std::vector<std::vector<Hypothesis>> search_batch(const M& model, const Context<ValueOf<M>>& ctx,
                                                  std::span<const typename M::Input> inputs,
                                                  std::span<const std::size_t> places,
                                                  const SearchOptions& options) {
  require_id("search", "end_id", options.end_id, static_cast<index_t>(model.vocabulary_size()), 0);
  if (!models::HasPrompt<M> && options.prefix_length > static_cast<index_t>(options.prefix_ids.size()) + 1) {
    throw ValueError("search", "prefix_length is " + std::to_string(options.prefix_length) +
                                   ", must be at most " + std::to_string(options.prefix_ids.size() + 1) +
                                   ", the begin_id and the prefix_ids");
  }
  if (inputs.empty()) return {};
  if (!options.constraints.empty()) {
    for (const std::size_t place : places) {
      require_possible("search", options.constraints[place], static_cast<index_t>(model.vocabulary_size()),
                       options.end_id);
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
  ModelNextTokens<M> next("search", model, ctx, inputs);
  if (options.shortlist != nullptr) {
    std::vector<std::int32_t> more = constraint_ids(options, places);
    more.push_back(options.end_id);
    next.use(*options.shortlist, inputs, more);
  }
  const std::vector<index_t> limits = length_limits(model, inputs, options);
  return search_beams<ValueOf<M>>(next, prompts, places, limits, options, coverage);
}

}  // namespace detail

/// Beam search (Wu et al. 2016, section 7) for all inputs as one batch, with the model's key/value cache;
/// generate() forms batches.
///
/// model: as in search/model.hpp. An input's result does not depend on the batch, unless a shortlist is
/// used. Beam size 1 is greedy search. options.attention is ignored. Returns options.num_hypotheses texts for
/// each input, or fewer if fewer are found, the best first. A text ends where every next token is forbidden;
/// it ranks as one that max_length cuts off, but before those. Throws ValueError for invalid options and for
/// logits that are NaN or +infinity, ShapeError for logits of another shape than (sequences,
/// vocabulary_size()), and what the model throws.
template <class M>
std::vector<std::vector<Hypothesis>> beam_search(const M& model, const Context<detail::ValueOf<M>>& ctx,
                                                 std::span<const typename detail::InputOf<M>::type> inputs,
                                                 const SearchOptions& options = {}) {
  options.validate();
  detail::require_one_prefix_each("search", options.prefixes.size(), inputs.size());
  detail::require_one_constraint_list_each("search", options.constraints.size(), inputs.size());
  std::vector<std::size_t> places(inputs.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  return detail::search_batch(model, ctx, inputs, places, options);
}

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include "eigenformer/search/beams/rules.hpp"
#include "eigenformer/search/beams/sentence_search.hpp"
#include "eigenformer/search/beams/step_scores.hpp"
#include "eigenformer/search/constraints/batch_constraints.hpp"

namespace eigenformer::detail {

EIGENFORMER_FUNCTION std::vector<std::int32_t> constraint_ids(const SearchOptions& options,
                                                              std::span<const std::size_t> places) {
  std::vector<std::int32_t> ids;
  if (options.constraints.empty()) return ids;
  for (const std::size_t place : places) {
    for (const PhraseConstraint& constraint : options.constraints[place]) {
      for (const auto* forms : {&constraint.forms, &constraint.initial_forms}) {
        for (const auto& form : *forms) ids.insert(ids.end(), form.begin(), form.end());
      }
    }
  }
  return ids;
}

// The options of each input's search: one for all, or one per input when inputs have their own prefixes or
// limits. inputs: indices into the caller's list; limits: maximum target tokens of each after the options'
// prefix_ids, or empty. An input's own prefix leaves as many tokens after it.
inline std::vector<SearchOptions> search_options(const SearchOptions& options,
                                                 std::span<const std::size_t> inputs,
                                                 std::span<const index_t> limits) {
  SearchOptions group = options;
  group.beam_size /= options.num_beam_groups;
  group.num_hypotheses = std::min(options.num_hypotheses, group.beam_size);
  group.prefixes.clear();
  group.constraints.clear();
  if (options.prefixes.empty() && limits.empty()) return {group};
  std::vector<SearchOptions> all(inputs.size(), group);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!limits.empty()) all[i].max_length = limits[i] + static_cast<index_t>(options.prefix_ids.size());
    if (options.prefixes.empty()) continue;
    const std::vector<std::int32_t>& prefix = options.prefixes[inputs[i]];
    all[i].max_length += static_cast<index_t>(prefix.size());
    all[i].prefix_ids.insert(all[i].prefix_ids.end(), prefix.begin(), prefix.end());
  }
  return all;
}

// Merges the results of the groups of a diverse beam: each text once, the best first.
inline void merge_groups(std::vector<Hypothesis>& found, const SearchOptions& options) {
  std::stable_sort(found.begin(), found.end(), BetterResult{!beam_rule(options).cut_competes()});
  std::vector<Hypothesis> merged;
  for (Hypothesis& h : found) {
    if (static_cast<index_t>(merged.size()) == options.num_hypotheses) break;
    const bool known = std::any_of(merged.begin(), merged.end(), [&](const Hypothesis& other) {
      return other.ids == h.ids && other.finished == h.finished;
    });
    if (!known) merged.push_back(std::move(h));
  }
  found = std::move(merged);
}

template <class T>
std::vector<std::vector<Hypothesis>> search_beams(NextTokens<T>& model, const Prompts& prompts,
                                                  std::span<const std::size_t> inputs,
                                                  std::span<const index_t> limits,
                                                  const SearchOptions& options, const EndScore& end_score) {
  std::vector<std::vector<Hypothesis>> results(prompts.size());
  const std::vector<SearchOptions> searched = search_options(options, inputs, limits);
  const BatchConstraints constraints(options, inputs);
  const auto processing = constraints.processing();
  const ProcessorList processors("search", processing ? *processing : options);
  const ProcessorInput scale = beam_rule(options).processor_input(options);
  StepScores<T> scores(processors, scale);
  std::vector<std::optional<SentenceSearch>> searches;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (index_t group = 0; group < options.num_beam_groups; ++group) {
      const SearchOptions& own = searched.size() == 1 ? searched[0] : searched[i];
      searches.emplace_back(std::in_place, i, group, own, end_score,
                            constraints.beam(inputs[i], max_steps(own)));
    }
  }
  const auto keep_result = [&](std::optional<SentenceSearch>& search, index_t length) {
    std::vector<Hypothesis>& into = results[search->input()];
    auto found = std::move(*search).result(length);
    std::move(found.begin(), found.end(), std::back_inserter(into));
    search.reset();
  };
  // prefix_ids may leave no room for a text.
  for (auto& search : searches) {
    if (search->max_steps() == 0) keep_result(search, 0);
  }
  std::erase_if(searches, [](const auto& search) { return !search.has_value(); });
  if (searches.empty()) return results;
  std::vector<LogitsStep> steps;
  std::vector<Continuation> continuations;
  std::vector<std::int32_t> parents, ids, taken;
  Tensor<T> logits = model.begin(prompts, options.prefix_length);
  scores.use(model.columns(), model.vocabulary_size());
  for (index_t t = 0; !searches.empty(); ++t) {
    steps.clear();
    for (const auto& search : searches) {
      if (t == 0 && search->group() > 0) continue;  // in the first step all groups share the prompt's row
      for (const Hypothesis& h : search->growing()) {
        steps.push_back({inputs[search->input()], t, prompts[search->input()], h.ids,
                         scale == ProcessorInput::log_probabilities});
      }
    }
    scores.find(logits, steps, 2 * options.beam_size);
    parents.clear();
    ids.clear();
    std::size_t row = 0, input = prompts.size();
    for (auto& search : searches) {
      continuations.clear();
      if (search->input() != input) taken.clear();
      input = search->input();
      if (t == 0) row = input;
      const std::size_t first_row = row;
      const bool last = t + 1 == search->max_steps();
      for (std::size_t h = 0; h < search->growing().size(); ++h, ++row) {
        const double before = search->growing()[h].log_probability;
        const std::size_t first = continuations.size();
        if (last && options.force_end) {
          continuations.push_back({before, h, 0, options.end_id});
          continue;
        }
        for (std::size_t i = 0; i < scores.candidates(); ++i) {
          const auto [log_probability, id] = scores.candidate(row, i);
          if (!(log_probability > -std::numeric_limits<double>::infinity())) break;
          continuations.push_back({before + log_probability, h, i, id});
        }
        if (search->constrained() != nullptr) {
          search->constrained()->add_wanted(continuations, first, h, [&](std::int32_t id) {
            return before + scores.log_probability(logits, row, id);
          });
        }
        // Every next token is forbidden: the text ends here.
        if (continuations.size() == first) search->stop(h, std::max<index_t>(1, t));
      }
      const std::size_t rows_before = parents.size();
      search->advance(continuations, t, taken, [&](std::size_t parent, std::int32_t id) {
        parents.push_back(static_cast<std::int32_t>(first_row + parent));
        ids.push_back(id);
      });
      const bool goes_on =
          options.observer == nullptr ||
          (*options.observer)({inputs[input], t + 1, search->group(), search->growing(), search->finished()});
      if (last || !goes_on || search->done(t + 1)) {
        parents.resize(rows_before);
        ids.resize(rows_before);
        keep_result(search, t + 1);
      }
    }
    std::erase_if(searches, [](const auto& search) { return !search.has_value(); });
    if (!searches.empty()) logits = model.step(parents, ids);
  }
  if (options.num_beam_groups > 1) {
    for (std::vector<Hypothesis>& result : results) merge_groups(result, options);
  }
  return results;
}

EIGENFORMER_INSTANCE(std::vector<std::vector<Hypothesis>> search_beams(NextTokens<float>&, const Prompts&,
                                                                       std::span<const std::size_t>,
                                                                       std::span<const index_t>,
                                                                       const SearchOptions&, const EndScore&))
EIGENFORMER_INSTANCE(std::vector<std::vector<Hypothesis>> search_beams(NextTokens<double>&, const Prompts&,
                                                                       std::span<const std::size_t>,
                                                                       std::span<const index_t>,
                                                                       const SearchOptions&, const EndScore&))

}  // namespace eigenformer::detail

#endif
