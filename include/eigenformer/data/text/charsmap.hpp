#pragma once

#include <unicode/ubrk.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/icu_text.hpp"

namespace eigenformer::detail {

/// The normalisation table of a SentencePiece model, `precompiled_charsmap`, which replaces strings by
/// others. Its bytes are the size of a trie, the trie as a double array of 32-bit units (as in the library
/// darts-clone), and the replacements that it points to, each ended by a zero byte.
class Charsmap {
 public:
  /// bytes: the table in its serialised form. Throws ValueError when they are not such a table.
  explicit Charsmap(std::string bytes);

  /// Normalises UTF-8 text as Hugging Face's tokenizers package does: a grapheme cluster of less than 6 bytes
  /// whose beginning is in the table is replaced as a whole, others code point by code point. (SentencePiece
  /// itself replaces the longest match.) Throws ValueError when ICU fails.
  std::string apply(std::string_view text) const;

 private:
  std::uint32_t word(std::size_t i) const { return load_as<std::uint32_t>(bytes_.data() + i * 4); }

  // The replacement of the shortest prefix of `text` that is in the trie.
  std::optional<std::string_view> replacement(std::string_view text) const;

  template <class F>
  static void for_each_grapheme(std::string_view text, F&& f) {
    bool plain = true;
    for (const char c : text) plain = plain && static_cast<std::uint8_t>(c) < 0x80 && c != '\r';
    if (plain) {
      for (std::size_t i = 0; i < text.size(); ++i) f(text.substr(i, 1));
      return;
    }
    UErrorCode error = U_ZERO_ERROR;
    const std::unique_ptr<UText, UText* (*)(UText*)> input(
        utext_openUTF8(nullptr, text.data(), static_cast<std::int64_t>(text.size()), &error), utext_close);
    const std::unique_ptr<UBreakIterator, void (*)(UBreakIterator*)> breaks(
        ubrk_open(UBRK_CHARACTER, "", nullptr, 0, &error), ubrk_close);
    if (U_SUCCESS(error)) ubrk_setUText(breaks.get(), input.get(), &error);
    if (U_FAILURE(error))
      throw ValueError("tokenizer", {"ICU cannot split the text into characters: ", u_errorName(error)});
    std::int32_t begin = ubrk_first(breaks.get());
    for (std::int32_t end = ubrk_next(breaks.get()); end != UBRK_DONE;
         begin = end, end = ubrk_next(breaks.get())) {
      f(text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
    }
  }

  std::string bytes_;
  std::size_t units_ = 0;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION Charsmap::Charsmap(std::string bytes) : bytes_(std::move(bytes)) {
  const std::size_t size = bytes_.size() < 4 ? 0 : word(0);
  if (bytes_.size() < 8 || size % 4 != 0 || size < 4 || size > bytes_.size() - 4) {
    throw ValueError("tokenizer", {"the table of characters (precompiled_charsmap) of ", bytes_.size(),
                                   " bytes is damaged"});
  }
  units_ = size / 4;
}

EIGENFORMER_IO_FUNCTION std::string Charsmap::apply(std::string_view text) const {
  std::string out;
  for_each_grapheme(text, [&](std::string_view grapheme) {
    if (grapheme.size() < 6) {
      if (const auto found = replacement(grapheme)) {
        out += *found;
        return;
      }
    }
    for_each_code_point(grapheme, [&](char32_t, std::string_view c) { out += replacement(c).value_or(c); });
  });
  return out;
}

EIGENFORMER_IO_FUNCTION std::optional<std::string_view> Charsmap::replacement(std::string_view text) const {
  const auto offset = [](std::uint32_t unit) { return std::size_t{unit >> 10} << ((unit & 0x200u) >> 6); };
  std::size_t node = offset(word(1));
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    node ^= byte;
    if (byte == 0 || node >= units_) return std::nullopt;
    const std::uint32_t unit = word(1 + node);
    if ((unit & 0x800000FFu) != byte) return std::nullopt;
    node ^= offset(unit);
    if (node >= units_) return std::nullopt;
    if ((unit & 0x100u) == 0) continue;
    const std::size_t begin = 4 + 4 * units_ + (word(1 + node) & 0x7FFFFFFFu);
    if (begin >= bytes_.size()) return std::nullopt;
    const std::size_t end = std::min(bytes_.find('\0', begin), bytes_.size());
    return std::string_view(bytes_).substr(begin, end - begin);
  }
  return std::nullopt;
}

}  // namespace eigenformer::detail

#endif
