#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "eigenformer/core/base/stable_sort.hpp"
#include "eigenformer/search/beams/options.hpp"
#include "eigenformer/search/constraints/phrase_automaton.hpp"
#include "eigenformer/search/processors/processors.hpp"

namespace eigenformer::detail {

/// A candidate: hypothesis `parent` of a sentence followed by its rank-th best token.
struct Continuation {
  double log_probability;
  std::size_t parent, rank;
  std::int32_t id;
  double diversity = 0;  ///< the diversity penalty of its tokens

  double value() const noexcept { return log_probability - diversity; }
};

/// Whether a ranks before b.
inline bool comes_before(const Continuation& a, const Continuation& b) noexcept {
  if (a.value() != b.value()) return a.value() > b.value();
  return a.parent != b.parent ? a.parent < b.parent : a.rank < b.rank;
}

/// Orders the continuations of a search so that its texts meet constraints: dynamic beam allocation (Post &
/// Vilar 2018; Hu et al. 2019) over the states of a PhraseAutomaton.
///
/// Continuations with the same number of phrase tokens left form a bank, and banks share the beam equally.
/// When there are more banks than places, continuations rank by their log-probability minus token_cost for
/// each token left. A text cannot end before its constraints are met. Three kinds of continuations rank after
/// all others, so that they are followed only if the beam has room: those after which the phrases no longer
/// fit into the maximum length; those that do not continue a phrase although the model would have ended the
/// text, or although a phrase was begun that the model would not have begun; and those that undo a phrase by
/// continuing its last word.
class ConstrainedBeam {
 public:
  /// automaton: must outlive it. begun: the state before the first token. most: maximum tokens of a text.
  ConstrainedBeam(const PhraseAutomaton& automaton, PhraseState begun, index_t most, std::int32_t end_id)
      : automaton_(&automaton),
        most_(static_cast<std::size_t>(most)),
        end_id_(end_id),
        begun_(std::move(begun)),
        growing_(1, Growing{begun_, automaton.tokens_left(begun_)}) {}

  /// Adds the continuations of hypothesis `parent` that continue or begin a phrase and, after the last word
  /// of a phrase, the likeliest one that does not continue that word. Those of the hypothesis that exist
  /// already are at `first` and after. log_probability(id): the hypothesis's with that token.
  template <class F>
  void add_wanted(std::vector<Continuation>& continuations, std::size_t first, std::size_t parent,
                  F&& log_probability) const {
    const PhraseState& state = growing_[parent].state;
    std::size_t rank = continuations.size() - first;
    const auto add = [&](std::int32_t id, double value) {
      const auto own = continuations.begin() + static_cast<std::ptrdiff_t>(first);
      if (std::any_of(own, continuations.end(), [&](const Continuation& c) { return c.id == id; })) return;
      if (value > -std::numeric_limits<double>::infinity())
        continuations.push_back({value, parent, rank++, id});
    };
    if (growing_[parent].left > 0) {
      for (const std::int32_t id : automaton_->next_ids(state)) add(id, log_probability(id));
    }
    const TokenEdges* const edges = automaton_->edges_after(state);
    if (edges == nullptr) return;
    std::int32_t best = -1;
    double most = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < edges->begins_inside.size(); ++i) {
      if (edges->begins_inside[i]) continue;
      const auto id = static_cast<std::int32_t>(i);
      const double value = log_probability(id);
      if (value > most) {
        most = value;
        best = id;
      }
    }
    if (best >= 0) add(best, most);
  }

  /// Removes end symbols of texts that may not end yet (unless nothing else is allowed) and sorts the rest:
  /// first the `beam` chosen ones, the best value first, then their substitutes. forced: whether every text
  /// ends here.
  void order(std::vector<Continuation>& continuations, std::size_t beam, bool forced) {
    std::vector<Choice> choices = choices_of(continuations, forced);
    if (choices.empty()) choices = choices_of(continuations, true);
    rank_in_banks(choices);
    stable_sort(std::span(choices), [](const Choice& a, const Choice& b) {
      return std::tuple(a.kind, a.rank, -a.promise()) < std::tuple(b.kind, b.rank, -b.promise());
    });
    stable_sort(std::span(choices).first(std::min(beam, choices.size())), likelier);
    continuations.clear();
    growing_.clear();
    next_.clear();
    for (Choice& choice : choices) {
      continuations.push_back(choice.made);
      next_.push_back(std::move(choice.next));
    }
  }

  /// Keeps the i-th continuation of order()'s result as the next growing hypothesis.
  void keep(std::size_t i) { growing_.push_back(std::move(next_[i])); }

  /// The indices of the constraints that a text does not meet. ids: without the prefix.
  std::vector<std::size_t> unmet(std::span<const std::int32_t> ids) const {
    PhraseState state = begun_;
    for (const std::int32_t id : ids) automaton_->advance(state, id);
    return automaton_->unmet(state);
  }

 private:
  /// In nats: the first token of a phrase ranks equal to the model's best token if it is less likely by this
  /// much. On Multi30k 3 to 4.5 give the same quality, half and double are worse (random_glossary.py).
  static constexpr double token_cost = 4;
  /// In nats: the model would not have begun a phrase whose first token is less likely than the best one by
  /// more than this.
  static constexpr double unlikely = 2;

  struct Growing {
    PhraseState state{};
    std::size_t left = 0;  // tokens of its phrases
    bool late = false;     // the model would have ended the text: only phrases may follow
    bool begun = false;    // a phrase was begun that the model would not have begun
  };

  struct Choice {
    Continuation made;
    Growing next;
    int kind = 0;          // the lower, the earlier
    std::size_t rank = 0;  // within its kind and bank
    double promise() const { return made.value() - token_cost * static_cast<double>(next.left); }
  };

  std::vector<Choice> choices_of(const std::vector<Continuation>& continuations, bool forced) const {
    // The model's best continuation of each hypothesis.
    std::vector<const Continuation*> best(growing_.size(), nullptr);
    for (const Continuation& c : continuations) {
      if (best[c.parent] == nullptr || c.rank < best[c.parent]->rank) best[c.parent] = &c;
    }
    std::vector<Choice> choices;
    choices.reserve(continuations.size());
    for (const Continuation& c : continuations) {
      const Growing& from = growing_[c.parent];
      if (c.id == end_id_) {
        if (from.left == 0 || forced) choices.push_back({c, from});
        continue;
      }
      const Continuation& likeliest = *best[c.parent];
      Choice choice{c, from};
      Growing& next = choice.next;
      automaton_->advance(next.state, c.id);
      next.left = automaton_->tokens_left(next.state);
      const bool goes_on = next.left < from.left;
      const bool late = from.left > 0 && (from.late || likeliest.id == end_id_);
      const bool astray = (late || from.begun) && !goes_on, lost = next.left > from.left && from.left == 0;
      next.late = late && next.left > 0;
      const bool begins = goes_on && likeliest.log_probability - c.log_probability > unlikely;
      next.begun = (from.begun || begins) && goes_on && automaton_->within_phrase(next.state);
      const std::size_t length = next.state.length - begun_.length;
      choice.kind = (length + next.left > most_ ? 2 : 0) + (astray || lost ? 1 : 0);
      choices.push_back(std::move(choice));
    }
    return choices;
  }

  static bool likelier(const Choice& a, const Choice& b) { return comes_before(a.made, b.made); }

  static void rank_in_banks(std::vector<Choice>& choices) {
    stable_sort(std::span(choices), likelier);
    std::map<std::pair<int, std::size_t>, std::size_t> seen;
    for (Choice& choice : choices) choice.rank = seen[{choice.kind, choice.next.left}]++;
  }

  const PhraseAutomaton* automaton_;
  std::size_t most_;
  std::int32_t end_id_;
  PhraseState begun_;
  std::vector<Growing> growing_, next_;  // next_: of the continuations in order()'s result
};

/// The automaton of an input with constraints, and its state after the input's prefix.
struct InputPhrases {
  PhraseAutomaton automaton;
  PhraseState begun;
};
using PhrasesByPlace = std::map<std::size_t, InputPhrases>;

/// Forbids repeated n-grams, but not the tokens that begin or continue a required phrase.
struct NoRepeatOutsidePhrases {
  index_t n;
  std::shared_ptr<const PhrasesByPlace> phrases;

  template <class T>
  void operator()(const LogitsStep& step, std::span<T> scores) const {
    const auto found = phrases->find(step.input);
    std::vector<std::pair<std::size_t, T>> kept;
    if (found != phrases->end()) {
      PhraseState state = found->second.begun;
      for (const std::int32_t id : step.generated) found->second.automaton.advance(state, id);
      for (const std::int32_t id : found->second.automaton.next_ids(state))
        kept.emplace_back(static_cast<std::size_t>(id), scores[static_cast<std::size_t>(id)]);
    }
    forbid_repeated_ngrams(step, scores, n);
    for (const auto& [id, score] : kept) scores[id] = score;
  }
};

/// The constraints of the inputs of a batch.
class BatchConstraints {
 public:
  /// options: of all inputs; must outlive it. places: the batch's inputs, as indices into its lists.
  BatchConstraints(const SearchOptions& options, std::span<const std::size_t> places) : options_(&options) {
    if (options.constraints.empty()) return;
    for (const std::size_t place : places) {
      const PhraseConstraints& constraints = options.constraints[place];
      if (constraints.empty()) continue;
      PhraseAutomaton automaton(constraints, options.forbidden_ids);
      PhraseState begun =
          options.prefixes.empty() ? automaton.begin() : automaton.begin(options.prefixes[place]);
      phrases_->emplace(place, InputPhrases{std::move(automaton), std::move(begun)});
    }
  }

  /// The constrained beam for a search of an input; empty when the input has no constraints. max_steps:
  /// tokens that the search may add.
  std::optional<ConstrainedBeam> beam(std::size_t place, index_t max_steps) const {
    const auto found = phrases_->find(place);
    if (found == phrases_->end()) return std::nullopt;
    const index_t most = options_->force_end ? std::max<index_t>(0, max_steps - 1) : max_steps;
    return ConstrainedBeam(found->second.automaton, found->second.begun, most, options_->end_id);
  }

  /// The options with processors that exempt phrases from no_repeat_ngram_size; empty: the given options
  /// are enough.
  std::optional<SearchOptions> processing() const {
    if (phrases_->empty() || options_->no_repeat_ngram_size == 0) return std::nullopt;
    SearchOptions changed = *options_;
    changed.processors.push_back(
        logits_processor(NoRepeatOutsidePhrases{changed.no_repeat_ngram_size, phrases_}));
    changed.no_repeat_ngram_size = 0;
    return changed;
  }

 private:
  const SearchOptions* options_;
  std::shared_ptr<PhrasesByPlace> phrases_ = std::make_shared<PhrasesByPlace>();
};

}  // namespace eigenformer::detail
