#include "translator/preparing/unicode_text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/text/utf8.hpp"
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
#include <unicode/unorm2.h>
#include <unicode/uscript.h>
#include <unicode/ustring.h>

#include "eigenformer/data/text/icu_text.hpp"
#endif

namespace eigenformer::detail {

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU

namespace {

std::string compose(std::string_view text) {
  UErrorCode error = U_ZERO_ERROR;
  const UNormalizer2* const nfc = unorm2_getNFCInstance(&error);
  const auto require = [&] {
    if (U_FAILURE(error))
      throw ValueError("nfc", {"ICU cannot normalise the text to NFC: ", u_errorName(error)});
  };
  require();
  std::u16string units(text.size(), u'\0');  // never more units than bytes
  std::int32_t n = 0;
  u_strFromUTF8(units.data(), static_cast<std::int32_t>(units.size()), &n, text.data(),
                static_cast<std::int32_t>(text.size()), &error);
  require();
  const bool composed = unorm2_spanQuickCheckYes(nfc, units.data(), n, &error) == n;
  require();
  if (composed) return std::string(text);
  std::u16string out(units.size() * 3 + 16, u'\0');  // NFC is at most three times as long (UAX #15)
  n = unorm2_normalize(nfc, units.data(), n, out.data(), static_cast<std::int32_t>(out.size()), &error);
  require();
  std::string bytes(static_cast<std::size_t>(n) * 3, '\0');
  std::int32_t size = 0;
  u_strToUTF8(bytes.data(), static_cast<std::int32_t>(bytes.size()), &size, out.data(), n, &error);
  require();
  bytes.resize(static_cast<std::size_t>(size));
  return bytes;
}

// ICU's number of a script, from its name or its ISO 15924 code, such as Cyrillic or Cyrl; -1 for an unknown
// name.
int find_script(const std::string& name) { return u_getPropertyValueEnum(UCHAR_SCRIPT, name.c_str()); }

// ICU's number of the script of a code point.
int script_of(char32_t c) {
  UErrorCode error = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(static_cast<UChar32>(c), &error);
  return U_FAILURE(error) ? USCRIPT_UNKNOWN : static_cast<int>(script);
}

}  // namespace

bool has_unicode_text() noexcept { return true; }

#else

namespace {

std::string compose(std::string_view text) { return std::string(text); }
int find_script(const std::string&) { return -1; }
int script_of(char32_t) { return -1; }
namespace icu {
bool is_letter(char32_t) { return false; }
}  // namespace icu

}  // namespace

bool has_unicode_text() noexcept { return false; }

#endif

void require_unicode_text(const char* op, const std::string& what) {
  if (!has_unicode_text()) throw ValueError(op, {what, " needs ICU, which this program was built without"});
}

std::string to_nfc(std::string_view text) {
  require_unicode_text("nfc", "NFC");
  // Below U+0300, whose first byte is 0xCC, all is composed.
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
  return plain ? std::string(text) : compose(text);
}

Scripts::Scripts(const std::string& names) {
  for (const std::string_view part : parts_between(names, ",")) {
    const std::string name = trim(part);
    require_unicode_text("scripts", "a script such as '" + name + "'");
    const int script = find_script(name);
    if (name.empty() || script < 0) {
      throw ValueError(
          "scripts",
          {"'", name, "' is not a script, expected Unicode names or ISO 15924 codes, such as Latin or Latn"});
    }
    scripts_.push_back(script);
  }
}

double Scripts::share(std::string_view text) const {
  if (all()) return 1;
  double letters = 0, own = 0;
  for_each_code_point(text, [&](char32_t c, std::string_view) {
    if (!icu::is_letter(c)) return;
    ++letters;
    own += std::find(scripts_.begin(), scripts_.end(), script_of(c)) != scripts_.end() ? 1 : 0;
  });
  return letters > 0 ? own / letters : 1;
}

}  // namespace eigenformer::detail
