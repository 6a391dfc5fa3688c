#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer {

/// A character reference at the front of a text, such as `&amp;` or `&#228;`.
struct CharacterReference {
  std::size_t length = 0;   ///< in bytes; 0: there is no reference
  std::string character{};  ///< the character as UTF-8; empty for an unknown name or number
};

namespace detail {

inline bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_ascii_alphanumeric(char c) { return is_ascii_letter(c) || is_ascii_digit(c); }
inline bool is_markup_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }
inline char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = ascii_lower(c);
  return lower;
}

inline const std::unordered_map<std::string_view, char32_t>& named_characters() {
  static const std::unordered_map<std::string_view, char32_t> names = [] {
    std::unordered_map<std::string_view, char32_t> map = {
        {"quot", 34},       {"amp", 38},        {"apos", 39},       {"lt", 60},         {"gt", 62},
        {"OElig", 0x152},   {"oelig", 0x153},   {"Scaron", 0x160},  {"scaron", 0x161},  {"Yuml", 0x178},
        {"fnof", 0x192},    {"circ", 0x2C6},    {"tilde", 0x2DC},   {"ensp", 0x2002},   {"emsp", 0x2003},
        {"thinsp", 0x2009}, {"zwnj", 0x200C},   {"zwj", 0x200D},    {"lrm", 0x200E},    {"rlm", 0x200F},
        {"ndash", 0x2013},  {"mdash", 0x2014},  {"lsquo", 0x2018},  {"rsquo", 0x2019},  {"sbquo", 0x201A},
        {"ldquo", 0x201C},  {"rdquo", 0x201D},  {"bdquo", 0x201E},  {"dagger", 0x2020}, {"Dagger", 0x2021},
        {"bull", 0x2022},   {"hellip", 0x2026}, {"permil", 0x2030}, {"prime", 0x2032},  {"Prime", 0x2033},
        {"lsaquo", 0x2039}, {"rsaquo", 0x203A}, {"frasl", 0x2044},  {"euro", 0x20AC},   {"trade", 0x2122},
        {"larr", 0x2190},   {"uarr", 0x2191},   {"rarr", 0x2192},   {"darr", 0x2193},   {"harr", 0x2194},
        {"part", 0x2202},   {"sum", 0x2211},    {"minus", 0x2212},  {"radic", 0x221A},  {"infin", 0x221E},
        {"asymp", 0x2248},  {"ne", 0x2260},     {"equiv", 0x2261},  {"le", 0x2264},     {"ge", 0x2265},
        {"check", 0x2713}};
    // Latin-1, U+00A0 to U+00FF, in order.
    static constexpr std::array<std::string_view, 96> latin = {
        "nbsp",   "iexcl",  "cent",   "pound",  "curren", "yen",    "brvbar", "sect",   "uml",    "copy",
        "ordf",   "laquo",  "not",    "shy",    "reg",    "macr",   "deg",    "plusmn", "sup2",   "sup3",
        "acute",  "micro",  "para",   "middot", "cedil",  "sup1",   "ordm",   "raquo",  "frac14", "frac12",
        "frac34", "iquest", "Agrave", "Aacute", "Acirc",  "Atilde", "Auml",   "Aring",  "AElig",  "Ccedil",
        "Egrave", "Eacute", "Ecirc",  "Euml",   "Igrave", "Iacute", "Icirc",  "Iuml",   "ETH",    "Ntilde",
        "Ograve", "Oacute", "Ocirc",  "Otilde", "Ouml",   "times",  "Oslash", "Ugrave", "Uacute", "Ucirc",
        "Uuml",   "Yacute", "THORN",  "szlig",  "agrave", "aacute", "acirc",  "atilde", "auml",   "aring",
        "aelig",  "ccedil", "egrave", "eacute", "ecirc",  "euml",   "igrave", "iacute", "icirc",  "iuml",
        "eth",    "ntilde", "ograve", "oacute", "ocirc",  "otilde", "ouml",   "divide", "oslash", "ugrave",
        "uacute", "ucirc",  "uuml",   "yacute", "thorn",  "yuml"};
    for (std::size_t i = 0; i < latin.size(); ++i) map.emplace(latin[i], static_cast<char32_t>(0xA0 + i));
    // The Greek letters; U+03A2 is not assigned, U+03C2 is the final sigma.
    static constexpr std::array<std::string_view, 25> greek = {
        "alpha", "beta",   "gamma",   "delta", "epsilon", "zeta",    "eta",  "theta", "iota",
        "kappa", "lambda", "mu",      "nu",    "xi",      "omicron", "pi",   "rho",   "sigmaf",
        "sigma", "tau",    "upsilon", "phi",   "chi",     "psi",     "omega"};
    static constexpr std::array<std::string_view, 25> capital = {
        "Alpha", "Beta",   "Gamma",   "Delta", "Epsilon", "Zeta",    "Eta",  "Theta", "Iota",
        "Kappa", "Lambda", "Mu",      "Nu",    "Xi",      "Omicron", "Pi",   "Rho",   "",
        "Sigma", "Tau",    "Upsilon", "Phi",   "Chi",     "Psi",     "Omega"};
    for (std::size_t i = 0; i < greek.size(); ++i) {
      map.emplace(greek[i], static_cast<char32_t>(0x3B1 + i));
      if (!capital[i].empty()) map.emplace(capital[i], static_cast<char32_t>(0x391 + i));
    }
    return map;
  }();
  return names;
}

// The number of `&#...;`; nothing above U+10FFFF.
inline std::optional<char32_t> reference_number(std::string_view digits) {
  const bool hex = !digits.empty() && (digits[0] == 'x' || digits[0] == 'X');
  if (hex) digits.remove_prefix(1);
  char32_t value = 0;
  for (const char c : digits) {
    value = value * (hex ? 16 : 10) +
            static_cast<char32_t>(is_ascii_digit(c) ? c - '0' : ascii_lower(c) - 'a' + 10);
    if (value > 0x10FFFF) return std::nullopt;
  }
  return value;
}

// Whether XML 1.0 allows a character (2.2, Char).
inline bool is_xml_character(char32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c < 0xD800) || (c >= 0xE000 && c < 0xFFFE) ||
         (c >= 0x10000 && c <= 0x10FFFF);
}

// The character of `&#...;` as UTF-8; empty for a number that is not a text character. 128 to 159 are those
// of Windows-1252, as in the HTML standard, 13.2.5.80.
inline std::string numbered_character(std::string_view digits) {
  static constexpr std::array<char32_t, 32> windows = {
      0x20AC, 0,      0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
      0x2039, 0x152,  0,      0x17D,  0,      0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
      0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0,      0x17E,  0x178};
  char32_t value = reference_number(digits).value_or(0);
  if (value >= 0x80 && value < 0xA0) value = windows[value - 0x80];
  if (!is_xml_character(value) || value == 0x7F || (value & 0xFFFE) == 0xFFFE) return {};
  return utf8_of(value);
}

}  // namespace detail

/// Reads the character reference at the front of a text. It must begin with `&` and end with `;`, so `AT&T`
/// has none. Knows the names of XML, of Latin-1, of Greek letters and of common punctuation, arrows and
/// signs, and all numbers of text characters.
inline CharacterReference character_reference(std::string_view text) {
  constexpr std::size_t longest = 32;
  if (text.size() < 3 || text[0] != '&') return {};
  const bool number = text[1] == '#';
  const bool hex = number && (text[2] == 'x' || text[2] == 'X');
  const std::size_t first = number ? (hex ? 3 : 2) : 1;
  std::size_t end = first;
  const auto belongs = [&](char c) {
    if (hex)
      return detail::is_ascii_digit(c) || (detail::ascii_lower(c) >= 'a' && detail::ascii_lower(c) <= 'f');
    return number ? detail::is_ascii_digit(c) : detail::is_ascii_alphanumeric(c);
  };
  while (end < text.size() && end < longest && belongs(text[end])) ++end;
  if (end == first || end >= text.size() || text[end] != ';') return {};
  if (!number && !detail::is_ascii_letter(text[1])) return {};
  if (number) return {end + 1, detail::numbered_character(text.substr(2, end - 2))};
  const auto& names = detail::named_characters();
  const auto found = names.find(text.substr(1, end - 1));
  return {end + 1, found == names.end() ? std::string() : detail::utf8_of(found->second)};
}

}  // namespace eigenformer
