#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/search/beams/options.hpp"
#include "eigenformer/search/constraints/constrained_beam.hpp"
#include "eigenformer/search/constraints/phrase_automaton.hpp"
#include "eigenformer/search/processors/forbidding.hpp"

namespace eigenformer::detail {

/// The automaton of an input with constraints, and its state after the input's prefix.
struct InputPhrases {
  PhraseAutomaton automaton;
  PhraseState begun;
};
using PhrasesByPlace = std::map<std::size_t, InputPhrases>;

/// NoRepeatNgrams with an exception for tokens that begin or continue a required phrase.
class NoRepeatOutsidePhrases final : public BasicProcessor<NoRepeatOutsidePhrases> {
 public:
  NoRepeatOutsidePhrases(index_t n, std::shared_ptr<const PhrasesByPlace> phrases)
      : ngrams_(n), phrases_(std::move(phrases)) {}

  template <class T>
  void process(const LogitsStep& step, std::span<T> scores) const {
    const auto found = phrases_->find(step.input);
    std::vector<std::pair<std::size_t, T>> kept;
    if (found != phrases_->end()) {
      PhraseState state = found->second.begun;
      for (const std::int32_t id : step.generated) found->second.automaton.advance(state, id);
      for (const std::int32_t id : found->second.automaton.next_ids(state))
        kept.emplace_back(static_cast<std::size_t>(id), scores[static_cast<std::size_t>(id)]);
    }
    ngrams_.process(step, scores);
    for (const auto& [id, score] : kept) scores[id] = score;
  }

 private:
  NoRepeatNgrams ngrams_;
  std::shared_ptr<const PhrasesByPlace> phrases_;
};

/// The constraints of the inputs of a batch.
class BatchConstraints {
 public:
  /// options: of all inputs; must outlive it. places: the batch's inputs, as indices into its lists.
  BatchConstraints(const SearchOptions& options, std::span<const std::size_t> places) : options_(&options) {
    if (options.constraints.empty()) return;
    auto phrases = std::make_shared<PhrasesByPlace>();
    for (const std::size_t place : places) {
      const PhraseConstraints& constraints = options.constraints[place];
      if (constraints.empty()) continue;
      PhraseAutomaton automaton(constraints, options.forbidden_ids);
      PhraseState begun =
          options.prefixes.empty() ? automaton.begin() : automaton.begin(options.prefixes[place]);
      phrases->emplace(place, InputPhrases{std::move(automaton), std::move(begun)});
    }
    if (!phrases->empty()) phrases_ = std::move(phrases);
  }

  /// The constrained beam for a search of an input; empty when the input has no constraints. max_steps:
  /// tokens that the search may add.
  std::optional<ConstrainedBeam> beam(std::size_t place, index_t max_steps) const {
    if (phrases_ == nullptr) return std::nullopt;
    const auto found = phrases_->find(place);
    if (found == phrases_->end()) return std::nullopt;
    const index_t most = options_->force_end ? std::max<index_t>(0, max_steps - 1) : max_steps;
    return ConstrainedBeam(found->second.automaton, found->second.begun, most, options_->end_id);
  }

  /// The options with processors that exempt phrases from no_repeat_ngram_size; empty: the given options
  /// are enough.
  std::optional<SearchOptions> processing() const {
    if (phrases_ == nullptr || options_->no_repeat_ngram_size == 0) return std::nullopt;
    SearchOptions changed = *options_;
    changed.processors.push_back(
        std::make_shared<NoRepeatOutsidePhrases>(changed.no_repeat_ngram_size, phrases_));
    changed.no_repeat_ngram_size = 0;
    return changed;
  }

 private:
  const SearchOptions* options_;
  std::shared_ptr<const PhrasesByPlace> phrases_;  // null: no constraints
};

}  // namespace eigenformer::detail
