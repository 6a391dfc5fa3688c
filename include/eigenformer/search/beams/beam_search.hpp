#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "eigenformer/search/beams/options.hpp"
#include "eigenformer/search/decoding/next_tokens.hpp"

namespace eigenformer::detail {

/// Beam search (Wu et al. 2016, section 7) for a batch. inputs: the prompts' inputs as indices into the
/// caller's list; limits: maximum target tokens of each after prefix_ids, empty: as max_length has it.
/// end_score: see EndScore. Returns options.num_hypotheses texts for each prompt, or fewer if fewer are
/// found, the best first. A text ends where every next token is forbidden; it ranks as one that max_length
/// cuts off, but before those.
template <class T>
std::vector<std::vector<Hypothesis>> search_beams(NextTokens<T>& model, const Prompts& prompts,
                                                  std::span<const std::size_t> inputs,
                                                  std::span<const index_t> limits,
                                                  const SearchOptions& options, const EndScore& end_score);

}  // namespace eigenformer::detail

#if EIGENFORMER_DEFINITIONS
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "eigenformer/core/base/stable_sort.hpp"
#include "eigenformer/kernels/reduction/top_k.hpp"
#include "eigenformer/search/beams/constrained_beam.hpp"
#include "eigenformer/search/beams/rules.hpp"
#include "eigenformer/search/processors/processors.hpp"

namespace eigenformer::detail {

/// The best continuations of each row of a step's logits, after the processors.
template <class T>
class StepScores {
 public:
  /// columns: the ids of the logits' columns, which must outlive it; empty: all ids of the vocabulary.
  StepScores(const ProcessorList& processors, ProcessorInput input, std::span<const std::int32_t> columns,
             index_t vocabulary)
      : processors_(processors),
        input_(input),
        columns_(columns),
        all_(columns.empty() ? 0 : static_cast<std::size_t>(vocabulary),
             -std::numeric_limits<T>::infinity()) {}

  /// Finds the k best tokens of each row, the best first, for candidate(). logits: (rows, columns); they are
  /// overwritten. steps: the text of each row. Throws ValueError for logits that are NaN or +infinity.
  void find(Tensor<T>& logits, std::span<const LogitsStep> steps, index_t k) {
    const index_t rows = logits.dim(0), vocabulary = logits.dim(1);
    k_ = static_cast<std::size_t>(std::min(k, vocabulary));
    sums_.resize(static_cast<std::size_t>(rows));
    values_.resize(sums_.size() * k_);
    ids_.resize(values_.size());
    // Forbidding a token changes neither the order of the others nor, without renormalisation, their scores:
    // the best are found together with the sums, and searched again only if one of them is forbidden.
    const bool at_once = !processors_.changes_values() && input_ != ProcessorInput::renormalised_logits;
    if (at_once) {
      find_best(logits.data(), rows, vocabulary, 0, sums_.data());
    } else {
      kernels::log_sum_exp<T>(logits.data(), vocabulary, rows, vocabulary, sums_.data());
    }
    for (std::size_t r = 0; r < steps.size(); ++r) {
      const std::span<T> row(logits.data() + static_cast<index_t>(r) * vocabulary,
                             static_cast<std::size_t>(vocabulary));
      // The row has NaN or +infinity, or only -infinity, which is allowed.
      if (std::isnan(sums_[r])) require_numbers<T>("search", row, steps[r].input, steps[r].step, false);
      // If processors only forbid tokens, the sum need not be subtracted from the row.
      if (input_ == ProcessorInput::log_probabilities && processors_.changes_values()) {
        if (std::isnan(sums_[r])) sums_[r] = 0;
        for (T& score : row) score -= sums_[r];
        sums_[r] = 0;
      }
      process(steps[r], row);
      if (processors_.changes_values())
        require_numbers<T>("search", row, steps[r].input, steps[r].step, true);
      if (at_once && !still_best(r, row)) find_best(row.data(), 1, vocabulary, r);
    }
    if (input_ == ProcessorInput::renormalised_logits)
      kernels::log_sum_exp<T>(logits.data(), vocabulary, rows, vocabulary, sums_.data());
    if (!at_once) find_best(logits.data(), rows, vocabulary, 0);
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] -= sums_[i / k_];
    if (columns_.empty()) return;
    for (std::int32_t& id : ids_) id = columns_[static_cast<std::size_t>(id)];
  }

  struct Candidate {
    double log_probability;
    std::int32_t id;
  };
  std::size_t candidates() const noexcept { return k_; }
  /// The i-th best token of a row; log_probability is -infinity or NaN if fewer are allowed.
  Candidate candidate(std::size_t row, std::size_t i) const {
    return {static_cast<double>(values_[row * k_ + i]), ids_[row * k_ + i]};
  }

  /// The log-probability of any id, from the logits that find() has processed; -infinity if the id has no
  /// column.
  double log_probability(const Tensor<T>& logits, std::size_t row, std::int32_t id) const {
    auto column = static_cast<std::size_t>(id);
    if (!columns_.empty()) {
      const auto at = std::lower_bound(columns_.begin(), columns_.end(), id);
      if (at == columns_.end() || *at != id) return -std::numeric_limits<double>::infinity();
      column = static_cast<std::size_t>(at - columns_.begin());
    }
    const T* const scores = logits.data() + static_cast<index_t>(row) * logits.dim(1);
    return static_cast<double>(scores[column] - sums_[row]);
  }

 private:
  // Finds the best of `rows` rows, stores them from row `first` of the results on, and computes the sums
  // unless `sums` is null.
  void find_best(const T* logits, index_t rows, index_t vocabulary, std::size_t first, T* sums = nullptr) {
    kernels::top_k<T>(logits, vocabulary, rows, vocabulary, static_cast<index_t>(k_),
                      values_.data() + first * k_, ids_.data() + first * k_, sums);
  }

  // Whether the best tokens of a row still have their scores.
  bool still_best(std::size_t r, std::span<const T> row) const {
    for (std::size_t i = r * k_; i < (r + 1) * k_; ++i) {
      if (!(row[static_cast<std::size_t>(ids_[i])] == values_[i])) return false;
    }
    return true;
  }

  // Processors get a row of the whole vocabulary, with -infinity for ids without a column.
  void process(const LogitsStep& step, std::span<T> row) {
    if (columns_.empty()) return processors_(step, row);
    if (processors_.changes_values())
      std::fill(all_.begin(), all_.end(), -std::numeric_limits<T>::infinity());
    for (std::size_t i = 0; i < row.size(); ++i) all_[static_cast<std::size_t>(columns_[i])] = row[i];
    processors_(step, std::span<T>(all_));
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = all_[static_cast<std::size_t>(columns_[i])];
  }

  const ProcessorList& processors_;
  ProcessorInput input_;
  std::vector<T> sums_, values_;
  std::vector<std::int32_t> ids_;
  std::span<const std::int32_t> columns_;
  std::vector<T> all_;  // with columns_: a row of the vocabulary
  std::size_t k_ = 0;
};

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
        rows_(1) {}

  std::size_t input() const noexcept { return input_; }
  index_t group() const noexcept { return group_; }
  index_t max_steps() const noexcept { return detail::max_steps(*options_); }
  const std::vector<Hypothesis>& growing() const noexcept { return growing_; }
  /// The number of the hypothesis that the h-th growing one continues, among those before the step.
  std::size_t parent(std::size_t h) const { return rows_[h].parent; }
  const std::vector<Hypothesis>& finished() const noexcept { return finished_; }

  /// Enforces constraints; null: there are none.
  const ConstrainedBeam* constrained() const noexcept { return constrained_ ? &*constrained_ : nullptr; }

  std::size_t first_row = 0;  ///< of the growing hypotheses in the logits of a step
  bool over = false;          ///< whether its result was taken

  /// Ends hypothesis h of growing(), which has `length` tokens and no continuation, as a text without an end
  /// symbol. Call before advance().
  void stop(std::size_t h, index_t length) {
    finish(growing_[h], length, false);
    ++ended_;
  }

  /// Performs step `step` (from 0): sorts the continuations and keeps the best. taken: the tokens that
  /// earlier groups of the sentence chose in this step; appends those chosen here.
  void advance(std::vector<Continuation>& continuations, index_t step, std::vector<std::int32_t>& taken) {
    const bool grouped = options_->num_beam_groups > 1;
    if (grouped) {
      for (Continuation& c : continuations) {
        c.diversity =
            rows_[c.parent].diversity +
            options_->diversity_penalty * static_cast<double>(std::count(taken.begin(), taken.end(), c.id));
      }
    }
    const bool shrinks = rule_->ended_keeps_place();
    const std::size_t beam = static_cast<std::size_t>(options_->beam_size) - (shrinks ? ended_ : 0);
    const std::size_t kept = order(continuations, beam, step);
    const index_t length = step + 1;
    const bool cut = is_last(step) && rule_->cut_competes();
    const std::size_t considered = cut || shrinks ? std::min(kept, beam) : kept;
    std::vector<Hypothesis> next;
    std::vector<Row> rows;
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
      rows.push_back({c.parent, c.diversity});
      if (constrained_) constrained_->keep(i);
    }
    growing_ = std::move(next);
    rows_ = std::move(rows);
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
    stable_sort(std::span(likeliest_first), [](const Hypothesis& a, const Hypothesis& b) {
      return a.log_probability > b.log_probability;
    });
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
  // What a growing hypothesis has besides its text.
  struct Row {
    std::size_t parent = 0;
    double diversity = 0;  // the diversity penalty of its tokens
  };

  bool is_last(index_t step) const { return step + 1 == max_steps(); }

  // Moves the best continuations of a step to the front and returns their number: at most 2 * beam, of which
  // at most half are end symbols.
  std::size_t order(std::vector<Continuation>& continuations, std::size_t beam, index_t step) {
    if (constrained_) {
      constrained_->order(continuations, beam, options_->force_end && is_last(step));  // which drops some
      return std::min(continuations.size(), 2 * beam);
    }
    const std::size_t kept = std::min(continuations.size(), 2 * beam);
    std::partial_sort(continuations.begin(), continuations.begin() + static_cast<std::ptrdiff_t>(kept),
                      continuations.end(), comes_before);
    return kept;
  }

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
  std::vector<Row> rows_;             // one for each of them
  std::vector<Hypothesis> finished_;  // the best first; those that stop() ended, too
  std::size_t ended_ = 0;             // hypotheses that have ended, kept or not
  bool best_ended_ = false;           // see BeamState
};

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
  stable_sort(std::span(found), BetterResult{!beam_rule(options).cut_competes()});
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

/// Gives the searches their rows in step t and lists the rows' texts.
inline void place_rows(std::vector<SentenceSearch>& searches, std::vector<LogitsStep>& rows, index_t t,
                       const Prompts& prompts, std::span<const std::size_t> inputs, bool normalised) {
  rows.clear();
  for (SentenceSearch& search : searches) {
    const std::size_t i = search.input();
    // In the first step all groups share the prompt's row.
    const bool shares = t == 0 && search.group() > 0;
    search.first_row = shares ? rows.size() - 1 : rows.size();
    if (shares) continue;
    for (const Hypothesis& h : search.growing())
      rows.push_back({inputs[i], t, prompts[i], h.ids, normalised});
  }
}

/// Lists the continuations of a search's growing hypotheses, and stops those without any.
template <class T>
void find_continuations(std::vector<Continuation>& continuations, SentenceSearch& search,
                        const StepScores<T>& scores, const Tensor<T>& logits, index_t t,
                        const SearchOptions& options) {
  continuations.clear();
  const bool forced = options.force_end && t + 1 == search.max_steps();
  for (std::size_t h = 0; h < search.growing().size(); ++h) {
    const std::size_t row = search.first_row + h, first = continuations.size();
    const double before = search.growing()[h].log_probability;
    if (forced) {
      continuations.push_back({before, h, 0, options.end_id});
      continue;
    }
    for (std::size_t i = 0; i < scores.candidates(); ++i) {
      const auto [log_probability, id] = scores.candidate(row, i);
      if (!(log_probability > -std::numeric_limits<double>::infinity())) break;
      continuations.push_back({before + log_probability, h, i, id});
    }
    if (search.constrained() != nullptr) {
      search.constrained()->add_wanted(continuations, first, h, [&](std::int32_t id) {
        return before + scores.log_probability(logits, row, id);
      });
    }
    // Every next token is forbidden: the text ends here.
    if (continuations.size() == first) search.stop(h, std::max<index_t>(1, t));
  }
}

template <class T>
std::vector<std::vector<Hypothesis>> search_beams(NextTokens<T>& model, const Prompts& prompts,
                                                  std::span<const std::size_t> inputs,
                                                  std::span<const index_t> limits,
                                                  const SearchOptions& options, const EndScore& end_score) {
  std::vector<std::vector<Hypothesis>> results(prompts.size());
  const std::vector<SearchOptions> of_input = search_options(options, inputs, limits);
  const BatchConstraints constraints(options, inputs);
  const auto processing = constraints.processing();
  const ProcessorList processors(processing ? *processing : options);
  const ProcessorInput scale = beam_rule(options).processor_input(options);
  StepScores<T> scores(processors, scale, model.columns(), model.vocabulary_size());
  std::vector<SentenceSearch> searches;
  const auto end = [&](SentenceSearch& search, index_t length) {
    std::vector<Hypothesis>& into = results[search.input()];
    auto found = std::move(search).result(length);
    std::move(found.begin(), found.end(), std::back_inserter(into));
    search.over = true;
  };
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (index_t group = 0; group < options.num_beam_groups; ++group) {
      const SearchOptions& own = of_input.size() == 1 ? of_input[0] : of_input[i];
      searches.emplace_back(i, group, own, end_score, constraints.beam(inputs[i], max_steps(own)));
      if (max_steps(own) == 0) end(searches.back(), 0);  // prefix_ids leave no room for a text
    }
  }
  const auto is_over = [](const SentenceSearch& search) { return search.over; };
  std::erase_if(searches, is_over);
  if (searches.empty()) return results;
  std::vector<LogitsStep> rows;
  std::vector<Continuation> continuations;
  std::vector<std::int32_t> parents, ids, taken;
  Tensor<T> logits = model.begin(prompts, options.prefix_length);
  for (index_t t = 0; !searches.empty(); ++t) {
    place_rows(searches, rows, t, prompts, inputs, scale == ProcessorInput::log_probabilities);
    scores.find(logits, rows, 2 * options.beam_size);
    parents.clear();
    ids.clear();
    std::size_t input = prompts.size();
    for (SentenceSearch& search : searches) {
      if (search.input() != input) taken.clear();
      input = search.input();
      find_continuations(continuations, search, scores, logits, t, options);
      search.advance(continuations, t, taken);
      const bool goes_on =
          options.observer == nullptr ||
          (*options.observer)({inputs[input], t + 1, search.group(), search.growing(), search.finished()});
      if (t + 1 == search.max_steps() || !goes_on || search.done(t + 1)) {
        end(search, t + 1);
        continue;
      }
      for (std::size_t h = 0; h < search.growing().size(); ++h) {
        parents.push_back(static_cast<std::int32_t>(search.first_row + search.parent(h)));
        ids.push_back(search.growing()[h].ids.back());
      }
    }
    std::erase_if(searches, is_over);
    if (!searches.empty()) logits = model.step(parents, ids);
  }
  if (options.num_beam_groups > 1) {
    for (std::vector<Hypothesis>& result : results) merge_groups(result, options);
  }
  return results;
}

EIGENFORMER_INSTANCE(decltype(search_beams<float>) search_beams<float>)
EIGENFORMER_INSTANCE(decltype(search_beams<double>) search_beams<double>)

}  // namespace eigenformer::detail
#endif
