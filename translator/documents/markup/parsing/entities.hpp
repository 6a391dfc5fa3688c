#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace eigenformer::detail {

/// A character reference at the front of a text, such as `&amp;` or `&#228;`.
struct CharacterReference {
  std::size_t length = 0;   ///< in bytes; 0: there is no reference
  std::string character{};  ///< the character as UTF-8; empty for an unknown name or number
};

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

// The named character references of the HTML standard; html_entities.cpp says how they are written.
extern const std::string_view html_entities;

// The number of `&#...;`; nothing above U+10FFFF.
std::optional<char32_t> reference_number(std::string_view digits);

// Whether XML 1.0 allows a character (2.2, Char).
bool is_xml_character(char32_t c);

/// Reads the character reference at the front of a text: a name of the HTML standard, or the number of a text
/// character. It must begin with `&` and end with `;`. html: as browsers read a text (13.2.5.72), a number
/// and 106 old names need no semicolon, not even before a letter: after the ampersand `copy2` has the name
/// `copy`, and `notit;` has `not`.
CharacterReference character_reference(std::string_view text, bool html = false);

}  // namespace eigenformer::detail
