#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

namespace detail {

/// One code point read from the front of a text.
struct DecodedCodePoint {
  char32_t value = 0xFFFD;
  std::size_t length = 0;         ///< in bytes; 0: the bytes are not UTF-8
  std::size_t invalid_bytes = 0;  ///< then, the bytes that begin a code point, or 1 if the first byte cannot
};

/// Decodes the code point at the front of a text that is not empty. Overlong forms, surrogates and values
/// above U+10FFFF are not UTF-8 (The Unicode Standard, table 3-7).
inline DecodedCodePoint decode_front(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  std::size_t length = 1;
  std::uint8_t low = 0x80, high = 0xBF;  // what the second byte may be
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  }
  char32_t value = first & (0x7Fu >> length);
  std::size_t at = 1;
  for (; at < length && at < text.size() && byte(at) >= low && byte(at) <= high; ++at) {
    value = value << 6 | (byte(at) & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  if (length == 1 || at < length) return {.invalid_bytes = at};
  return {value, length};
}

/// Encodes a code point as UTF-8; it must be at most U+10FFFF and no surrogate.
inline std::string utf8_of(char32_t c) {
  const auto byte = [](char32_t bits) { return static_cast<char>(static_cast<std::uint8_t>(bits)); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F))};
  if (c < 0x10000) return {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
  return {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F)),
          byte(0x80 | (c & 0x3F))};
}

/// The offset of the first byte that is not part of valid UTF-8; nothing when the whole text is valid.
inline std::optional<index_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<std::uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = decode_front(text.substr(i)).length;
    if (length == 0) return static_cast<index_t>(i);
    i += length;
  }
  return std::nullopt;
}

/// The parts of a text, each up to one of the bytes `separators` or to the end of the text. No empty part
/// follows a separator that is the last byte.
inline std::vector<std::string_view> parts_between(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(separators), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// Calls f(char32_t code_point, std::string_view bytes) for each code point of the text. What is not UTF-8 is
/// passed as U+FFFD: once for bytes that begin a code point without completing it, once for each other byte
/// (The Unicode Standard, 3.9, maximal subparts), as Python's bytes.decode(errors="replace") replaces it.
template <class F>
void for_each_code_point(std::string_view text, F&& f) {
  for (std::size_t i = 0; i < text.size();) {
    const DecodedCodePoint c = decode_front(text.substr(i));
    const std::size_t length = c.length == 0 ? c.invalid_bytes : c.length;
    f(c.value, text.substr(i, length));
    i += length;
  }
}

/// The code points of texts but the space, by how often they occur.
class CharacterCounts {
 public:
  void add(std::string_view text) {
    for_each_code_point(text, [&](char32_t c, std::string_view) {
      if (c != U' ') ++counts_[c];
    });
  }

  /// All of them, frequent ones first, equally frequent ones by code point.
  std::vector<std::pair<char32_t, std::int64_t>> by_frequency() const {
    std::vector<std::pair<char32_t, std::int64_t>> sorted;
    for (char32_t c = 0; c < counts_.size(); ++c) {
      if (counts_[c] > 0) sorted.emplace_back(c, counts_[c]);
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    return sorted;
  }

  /// How many of the most frequent ones make up this share of the text.
  std::int64_t covering(double share) const {
    const auto sorted = by_frequency();
    double all = 0, sum = 0;
    for (const auto& [c, count] : sorted) all += static_cast<double>(count);
    std::int64_t n = 0;
    for (; n < std::ssize(sorted) && sum < share * all; ++n)
      sum += static_cast<double>(sorted[static_cast<std::size_t>(n)].second);
    return n;
  }

 private:
  std::vector<std::int64_t> counts_ = std::vector<std::int64_t>(0x110000);
};

}  // namespace detail

/// Splits a text into its code points; the pieces point into the text. What is not UTF-8 is split as by
/// for_each_code_point().
inline std::vector<std::string_view> split_code_points(std::string_view text) {
  std::vector<std::string_view> pieces;
  pieces.reserve(text.size());
  detail::for_each_code_point(text, [&](char32_t, std::string_view bytes) { pieces.push_back(bytes); });
  return pieces;
}

namespace detail {

/// Whether a code point is white space: ASCII's, the separators U+001C to U+001F, U+0085, U+00A0 and the
/// spaces of U+1680 to U+3000. The same as Python's str.isspace(), which sacreBLEU splits by.
inline bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// Whether a code point is punctuation or a symbol, by blocks of Unicode: ASCII, Latin-1, general
/// punctuation, currency, arrows to miscellaneous symbols, CJK and full-width punctuation, emoji.
inline bool is_punctuation(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  static constexpr Range ranges[] = {
      {0x21, 0x2F},     {0x3A, 0x40},     {0x5B, 0x60},     {0x7B, 0x7E},      {0xA1, 0xA9},
      {0xAB, 0xB1},     {0xB4, 0xB4},     {0xB6, 0xB8},     {0xBB, 0xBB},      {0xBF, 0xBF},
      {0xD7, 0xD7},     {0xF7, 0xF7},     {0x2010, 0x2027}, {0x2030, 0x205E},  {0x20A0, 0x20CF},
      {0x2190, 0x2BFF}, {0x3001, 0x3003}, {0x3008, 0x3020}, {0xFF01, 0xFF0F},  {0xFF1A, 0xFF20},
      {0xFF3B, 0xFF40}, {0xFF5B, 0xFF65}, {0xFFE0, 0xFFEE}, {0x1F000, 0x1FAFF}};
  for (const Range& r : ranges) {
    if (c < r.first) return false;
    if (c <= r.last) return true;
  }
  return false;
}

/// Whether a text has no visible character: at most white space (is_space()), NUL, and format characters such
/// as the zero-width space, the soft hyphen, joiners, direction marks and the byte order mark.
inline bool is_blank(std::string_view text) {
  bool blank = true;
  for_each_code_point(text, [&](char32_t c, std::string_view) {
    const bool invisible = c == 0 || c == 0xAD || c == 0x61C || c == 0x180E || (c >= 0x200B && c <= 0x200F) ||
                           (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
                           (c >= 0xFE00 && c <= 0xFE0F) || c == 0xFEFF;
    blank = blank && (invisible || is_space(c));
  });
  return blank;
}

}  // namespace detail

/// Returns the text without the white space (is_space()) at its ends.
inline std::string trim(std::string_view text) {
  const char* first = nullptr;
  const char* last = nullptr;
  detail::for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (detail::is_space(c)) return;
    if (first == nullptr) first = bytes.data();
    last = bytes.data() + bytes.size();
  });
  return {first, last};
}

/// Returns the text with U+FFFD in place of what is not UTF-8, as for_each_code_point() passes it.
inline std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  detail::for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    out += c == 0xFFFD ? std::string_view("\xEF\xBF\xBD") : bytes;
  });
  return out;
}

namespace detail {

/// Normalises one line for the tokenizers: each run of white space (Unicode's spaces such as U+00A0 included)
/// and NUL bytes becomes one space, none is left at the ends, and what is not UTF-8 becomes U+FFFD.
/// Nothing else changes; there is no Unicode composition (NFC).
inline std::string normalize_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool pending_space = false;
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    if (is_space(c) || c == 0) {
      pending_space = !out.empty();
      return;
    }
    if (pending_space) out += ' ';
    pending_space = false;
    out += c == 0xFFFD ? std::string_view("\xEF\xBF\xBD") : bytes;
  });
  return out;
}

}  // namespace detail

}  // namespace eigenformer
