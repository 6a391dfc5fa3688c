#include "translator/documents/markup/parsing/entities.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

#include "eigenformer/data/text/utf8.hpp"

namespace eigenformer::detail {

std::optional<char32_t> reference_number(std::string_view digits) {
  const bool hex = !digits.empty() && (digits[0] == 'x' || digits[0] == 'X');
  if (hex) digits.remove_prefix(1);
  std::uint32_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (read.ec == std::errc::result_out_of_range || value > 0x10FFFF) return std::nullopt;
  return value;
}

bool is_xml_character(char32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c < 0xD800) || (c >= 0xE000 && c < 0xFFFE) ||
         (c >= 0x10000 && c <= 0x10FFFF);
}

namespace {

// A named character of the HTML standard.
struct NamedCharacter {
  std::string character;        // as UTF-8; one or two code points
  bool needs_semicolon = true;  // after its name
};

// The character of a name; nothing for an unknown one.
std::optional<NamedCharacter> named_character(std::string_view name) {
  const std::string_view all = html_entities;
  for (std::size_t low = 0, high = all.size(); low < high;) {
    std::size_t begin = low + (high - low) / 2;
    while (begin > low && all[begin - 1] != ' ') --begin;
    const std::size_t end = all.find(' ', begin), equals = all.find('=', begin);
    const bool bare = all[equals - 1] == '*';
    const int order = name.compare(all.substr(begin, equals - begin - (bare ? 1 : 0)));
    if (order < 0) {
      high = begin;
    } else if (order > 0) {
      low = end + 1;
    } else {
      NamedCharacter found{{}, !bare};
      char32_t point = 0;
      for (const char c : all.substr(equals + 1, end - equals - 1)) {
        if (c == '+') {
          found.character += utf8_of(std::exchange(point, 0));
        } else {
          point = point * 16 + static_cast<char32_t>(is_ascii_digit(c) ? c - '0' : c - 'A' + 10);
        }
      }
      found.character += utf8_of(point);
      return found;
    }
  }
  return std::nullopt;
}

// The character of `&#...;` as UTF-8; empty for a number that is not a text character. 128 to 159 are those
// of Windows-1252, as in the HTML standard, 13.2.5.80.
std::string numbered_character(std::string_view digits) {
  static constexpr std::array<char32_t, 32> windows = {
      0x20AC, 0,      0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
      0x2039, 0x152,  0,      0x17D,  0,      0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
      0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0,      0x17E,  0x178};
  char32_t value = reference_number(digits).value_or(0);
  if (value >= 0x80 && value < 0xA0) value = windows[value - 0x80];
  if (!is_xml_character(value) || value == 0x7F || (value & 0xFFFE) == 0xFFFE) return {};
  return utf8_of(value);
}

}  // namespace

CharacterReference character_reference(std::string_view text, bool html) {
  constexpr std::size_t longest = 32, longest_old = 6;
  if (text.size() < 3 || text[0] != '&') return {};
  const bool number = text[1] == '#';
  const bool hex = number && (text[2] == 'x' || text[2] == 'X');
  const std::size_t first = number ? (hex ? 3 : 2) : 1;
  std::size_t end = first;
  const auto belongs = [&](char c) {
    if (hex) return is_ascii_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'f');
    return number ? is_ascii_digit(c) : is_ascii_alphanumeric(c);
  };
  while (end < text.size() && (number || end < longest) && belongs(text[end])) ++end;
  if (end == first || (!number && !is_ascii_letter(text[1]))) return {};
  const bool ended = end < text.size() && text[end] == ';';
  if (number) {
    if (!ended && !html) return {};
    return {end + (ended ? 1 : 0), numbered_character(text.substr(2, end - 2))};
  }
  if (ended) {
    if (auto found = named_character(text.substr(1, end - 1))) return {end + 1, std::move(found->character)};
  }
  for (std::size_t size = std::min(end - 1, longest_old); html && size > 1; --size) {
    auto found = named_character(text.substr(1, size));
    if (found && !found->needs_semicolon) return {1 + size, std::move(found->character)};
  }
  return {ended ? end + 1 : 0, {}};
}

}  // namespace eigenformer::detail
