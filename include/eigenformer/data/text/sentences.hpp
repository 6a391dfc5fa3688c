#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/data/text/utf8.hpp"
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include "eigenformer/data/text/sentence_rules.hpp"
#endif

namespace eigenformer {

/// Options of a SentenceSplitter.
struct SentenceOptions {
  /// A language code such as en, de-AT or deu_Latn; empty: any language, with the few abbreviations that many
  /// have. This library has lists of abbreviations for English, German and French; other languages use those
  /// of ICU, if any.
  std::string language{};
  /// Further abbreviations that do not end a sentence, in UTF-8, with or without their last full stop; a
  /// lower-case one also matches its capitalised form.
  std::vector<std::string> abbreviations{};
};

namespace detail {

/// The functions that need ICU.
struct SentenceFunctions {
  std::function<std::vector<ByteSpan>(std::string_view)> (*make)(
      const std::string& language, const std::vector<std::string>& abbreviations);
  bool (*knows)(const std::string& language);
};

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
inline constexpr SentenceFunctions sentence_functions{&make_sentence_rules, &knows_sentence_rules};
inline const bool sentences_are_linked = link(sentence_functions);
#endif

}  // namespace detail

/// Splits a paragraph into sentences by Unicode's rules (UAX 29) as ICU implements them, corrected for
/// abbreviations, initials, ordinals, list numbers, quotes and ellipses. Thread-safe.
class SentenceSplitter {
 public:
  /// Throws ValueError for a language that ICU does not know, for an empty abbreviation, and in a program
  /// built without ICU.
  explicit SentenceSplitter(const SentenceOptions& options);

  /// The byte spans of the sentences of a paragraph, in order, without the white space around them. Every
  /// character that is not white space is in exactly one; line breaks count as white space. Throws ValueError
  /// for text that is not UTF-8 or has 2^31 - 1 bytes or more.
  std::vector<ByteSpan> split(std::string_view paragraph) const { return split_(paragraph); }

  /// Whether ICU knows a language code; false in a program built without ICU.
  static bool knows(const std::string& language) {
    const auto* functions = detail::find_linked<detail::SentenceFunctions>();
    return functions != nullptr && functions->knows(language);
  }

  /// Whether this program was built with ICU, which splitting needs.
  static bool available() noexcept { return detail::find_linked<detail::SentenceFunctions>() != nullptr; }

 private:
  std::function<std::vector<ByteSpan>(std::string_view)> split_;
};

namespace detail {

/// The largest share of lines of several sentences in a corpus whose lines count as sentences; see
/// several_sentences(). Corpora aligned by sentences stay well below it, texts aligned by paragraphs well
/// above; and a model that has seen so many lines of several sentences can translate them.
inline constexpr double most_several_sentences = 0.2;

}  // namespace detail

/// The share of lines in which a SentenceSplitter without a language finds several sentences, of those with
/// text among at most 10,000 evenly spread ones. Nothing without such lines and in a program built without
/// ICU.
EIGENFORMER_IO_FUNCTION std::optional<double> several_sentences(std::span<const std::string> lines);

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION SentenceSplitter::SentenceSplitter(const SentenceOptions& options) {
  const auto* functions = detail::find_linked<detail::SentenceFunctions>();
  if (functions == nullptr) {
    throw ValueError("sentence_splitter",
                     "splitting text into sentences needs ICU, which this program was built without");
  }
  split_ = functions->make(options.language, options.abbreviations);
}

EIGENFORMER_IO_FUNCTION std::optional<double> several_sentences(std::span<const std::string> lines) {
  if (!SentenceSplitter::available()) return std::nullopt;
  const SentenceSplitter splitter(SentenceOptions{});
  const std::size_t count = std::min<std::size_t>(lines.size(), 10000);
  std::size_t with_text = 0, several = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const std::string& line = lines[k * lines.size() / count];
    if (detail::is_blank(line) || detail::find_invalid_utf8(line)) continue;
    ++with_text;
    several += splitter.split(line).size() > 1;
  }
  if (with_text == 0) return std::nullopt;
  return static_cast<double>(several) / static_cast<double>(with_text);
}

}  // namespace eigenformer

#endif
