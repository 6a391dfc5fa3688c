#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace eigenformer::detail {

/// Whether this library was built with ICU, which to_nfc() and Scripts need.
bool has_unicode_text() noexcept;

/// Throws ValueError that says that `what` needs ICU, where this library was built without.
void require_unicode_text(const char* op, const std::string& what);

/// Composes UTF-8 text to NFC (Unicode Standard Annex 15), in which a letter and its accent are one code
/// point where Unicode has one. Throws ValueError in a library built without ICU, and when ICU finds text
/// that is not UTF-8; text without bytes from 0xCC on is returned as it is.
std::string to_nfc(std::string_view text);

/// The scripts that a language is written in, such as Latin, or Han, Hiragana and Katakana.
class Scripts {
 public:
  /// names: Unicode script names or ISO 15924 codes, separated by commas: "Cyrillic", "Hani,Hira,Kana";
  /// empty: all scripts. Throws ValueError for an unknown name, and for any name in a library built without
  /// ICU.
  explicit Scripts(const std::string& names = {});

  /// Whether all scripts are accepted, because no names were given.
  bool all() const noexcept { return scripts_.empty(); }

  /// The share, in [0, 1], of the letters of a UTF-8 text that are of these scripts; 1 for a text without
  /// letters.
  double share(std::string_view text) const;

 private:
  std::vector<int> scripts_;
};

}  // namespace eigenformer::detail
