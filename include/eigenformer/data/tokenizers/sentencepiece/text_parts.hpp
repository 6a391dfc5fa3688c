#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace eigenformer::detail {

/// What an encoder does with white space at the ends of what it is given.
enum class EndSpaces {
  added,    ///< it puts one before the text, so that a part may begin after a space
  kept,     ///< none is added or removed, so that a part may begin with a space
  removed,  ///< spaces there are lost, so that no part may begin or end with one
};

/// Bytes of text that SentencePiece gets at once. It joins neighbouring unknown characters one by one, and
/// copies what it has each time: 1 MB of them took 40 s, parts of this size take less than a second together.
inline constexpr std::size_t longest_part = 16'384;

/// Calls f(part) for the parts that a text in UTF-8 is encoded in: all of it where it has at most `longest`
/// bytes, else pieces of at most that many, cut at the last space (U+0020) that they have. Where they have
/// none, or spaces at the ends are removed, they are cut between two code points. longest: at least 8.
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
