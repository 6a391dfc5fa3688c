#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// How a beam search compares hypotheses of different lengths, and when it ends. alpha is the length penalty.
enum class SearchRule {
  gnmt,         ///< score = log p / ((5 + |y|) / 6)^alpha, |y| with the end symbol (Wu et al. 2016, eq. 14)
  huggingface,  ///< score = log p / |y|^alpha, |y| with the end symbol and a forced prefix; ends when a
                ///< beam's worth has ended and the best one growing is not better than the worst of these by
                ///< its present length. What max_length cuts off competes with what ended: transformers'
                ///< `early_stopping=False`
  ctranslate2,  ///< score = log p / |y|^alpha, |y| with the end symbol and a forced prefix; ends when a
                ///< beam's worth has ended, with alpha 0 already when the best of the beam has. Forbidden ids
                ///< are taken out before probabilities are normalised
  marian,  ///< score = log p / |y|^alpha, |y| with the end symbol; a hypothesis that ends keeps its place
           ///< in the beam, which shrinks, and the search goes on until none is left. What max_length
           ///< cuts off competes with what ended: Marian's
};
template <>
struct EnumNames<SearchRule> {
  static constexpr std::array names = {"gnmt", "huggingface", "ctranslate2", "marian"};
};

/// A language that a model of several translates into, and the token before a source sentence that asks for
/// it (Johnson et al. 2017).
struct TargetLanguage {
  std::string name{};  ///< such as "de"
  std::int32_t id = 0;

  friend bool operator==(const TargetLanguage&, const TargetLanguage&) = default;
};

/// What a trained model expects around a sentence, and which ids mean something to the search. The defaults
/// are those of models that this library trains.
struct TextConventions {
  std::string source_text{};                  ///< put before each source text, such as a task's name
  std::vector<std::int32_t> source_prefix{};  ///< ids before those of a source sentence, such as its language
  std::vector<std::int32_t> source_suffix = {SpecialIds::end};  ///< ids after them
  std::int32_t begin_id = SpecialIds::begin;                    ///< what the decoder reads first
  std::vector<std::int32_t> target_prefix{};  ///< what it has to say first, such as the target's language
  std::int32_t end_id = SpecialIds::end;
  std::vector<std::int32_t> forbidden_ids = {SpecialIds::pad, SpecialIds::unknown, SpecialIds::begin};
  SearchRule search_rule = SearchRule::gnmt;
  double length_penalty = 1.0;
  double word_penalty = 0;       ///< subtracted from a score for each target token
  double max_length_factor = 0;  ///< target tokens at most for each source token; 0: no such limit
  index_t min_length = 0;        ///< tokens before the end symbol may come
  index_t beam_size = 0;         ///< 0: the caller's
  index_t max_length = 0;  ///< target tokens at most, end included and the forced ones not; 0: the caller's
  index_t no_repeat_ngram_size = 0;  ///< forbids repeated n-grams of this size; 0: off
  bool early_stopping = false;       ///< end as soon as a beam's worth has ended
  bool force_end = false;            ///< what max_length would cut off ends there, at no cost

  /// Those of a model of several: one is to be chosen, by with_target_language().
  std::vector<TargetLanguage> target_languages{};

  friend bool operator==(const TextConventions&, const TextConventions&) = default;
};

/// The conventions with a language to translate into: its token ends the source prefix, in place of one that
/// was chosen before. An empty name leaves that one, or stands
/// for the only language of a model, and gives back conventions that have none. Throws ValueError that lists
/// the languages for one that is not among them, and for no name where there are several.
inline TextConventions with_target_language(TextConventions text, const std::string& language) {
  const std::vector<TargetLanguage>& known = text.target_languages;
  if (known.empty() && language.empty()) return text;
  for (const TargetLanguage& k : known) {
    if (text.source_prefix.empty() || text.source_prefix.back() != k.id) continue;
    if (language.empty() || language == k.name) return text;  // it was chosen before
    text.source_prefix.pop_back();
    break;
  }
  std::string names;
  for (const TargetLanguage& k : known) {
    if (k.name == language || (language.empty() && known.size() == 1)) {
      text.source_prefix.push_back(k.id);
      return text;
    }
    names += (names.empty() ? "" : ", ") + k.name;
  }
  if (known.empty()) {
    throw ValueError("target_language",
                     "the target language is '" + language + "', but the model has no target languages");
  }
  throw ValueError("target_language",
                   language.empty() ? "the model translates into several languages, expected one of " + names
                                    : "the target language is '" + language + "', expected one of " + names);
}

/// The positions that a sentence of up to `tokens` tokens takes in training and in decoding: its own, and
/// those of what stands around it (source: prefix and suffix; target: begin or end, and the prefix). A table
/// of learned positions needs as many rows.
inline index_t num_positions(index_t tokens, const TextConventions& text = {}) {
  const std::size_t source = text.source_prefix.size() + text.source_suffix.size();
  return tokens + static_cast<index_t>(std::max(source, text.target_prefix.size() + 1));
}

}  // namespace eigenformer
