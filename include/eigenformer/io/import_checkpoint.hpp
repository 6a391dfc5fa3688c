#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include "eigenformer/io/ctranslate2/ctranslate2.hpp"
#include "eigenformer/io/huggingface/huggingface.hpp"
#include "eigenformer/io/marian/marian.hpp"

namespace eigenformer {

namespace detail {

/// Whether a path is a Marian model in .bin format or a folder with at least one.
inline bool is_marian_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? !marian_files(path).empty() : is_marian_file(path);
}

}  // namespace detail

/// Imports a translation model of another library, whose format is detected: a Marian model (.bin), a
/// CTranslate2 folder (model.bin), or a Hugging Face folder (config.json). Throws IoError for other paths,
/// and as import_marian(), import_ctranslate2() and import_huggingface() do.
template <class T = float>
TranslationModel<T> import_checkpoint(const std::filesystem::path& folder,
                                      const ImportOptions& options = {}) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return detail::file_exists(folder / name); };
  if (!detail::file_exists(folder)) {
    throw IoError("import", {"the folder '", folder.string(), "' does not exist"});
  }
  if (detail::is_marian_checkpoint(folder)) return import_marian<T>(folder, options);
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw IoError("import", {"'", folder.string(),
                             "' is not a folder; expected a folder with a checkpoint, or a Marian model"});
  }
  if (has("model.bin")) return import_ctranslate2<T>(folder, options);
  if (!has("model.safetensors") && !has("vocab.json")) {
    for (const char* name : {"shared_vocabulary.json", "shared_vocabulary.txt", "source_vocabulary.json",
                             "source_vocabulary.txt", "target_vocabulary.json", "target_vocabulary.txt"}) {
      if (!has(name)) continue;
      throw IoError("import", {"'", folder.string(), "' has CTranslate2's ", name, " but no model.bin"});
    }
  }
  if (has("config.json")) return import_huggingface<T>(folder, options);
  if (detail::has_folder_file(folder, "options.json")) {
    throw IoError("import",
                  {"'", folder.string(), "' is an eigenformer model already; expected a checkpoint of ",
                   "Marian, CTranslate2 or Hugging Face"});
  }
  if (const std::string other = detail::HuggingFaceWeights::other_weights(folder, "AutoModelForSeq2SeqLM");
      !other.empty() && !has("model.safetensors")) {
    throw IoError("import", {"'", folder.string(), "' has neither model.safetensors nor config.json", other,
                             ", with config.json and the tokenizer's files beside it"});
  }
  throw IoError("import",
                {"'", folder.string(),
                 "' is not a checkpoint: expected a Marian model, CTranslate2's model.bin or Hugging Face's "
                 "config.json"});
}

}  // namespace eigenformer
