#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "eigenformer/data/files/atomic_file.hpp"

namespace eigenformer {

/// Replaces several files of a folder together: after an interruption at any moment, folder_file() finds
/// either all of the old ones or all of the new ones.
///
/// It is a redo log made of names. New files are written to the hidden folder `.eigenformer-staging-*`.
/// commit() renames that to `.eigenformer-commit`: this one rename is the moment of change, for readers
/// prefer what is in there. Then the files move up to their places, and whoever writes next finishes a move
/// that was interrupted. Other files of the folder are never touched. One writer at a time; readers of
/// several files, or while a writer is at work, use read_folder().
///
/// ```cpp
/// FolderTransaction save("model");
/// write_file(save.file("options.json"), options);
/// save_safetensors(save.file("training/last.safetensors"), tensors);
/// save.commit();
/// auto options = read_folder("model", {"options.json"},
///                            [] { return read_file(folder_file("model", "options.json")); });
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
    recover(folder_);
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
  /// (tokenizers, vocabularies, safetensors). The name may be that of a file in a folder of the folder.
  /// Throws ValueError for a name that is not made of plain, visible names, and IoError.
  std::filesystem::path file(std::string_view name) const {
    const std::size_t slash = name.find('/');
    if (!is_plain(name.substr(0, slash)) ||
        (slash != std::string_view::npos && !is_plain(name.substr(slash + 1)))) {
      throw ValueError("write", "'" + std::string(name) + "' is not a plain file name");
    }
    if (staging_.empty())
      throw IoError("write", "the changes to '" + folder_.string() + "' were already committed");
    const std::filesystem::path path = staging_ / name;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) throw detail::errno_error("write", "make the folder", path.parent_path(), error.value());
    return path;
  }

  /// A message about a file of this transaction, with the name that the file will have.
  std::string with_final_names(std::string message) const {
    if (staging_.empty()) return message;
    const std::string staging = staging_.string();
    for (std::size_t at = 0; (at = message.find(staging, at)) != std::string::npos;)
      message.replace(at, staging.size(), folder_.string());
    return message;
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
    move_up(committed, folder_);
  }

  /// Finishes a commit that was interrupted, and removes what interrupted writers left, as the next writer
  /// does. Throws IoError.
  static void recover(const std::filesystem::path& folder) {
    for (const std::filesystem::path& entry : entries(folder)) {
      const std::string name = entry.filename().string();
      if (name == commit_name) {
        move_up(entry, folder);
      } else if (name.rfind(staging_prefix, 0) == 0) {
        std::error_code ignored;
        std::filesystem::remove_all(entry, ignored);
      }
    }
  }

 private:
  static bool is_plain(std::string_view name) {
    return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos;
  }

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

  static void move_up(const std::filesystem::path& committed, const std::filesystem::path& folder) {
    std::error_code error;
    for (const std::filesystem::path& from : entries(committed)) {
      const std::filesystem::path to = folder / from.filename();
      if (std::filesystem::is_directory(std::filesystem::symlink_status(from, error))) {
        std::filesystem::create_directory(to, error);
        if (error) throw detail::errno_error("write", "make the folder", to, error.value());
        move_up(from, to);
      } else if (std::rename(from.c_str(), to.c_str()) != 0) {
        throw detail::errno_error("write", "replace", to, errno);
      }
    }
    // The names must be durable in the folder before the log that stood in for them goes.
    detail::sync_directory("write", folder);
    std::filesystem::remove(committed, error);
    if (error) throw detail::errno_error("write", "remove", committed, error.value());
  }

  std::filesystem::path folder_;
  std::filesystem::path staging_;
  bool created_ = false;
};

/// Where to read file `name` of a folder that FolderTransaction writes, also after an interrupted commit.
/// While a writer is at work the file may have moved when it is opened: see read_folder().
inline std::filesystem::path folder_file(const std::filesystem::path& folder, std::string_view name) {
  const std::filesystem::path committed = folder / FolderTransaction::commit_name / name;
  std::error_code ignored;
  return std::filesystem::exists(committed, ignored) ? committed : folder / name;
}

/// Whether a folder that FolderTransaction writes has file `name`, also at any moment of a commit.
inline bool has_folder_file(const std::filesystem::path& folder, std::string_view name) {
  std::error_code ignored;
  return std::filesystem::exists(folder / FolderTransaction::commit_name / name, ignored) ||
         std::filesystem::exists(folder / name, ignored);
}

namespace detail {

// Which versions of some files a folder has: no two files in use share a number, and a file replaced by a
// later one of its number has another time.
struct FolderVersion {
  struct Entry {
    dev_t device = 0;
    ino_t number = 0;
    off_t size = -1;
    std::int64_t seconds = 0, nanoseconds = 0;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;
  bool in_commit = false;

  static FolderVersion of(const std::filesystem::path& folder, const std::vector<std::string>& names) {
    FolderVersion version;
    struct stat state {};
    const std::filesystem::path committed = folder / FolderTransaction::commit_name;
    version.in_commit = ::stat(committed.c_str(), &state) == 0;
    for (const std::string& name : names) {
      Entry entry;
      if (::stat((committed / name).c_str(), &state) == 0 || ::stat((folder / name).c_str(), &state) == 0) {
        entry = {state.st_dev, state.st_ino, state.st_size, state.st_mtim.tv_sec, state.st_mtim.tv_nsec};
      }
      version.entries.push_back(entry);
    }
    return version;
  }
};

}  // namespace detail

/// Returns read(), which reads files of a folder that another process may be replacing by FolderTransaction,
/// at a moment when they belong together: what they were changed during is read again. `names` are files that
/// each commit replaces. Throws what read() throws where no writer is at work, and IoError when the files
/// change faster than they are read.
template <class F>
auto read_folder(const std::filesystem::path& folder, const std::vector<std::string>& names, F&& read) {
  constexpr int tries = 100;
  for (int i = 0; i < tries; ++i) {
    const auto before = detail::FolderVersion::of(folder, names);
    try {
      auto result = read();
      if (detail::FolderVersion::of(folder, names).entries == before.entries) return result;
    } catch (const IoError&) {
      // Files move while they are committed, those not in `names` too.
      const auto after = detail::FolderVersion::of(folder, names);
      const bool changes = before.in_commit || after.in_commit || after.entries != before.entries;
      if (!changes || i + 1 == tries) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(i, 10)));
  }
  throw IoError("read",
                "the files of '" + folder.string() + "' were replaced each time they were read; try again");
}

}  // namespace eigenformer
