#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/nn/options/field.hpp"
#include "eigenformer/search/beams/observer.hpp"
#include "eigenformer/search/processors/logits_processor.hpp"

namespace eigenformer {

/// Options of sampling.
struct SamplingOptions {
  double temperature = 1;  ///< divides the logits; 0: always the likeliest token (greedy)
  index_t top_k = 0;       ///< draw from the top_k likeliest tokens only (Fan et al. 2018); 0: from all
  /// Of those, draw from the fewest likeliest ones whose probabilities sum to top_p (Holtzman et al. 2020);
  /// 1: from all.
  double top_p = 1;
  /// Of those, draw from tokens at least min_p times as likely as the likeliest (Nguyen et al. 2024); 0: from
  /// all.
  double min_p = 0;
  index_t num_samples = 1;  ///< texts drawn for each input
  std::uint64_t seed = 0;   ///< with the text's number and the token's place, determines what is drawn
  index_t max_length =
      256;                 ///< maximum new tokens, forced first ones (prefix_ids) and the end symbol included
  index_t min_length = 0;  ///< minimum new tokens before the end symbol
  double max_length_factor = 0;               ///< as in SearchOptions
  std::int32_t begin_id = SpecialIds::begin;  ///< the first token, for models without a prompt
  /// Ids forced after begin_id or the prompt; they cost nothing and are not in the results.
  std::vector<std::int32_t> prefix_ids{};
  /// Ids forced after prefix_ids, one list per input, which max_length does not count; empty: none.
  std::vector<std::vector<std::int32_t>> prefixes{};
  std::int32_t end_id = SpecialIds::end;  ///< ends a text; -1: texts end at max_length only
  /// Ids that are never drawn.
  std::vector<std::int32_t> forbidden_ids = {SpecialIds::pad, SpecialIds::unknown, SpecialIds::begin};
  /// The number of first tokens of each prompt (for an encoder-decoder begin_id and prefix_ids) with
  /// bidirectional attention, for a model trained as a prefix language model; larger than the prompt: all of
  /// it.
  index_t prefix_length = 0;
  /// The number of each input, which determines with the seed what is drawn: lets parts of a list be sampled
  /// separately with the same results; empty: 0, 1, ...
  std::vector<std::uint64_t> numbers{};
  index_t no_repeat_ngram_size = 0;                  ///< as in SearchOptions
  double repetition_penalty = 1;                     ///< as in SearchOptions
  bool token_scores = false;                         ///< as in SearchOptions
  LogitsProcessors processors{};                     ///< as in SearchOptions; their scores are logits
  std::shared_ptr<const SearchObserver> observer{};  ///< as in SearchOptions

  /// Compares all fields, pointers by address.
  friend bool operator==(const SamplingOptions&, const SamplingOptions&) = default;

  /// Visits all fields but prefixes, numbers, processors and observer with their names and descriptions, for
  /// files and command lines.
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
    visit(OptionField{"num_samples", "texts drawn per input", Allowed::positive}, self.num_samples);
    visit(OptionField{"seed", "seed; with the text's number it determines what is drawn"}, self.seed);
    visit(OptionField{"max_length",
                      "maximum new tokens, forced first ones (prefix_ids) and the end symbol included",
                      Allowed::positive},
          self.max_length);
    visit(OptionField{"min_length", "minimum new tokens before the end symbol", Allowed::not_negative},
          self.min_length);
    visit(OptionField{"max_length_factor", "maximum new tokens per source token; 0: no such limit",
                      Allowed::not_negative},
          self.max_length_factor);
    visit(OptionField{"begin_id", "id that the output begins with, in models without a prompt"},
          self.begin_id);
    visit(OptionField{"prefix_ids", "ids forced after begin_id or the prompt"}, self.prefix_ids);
    visit(OptionField{"end_id", "id of the end symbol; -1: none"}, self.end_id);
    visit(OptionField{"forbidden_ids", "ids that are never drawn"}, self.forbidden_ids);
    visit(
        OptionField{
            "prefix_length",
            "how many tokens of the prompt, from the first on, attend to one another in both directions",
            Allowed::not_negative},
        self.prefix_length);
    visit(OptionField{"no_repeat_ngram_size", "forbid repeated n-grams of this size; 0: off",
                      Allowed::not_negative},
          self.no_repeat_ngram_size);
    visit(OptionField{"repetition_penalty",
                      "lower the scores of tokens already in the text by this factor; 1: off",
                      Allowed::positive},
          self.repetition_penalty);
    visit(OptionField{"token_scores", "return the log-probabilities of tokens with the texts"},
          self.token_scores);
  }

  /// Throws ValueError for an invalid field or combination, and names it.
  void validate() const {
    validate_fields("sampling", *this);
    detail::require_at_most("sampling", "min_length", min_length, "max_length", max_length);
  }
};

}  // namespace eigenformer
