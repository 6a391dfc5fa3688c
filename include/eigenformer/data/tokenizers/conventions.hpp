#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// What becomes of unknown tokens in an output's text.
enum class UnknownTokens {
  keep,  ///< each reads U+2047, the double question mark
  drop,  ///< they are left out, as by transformers' decode() with skip_special_tokens
};
EIGENFORMER_ENUM_NAMES(UnknownTokens, "keep", "drop")

/// A target language of a multilingual model, and the token before a source sentence that selects it
/// (Johnson et al. 2017).
struct TargetLanguage {
  std::string name{};   ///< such as "de"
  std::int32_t id = 0;  ///< id of its token in the source vocabulary

  /// Compares name and id.
  friend bool operator==(const TargetLanguage&, const TargetLanguage&) = default;
};

/// The tokens that a trained model expects around a sentence, and its special ids. The defaults are those of
/// models that this library trains.
struct TextConventions {
  std::string source_text{};                  ///< UTF-8 put before each source text, such as a task's name
  std::vector<std::int32_t> source_prefix{};  ///< ids before those of a source sentence, such as its language
  std::vector<std::int32_t> source_suffix = {SpecialIds::end};  ///< ids after those of a source sentence
  std::int32_t begin_id = SpecialIds::begin;                    ///< first id that the decoder reads
  std::vector<std::int32_t> target_prefix{};  ///< ids that every output begins with, such as its language
  std::int32_t end_id = SpecialIds::end;      ///< id that ends an output
  /// Ids that are never generated; those outside the vocabulary are ignored.
  std::vector<std::int32_t> forbidden_ids = {SpecialIds::pad, SpecialIds::unknown, SpecialIds::begin};
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
template <std::derived_from<TextConventions> Text>
Text with_target_language(Text text, const std::string& language) {
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
                     {"the target language is '", language, "', but the model has no target languages"});
  }
  throw ValueError("target_language",
                   language.empty() ? "the model translates into several languages, expected one of " + names
                                    : "the target language is '" + language + "', expected one of " + names);
}

namespace detail {

/// The ids that conventions add to a sentence pair in training, as text; equal texts lead to equal batches.
EIGENFORMER_FUNCTION std::string training_ids(const TextConventions& text);

/// Number of positions that a sentence of up to `tokens` tokens takes in training and in decoding: its own,
/// and those of the ids around it (source: prefix and suffix; target: begin or end, and the prefix). A table
/// of learned positions needs as many rows.
inline index_t num_positions(index_t tokens, const TextConventions& text = {}) {
  const std::size_t source = text.source_prefix.size() + text.source_suffix.size();
  return tokens + static_cast<index_t>(std::max(source, text.target_prefix.size() + 1));
}

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_FUNCTION std::string training_ids(const TextConventions& text) {
  const auto list = [](const std::vector<std::int32_t>& ids) {
    std::string words;
    for (const std::int32_t id : ids) words += ' ' + std::to_string(id);
    return ids.empty() ? std::string(" none") : words;
  };
  return "source_prefix" + list(text.source_prefix) + ", source_suffix" + list(text.source_suffix) +
         ", begin_id " + std::to_string(text.begin_id) + ", target_prefix" + list(text.target_prefix) +
         ", end_id " + std::to_string(text.end_id);
}

}  // namespace eigenformer::detail

#endif
