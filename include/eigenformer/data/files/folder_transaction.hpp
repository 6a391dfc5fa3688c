#pragma once

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "eigenformer/data/files/atomic_file.hpp"

namespace eigenformer {

/// Replaces several files of a folder together: after an interruption at any moment, folder_file() finds
/// either all of the old ones or all of the new ones.
///
/// It is a redo log made of names. New files are written to the hidden folder `.eigenformer-staging-*`.
/// commit() renames that to `.eigenformer-commit`: this one rename is the moment of change, for readers
/// prefer what is in there. Then the files move up to their places, and whoever writes next finishes a move
/// that was interrupted. Other files of the folder are never touched. One writer at a time.
///
/// ```cpp
/// FolderTransaction save("model");
/// write_file(save.file("options.json"), options);
/// save_safetensors(save.file("model.safetensors"), tensors);
/// save.commit();
/// auto weights = SafetensorsFile::open(folder_file("model", "model.safetensors"));
/// ```
class FolderTransaction {
 public:
  static constexpr const char* commit_name = ".eigenformer-commit";
  static constexpr const char* staging_prefix = ".eigenformer-staging-";

  /// Opens a folder for writing, and creates it if need be. Throws IoError.
  explicit FolderTransaction(const std::filesystem::path& folder) : folder_(folder) {
    std::error_code error;
    created_ = std::filesystem::create_directories(folder_, error);
    if (error || !std::filesystem::is_directory(folder_)) {
      throw detail::errno_error("write", "create the folder", folder_, error ? error.value() : ENOTDIR);
    }
    finish_interrupted();
    staging_ = folder_ / (staging_prefix + detail::unique_suffix());
    if (!std::filesystem::create_directory(staging_, error)) {
      throw detail::errno_error("write", "write in the folder", folder_, error ? error.value() : EEXIST);
    }
  }

  FolderTransaction(const FolderTransaction&) = delete;
  FolderTransaction& operator=(const FolderTransaction&) = delete;

  /// Forgets everything that was not committed; a folder that this object created and left empty goes too.
  ~FolderTransaction() {
    std::error_code ignored;
    if (!staging_.empty()) {
      std::filesystem::remove_all(staging_, ignored);
      if (created_) std::filesystem::remove(folder_, ignored);
    }
  }

  /// Where to write the new version of file `name`, with write_file(), AtomicFile, or what uses them
  /// (tokenizers, vocabularies, safetensors). Throws ValueError for a name that is not a plain, visible file
  /// name.
  std::filesystem::path file(std::string_view name) const {
    if (name.empty() || name.front() == '.' || name.find('/') != std::string_view::npos) {
      throw ValueError("write", "'" + std::string(name) + "' is not a plain file name");
    }
    if (staging_.empty())
      throw IoError("write", "the changes to '" + folder_.string() + "' were already committed");
    return staging_ / name;
  }

  /// Makes all files written so far take the place of the old ones. Throws IoError.
  void commit() {
    if (staging_.empty())
      throw IoError("write", "the changes to '" + folder_.string() + "' were already committed");
    detail::sync_directory("write", staging_);
    const std::filesystem::path committed = folder_ / commit_name;
    if (std::rename(staging_.c_str(), committed.c_str()) != 0) {
      throw detail::errno_error("write", "commit the files of", folder_, errno);
    }
    staging_.clear();
    detail::sync_directory("write", folder_);
    move_up(committed);
  }

 private:
  static std::vector<std::filesystem::path> entries(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> found;
    std::error_code error;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      found.push_back(it->path());
    }
    if (error) throw detail::errno_error("write", "list the folder", folder, error.value());
    return found;
  }

  void move_up(const std::filesystem::path& committed) const {
    for (const std::filesystem::path& from : entries(committed)) {
      if (std::rename(from.c_str(), (folder_ / from.filename()).c_str()) != 0) {
        throw detail::errno_error("write", "replace", folder_ / from.filename(), errno);
      }
    }
    // The names must be durable in the folder before the log that stood in for them goes.
    detail::sync_directory("write", folder_);
    std::error_code error;
    std::filesystem::remove(committed, error);
    if (error) throw detail::errno_error("write", "remove", committed, error.value());
  }

  void finish_interrupted() const {
    for (const std::filesystem::path& entry : entries(folder_)) {
      const std::string name = entry.filename().string();
      if (name == commit_name) {
        move_up(entry);
      } else if (name.rfind(staging_prefix, 0) == 0) {
        std::error_code ignored;
        std::filesystem::remove_all(entry, ignored);
      }
    }
  }

  std::filesystem::path folder_;
  std::filesystem::path staging_;
  bool created_ = false;
};

/// Where to read file `name` of a folder that FolderTransaction writes, also after an interrupted commit.
inline std::filesystem::path folder_file(const std::filesystem::path& folder, std::string_view name) {
  const std::filesystem::path committed = folder / FolderTransaction::commit_name / name;
  std::error_code ignored;
  return std::filesystem::exists(committed, ignored) ? committed : folder / name;
}

}  // namespace eigenformer
