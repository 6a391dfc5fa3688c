#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/data/text/utf8.hpp"

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include "eigenformer/data/text/icu_text.hpp"
#endif

namespace eigenformer::detail {

/// Case functions of ICU; without it only ASCII letters have cases.
struct CaseFunctions {
  char32_t (*fold)(char32_t);
  char32_t (*upper)(char32_t);
};

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
inline constexpr CaseFunctions icu_case_functions{&icu::fold_case, &icu::to_upper};
inline const bool icu_case_is_linked = link(icu_case_functions);
#endif

/// A code point with Unicode's simple case folding.
inline char32_t folded(char32_t c) {
  if (const auto* icu = find_linked<CaseFunctions>()) return icu->fold(c);
  return c >= U'A' && c <= U'Z' ? c + (U'a' - U'A') : c;
}

/// A text with its first letter in upper case.
EIGENFORMER_IO_FUNCTION std::string capitalized(std::string_view text);

/// Whether a character is part of words: neither white space nor punctuation, and not of a script without
/// spaces between words (Chinese, Japanese, Thai, Lao, Burmese, Khmer).
inline bool is_in_word(char32_t c) {
  if (c == 0 || is_space(c) || is_punctuation(c)) return false;
  const auto within = [&](char32_t first, char32_t last) { return c >= first && c <= last; };
  return !within(0x0E00, 0x0EFF) && !within(0x1000, 0x109F) && !within(0x1780, 0x17FF) &&
         !within(0x2E80, 0xA4CF) && !within(0xF900, 0xFAFF) && !within(0x20000, 0x3FFFF);
}

/// The code points of a text with their bytes; a run of white space is one space.
struct SpacedText {
  std::u32string points;
  std::vector<ByteSpan> spans;

  /// ignore_case: whether to fold letters.
  explicit SpacedText(std::string_view text, bool ignore_case = false);

  /// Whether there is a word boundary before the i-th code point.
  bool is_edge(std::size_t i) const {
    return i == 0 || i >= points.size() || !is_in_word(points[i - 1]) || !is_in_word(points[i]);
  }
};

/// Whether a text contains a phrase as whole words, or begins with it capitalized.
EIGENFORMER_IO_FUNCTION bool has_phrase(std::string_view text, std::string_view phrase);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_IO_FUNCTION std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const DecodedCodePoint first = decode_front(text);
  if (first.length == 0) return std::string(text);
  char32_t c = first.value;
  if (const auto* icu = find_linked<CaseFunctions>()) {
    c = icu->upper(c);
  } else if (c >= U'a' && c <= U'z') {
    c -= U'a' - U'A';
  }
  return utf8_of(c) + std::string(text.substr(first.length));
}

EIGENFORMER_IO_FUNCTION SpacedText::SpacedText(std::string_view text, bool ignore_case) {
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    const auto begin = static_cast<std::size_t>(bytes.data() - text.data());
    if (is_space(c)) {
      if (!points.empty() && points.back() == U' ') {
        spans.back().end = begin + bytes.size();
        return;
      }
      c = U' ';
    }
    points += ignore_case ? folded(c) : c;
    spans.push_back({begin, begin + bytes.size()});
  });
}

EIGENFORMER_IO_FUNCTION bool has_phrase(std::string_view text, std::string_view phrase) {
  const SpacedText in(text);
  const std::u32string wanted = SpacedText(phrase).points;
  if (wanted.empty()) return false;
  for (std::size_t at = in.points.find(wanted); at != std::u32string::npos;
       at = in.points.find(wanted, at + 1)) {
    if (in.is_edge(at) && in.is_edge(at + wanted.size())) return true;
  }
  const std::u32string initial = SpacedText(capitalized(phrase)).points;
  return in.points.starts_with(initial) && in.is_edge(initial.size());
}

}  // namespace detail
}  // namespace eigenformer

#endif
