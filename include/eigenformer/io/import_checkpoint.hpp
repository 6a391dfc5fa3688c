#pragma once

#include <filesystem>
#include <system_error>

#include "eigenformer/io/ctranslate2.hpp"
#include "eigenformer/io/huggingface.hpp"

namespace eigenformer {

/// Reads a checkpoint of another library: a CTranslate2 folder, which has a model.bin, or a Hugging Face folder. Throws
/// as import_ctranslate2 and import_huggingface do.
template <class T = float>
TranslationModel<T> import_checkpoint(const std::filesystem::path& folder, const ImportOptions& options = {}) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw IoError("import", "the folder '" + folder.string() + "' does not exist");
  }
  if (std::filesystem::exists(folder / "model.bin", ignored)) return import_ctranslate2<T>(folder, options);
  if (std::filesystem::exists(folder / "config.json", ignored)) return import_huggingface<T>(folder, options);
  throw IoError("import", "'" + folder.string() +
                              "' is no checkpoint: expected CTranslate2's model.bin or Hugging Face's config.json");
}

}  // namespace eigenformer
