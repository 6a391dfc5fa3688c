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
/// The names of the search rules in options and files.
template <>
struct EnumNames<SearchRule> {
  /// One name per value, in the order of the enumeration.
  static constexpr std::array names = {"gnmt", "huggingface", "ctranslate2", "marian"};
};

/// What becomes of unknown tokens in an output's text.
enum class UnknownTokens {
  keep,  ///< each reads U+2047, the double question mark
  drop,  ///< they are left out, as by transformers' decode() with skip_special_tokens
};
/// The names of these values in options and files.
template <>
struct EnumNames<UnknownTokens> {
  /// One name per value, in the order of the enumeration.
  static constexpr std::array names = {"keep", "drop"};
};

/// A target language of a multilingual model, and the token before a source sentence that selects it
/// (Johnson et al. 2017).
struct TargetLanguage {
  std::string name{};   ///< such as "de"
  std::int32_t id = 0;  ///< id of its token in the source vocabulary

  /// Compares name and id.
  friend bool operator==(const TargetLanguage&, const TargetLanguage&) = default;
};

/// The tokens that a trained model expects around a sentence, its special ids, and its search options. The
/// defaults are those of models that this library trains.
struct TextConventions {
  std::string source_text{};                  ///< UTF-8 put before each source text, such as a task's name
  std::vector<std::int32_t> source_prefix{};  ///< ids before those of a source sentence, such as its language
  std::vector<std::int32_t> source_suffix = {SpecialIds::end};  ///< ids after those of a source sentence
  std::int32_t begin_id = SpecialIds::begin;                    ///< first id that the decoder reads
  std::vector<std::int32_t> target_prefix{};  ///< ids that every output begins with, such as its language
  std::int32_t end_id = SpecialIds::end;      ///< id that ends an output
  /// Ids that are never generated; those outside the vocabulary are ignored.
  std::vector<std::int32_t> forbidden_ids = {SpecialIds::pad, SpecialIds::unknown, SpecialIds::begin};
  SearchRule search_rule = SearchRule::gnmt;  ///< how hypotheses are scored and when the search stops
  double length_penalty = 1.0;                ///< alpha of the search rule; 0: scores are not normalised
  double word_penalty = 0;                    ///< subtracted from a score for each target token
  double max_length_factor = 0;               ///< most target tokens per source token; 0: no such limit
  index_t min_length = 0;                     ///< number of target tokens before the end symbol is allowed
  index_t beam_size = 0;                      ///< 0: the caller's
  index_t max_length = 0;  ///< most target tokens, target_prefix and end symbol included; 0: the caller's
  index_t no_repeat_ngram_size = 0;  ///< forbids repeated n-grams of this size; 0: off
  bool early_stopping = false;       ///< stop as soon as beam_size hypotheses are finished
  bool force_end = false;  ///< hypotheses of max_length tokens are given the end symbol, without its cost
  UnknownTokens unknown = UnknownTokens::keep;  ///< what becomes of unknown tokens in an output's text
  /// Languages of a multilingual model, of which with_target_language() selects one; empty for other models.
  std::vector<TargetLanguage> target_languages{};
  /// Whether a line that the model was trained on is one sentence; then translators split lines of several
  /// sentences. See several_sentences().
  bool lines_are_sentences = true;

  /// Compares all fields.
  friend bool operator==(const TextConventions&, const TextConventions&) = default;
};

/// Returns the conventions with a target language selected: its token becomes the last of the source prefix
/// and replaces that of a language selected before. An empty name keeps an earlier selection, selects the
/// only language of a model that has one, and changes nothing for a model without languages. Throws
/// ValueError that lists the languages for a name that is not among them, and for an empty name when there
/// are several.
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

/// The ids that conventions add to a sentence pair in training, as text; equal texts lead to equal batches.
inline std::string training_ids(const TextConventions& text) {
  const auto list = [](const std::vector<std::int32_t>& ids) {
    std::string words;
    for (const std::int32_t id : ids) words += ' ' + std::to_string(id);
    return ids.empty() ? std::string(" none") : words;
  };
  return "source_prefix" + list(text.source_prefix) + ", source_suffix" + list(text.source_suffix) +
         ", begin_id " + std::to_string(text.begin_id) + ", target_prefix" + list(text.target_prefix) +
         ", end_id " + std::to_string(text.end_id);
}

/// Number of positions that a sentence of up to `tokens` tokens takes in training and in decoding: its own,
/// and those of the ids around it (source: prefix and suffix; target: begin or end, and the prefix). A table
/// of learned positions needs as many rows.
inline index_t num_positions(index_t tokens, const TextConventions& text = {}) {
  const std::size_t source = text.source_prefix.size() + text.source_suffix.size();
  return tokens + static_cast<index_t>(std::max(source, text.target_prefix.size() + 1));
}

}  // namespace eigenformer
