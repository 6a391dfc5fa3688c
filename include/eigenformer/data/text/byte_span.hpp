#pragma once

#include <cstddef>
#include <string_view>

namespace eigenformer {

/// A piece of a text: the bytes from begin up to, but not including, end.
struct ByteSpan {
  std::size_t begin = 0, end = 0;

  std::size_t size() const noexcept { return end - begin; }
  bool empty() const noexcept { return begin == end; }
  /// The piece of text; the text must have at least end bytes.
  std::string_view of(std::string_view text) const noexcept { return text.substr(begin, size()); }
  friend bool operator==(const ByteSpan&, const ByteSpan&) = default;
};

}  // namespace eigenformer
