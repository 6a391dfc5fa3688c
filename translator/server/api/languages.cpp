#include "translator/server/api/languages.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

namespace {

struct LanguageName {
  std::string_view code, name;
};

// ISO 639-1; other codes are their own names.
constexpr LanguageName language_names[] = {
    {"af", "Afrikaans"},   {"ar", "Arabic"},
    {"az", "Azerbaijani"}, {"be", "Belarusian"},
    {"bg", "Bulgarian"},   {"bn", "Bengali"},
    {"bs", "Bosnian"},     {"ca", "Catalan"},
    {"cs", "Czech"},       {"cy", "Welsh"},
    {"da", "Danish"},      {"de", "German"},
    {"el", "Greek"},       {"en", "English"},
    {"eo", "Esperanto"},   {"es", "Spanish"},
    {"et", "Estonian"},    {"eu", "Basque"},
    {"fa", "Persian"},     {"fi", "Finnish"},
    {"fr", "French"},      {"ga", "Irish"},
    {"gl", "Galician"},    {"gu", "Gujarati"},
    {"he", "Hebrew"},      {"hi", "Hindi"},
    {"hr", "Croatian"},    {"hu", "Hungarian"},
    {"hy", "Armenian"},    {"id", "Indonesian"},
    {"is", "Icelandic"},   {"it", "Italian"},
    {"ja", "Japanese"},    {"ka", "Georgian"},
    {"kk", "Kazakh"},      {"ko", "Korean"},
    {"lt", "Lithuanian"},  {"lv", "Latvian"},
    {"mk", "Macedonian"},  {"ms", "Malay"},
    {"mt", "Maltese"},     {"nb", "Norwegian Bokmål"},
    {"nl", "Dutch"},       {"nn", "Norwegian Nynorsk"},
    {"no", "Norwegian"},   {"pl", "Polish"},
    {"pt", "Portuguese"},  {"ro", "Romanian"},
    {"ru", "Russian"},     {"sk", "Slovak"},
    {"sl", "Slovenian"},   {"sq", "Albanian"},
    {"sr", "Serbian"},     {"sv", "Swedish"},
    {"sw", "Swahili"},     {"ta", "Tamil"},
    {"te", "Telugu"},      {"th", "Thai"},
    {"tl", "Tagalog"},     {"tr", "Turkish"},
    {"uk", "Ukrainian"},   {"ur", "Urdu"},
    {"vi", "Vietnamese"},  {"zh", "Chinese"},
};

bool is_language_code(std::string_view code) {
  return code.size() >= 2 && code.size() <= 8 && std::all_of(code.begin(), code.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_';
         });
}

// Parses a language pair such as "en-de" to source and target; nothing for another text.
std::optional<std::pair<std::string, std::string>> parse_language_pair(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view source = text.substr(0, dash), target = text.substr(dash + 1);
  if (!is_language_code(source) || !is_language_code(target)) return std::nullopt;
  return std::pair(std::string(source), std::string(target));
}

}  // namespace

std::string detail::language_name(const std::string& code) {
  for (const auto& language : language_names)
    if (language.code == code) return std::string(language.name);
  return code;
}

ModelPlace parse_model_place(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) {
    if (const auto pair = parse_language_pair(text.substr(0, equals)); pair && equals + 1 < text.size())
      return {pair->first, pair->second, text.substr(equals + 1)};
  }
  std::filesystem::path folder = text;
  if (!folder.has_filename()) folder = folder.parent_path();
  const std::string name = folder.filename().string();
  // The last two words.
  const std::size_t last = name.rfind('-');
  const std::size_t first =
      last == std::string::npos || last == 0 ? std::string::npos : name.rfind('-', last - 1);
  if (last != std::string::npos) {
    const auto pair =
        parse_language_pair(std::string_view(name).substr(first == std::string::npos ? 0 : first + 1));
    // In a folder's name, codes have two or three letters: "model-int8" has none.
    if (pair && pair->first.size() <= 3 && pair->second.size() <= 3) return {pair->first, pair->second, text};
  }
  throw ValueError("server", {"the model '", text,
                              "' does not name its languages, expected SOURCE-TARGET=FOLDER, such as "
                              "en-de=FOLDER, or a folder whose name ends with them, such as model-en-de"});
}

}  // namespace eigenformer
