#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/linked.hpp"
#include "eigenformer/data/text/utf8.hpp"
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include "eigenformer/data/text/icu_text.hpp"
#endif

namespace eigenformer::detail {

/// The Unicode functions that need ICU.
struct UnicodeFunctions {
  std::string (*compose)(std::string_view text);
  int (*find_script)(const std::string& name);
  int (*script_of)(char32_t c);
  bool (*is_letter)(char32_t c);
};

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
inline constexpr UnicodeFunctions unicode_functions{&icu::compose, &icu::find_script, &icu::script_of,
                                                    &icu::is_letter};
inline const bool unicode_is_linked = link(unicode_functions);
#endif

inline const UnicodeFunctions& require_unicode(const char* op, const std::string& what) {
  if (const auto* found = find_linked<UnicodeFunctions>()) return *found;
  throw ValueError(op, {what, " needs ICU, which this program was built without"});
}

/// Whether this program was built with ICU, which to_nfc() and Scripts need.
inline bool has_unicode_text() noexcept { return find_linked<UnicodeFunctions>() != nullptr; }

/// Composes UTF-8 text to NFC (Unicode Standard Annex 15), in which a letter and its accent are one code
/// point where Unicode has one. Throws ValueError in a program built without ICU, and when ICU finds text
/// that is not UTF-8; text without bytes from 0xCC on is returned as it is.
inline std::string to_nfc(std::string_view text) {
  const auto& unicode = require_unicode("nfc", "NFC");
  // Below U+0300, whose first byte is 0xCC, all is composed.
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
  return plain ? std::string(text) : unicode.compose(text);
}

/// The scripts that a language is written in, such as Latin, or Han, Hiragana and Katakana.
class Scripts {
 public:
  /// names: Unicode script names or ISO 15924 codes, separated by commas: "Cyrillic", "Hani,Hira,Kana";
  /// empty: all scripts. Throws ValueError for an unknown name, and for any name in a program built without
  /// ICU.
  explicit Scripts(const std::string& names = {});

  /// Whether all scripts are accepted, because no names were given.
  bool all() const noexcept { return scripts_.empty(); }

  /// The share, in [0, 1], of the letters of a UTF-8 text that are of these scripts; 1 for a text without
  /// letters.
  double share(std::string_view text) const;

 private:
  const UnicodeFunctions* unicode_ = nullptr;
  std::vector<int> scripts_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION Scripts::Scripts(const std::string& names) {
  for (const std::string_view part : parts_between(names, ",")) {
    const std::string name = trim(part);
    unicode_ = &require_unicode("scripts", "a script such as '" + name + "'");
    const int script = unicode_->find_script(name);
    if (name.empty() || script < 0) {
      throw ValueError(
          "scripts",
          {"'", name, "' is not a script, expected Unicode names or ISO 15924 codes, such as Latin or Latn"});
    }
    scripts_.push_back(script);
  }
}

EIGENFORMER_IO_FUNCTION double Scripts::share(std::string_view text) const {
  if (all()) return 1;
  double letters = 0, own = 0;
  for_each_code_point(text, [&](char32_t c, std::string_view) {
    if (!unicode_->is_letter(c)) return;
    ++letters;
    own += std::find(scripts_.begin(), scripts_.end(), unicode_->script_of(c)) != scripts_.end() ? 1 : 0;
  });
  return letters > 0 ? own / letters : 1;
}

}  // namespace eigenformer::detail

#endif
