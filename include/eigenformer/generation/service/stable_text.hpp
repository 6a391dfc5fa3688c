#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "eigenformer/generation/search/observer.hpp"

namespace eigenformer {

/// The tokens that the best text of a search begins with, whatever the search finds from here on: what the
/// growing hypotheses and the best of those that have ended have in common. sampling: whether the texts are
/// samples, of which the first counts. Not for the groups of a diverse beam, of which each knows its own.
inline std::span<const std::int32_t> stable_ids(const SearchProgress& progress, bool sampling) {
  const Hypothesis* first = nullptr;
  std::size_t length = 0;
  const auto restrict_to = [&](const Hypothesis& h) {
    if (first == nullptr) {
      first = &h;
      length = h.ids.size();
      return;
    }
    const std::size_t most = std::min(length, h.ids.size());
    length = 0;
    while (length < most && first->ids[length] == h.ids[length]) ++length;
  };
  if (!progress.finished.empty()) restrict_to(progress.finished.front());
  for (const Hypothesis& h : progress.growing) {
    restrict_to(h);
    if (sampling) break;
  }
  if (first == nullptr) return {};
  return std::span<const std::int32_t>(first->ids).first(length);
}

/// A text that grows at its end, made of texts that may still change there: what tokens that will not change
/// decode to may end in a part of a character, or in a space that the end of the text would not have.
class StableText {
 public:
  /// decoded: the text of the tokens so far, which begin with those of the call before. Returns what is new
  /// of the text; empty where nothing is.
  std::string_view advance(std::string_view decoded) {
    const std::string_view sure = without_open_end(decoded);
    if (sure.size() <= text_.size() || !sure.starts_with(text_)) return {};
    const std::size_t before = text_.size();
    text_ = sure;
    return std::string_view(text_).substr(before);
  }
  const std::string& text() const noexcept { return text_; }

  /// A text without white space, U+FFFD (which stands for bytes that are not a character yet) and the
  /// beginning of a character at its end.
  static std::string_view without_open_end(std::string_view text) {
    constexpr std::string_view replacement = "\xEF\xBF\xBD";
    for (;;) {
      if (text.ends_with(replacement)) {
        text.remove_suffix(replacement.size());
      } else if (text.ends_with(' ') || text.ends_with('\t') || text.ends_with('\n')) {
        text.remove_suffix(1);
      } else {
        break;
      }
    }
    for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
      const auto byte = static_cast<unsigned char>(text[text.size() - back]);
      if ((byte & 0xC0U) == 0x80U) continue;  // goes on from the byte before it
      const std::size_t needed = byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
      if (needed > back) text.remove_suffix(back);
      break;
    }
    return text;
  }

 private:
  std::string text_;
};

}  // namespace eigenformer
