#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace eigenformer::detail {

/// What an encoder does with spaces at the ends of a text.
enum class EndSpaces {
  added,    ///< it puts one before the text, so a part may begin after a space
  kept,     ///< none is added or removed, so a part may begin with a space
  removed,  ///< it removes spaces, so no part may begin or end with one
};

/// Bytes of text that are passed to SentencePiece at once. It joins neighbouring unknown characters one by
/// one and copies the result each time: 1 MB of them took 40 s, and takes less than a second in parts of this
/// size.
inline constexpr std::size_t longest_part = 16'384;

/// Calls f(part) for the parts in which a text in UTF-8 is encoded: the whole text if it has at most
/// `longest` bytes, else parts of at most that many bytes, each cut at its last space (U+0020). A part
/// without a space, or every part if spaces at the ends are removed, is cut between two code points. longest:
/// at least 8.
template <class F>
void for_each_part(std::string_view text, EndSpaces spaces, F&& f, std::size_t longest = longest_part) {
  while (text.size() > longest) {
    std::size_t end = spaces == EndSpaces::removed ? std::string_view::npos : text.rfind(' ', longest);
    const bool at_space = end != std::string_view::npos && end > 0;
    if (!at_space) {
      end = longest;
      const auto inside = [&] { return (static_cast<std::uint8_t>(text[end]) & 0xC0u) == 0x80u; };
      const auto by_space = [&] { return text[end] == ' ' || text[end - 1] == ' '; };
      if (spaces == EndSpaces::removed) {
        while (end > longest / 2 && (inside() || by_space())) --end;
      }
      for (int i = 0; i < 3 && inside(); ++i) --end;
    }
    f(text.substr(0, end));
    text.remove_prefix(at_space && spaces == EndSpaces::added ? end + 1 : end);
  }
  if (!text.empty()) f(text);
}

}  // namespace eigenformer::detail
