#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/nn/options/field.hpp"
#include "eigenformer/search/constraints/phrase_constraint.hpp"
#include "eigenformer/search/processors/processors.hpp"

namespace eigenformer {

struct AttentionMaps;  // search/decoding/attention_maps.hpp

/// A text found for an input.
struct Hypothesis {
  std::vector<std::int32_t> ids;  ///< without begin and end symbol, prompt and forced prefixes
  double log_probability = 0;     ///< sum over its tokens and the end symbol, in nats
  double score = 0;               ///< ranks texts, see SearchRule; log_probability in sampling
  bool finished = false;          ///< whether it ended with the end symbol
  std::shared_ptr<const AttentionMaps> attention = {};  ///< with SearchOptions::attention, else null
  /// With token_scores, the log-probability of each token and of the end symbol of a finished text, in nats;
  /// they sum to log_probability. Else empty.
  std::vector<double> token_log_probabilities{};
  /// Indices of the input's constraints that the text does not meet. Of finished texts, and of unfinished
  /// ones, those with more of them rank lower.
  std::vector<std::size_t> unmet{};
};

namespace detail {

/// Returns what to add to the score of a hypothesis that has ended or was cut off; an empty function:
/// nothing.
using EndScore = std::function<double(std::size_t input, const Hypothesis& ended)>;

}  // namespace detail

/// The state of an input's search after a step. Its spans are valid during the call only.
struct SearchProgress {
  std::size_t input;  ///< the index of the input in the caller's list
  index_t step;       ///< tokens of each growing text
  index_t group;      ///< the group of a diverse beam; else 0
  /// The growing texts, the likeliest first, without scores. In sampling: all texts of the input in order,
  /// including finished ones.
  std::span<const Hypothesis> growing;
  /// The texts that have ended, the best first: by the end symbol, or where every next token is forbidden. In
  /// sampling empty.
  std::span<const Hypothesis> finished;
};

/// Observes searches while they run, and may end them. Called after each step for each input (and group of a
/// diverse beam) whose search is running, on the searching threads, concurrently for different inputs.
/// Returning false ends the search of the input (or group) with the texts it has, finished or not, the best
/// first; other inputs are not affected. An exception is rethrown to the caller of the search, after the
/// threads that decode other batches have ended; no text is returned.
using SearchObserver = std::function<bool(const SearchProgress&)>;

class BeamRule;
class Shortlist;

/// How a beam search scores hypotheses of different lengths, and when it stops. alpha is the length penalty,
/// |y| the number of target tokens.
enum class SearchRule {
  gnmt,  ///< score = log p / ((5 + |y|) / 6)^alpha, |y| with the end symbol (Wu et al. 2016, section 7)
  huggingface,  ///< score = log p / |y|^alpha, |y| with the end symbol and a forced prefix; stops when
                ///< beam_size hypotheses are finished and no unfinished one, scored at its current length, is
                ///< better than the worst of these. Hypotheses cut off by max_length compete with finished
                ///< ones. As transformers' `early_stopping=False`
  ctranslate2,  ///< score = log p / |y|^alpha, |y| with the end symbol and a forced prefix; stops when
                ///< beam_size hypotheses are finished, with alpha 0 as soon as the best of the beam is.
                ///< Hypotheses cut off by max_length compete with finished ones. Forbidden ids are removed
                ///< before probabilities are normalised. As CTranslate2
  marian,  ///< score = log p / |y|^alpha, |y| with the end symbol and a forced prefix; a finished hypothesis
           ///< keeps its place in the beam, which shrinks, and the search stops when no unfinished one is
           ///< left. Hypotheses cut off by max_length compete with finished ones. As Marian
};
EIGENFORMER_ENUM_NAMES(SearchRule, "gnmt", "huggingface", "ctranslate2", "marian")

/// How texts are drawn instead of searched.
struct Sampling {
  double temperature = 1;  ///< divides the logits; 0: always the likeliest token (greedy)
  index_t top_k = 0;       ///< draw from the top_k likeliest tokens only (Fan et al. 2018); 0: from all
  /// Of those, draw from the fewest likeliest ones whose probabilities sum to top_p (Holtzman et al. 2020);
  /// 1: from all.
  double top_p = 1;
  /// Of those, draw from tokens at least min_p times as likely as the likeliest (Nguyen et al. 2024); 0: from
  /// all.
  double min_p = 0;
  std::uint64_t seed = 0;  ///< with the input's number, the text's and the token's place, says what is drawn
  /// The number of each input, which determines with the seed what is drawn: lets parts of a list be sampled
  /// separately with the same results; empty: 0, 1, ...
  std::vector<std::uint64_t> numbers{};

  /// Compares all fields.
  friend bool operator==(const Sampling&, const Sampling&) = default;

  /// Visits all fields but numbers with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"temperature", "divide the logits by this; 0: always the likeliest token",
                      Allowed::not_negative},
          self.temperature);
    visit(OptionField{"top_k", "draw from this many of the likeliest tokens; 0: from all",
                      Allowed::not_negative},
          self.top_k);
    visit(OptionField{"top_p", "draw from the likeliest tokens whose probabilities sum to this; 1: from all",
                      Allowed::share},
          self.top_p);
    visit(OptionField{"min_p",
                      "draw from tokens at least this many times as likely as the likeliest; 0: from all",
                      Allowed::rate},
          self.min_p);
    visit(OptionField{"seed", "seed; with the text's number it determines what is drawn"}, self.seed);
  }

  /// Throws ValueError for an invalid field, and names it.
  void validate(const char* op = "sampling") const;
};

/// Options of generate(): beam search, greedy search, or sampling.
struct SearchOptions {
  /// If set, texts are drawn, each with all its tokens, instead of searched. Of the fields below, beam_size
  /// and those of scores and of the search's end (length_penalty, word_penalty, patience, rule, own_rule,
  /// early_stopping, force_end) then have no effect; constraints, shortlist, coverage_penalty and
  /// num_beam_groups are errors. Not set: beam search.
  std::optional<Sampling> sampling{};
  index_t beam_size = 4;  ///< hypotheses kept for each input; 1: greedy search
  index_t max_length =
      256;  ///< maximum target tokens, forced first ones (prefix_ids) and the end symbol included
  index_t min_length = 0;  ///< minimum target tokens after prefix_ids and before the end symbol
  /// Maximum target tokens per token of the input, its end symbol included, in addition to max_length; 0:
  /// only max_length applies (Marian's max-length-factor, but applied to each sentence by itself).
  double max_length_factor = 0;
  double length_penalty = 1.0;  ///< alpha; its meaning depends on the rule, see SearchRule
  /// Nats subtracted from a text's log-probability for each token, the end symbol included, before division
  /// by the length (Marian's word-penalty); negative values reward longer texts.
  double word_penalty = 0;
  /// A search ends when patience * beam_size hypotheses have ended instead of beam_size (Kasai et al. 2022);
  /// for the rules gnmt and ctranslate2 only.
  double patience = 1;
  SearchRule rule = SearchRule::gnmt;  ///< how hypotheses compare and when a search ends
  bool early_stopping = false;         ///< end a search as soon as beam_size hypotheses have ended
  bool force_end = false;              ///< at max_length, append the end symbol at no cost
  /// Forbids repeated n-grams of this size, including those of begin_id and prefix_ids or the prompt; 0: off
  /// (Paulus et al. 2018, section 2.5).
  index_t no_repeat_ngram_size = 0;
  /// Divides positive and multiplies negative scores of tokens that the text or the prompt contains; 1: off
  /// (Keskar et al. 2019).
  double repetition_penalty = 1;
  /// beta: adds to the score of a text that has ended or was cut off beta times the sum over source tokens of
  /// log(min(a, 1)), where a is the attention that the token receives, which penalises texts that leave out a
  /// part of the source (Wu et al. 2016, section 7); 0: off. Uses the mean attention over the heads of the
  /// decoder's last layer; each such text takes another pass of the model.
  double coverage_penalty = 0;
  /// Groups of diverse beam search (Vijayakumar et al. 2018): each group pays a penalty for tokens that
  /// earlier groups chose in the same step. Must divide beam_size; 1: ordinary beam search.
  index_t num_beam_groups = 1;
  /// Nats that a token costs a group for each time an earlier group chose it in the same step (Hamming
  /// diversity). The penalty accumulates over steps and affects which hypotheses a group keeps, not the
  /// scores of the results.
  double diversity_penalty = 0;
  /// Texts returned for each input: the best first, at most beam_size; in sampling all that are drawn.
  index_t num_hypotheses = 1;
  std::int32_t begin_id = SpecialIds::begin;  ///< the first token, for models without a prompt
  std::int32_t end_id = SpecialIds::end;      ///< ends a text; in sampling -1: max_length alone ends it
  /// Ids forced after begin_id or the prompt; they cost nothing and are not in the results.
  std::vector<std::int32_t> prefix_ids{};
  /// Ids forced after prefix_ids, one list per input, which max_length does not count; empty: none.
  std::vector<std::vector<std::int32_t>> prefixes{};
  /// Phrases that each text must contain, one list per input; empty: none. An input's own prefix counts as
  /// part of its text. No text ends before its constraints are met, and all are met if max_length has room
  /// for all phrases one after another; else Hypothesis::unmet names those that are not. Constraints take
  /// precedence over no_repeat_ngram_size; forbidden_ids and processors take precedence over constraints.
  std::vector<PhraseConstraints> constraints{};
  /// The number of first tokens (begin_id and prefix_ids, or the prompt) with bidirectional attention, for a
  /// decoder trained as a prefix language model.
  index_t prefix_length = 0;
  /// Ids that are never produced.
  std::vector<std::int32_t> forbidden_ids = {SpecialIds::pad, SpecialIds::unknown, SpecialIds::begin};
  /// Return attention weights with hypotheses; takes another pass of the model per returned text.
  bool attention = false;
  bool token_scores = false;      ///< return the log-probabilities of tokens with hypotheses
  LogitsProcessors processors{};  ///< custom processors, called in this order before those of other fields
  std::shared_ptr<const BeamRule> own_rule{};  ///< a custom rule that replaces `rule`; null: none
  /// Restricts each batch to the ids it chooses for the batch's sources, and normalises probabilities over
  /// these: a result then depends on its batch. Null: none.
  std::shared_ptr<const Shortlist> shortlist{};
  /// Observes each step and may end a search, `std::make_shared<const SearchObserver>(f)`; null: none.
  std::shared_ptr<const SearchObserver> observer{};

  /// Compares all fields, pointers by address.
  friend bool operator==(const SearchOptions&, const SearchOptions&) = default;

  /// Visits all fields but sampling, prefixes, constraints, processors, own_rule, shortlist and observer with
  /// their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"beam_size", "hypotheses kept per sentence; 1: greedy search", Allowed::positive},
          self.beam_size);
    visit(OptionField{"max_length",
                      "maximum target tokens, forced first ones (prefix_ids) and the end symbol included",
                      Allowed::positive},
          self.max_length);
    visit(OptionField{"min_length", "minimum target tokens before the end symbol", Allowed::not_negative},
          self.min_length);
    visit(OptionField{"max_length_factor", "maximum target tokens per source token; 0: no such limit",
                      Allowed::not_negative},
          self.max_length_factor);
    visit(
        OptionField{
            "length_penalty",
            "exponent of the length that scores are divided by; higher values favour longer sentences",
            Allowed::finite},
        self.length_penalty);
    visit(
        OptionField{"word_penalty", "subtracted from scores for each target token, in nats", Allowed::finite},
        self.word_penalty);
    visit(OptionField{"patience", "end the search when patience * beam_size hypotheses have ended",
                      Allowed::positive},
          self.patience);
    visit(OptionField{"rule", "how hypotheses of different lengths are compared, and when the search ends"},
          self.rule);
    visit(OptionField{"early_stopping", "end the search as soon as beam_size hypotheses have ended"},
          self.early_stopping);
    visit(OptionField{"force_end", "at max_length, append the end symbol at no cost"}, self.force_end);
    visit(OptionField{"no_repeat_ngram_size", "forbid repeated n-grams of this size; 0: off",
                      Allowed::not_negative},
          self.no_repeat_ngram_size);
    visit(OptionField{"repetition_penalty",
                      "lower the scores of tokens already in the text by this factor; 1: off",
                      Allowed::positive},
          self.repetition_penalty);
    visit(OptionField{"coverage_penalty",
                      "lower the scores of texts that leave parts of the source without attention; 0: off",
                      Allowed::not_negative},
          self.coverage_penalty);
    visit(OptionField{"num_beam_groups", "groups of diverse beam search; 1: ordinary beam search",
                      Allowed::positive},
          self.num_beam_groups);
    visit(
        OptionField{
            "diversity_penalty",
            "diverse beam search: penalty for each earlier group that chose the same token in the same step",
            Allowed::not_negative},
        self.diversity_penalty);
    visit(OptionField{"num_hypotheses",
                      "translations returned per input: the best first, or with sampling all that are drawn",
                      Allowed::positive},
          self.num_hypotheses);
    visit(OptionField{"begin_id", "id that the output begins with, in models without a prompt"},
          self.begin_id);
    visit(OptionField{"end_id", "id of the end symbol"}, self.end_id);
    visit(OptionField{"prefix_ids", "ids forced after begin_id or the prompt"}, self.prefix_ids);
    visit(OptionField{"prefix_length",
                      "how many of begin_id and prefix_ids, from the first on, attend to one another in both "
                      "directions",
                      Allowed::not_negative},
          self.prefix_length);
    visit(OptionField{"forbidden_ids", "ids that are never produced"}, self.forbidden_ids);
    visit(OptionField{"attention", "return attention weights with the hypotheses"}, self.attention);
    visit(OptionField{"token_scores", "return the log-probabilities of tokens with the hypotheses"},
          self.token_scores);
  }

  /// Throws ValueError for an invalid field or combination, and names it.
  void validate(const char* op = "search") const;
};

namespace detail {

// The maximum target tokens after prefix_ids.
inline index_t max_steps(const SearchOptions& options) {
  return std::max<index_t>(0, options.max_length - static_cast<index_t>(options.prefix_ids.size()));
}

}  // namespace detail

}  // namespace eigenformer

#include "eigenformer/search/beams/rules.hpp"  // validate()
