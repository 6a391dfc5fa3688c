#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <system_error>
#include <utility>

#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/io/models/model_folder.hpp"
#include "eigenformer/train/checkpoint/training_folder.hpp"
#include "translator/preparing/prepared_corpus.hpp"

// Checks whether results can be written before hours of work are spent.
namespace translator {

namespace ef = eigenformer;

/// Throws IoError if a path exists and is not a folder.
inline void require_folder_if_any(const char* op, const std::filesystem::path& path) {
  std::error_code ignored;
  if (ef::detail::file_exists(path) && !std::filesystem::is_directory(path, ignored))
    throw ef::IoError(op, {"'", path.string(), "' is not a folder"});
}

/// Throws IoError if a model must not replace the contents of a folder: a prepared corpus, an adapter, or an
/// unfinished training, whose state would no longer match the model.
inline void require_replaceable(const char* op, const std::filesystem::path& folder) {
  const std::string there = "'" + folder.string() + "' holds ";
  if (ef::is_prepared_corpus(folder))
    throw ef::IoError(op, {there, "a prepared corpus; give another folder for the model"});
  if (ef::is_adapter_folder(folder))
    throw ef::IoError(op, {there, "an adapter; give another folder for the model"});
  if (std::filesystem::exists(ef::TrainingFolder::state_file(folder))) {
    throw ef::IoError(
        op, {there, "a training that --resume can continue; give another folder for the model, or remove '",
             (folder / "training").string(), "'"});
  }
}

/// Throws IoError unless files can be written in a folder, which may not exist yet; the folder that it is in
/// must exist, because a mistyped path would otherwise become folders. Leaves no files behind.
inline void check_writable_folder(const char* op, const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  require_folder_if_any(op, folder);
  std::error_code error;
  if (fs::is_directory(folder, error)) {
    const ef::AtomicFile probe(folder / "options.json");
    return;
  }
  const fs::path place = folder.has_filename() ? folder : folder.parent_path();  // "model/"
  if (const fs::path parent = place.parent_path(); !parent.empty() && !fs::is_directory(parent, error)) {
    throw ef::IoError(op, {"cannot make the folder '", folder.string(), "': there is no folder '",
                           parent.string(), "', expected one that exists"});
  }
  const bool made = fs::create_directory(place, error);
  if (error) throw ef::detail::errno_error(op, "make the folder", place, error.value());
  if (made) fs::remove(place, error);
}

/// Whether two paths refer to the same file. If the files do not exist yet, their folders are compared.
inline bool is_same_path(const std::filesystem::path& a, const std::filesystem::path& b) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(a, error) && fs::exists(b, error)) {
    // A terminal or /dev/null is not a file that could be replaced.
    if (!fs::is_regular_file(a, error) && !fs::is_directory(a, error)) return false;
    return fs::equivalent(a, b, error);
  }
  const auto place = [](const fs::path& path) {
    std::error_code ignored;
    return fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  };
  return place(a) == place(b);
}

/// Throws ValueError if results would replace a file that the command reads. flag, path: of the results;
/// read: flags and paths of those files, of which empty ones are ignored.
inline void require_not_read(const char* op, const char* flag, const std::string& path,
                             std::initializer_list<std::pair<const char*, std::string>> read) {
  for (const auto& [other, file] : read) {
    if (path.empty() || file.empty() || !is_same_path(path, file)) continue;
    throw ef::ValueError(op, {flag, " is '", path, "', which ", other, " reads; expected another file"});
  }
}

/// Throws ValueError for the name of an open stream, such as /dev/stdout, that refers to a file: results are
/// renamed to their final name, which would replace what other programs write to the stream.
inline void require_no_stream_file(const char* flag, const std::filesystem::path& path) {
  std::error_code error;
  const std::string name = path.lexically_normal().string();
  if (!name.starts_with("/dev/") && !name.starts_with("/proc/")) return;
  if (!std::filesystem::is_regular_file(path, error)) return;
  throw ef::ValueError("translate",
                       {flag, " is '", path.string(),
                        "', which refers to a regular file; expected that file's own name, or no ", flag,
                        " for standard output"});
}

/// Throws IoError unless a file can be written; an existing file is not changed.
inline void check_writable_file(const std::filesystem::path& path) { const ef::AtomicFile probe(path); }

/// Throws for a folder of a new model that cannot be written, that is not empty without --overwrite, or that
/// --overwrite must not replace. `option` is the flag that names the folder. reads: the folders and files
/// that the command reads, which messages call `what`.
inline void require_new_model_folder(const char* op, const std::filesystem::path& folder, const char* option,
                                     bool overwrite, std::initializer_list<std::filesystem::path> reads,
                                     const char* what) {
  std::error_code ignored;
  for (const std::filesystem::path& read : reads) {
    if (std::filesystem::equivalent(read, folder, ignored))
      throw ef::ValueError(op, {"'", folder.string(), "' is ", what, "; give another folder as ", option});
  }
  check_writable_folder(op, folder);
  if (overwrite) return require_replaceable(op, folder);
  if (!ef::detail::file_exists(folder)) return;
  if (std::filesystem::is_directory(folder, ignored) && std::filesystem::is_empty(folder, ignored)) return;
  throw ef::IoError(
      op, {"'", folder.string(),
           "' exists already; give --overwrite to replace the model in it, or another folder as ", option});
}

}  // namespace translator
