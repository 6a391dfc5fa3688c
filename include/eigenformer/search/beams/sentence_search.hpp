#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/search/beams/continuation.hpp"
#include "eigenformer/search/beams/rules.hpp"
#include "eigenformer/search/constraints/constrained_beam.hpp"
#include "eigenformer/search/decoding/length_limits.hpp"

namespace eigenformer::detail {

/// The order of results, the best first: finished texts before cut ones if finished_first, those with more
/// constraints met, those with the higher score.
struct BetterResult {
  bool finished_first;
  bool operator()(const Hypothesis& a, const Hypothesis& b) const {
    if (finished_first && a.finished != b.finished) return a.finished;
    return a.unmet.size() != b.unmet.size() ? a.unmet.size() < b.unmet.size() : a.score > b.score;
  }
};

/// The beam of one sentence, or one group of a diverse beam: growing and finished hypotheses.
class SentenceSearch {
 public:
  /// options: with the beam_size and num_hypotheses of one group; must outlive it. constrained: enforces
  /// constraints; empty: there are none.
  SentenceSearch(std::size_t input, index_t group, const SearchOptions& options, const EndScore& end_score,
                 std::optional<ConstrainedBeam> constrained = std::nullopt)
      : input_(input),
        group_(group),
        options_(&options),
        end_score_(&end_score),
        rule_(&beam_rule(options)),
        constrained_(std::move(constrained)),
        growing_(1),
        diversity_(1) {}

  std::size_t input() const noexcept { return input_; }
  index_t group() const noexcept { return group_; }
  index_t max_steps() const noexcept { return detail::max_steps(*options_); }
  const std::vector<Hypothesis>& growing() const noexcept { return growing_; }
  const std::vector<Hypothesis>& finished() const noexcept { return finished_; }

  /// Enforces constraints; null: there are none.
  const ConstrainedBeam* constrained() const noexcept { return constrained_ ? &*constrained_ : nullptr; }

  /// Ends hypothesis h of growing(), which has `length` tokens and no continuation, as a text without an end
  /// symbol. Call before advance().
  void stop(std::size_t h, index_t length) {
    finish(growing_[h], length, false);
    ++ended_;
  }

  /// Performs step `step` (from 0): sorts the continuations and keeps the best. taken: the tokens that
  /// earlier groups of the sentence chose in this step; appends those chosen here. Calls chosen(parent, id)
  /// for each hypothesis that continues to grow.
  template <class F>
  void advance(std::vector<Continuation>& continuations, index_t step, std::vector<std::int32_t>& taken,
               F&& chosen) {
    const bool grouped = options_->num_beam_groups > 1;
    if (grouped) {
      for (Continuation& c : continuations) {
        c.diversity =
            diversity_[c.parent] +
            options_->diversity_penalty * static_cast<double>(std::count(taken.begin(), taken.end(), c.id));
      }
    }
    const bool shrinks = rule_->ended_keeps_place();
    const std::size_t beam = static_cast<std::size_t>(options_->beam_size) - (shrinks ? ended_ : 0);
    // Of 2 * beam continuations at most half are end symbols.
    const std::size_t most = 2 * beam;
    if (constrained_) {
      constrained_->order(continuations, beam, options_->force_end && is_last(step));
    } else {
      std::partial_sort(
          continuations.begin(),
          continuations.begin() + static_cast<std::ptrdiff_t>(std::min(continuations.size(), most)),
          continuations.end(), comes_before);
    }
    const std::size_t kept = std::min(continuations.size(), most);
    const index_t length = step + 1;
    const bool cut = is_last(step) && rule_->cut_competes();
    const std::size_t considered = cut || shrinks ? std::min(kept, beam) : kept;
    std::vector<Hypothesis> next;
    std::vector<double> diversity;
    std::size_t places = beam;
    for (std::size_t i = 0; i < considered && next.size() < places; ++i) {
      const Continuation& c = continuations[i];
      Hypothesis h = growing_[c.parent];
      if (options_->token_scores) h.token_log_probabilities.push_back(c.log_probability - h.log_probability);
      h.log_probability = c.log_probability;
      if (c.id == options_->end_id) {
        if (rule_->gives_up_end(static_cast<index_t>(i), step, *options_)) {
          --places;
          continue;
        }
        best_ended_ = best_ended_ || i == 0;
        // An end outside the beam would not have survived as a hypothesis either.
        if (i >= beam) continue;
        finish(std::move(h), length, true);
        ++ended_;
        if (grouped) taken.push_back(c.id);
        if (options_->beam_size == 1) break;  // greedy search ends with the first end symbol
        continue;
      }
      if (grouped) taken.push_back(c.id);
      h.ids.push_back(c.id);
      if (cut) {
        finish(std::move(h), length, false);
        continue;
      }
      next.push_back(std::move(h));
      diversity.push_back(c.diversity);
      if (constrained_) constrained_->keep(i);
      chosen(c.parent, c.id);
    }
    if (constrained_) constrained_->finish_step();
    growing_ = std::move(next);
    diversity_ = std::move(diversity);
  }

  /// Whether the search is over after a step that gave hypotheses `length` tokens.
  bool done(index_t length) const {
    if (growing_.empty()) return true;
    std::span<const Hypothesis> finished(finished_);
    // Texts without an end symbol come last and do not outrank what a growing one may become.
    while (!rule_->cut_competes() && !finished.empty() && !finished.back().finished)
      finished = finished.first(finished.size() - 1);
    const bool full = static_cast<index_t>(finished.size()) >= options_->beam_size;
    if (full && (options_->early_stopping || options_->beam_size == 1)) return true;
    if (options_->num_beam_groups == 1 && !constrained_)
      return rule_->done({length, growing_, finished, best_ended_}, *options_);
    std::vector<Hypothesis> likeliest_first = growing_;
    std::stable_sort(
        likeliest_first.begin(), likeliest_first.end(),
        [](const Hypothesis& a, const Hypothesis& b) { return a.log_probability > b.log_probability; });
    return rule_->done({length, likeliest_first, finished, best_ended_}, *options_);
  }

  /// The best hypotheses, finished ones before those cut off; for a group all of them, because other groups
  /// may have found the same.
  std::vector<Hypothesis> result(index_t length) && {
    const auto wanted = static_cast<std::size_t>(options_->num_hypotheses);
    std::vector<Hypothesis> best = std::move(finished_);
    if (best.size() < wanted) {
      finished_.clear();
      for (Hypothesis& h : growing_) finish(std::move(h), length, false);
      std::move(finished_.begin(), finished_.end(), std::back_inserter(best));
    }
    if (best.size() > wanted && options_->num_beam_groups == 1) best.resize(wanted);
    return best;
  }

 private:
  bool is_last(index_t step) const { return step + 1 == max_steps(); }

  void finish(Hypothesis h, index_t length, bool ended) {
    h.finished = ended;
    h.score = hypothesis_score(h.log_probability, length, *options_);
    if (*end_score_) h.score += (*end_score_)(input_, h);
    if (constrained_) h.unmet = constrained_->unmet(h.ids);
    const auto at =
        std::upper_bound(finished_.begin(), finished_.end(), h, BetterResult{!rule_->cut_competes()});
    finished_.insert(at, std::move(h));
    if (static_cast<index_t>(finished_.size()) > rule_->max_finished(*options_)) finished_.pop_back();
  }

  std::size_t input_;
  index_t group_;
  const SearchOptions* options_;
  const EndScore* end_score_;
  const BeamRule* rule_;
  std::optional<ConstrainedBeam> constrained_;
  std::vector<Hypothesis> growing_;   // the likeliest first, after the diversity penalty
  std::vector<double> diversity_;     // the diversity penalty of each
  std::vector<Hypothesis> finished_;  // the best first; those that stop() ended, too
  std::size_t ended_ = 0;             // hypotheses that have ended, kept or not
  bool best_ended_ = false;           // see BeamState
};

}  // namespace eigenformer::detail
