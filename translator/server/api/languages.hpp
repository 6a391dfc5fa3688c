#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace eigenformer {

/// The English name of a language, from its ISO 639-1 code; the code itself when it is unknown.
std::string language_name(const std::string& code);

/// Parses a language pair such as "en-de" to source and target; nothing for another text.
std::optional<std::pair<std::string, std::string>> parse_language_pair(std::string_view text);

/// A model's folder and its languages.
struct ModelPlace {
  std::string source,            ///< code of the source language
      target;                    ///< code of the target language
  std::filesystem::path folder;  ///< its model folder, which is not checked
};

/// Parses "en-de=FOLDER", or a folder whose name ends with its languages, such as models/opus-mt-en-de.
/// Throws ValueError for a text without languages.
ModelPlace parse_model_place(const std::string& text);

}  // namespace eigenformer
