#pragma once

#include <cstddef>
#include <string_view>

namespace eigenformer {

/// A part of a text: the bytes from begin up to, but not including, end.
struct ByteSpan {
  std::size_t begin = 0,  ///< byte offset of the first byte
      end = 0;            ///< byte offset behind the last byte, at least begin

  /// Number of bytes.
  std::size_t size() const noexcept { return end - begin; }
  /// Whether the span has no bytes.
  bool empty() const noexcept { return begin == end; }
  /// The part of a text, without a copy; the text must have at least end bytes.
  std::string_view of(std::string_view text) const noexcept { return text.substr(begin, size()); }
  /// Compares both offsets.
  friend bool operator==(const ByteSpan&, const ByteSpan&) = default;
};

}  // namespace eigenformer
