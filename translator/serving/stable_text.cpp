#include "translator/serving/stable_text.hpp"

#include <algorithm>
#include <cstddef>

#include "eigenformer/search/beams/options.hpp"

namespace eigenformer {

namespace {

// The number of bytes at the end that begin a code point without completing it.
std::size_t incomplete_end(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;  // a continuation byte
    const std::size_t needed = byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
    return needed > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::span<const std::int32_t> stable_ids(const SearchProgress& progress, bool sampling) {
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

std::string_view StableText::advance(std::string_view decoded) {
  const std::string_view sure = without_open_end(decoded);
  if (sure.size() <= text_.size() || !sure.starts_with(text_)) return {};
  const std::size_t before = text_.size();
  text_ = sure;
  return std::string_view(text_).substr(before);
}

std::string_view StableText::without_open_end(std::string_view text) {
  constexpr std::string_view replacement = "\xEF\xBF\xBD";
  for (;;) {
    if (text.ends_with(replacement)) {
      text.remove_suffix(replacement.size());
    } else if (text.ends_with(' ') || text.ends_with('\t') || text.ends_with('\n')) {
      text.remove_suffix(1);
    } else if (const std::size_t open = incomplete_end(text); open > 0) {
      text.remove_suffix(open);
    } else {
      return text;
    }
  }
}

}  // namespace eigenformer
