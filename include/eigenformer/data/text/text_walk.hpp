#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/data/text/byte_span.hpp"
#include "eigenformer/data/text/utf8.hpp"

/// Helpers that walk through UTF-8 by byte offsets. They end for any bytes; for others than UTF-8 the results
/// have no meaning.
namespace eigenformer::detail {

/// Whether a character begins at the offset, or the text ends there.
inline bool is_code_point_boundary(std::string_view text, std::size_t at) {
  return at == text.size() || (at < text.size() && (static_cast<std::uint8_t>(text[at]) & 0xC0u) != 0x80u);
}

/// The code point at an offset; length 0 and value 0 at the text's end.
inline DecodedCodePoint code_point_at(std::string_view text, std::size_t at) {
  return at < text.size() ? decode_front(text.substr(at)) : DecodedCodePoint{0, 0};
}

/// The code point that ends at an offset; length 0 and value 0 at the start of the text, U+FFFD where none
/// ends.
inline DecodedCodePoint code_point_before(std::string_view text, std::size_t at) {
  if (at == 0) return {0, 0};
  std::size_t begin = at - 1;
  while (begin > 0 && !is_code_point_boundary(text, begin)) --begin;
  const DecodedCodePoint c = decode_front(text.substr(begin, at - begin));
  return c.length == at - begin ? c : DecodedCodePoint{};
}

/// The offset behind the run of code points from `at` on of which belongs(code point) is true.
template <class Belongs>
std::size_t after_run(std::string_view text, std::size_t at, Belongs&& belongs) {
  for (auto c = code_point_at(text, at); c.length > 0 && belongs(c.value); c = code_point_at(text, at))
    at += c.length;
  return at;
}

/// The offset at which the run of such code points that ends at `at` begins.
template <class Belongs>
std::size_t before_run(std::string_view text, std::size_t at, Belongs&& belongs) {
  for (auto c = code_point_before(text, at); c.length > 0 && belongs(c.value);
       c = code_point_before(text, at))
    at -= c.length;
  return at;
}

/// The offset of the first character from `at` on that is not white space.
inline std::size_t after_spaces(std::string_view text, std::size_t at) {
  return after_run(text, at, is_space);
}

/// The offset at which the run of white space that ends at `at` begins.
inline std::size_t before_spaces(std::string_view text, std::size_t at) {
  return before_run(text, at, is_space);
}

/// The span without the white space at its ends.
inline ByteSpan without_spaces(std::string_view text, ByteSpan span) {
  const std::size_t begin = after_spaces(text.substr(0, span.end), span.begin);
  return {begin, begin == span.end ? begin : before_spaces(text, span.end)};
}

/// Replaces each occurrence of `from`, which must not be empty, from left to right.
EIGENFORMER_FUNCTION void replace_all(std::string& text, std::string_view from, std::string_view to);

/// The bytes of each word of a text, split at white space.
EIGENFORMER_FUNCTION std::vector<ByteSpan> word_spans(std::string_view text);

/// Whether a code point is of a script without spaces between sentences: Thai, Lao, Burmese, Khmer, Chinese,
/// Japanese.
inline bool is_unspaced_script(char32_t c) {
  return (c >= 0x0E00 && c <= 0x0EFF) || (c >= 0x1000 && c <= 0x109F) || (c >= 0x1780 && c <= 0x17FF) ||
         (c >= 0x2E80 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0xFF00 && c <= 0xFFEF) ||
         (c >= 0x20000 && c <= 0x3FFFF);
}

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from), done = 0;
  if (at == std::string::npos) return;
  std::string out;
  for (; at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done) += to;
    done = at + from.size();
  }
  text = out.append(text, done);
}

EIGENFORMER_FUNCTION std::vector<ByteSpan> word_spans(std::string_view text) {
  std::vector<ByteSpan> words;
  std::size_t at = 0;
  bool inside = false;
  for_each_code_point(text, [&](char32_t c, std::string_view bytes) {
    const bool space = is_space(c);
    if (!space && !inside) words.push_back({at, at});
    at += bytes.size();
    if (!space) words.back().end = at;
    inside = !space;
  });
  return words;
}

#endif

}  // namespace eigenformer::detail
