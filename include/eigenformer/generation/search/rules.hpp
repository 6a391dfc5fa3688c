#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/generation/search/options.hpp"

namespace eigenformer {

/// What the search of one input has found after a step.
struct BeamState {
  index_t length;                        ///< tokens of each growing hypothesis, the prompt not counted
  std::span<const Hypothesis> growing;   ///< the likeliest first; their scores are not set
  std::span<const Hypothesis> finished;  ///< the best score first
  bool best_ended;                       ///< whether the best of a beam has ended at some step
};

/// What processors see in a beam search.
enum class ProcessorInput {
  log_probabilities,    ///< log-softmax of the logits; what processors leave is not normalised again
  logits,               ///< the logits; tokens count with their logit minus the log-sum before processing
  renormalised_logits,  ///< the logits; what processors leave is normalised
};

/// How a beam search compares hypotheses of different lengths, and when it ends: what the libraries differ
/// in. A rule of your own goes to GenerationOptions::own_rule. It has no state and is called from several
/// threads.
class BeamRule {
 public:
  virtual ~BeamRule() = default;

  /// What hypotheses are ranked by. length: tokens of the hypothesis without the prompt, its end symbol
  /// counted. The word penalty is in log_probability already; the search adds the coverage penalty.
  virtual double score(double log_probability, index_t length, const GenerationOptions& options) const = 0;
  /// Whether nothing that still grows can matter. Asked after each step, unless nothing grows, beam_size is 1
  /// and a hypothesis has ended, or early_stopping holds, which end every search. hypothesis_score() is what
  /// a growing hypothesis would get.
  virtual bool done(const BeamState& state, const GenerationOptions& options) const = 0;

  virtual ProcessorInput processor_input(const GenerationOptions&) const {
    return ProcessorInput::log_probabilities;
  }
  /// Of ended hypotheses so many are kept, the best.
  virtual index_t max_finished(const GenerationOptions&) const { return std::numeric_limits<index_t>::max(); }
  /// Whether what max_length cuts off competes with what has ended; else it comes after that.
  virtual bool cut_competes() const { return false; }
  /// Whether the end symbol that is the rank-th best continuation (from 0) in a step (from 0) is given up
  /// together with its place in the beam.
  virtual bool gives_up_end(index_t /*rank*/, index_t /*step*/, const GenerationOptions&) const {
    return false;
  }
  /// Whether a hypothesis that ends keeps its place, so that so many fewer go on growing.
  virtual bool ended_keeps_place() const { return false; }
  /// Throws ValueError for options that the rule cannot have.
  virtual void validate(const GenerationOptions&) const {}
};

/// ((5 + length) / 6)^alpha; length counts the end symbol and not the start (Wu et al. 2016, eq. 14).
inline double length_penalty(index_t length, double alpha) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha);
}

/// A hypothesis's score by the options' rule and word penalty. length: its tokens without begin and prefix,
/// with the end symbol where it has one.
double hypothesis_score(double log_probability, index_t length, const GenerationOptions& options);

namespace detail {

// How many hypotheses have to end before a search that has patience does.
inline index_t enough_ended(const GenerationOptions& options) {
  const double wanted = std::round(options.patience * static_cast<double>(options.beam_size));
  const double most = std::numeric_limits<std::int32_t>::max();
  return std::max(options.num_hypotheses, static_cast<index_t>(std::min(wanted, most)));
}

inline void require_no_patience(const GenerationOptions& options, const char* rule) {
  if (options.patience == 1) return;
  throw ValueError("generation", "patience is " + number_text(options.patience) +
                                     ", must be 1 with the rule " + rule +
                                     ", which has its own stopping criterion");
}

}  // namespace detail

/// SearchRule::gnmt. Without a length penalty scores only fall, so the best finished ones are final once
/// nothing that grows is better. With one, a longer hypothesis may overtake: the search goes on until
/// beam_size hypotheses have ended and the best one growing could not beat them by ending next.
class GnmtRule final : public BeamRule {
 public:
  double score(double log_probability, index_t length, const GenerationOptions& options) const override {
    return log_probability / length_penalty(length, options.length_penalty);
  }
  bool done(const BeamState& state, const GenerationOptions& options) const override {
    const bool only_falls = options.length_penalty == 0 && options.word_penalty >= 0;
    const index_t enough = only_falls ? options.num_hypotheses : detail::enough_ended(options);
    if (static_cast<index_t>(state.finished.size()) < enough) return false;
    return state.finished[static_cast<std::size_t>(options.num_hypotheses - 1)].score >=
           hypothesis_score(state.growing.front().log_probability, state.length + 1, options);
  }
  void validate(const GenerationOptions& options) const override {
    if (options.length_penalty >= 0) return;
    throw ValueError("generation", "length_penalty is " + std::to_string(options.length_penalty) +
                                       ", must not be negative");
  }
};

namespace detail {

// log p / |y|^alpha, |y| with the end symbol and the forced prefix.
inline double plain_length_score(double log_probability, index_t length, const GenerationOptions& options) {
  const index_t counted = length + static_cast<index_t>(options.prefix_ids.size());
  return log_probability / std::pow(static_cast<double>(counted), options.length_penalty);
}

}  // namespace detail

/// SearchRule::huggingface: transformers' beam search, and its greedy search where beam_size is 1.
class HuggingFaceRule final : public BeamRule {
 public:
  double score(double log_probability, index_t length, const GenerationOptions& options) const override {
    return detail::plain_length_score(log_probability, length, options);
  }
  // The worst of those that are kept is what the others have to beat.
  bool done(const BeamState& state, const GenerationOptions& options) const override {
    return static_cast<index_t>(state.finished.size()) >= options.beam_size &&
           state.finished.back().score >=
               hypothesis_score(state.growing.front().log_probability, state.length, options);
  }
  ProcessorInput processor_input(const GenerationOptions& options) const override {
    return options.beam_size == 1 ? ProcessorInput::logits : ProcessorInput::log_probabilities;
  }
  index_t max_finished(const GenerationOptions& options) const override { return options.beam_size; }
  bool cut_competes() const override { return true; }
  void validate(const GenerationOptions& options) const override {
    detail::require_no_patience(options, "huggingface");
  }
};

/// SearchRule::ctranslate2.
class CTranslate2Rule final : public BeamRule {
 public:
  double score(double log_probability, index_t length, const GenerationOptions& options) const override {
    return detail::plain_length_score(log_probability, length, options);
  }
  bool done(const BeamState& state, const GenerationOptions& options) const override {
    const auto ended = static_cast<index_t>(state.finished.size());
    return options.length_penalty == 0 ? state.best_ended && ended >= options.num_hypotheses
                                       : ended >= detail::enough_ended(options);
  }
  ProcessorInput processor_input(const GenerationOptions&) const override {
    return ProcessorInput::renormalised_logits;
  }
  bool cut_competes() const override { return true; }
  // Nothing but the best continuation may end right after a forced prefix.
  bool gives_up_end(index_t rank, index_t step, const GenerationOptions& options) const override {
    return step == 0 && rank > 0 && !options.prefix_ids.empty();
  }
};

/// SearchRule::marian. The beam is empty at the end, so nothing else ends the search.
class MarianRule : public BeamRule {
 public:
  double score(double log_probability, index_t length, const GenerationOptions& options) const override {
    return detail::plain_length_score(log_probability, length, options);
  }
  bool done(const BeamState&, const GenerationOptions&) const override { return false; }
  bool cut_competes() const override { return true; }
  bool ended_keeps_place() const override { return true; }
  void validate(const GenerationOptions& options) const override {
    detail::require_no_patience(options, "marian");
  }
};

/// The rule that the options name, or their own.
inline const BeamRule& beam_rule(const GenerationOptions& options) {
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

inline void GenerationOptions::validate() const {
  validate_fields("generation", *this);
  detail::require_at_most("generation", "num_hypotheses", num_hypotheses, "beam_size", beam_size);
  detail::require_at_most("generation", "min_length", min_length, "max_length", max_length);
  if (beam_size % num_beam_groups != 0) {
    throw ValueError("generation", "beam_size is " + std::to_string(beam_size) +
                                       ", must be divisible by num_beam_groups, which is " +
                                       std::to_string(num_beam_groups));
  }
  // Groups that cost each other nothing find the same, and one group has no other.
  if ((num_beam_groups > 1) != (diversity_penalty > 0)) {
    throw ValueError("generation",
                     "num_beam_groups is " + std::to_string(num_beam_groups) + " and diversity_penalty is " +
                         detail::number_text(diversity_penalty) +
                         ", expected num_beam_groups above 1 with diversity_penalty above 0, or 1 with 0");
  }
  beam_rule(*this).validate(*this);
}

inline double hypothesis_score(double log_probability, index_t length, const GenerationOptions& options) {
  const double penalty = options.word_penalty * static_cast<double>(length);
  return beam_rule(options).score(log_probability - penalty, length, options);
}

}  // namespace eigenformer
