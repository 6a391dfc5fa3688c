#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/search/alignment/attention_alignment.hpp"
#include "eigenformer/search/constraints/glossary.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"
#include "eigenformer/search/text/confidence.hpp"

namespace eigenformer {

/// A translation of a line of text, or a text that a decoder-only model generated from it.
struct Translation {
  std::string text;                                     ///< empty for a blank line
  double score = 0;                                     ///< Hypothesis::score
  double log_probability = 0;                           ///< Hypothesis::log_probability
  std::shared_ptr<const AttentionMaps> attention = {};  ///< with search.attention, else null
  /// With TextTranslatorOptions::alignment: the alignment of the given line and `text`; else null. Its target
  /// tokens include a given prefix, and the end symbol of a finished text.
  std::shared_ptr<const TextAlignment> alignment = {};
  /// Whether a sentence of the line had too many tokens for the model and was translated in parts.
  bool in_parts = false;
  /// Whether tokens were cut off because there were too many for the model: of a prepared line, of a pair
  /// that was scored, of a decoder-only model's line, of a line that is not UTF-8 (which is not split), or of
  /// a character that does not fit by itself.
  bool cut = false;
  double expected_utility = 0;  ///< with TextTranslatorOptions::utility, else 0
  /// With token_scores: the tokens after the forced ones, and the end symbol of a finished text; else empty.
  std::vector<TokenScore> tokens{};
  std::vector<WordConfidence> words{};  ///< with token_scores: all words of the text; else empty
  double confidence = 0;                ///< sentence_confidence() of the words
  /// With a glossary: its terms in the line and whether they were honoured; else empty.
  std::vector<TermOutcome> terms{};
};

/// A tokenized line, as TextTranslator::prepare() returns it.
struct PreparedLine {
  std::string text{};                  ///< the line as given
  std::vector<std::int32_t> ids{};     ///< the source ids; empty for a blank line
  std::vector<std::int32_t> prefix{};  ///< the ids that its translation must begin with
  bool cut = false;                    ///< see Translation::cut
  std::uint64_t number = 0;            ///< determines with the seed what is sampled
};

}  // namespace eigenformer
