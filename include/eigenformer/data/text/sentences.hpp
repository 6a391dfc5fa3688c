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

/// How a SentenceSplitter works.
struct SentenceOptions {
  /// A code such as en, de-AT or deu_Latn; empty: any language, without lists. English, German and French
  /// have lists of abbreviations of this library, other languages those of ICU where it has some.
  std::string language{};
  /// More abbreviations that end no sentence, each as it is written, with or without its last full stop; one
  /// in lower case stands for its form with a capital, too.
  std::vector<std::string> abbreviations{};
};

namespace detail {

/// What needs ICU.
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

/// Finds the sentences of a paragraph: by the sentence rules of Unicode (UAX 29) as ICU has them, corrected
/// for abbreviations, initials, ordinals, numbers of lists, quotes and ellipses. Threads may share it.
class SentenceSplitter {
 public:
  /// Throws ValueError for a language that ICU does not know, for an empty abbreviation, and in a program
  /// without ICU.
  explicit SentenceSplitter(const SentenceOptions& options)
      : functions_(detail::find_linked<detail::SentenceFunctions>()) {
    if (functions_ == nullptr) {
      throw ValueError("sentence_splitter",
                       "splitting text into sentences needs ICU, which this program was built without");
    }
    rules_ = functions_->make(options.language, options.abbreviations);
  }

  /// The sentences of a paragraph, in order, without the white space around them. Whatever is not white space
  /// is in exactly one; line breaks count as white space. Throws ValueError for text that is not UTF-8 or has
  /// 2^31 bytes or more.
  std::vector<ByteSpan> split(std::string_view paragraph) const {
    return functions_->split(rules_.get(), paragraph);
  }

  /// Whether a language is one that ICU knows; false in a program without ICU.
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
