#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/search/beams/options.hpp"

namespace eigenformer {

namespace detail {

/// The state of one input's search after a step.
struct BeamState {
  index_t length;                       ///< tokens of each growing hypothesis, without the prompt
  std::span<const Hypothesis> growing;  ///< growing hypotheses, the likeliest first, without scores
  /// Finished hypotheses, the best score first; if cut_competes(), also those whose next tokens were all
  /// forbidden.
  std::span<const Hypothesis> finished;
  bool best_ended;  ///< whether the best hypothesis of the beam ended at any step
};

/// The scores that logits processors get in a beam search.
enum class ProcessorInput {
  log_probabilities,    ///< log-softmax of the logits; not normalised again after processing
  logits,               ///< logits; the log-sum-exp before processing is subtracted afterwards
  renormalised_logits,  ///< logits; normalised after processing
};

}  // namespace detail

/// Defines how a beam search compares hypotheses of different lengths and when it ends, in which libraries
/// differ. Set a custom rule as SearchOptions::own_rule. Rules have no state and are called from several
/// threads at once.
class BeamRule {
 public:
  virtual ~BeamRule() = default;

  /// The score by which hypotheses are ranked, higher is better. length: tokens of the hypothesis, the end
  /// symbol included, without the prompt. log_probability: in nats, the word penalty already subtracted; the
  /// search adds the coverage penalty to the result.
  virtual double score(double log_probability, index_t length, const SearchOptions& options) const = 0;
  /// Whether the search can end although hypotheses are still growing. Called after each step; not called
  /// when nothing grows, when greedy search has found the end symbol, or when early_stopping ends the search
  /// anyway. hypothesis_score() gives the score of a growing hypothesis.
  virtual bool done(const detail::BeamState& state, const SearchOptions& options) const = 0;

  /// The scores that logits processors get. Default: log_probabilities.
  virtual detail::ProcessorInput processor_input(const SearchOptions&) const {
    return detail::ProcessorInput::log_probabilities;
  }
  /// The maximum number of finished hypotheses that are kept, the best ones; at least 1. Default: no limit.
  virtual index_t max_finished(const SearchOptions&) const { return std::numeric_limits<index_t>::max(); }
  /// Whether hypotheses without the end symbol, cut off by max_length or because every next token is
  /// forbidden, compete with finished ones by score; else they rank after them (default).
  virtual bool cut_competes() const { return false; }
  /// Whether a hypothesis that ends as the rank-th best continuation (from 0) in a step (from 0) is dropped
  /// together with its place in the beam. Default: no.
  virtual bool gives_up_end(index_t /*rank*/, index_t /*step*/, const SearchOptions&) const { return false; }
  /// Whether each finished hypothesis reduces the number of growing ones by one. Default: no.
  virtual bool ended_keeps_place() const { return false; }
  /// Throws ValueError for options that the rule does not support.
  virtual void validate(const SearchOptions&) const {}
};

namespace detail {

/// The score of a hypothesis by the options' rule and word penalty, without the coverage penalty. length: its
/// tokens without begin symbol and prefix, with the end symbol if it has one.
EIGENFORMER_FUNCTION double hypothesis_score(double log_probability, index_t length,
                                             const SearchOptions& options);

/// The options' own_rule, or else the rule that they name. Valid as long as the options.
EIGENFORMER_FUNCTION const BeamRule& beam_rule(const SearchOptions& options);

// The number of finished hypotheses that ends a search with patience.
inline index_t enough_ended(const SearchOptions& options) {
  const double wanted = std::round(options.patience * static_cast<double>(options.beam_size));
  const double most = std::numeric_limits<std::int32_t>::max();
  return std::max(options.num_hypotheses, static_cast<index_t>(std::min(wanted, most)));
}

inline void require_no_patience(const SearchOptions& options, const char* rule) {
  if (options.patience == 1) return;
  throw ValueError("search", {"patience is ", number_text(options.patience), ", must be 1 with the rule ",
                              rule, ", which has its own stopping criterion"});
}

/// A rule with the score log p / |y|^alpha, where |y| includes the end symbol and the forced prefix.
class PlainLengthRule : public BeamRule {
 public:
  double score(double log_probability, index_t length, const SearchOptions& options) const override {
    const index_t counted = length + static_cast<index_t>(options.prefix_ids.size());
    return log_probability / std::pow(static_cast<double>(counted), options.length_penalty);
  }

  bool cut_competes() const override { return true; }
};

}  // namespace detail

/// SearchRule::gnmt. Without a length penalty and a reward for length, scores only fall, so the search ends
/// when no growing hypothesis is better than the num_hypotheses best finished ones. Otherwise a longer
/// hypothesis may overtake: the search ends when patience * beam_size hypotheses have ended and the best
/// growing one, if it ended next, would not be among the num_hypotheses best.
class GnmtRule final : public BeamRule {
 public:
  double score(double log_probability, index_t length, const SearchOptions& options) const override {
    return log_probability / std::pow((5.0 + static_cast<double>(length)) / 6.0, options.length_penalty);
  }
  bool done(const detail::BeamState& state, const SearchOptions& options) const override {
    const bool only_falls = options.length_penalty == 0 && options.word_penalty >= 0;
    const index_t enough = only_falls ? options.num_hypotheses : detail::enough_ended(options);
    if (static_cast<index_t>(state.finished.size()) < enough) return false;
    return state.finished[static_cast<std::size_t>(options.num_hypotheses - 1)].score >=
           detail::hypothesis_score(state.growing.front().log_probability, state.length + 1, options);
  }
  void validate(const SearchOptions& options) const override {
    if (options.length_penalty >= 0) return;
    throw ValueError("search", {"length_penalty is ", options.length_penalty, ", must not be negative"});
  }
};

/// SearchRule::huggingface: transformers' beam search, and its greedy search where beam_size is 1.
class HuggingFaceRule final : public detail::PlainLengthRule {
 public:
  // A growing hypothesis must beat the worst one kept.
  bool done(const detail::BeamState& state, const SearchOptions& options) const override {
    return static_cast<index_t>(state.finished.size()) >= options.beam_size &&
           state.finished.back().score >=
               detail::hypothesis_score(state.growing.front().log_probability, state.length, options);
  }
  detail::ProcessorInput processor_input(const SearchOptions& options) const override {
    return options.beam_size == 1 ? detail::ProcessorInput::logits
                                  : detail::ProcessorInput::log_probabilities;
  }
  index_t max_finished(const SearchOptions& options) const override { return options.beam_size; }
  void validate(const SearchOptions& options) const override {
    detail::require_no_patience(options, "huggingface");
  }
};

/// SearchRule::ctranslate2.
class CTranslate2Rule final : public detail::PlainLengthRule {
 public:
  bool done(const detail::BeamState& state, const SearchOptions& options) const override {
    const auto ended = static_cast<index_t>(state.finished.size());
    return options.length_penalty == 0 ? state.best_ended && ended >= options.num_hypotheses
                                       : ended >= detail::enough_ended(options);
  }
  detail::ProcessorInput processor_input(const SearchOptions&) const override {
    return detail::ProcessorInput::renormalised_logits;
  }
  // Directly after a forced prefix only the best continuation may be the end symbol.
  bool gives_up_end(index_t rank, index_t step, const SearchOptions& options) const override {
    return step == 0 && rank > 0 && !options.prefix_ids.empty();
  }
};

/// SearchRule::marian. The beam shrinks with each finished hypothesis; the search ends when it is empty.
class MarianRule : public detail::PlainLengthRule {
 public:
  bool done(const detail::BeamState&, const SearchOptions&) const override { return false; }
  bool ended_keeps_place() const override { return true; }
  void validate(const SearchOptions& options) const override {
    detail::require_no_patience(options, "marian");
  }
};

#if EIGENFORMER_DEFINITIONS

namespace detail {

EIGENFORMER_FUNCTION double hypothesis_score(double log_probability, index_t length,
                                             const SearchOptions& options) {
  const double penalty = options.word_penalty * static_cast<double>(length);
  return beam_rule(options).score(log_probability - penalty, length, options);
}

EIGENFORMER_FUNCTION const BeamRule& beam_rule(const SearchOptions& options) {
  static const GnmtRule gnmt;
  static const HuggingFaceRule huggingface;
  static const CTranslate2Rule ctranslate2;
  static const MarianRule marian;
  if (options.own_rule != nullptr) return *options.own_rule;
  switch (options.rule) {
    case SearchRule::huggingface:
      return huggingface;
    case SearchRule::ctranslate2:
      return ctranslate2;
    case SearchRule::marian:
      return marian;
    case SearchRule::gnmt:
      break;
  }
  return gnmt;
}

}  // namespace detail

EIGENFORMER_FUNCTION void Sampling::validate(const char* op) const { validate_fields(op, *this); }

EIGENFORMER_FUNCTION void SearchOptions::validate(const char* op) const {
  validate_fields(op, *this);
  detail::require_at_most(op, "min_length", min_length, "max_length", max_length);
  if (sampling) {
    sampling->validate();
    const std::pair<const char*, bool> set[] = {{"constraints", !constraints.empty()},
                                                {"shortlist", shortlist != nullptr},
                                                {"coverage_penalty", coverage_penalty > 0},
                                                {"num_beam_groups", num_beam_groups > 1}};
    for (const auto& [name, given] : set) {
      if (given) throw ValueError(op, {name, " is set together with sampling, expected beam search"});
    }
    return;
  }
  detail::require_at_most(op, "num_hypotheses", num_hypotheses, "beam_size", beam_size);
  if (beam_size % num_beam_groups != 0) {
    throw ValueError(op, {"beam_size is ", beam_size, ", must be divisible by num_beam_groups, which is ",
                          num_beam_groups});
  }
  // Without a penalty all groups find the same; a single group has none to pay for.
  if ((num_beam_groups > 1) != (diversity_penalty > 0)) {
    throw ValueError(op, {"num_beam_groups is ", num_beam_groups, " and diversity_penalty is ",
                          detail::number_text(diversity_penalty),
                          ", expected num_beam_groups above 1 with diversity_penalty above 0, or 1 with 0"});
  }
  detail::beam_rule(*this).validate(*this);
}

#endif

}  // namespace eigenformer
