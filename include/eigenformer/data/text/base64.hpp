#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail {

/// Decodes base64 (RFC 4648, section 4) to bytes; returns nothing when the text is not valid base64.
EIGENFORMER_IO_FUNCTION std::optional<std::string> decode_base64(std::string_view text);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const std::size_t digit = alphabet.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6 | static_cast<std::uint32_t>(digit)) & 0xFFFFu;
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>(bits >> held & 0xFFu);
    }
  }
  return bytes;
}

}  // namespace eigenformer::detail

#endif
