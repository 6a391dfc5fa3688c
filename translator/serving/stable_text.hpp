#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace eigenformer {

struct SearchProgress;

/// The first tokens of the best text, as far as the rest of the search cannot change them: the common prefix
/// of the growing hypotheses and the best finished one. sampling: whether the texts are samples, of which the
/// first counts. Not valid for diverse beam search, whose groups are reported separately. The result points
/// into `progress`.
std::span<const std::int32_t> stable_ids(const SearchProgress& progress, bool sampling);

/// The final part of a growing text. The text that final tokens decode to may end in an incomplete character
/// or in a space that the finished text does not have; these are held back.
class StableText {
 public:
  /// Updates the text. decoded: the text of all final tokens so far, which extend those of the last call.
  /// Returns the new part, valid until the next call; empty if there is none.
  std::string_view advance(std::string_view decoded);
  /// The final text so far.
  const std::string& text() const noexcept { return text_; }

  /// Removes spaces, tabs, line feeds, U+FFFD (decoded from incomplete characters) and incomplete characters
  /// from the end of a text.
  static std::string_view without_open_end(std::string_view text);

 private:
  std::string text_;
};

}  // namespace eigenformer
