#pragma once

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utf8.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"

/// Unicode character classes and mappings from ICU, as the tokenizers of BERT and GPT-2 use them.
namespace eigenformer::detail::icu {

/// Whether a code point has general category L.
inline bool is_letter(char32_t c) { return (U_MASK(u_charType(static_cast<UChar32>(c))) & U_GC_L_MASK) != 0; }
/// Whether a code point has general category N: digits, Roman numerals, fractions.
inline bool is_number(char32_t c) { return (U_MASK(u_charType(static_cast<UChar32>(c))) & U_GC_N_MASK) != 0; }
/// Whether a code point has Unicode's property White_Space; unlike is_space(), false for U+001C to U+001F.
inline bool is_white_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0; }
/// Whether a code point is a control or format character, a surrogate, or of private use: general category C
/// without the unassigned ones, of which an older Unicode has more.
inline bool is_other(char32_t c) {
  return (U_MASK(u_charType(static_cast<UChar32>(c))) & (U_GC_C_MASK & ~U_GC_CN_MASK)) != 0;
}
/// Whether a code point has general category Mn, such as a combining accent.
inline bool is_nonspacing_mark(char32_t c) {
  return u_charType(static_cast<UChar32>(c)) == U_NON_SPACING_MARK;
}
/// Whether a code point has general category P or is one of ASCII's symbols.
inline bool is_punctuation_mark(char32_t c) {
  if ((c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126))
    return true;
  return (U_MASK(u_charType(static_cast<UChar32>(c))) & U_GC_P_MASK) != 0;
}
/// Whether `\w` of regular expressions matches a code point: letters, marks, decimal digits, connectors,
/// joiners.
inline bool is_word_character(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  return u_hasBinaryProperty(point, UCHAR_ALPHABETIC) || u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL) ||
         (U_MASK(u_charType(point)) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}
/// The classes of characters for AddedTokens::split() that the tokenizers package uses.
struct AddedTokenCharacters {
  /// See icu::is_white_space().
  static bool is_white_space(char32_t c) { return icu::is_white_space(c); }
  /// See icu::is_word_character().
  static bool is_word_character(char32_t c) { return icu::is_word_character(c); }
};
/// The upper-case form of a code point (simple mapping); the code point itself when it has none.
inline char32_t to_upper(char32_t c) { return static_cast<char32_t>(u_toupper(static_cast<UChar32>(c))); }
/// The case-folded form of a code point (simple folding).
inline char32_t fold_case(char32_t c) {
  return static_cast<char32_t>(u_foldCase(static_cast<UChar32>(c), U_FOLD_CASE_DEFAULT));
}
/// The lower-case form of a code point (simple mapping); the code point itself when it has none.
inline char32_t to_lower(char32_t c) { return static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))); }

/// The decomposition of a code point in NFD; the code point itself when it has none. Throws ValueError when
/// ICU has no data for NFD.
inline std::u32string decompose(char32_t c) {
  UErrorCode error = U_ZERO_ERROR;
  const UNormalizer2* nfd = unorm2_getNFDInstance(&error);
  if (U_FAILURE(error))
    throw ValueError("tokenizer", {"ICU cannot load its data for NFD: ", u_errorName(error)});
  UChar units[64];
  const std::int32_t n = unorm2_getDecomposition(nfd, static_cast<UChar32>(c), units, 64, &error);
  if (n < 0 || U_FAILURE(error)) return {c};
  std::u32string out;
  for (std::int32_t i = 0; i < n;) {
    UChar32 point = 0;
    U16_NEXT(units, i, n, point);
    out += static_cast<char32_t>(point);
  }
  return out;
}

/// Decodes UTF-8 text to code points; what is not UTF-8 becomes U+FFFD, as in for_each_code_point().
inline std::u32string code_points(std::string_view text) {
  std::u32string out;
  detail::for_each_code_point(text, [&](char32_t c, std::string_view) { out += c; });
  return out;
}

}  // namespace eigenformer::detail::icu
