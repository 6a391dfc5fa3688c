#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/text/byte_span.hpp"
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include "eigenformer/data/text/sentence_rules.hpp"
#endif

namespace eigenformer {

/// Options of a SentenceSplitter.
struct SentenceOptions {
  /// A language code such as en, de-AT or deu_Latn; empty: any language, without abbreviations. This library
  /// has lists of abbreviations for English, German and French; other languages use those of ICU, if any.
  std::string language{};
  /// Further abbreviations that do not end a sentence, in UTF-8, with or without their last full stop; a
  /// lower-case one also matches its capitalised form.
  std::vector<std::string> abbreviations{};
};

namespace detail {

/// The functions that need ICU.
struct SentenceFunctions {
  std::shared_ptr<const void> (*make)(const std::string& language,
                                      const std::vector<std::string>& abbreviations);
  std::vector<ByteSpan> (*split)(const void* rules, std::string_view text);
  bool (*knows)(const std::string& language);
};

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
inline std::shared_ptr<const void> make_sentence_rules(const std::string& language,
                                                       const std::vector<std::string>& abbreviations) {
  return std::make_shared<const SentenceRules>(language, abbreviations);
}
inline std::vector<ByteSpan> split_by_rules(const void* rules, std::string_view text) {
  return static_cast<const SentenceRules*>(rules)->split(text);
}
inline constexpr SentenceFunctions sentence_functions{&make_sentence_rules, &split_by_rules,
                                                      &SentenceRules::knows};
inline const bool sentences_are_linked = link(sentence_functions);
#endif

}  // namespace detail

/// Splits a paragraph into sentences by Unicode's rules (UAX 29) as ICU implements them, corrected for
/// abbreviations, initials, ordinals, list numbers, quotes and ellipses. Thread-safe.
class SentenceSplitter {
 public:
  /// Throws ValueError for a language that ICU does not know, for an empty abbreviation, and in a program
  /// built without ICU.
  explicit SentenceSplitter(const SentenceOptions& options)
      : functions_(detail::find_linked<detail::SentenceFunctions>()) {
    if (functions_ == nullptr) {
      throw ValueError("sentence_splitter",
                       "splitting text into sentences needs ICU, which this program was built without");
    }
    rules_ = functions_->make(options.language, options.abbreviations);
  }

  /// The byte spans of the sentences of a paragraph, in order, without the white space around them. Every
  /// character that is not white space is in exactly one; line breaks count as white space. Throws ValueError
  /// for text that is not UTF-8 or has 2^31 - 1 bytes or more.
  std::vector<ByteSpan> split(std::string_view paragraph) const {
    return functions_->split(rules_.get(), paragraph);
  }

  /// Whether ICU knows a language code; false in a program built without ICU.
  static bool knows(const std::string& language) {
    const auto* functions = detail::find_linked<detail::SentenceFunctions>();
    return functions != nullptr && functions->knows(language);
  }

  /// Whether this program was built with ICU, which splitting needs.
  static bool available() noexcept { return detail::find_linked<detail::SentenceFunctions>() != nullptr; }

 private:
  const detail::SentenceFunctions* functions_;
  std::shared_ptr<const void> rules_;
};

}  // namespace eigenformer
