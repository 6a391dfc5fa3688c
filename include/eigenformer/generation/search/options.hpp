#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/data/corpus/conventions.hpp"
#include "eigenformer/generation/constraints/phrase_constraint.hpp"
#include "eigenformer/generation/processors/logits_processor.hpp"
#include "eigenformer/generation/search/hypothesis.hpp"
#include "eigenformer/generation/search/observer.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

class BeamRule;
class Shortlist;

/// How a target sentence is searched for.
struct GenerationOptions {
  index_t beam_size = 4;     ///< hypotheses kept for each sentence; 1: greedy, the likeliest token each time
  index_t max_length = 256;  ///< target tokens at most, the end symbol included
  index_t min_length = 0;    ///< target tokens at least before the end symbol may come
  /// Target tokens at most for each token of the input, its end symbol included, and never above max_length;
  /// 0: max_length alone limits (Marian's max-length-factor, of each sentence by itself).
  double max_length_factor = 0;
  double length_penalty = 1.0;  ///< alpha: see SearchRule
  /// Subtracted from a text's log-probability for each of its tokens, the end symbol included, before its
  /// length divides it, in nats (Marian's word-penalty); below 0: a reward for longer texts.
  double word_penalty = 0;
  /// A search ends when patience * beam_size hypotheses have ended, and not with the first beam_size (Kasai
  /// et al. 2022); of the rules gnmt and ctranslate2.
  double patience = 1;
  SearchRule rule = SearchRule::gnmt;
  bool early_stopping = false;  ///< end a sentence's search as soon as beam_size hypotheses have ended
  bool force_end = false;       ///< at max_length, append the end symbol without a cost
  /// Forbids repeated n-grams of this size, begin_id and prefix_ids (or the prompt) counted; 0: off (Paulus
  /// et al. 2018, section 2.5).
  index_t no_repeat_ngram_size = 0;
  /// What a token's score is divided by (where it is positive) or multiplied by (where it is negative) once
  /// the token has come, the prompt counted; 1: none (Keskar et al. 2019).
  double repetition_penalty = 1;
  /// beta: adds beta * sum over source tokens of log(min(attention they got, 1)) to the score of a text that
  /// ends, so that one which leaves out a part of the source loses (Wu et al. 2016, eq. 14). Attention is the
  /// mean over the heads of the decoder's last layer. Each text that ends takes another pass of the model.
  double coverage_penalty = 0;
  /// Diverse beam search (Vijayakumar et al. 2018): the beam is split into so many groups, of which each one
  /// pays for the tokens that those before it chose in the same step.
  index_t num_beam_groups = 1;
  /// What a token costs a group, in nats, for each time that an earlier group chose it in this step (Hamming
  /// diversity). It adds up over steps and decides what a group keeps; results have their own scores.
  double diversity_penalty = 0;
  index_t num_hypotheses = 1;  ///< sentences returned for each input, the best first; at most beam_size
  std::int32_t begin_id = SpecialIds::begin;  ///< what comes first, of models without a prompt
  std::int32_t end_id = SpecialIds::end;
  /// Forced after begin_id or the prompt, at no cost; not in the results.
  std::vector<std::int32_t> prefix_ids{};
  /// Forced after prefix_ids as those are, one list for each input; empty: none for all.
  std::vector<std::vector<std::int32_t>> prefixes{};
  /// What each text must contain, one list for each input; empty: nothing. An input's own prefix is part of
  /// its text. No text ends before its constraints are met, and all are met where max_length has room for the
  /// phrases one after another; else Hypothesis::unmet names those that are not. Constraints go before
  /// no_repeat_ngram_size, and forbidden_ids and processors before constraints: what these forbid is not
  /// produced.
  std::vector<PhraseConstraints> constraints{};
  /// The first of begin_id and prefix_ids (or of the prompt) that see one another in both directions, for a
  /// decoder that was trained as a prefix language model.
  index_t prefix_length = 0;
  /// Never produced.
  std::vector<std::int32_t> forbidden_ids = {SpecialIds::pad, SpecialIds::unknown, SpecialIds::begin};
  /// Whether hypotheses come with their attention weights; those not asked for cost nothing.
  bool attention = false;
  bool token_scores = false;      ///< whether hypotheses come with the log-probabilities of their tokens
  LogitsProcessors processors{};  ///< your own, called in this order before those that other fields ask for
  std::shared_ptr<const BeamRule> own_rule{};  ///< in place of `rule`
  /// Only the ids that it chooses for the sources of a batch can be produced, and probabilities are among
  /// them: a result then depends on what it is searched with.
  std::shared_ptr<const Shortlist> shortlist{};
  std::shared_ptr<const SearchObserver> observer{};  ///< sees each step, and may end a search

  /// Whether all fields are equal, pointers to the same objects included.
  friend bool operator==(const GenerationOptions&, const GenerationOptions&) = default;

  /// All but prefixes, constraints, processors, own_rule, shortlist and observer, which files do not hold.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"beam_size", "hypotheses kept per sentence; 1: greedy search", Allowed::positive},
          self.beam_size);
    visit(OptionField{"max_length", "maximum target tokens, the end symbol included", Allowed::positive},
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
    visit(OptionField{"num_hypotheses", "translations returned per input, the best first", Allowed::positive},
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

  /// Throws ValueError that names an impossible field.
  void validate() const;
};

}  // namespace eigenformer

#include "eigenformer/generation/search/rules.hpp"  // validate()
