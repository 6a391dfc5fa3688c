#pragma once

#include <filesystem>
#include <string>

namespace eigenformer {

/// A model's folder and its languages.
struct ModelPlace {
  std::string source,            ///< code of the source language
      target;                    ///< code of the target language
  std::filesystem::path folder;  ///< its model folder, which is not checked
};

/// Parses "en-de=FOLDER", or a folder whose name ends with its languages, such as models/opus-mt-en-de.
/// Throws ValueError for a text without languages.
ModelPlace parse_model_place(const std::string& text);

namespace detail {

/// The English name of a language, from its ISO 639-1 code; the code itself when it is unknown.
std::string language_name(const std::string& code);

}  // namespace detail

}  // namespace eigenformer
