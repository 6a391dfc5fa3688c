#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "eigenformer/data/files/atomic_file.hpp"

namespace eigenformer {

/// Replaces several files of a folder atomically: after an interruption at any moment, folder_file() finds
/// either all old files or all new ones.
///
/// New files are written to the hidden folder `.eigenformer-staging-*`. commit() renames it to
/// `.eigenformer-commit`, in which readers look first: this one rename is the atomic step. Then the files are
/// moved to their places; the next writer completes a move that was interrupted. Other files of the folder
/// are never touched. One writer at a time; use read_folder() to read several files, or to read while another
/// process may write.
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
  static constexpr const char* commit_name = ".eigenformer-commit";       ///< subfolder of committed files
  static constexpr const char* staging_prefix = ".eigenformer-staging-";  ///< subfolder of uncommitted files

  /// Opens a folder for writing, creates it if necessary, and completes an interrupted commit. Throws
  /// IoError.
  explicit FolderTransaction(const std::filesystem::path& folder);

  FolderTransaction(const FolderTransaction&) = delete;
  FolderTransaction& operator=(const FolderTransaction&) = delete;

  /// Removes all files that were not committed, and the folder when this object created it and it is empty.
  ~FolderTransaction();

  /// The path at which to write the new version of file `name`, by write_file(), AtomicFile, or functions
  /// that use them (save_safetensors(), Tokenizer::save()). `name` may be in a subfolder, which is created.
  /// Throws ValueError for a name that is empty, hidden or more than one subfolder deep, IoError after
  /// commit() and when the subfolder cannot be created.
  std::filesystem::path file(std::string_view name) const;

  /// Replaces the staging folder in a message by the folder itself, so that it names the final files.
  std::string with_final_names(std::string message) const {
    if (staging_.empty()) return message;
    const std::string staging = staging_.string();
    for (std::size_t at = 0; (at = message.find(staging, at)) != std::string::npos;)
      message.replace(at, staging.size(), folder_.string());
    return message;
  }

  /// Replaces the old files by all files written so far; call it once. Throws IoError.
  void commit();

  /// Completes an interrupted commit and removes the staging folders of interrupted writers, as the
  /// constructor does. Must not run while another process writes. Throws IoError.
  static void recover(const std::filesystem::path& folder);

 private:
  static bool is_plain(std::string_view name) {
    return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos;
  }

  static std::vector<std::filesystem::path> entries(const std::filesystem::path& folder);

  static void move_up(const std::filesystem::path& committed, const std::filesystem::path& folder);

  std::filesystem::path folder_;
  std::filesystem::path staging_;
  bool created_ = false;
};

namespace detail {

/// The path at which to read file `name` of a folder that FolderTransaction writes, also after an interrupted
/// commit. While another process writes, the file may be moved before it is opened: use read_folder().
inline std::filesystem::path folder_file(const std::filesystem::path& folder, std::string_view name) {
  const std::filesystem::path committed = folder / FolderTransaction::commit_name / name;
  return file_exists(committed) ? committed : folder / name;
}

/// Whether a folder that FolderTransaction writes has a file `name`; correct at any moment of a commit.
inline bool has_folder_file(const std::filesystem::path& folder, std::string_view name) {
  return file_exists(folder / FolderTransaction::commit_name / name) || file_exists(folder / name);
}

// Identifies the current versions of some files of a folder: existing files never share an inode number, and
// a new file that reuses a number has another modification time.
struct FolderVersion {
  // Device, inode number, size, and the time of the last change in seconds and nanoseconds; no file: zeros.
  using Entry = std::tuple<dev_t, ino_t, off_t, std::int64_t, std::int64_t>;
  std::vector<Entry> entries;
  bool in_commit = false;

  static FolderVersion of(const std::filesystem::path& folder, const std::vector<std::string>& names);
};

/// Returns the result of read(), which reads files of a folder that another process may be replacing by
/// FolderTransaction, and calls it again when they changed meanwhile, so that all are of one commit. `names`
/// are files that every commit replaces. Throws what read() throws when no other process writes, and IoError
/// when the files are replaced faster than they are read.
template <class F>
auto read_folder(const std::filesystem::path& folder, const std::vector<std::string>& names, F&& read) {
  constexpr int tries = 100;
  for (int i = 0; i < tries; ++i) {
    const auto before = FolderVersion::of(folder, names);
    try {
      auto result = read();
      if (FolderVersion::of(folder, names).entries == before.entries) return result;
    } catch (const IoError&) {
      // During a commit, files that are not in `names` are moved, too.
      const auto after = FolderVersion::of(folder, names);
      const bool changes = before.in_commit || after.in_commit || after.entries != before.entries;
      if (!changes || i + 1 == tries) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(i, 10)));
  }
  throw IoError("read",
                {"the files of '", folder.string(), "' were replaced each time they were read; try again"});
}

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION FolderTransaction::FolderTransaction(const std::filesystem::path& folder)
    : folder_(folder) {
  std::error_code error;
  created_ = std::filesystem::create_directories(folder_, error);
  std::error_code ignored;
  if (error || !std::filesystem::is_directory(folder_, ignored)) {
    throw detail::errno_error("write", "create the folder", folder_, error ? error.value() : ENOTDIR);
  }
  recover(folder_);
  staging_ = folder_ / (staging_prefix + detail::unique_suffix());
  if (!std::filesystem::create_directory(staging_, error)) {
    throw detail::errno_error("write", "write in the folder", folder_, error ? error.value() : EEXIST);
  }
}

EIGENFORMER_IO_FUNCTION FolderTransaction::~FolderTransaction() {
  if (staging_.empty()) return;
  try {
    std::error_code ignored;
    std::filesystem::remove_all(staging_, ignored);
    if (created_) std::filesystem::remove(folder_, ignored);
  } catch (const std::bad_alloc&) {  // the next writer removes them: recover()
  }
}

EIGENFORMER_IO_FUNCTION std::filesystem::path FolderTransaction::file(std::string_view name) const {
  const std::size_t slash = name.find('/');
  if (!is_plain(name.substr(0, slash)) ||
      (slash != std::string_view::npos && !is_plain(name.substr(slash + 1)))) {
    throw ValueError("write", {"'", name, "' is not a plain file name"});
  }
  if (staging_.empty())
    throw IoError("write", {"the changes to '", folder_.string(), "' were already committed"});
  const std::filesystem::path path = staging_ / name;
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) throw detail::errno_error("write", "make the folder", path.parent_path(), error.value());
  return path;
}

EIGENFORMER_IO_FUNCTION void FolderTransaction::commit() {
  if (staging_.empty())
    throw IoError("write", {"the changes to '", folder_.string(), "' were already committed"});
  detail::sync_directory(staging_);
  const std::filesystem::path committed = folder_ / commit_name;
  if (std::rename(staging_.c_str(), committed.c_str()) != 0) {
    throw detail::errno_error("write", "commit the files of", folder_, errno);
  }
  staging_.clear();
  detail::sync_directory(folder_);
  move_up(committed, folder_);
}

EIGENFORMER_IO_FUNCTION void FolderTransaction::recover(const std::filesystem::path& folder) {
  for (const std::filesystem::path& entry : entries(folder)) {
    const std::string name = entry.filename().string();
    if (name == commit_name) {
      move_up(entry, folder);
    } else if (name.starts_with(staging_prefix)) {
      std::error_code ignored;
      std::filesystem::remove_all(entry, ignored);
    }
  }
}

EIGENFORMER_IO_FUNCTION std::vector<std::filesystem::path> FolderTransaction::entries(
    const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    found.push_back(it->path());
  }
  if (error) throw detail::errno_error("write", "list the folder", folder, error.value());
  return found;
}

EIGENFORMER_IO_FUNCTION void FolderTransaction::move_up(const std::filesystem::path& committed,
                                                        const std::filesystem::path& folder) {
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
  // The new names must be durable before the folder that readers would fall back on is removed.
  detail::sync_directory(folder);
  std::filesystem::remove(committed, error);
  if (error) throw detail::errno_error("write", "remove", committed, error.value());
}

namespace detail {

EIGENFORMER_IO_FUNCTION FolderVersion FolderVersion::of(const std::filesystem::path& folder,
                                                        const std::vector<std::string>& names) {
  FolderVersion version;
  struct stat state {};
  const std::filesystem::path committed = folder / FolderTransaction::commit_name;
  version.in_commit = ::stat(committed.c_str(), &state) == 0;
  for (const std::string& name : names) {
    Entry entry;
    if (::stat((committed / name).c_str(), &state) == 0 || ::stat((folder / name).c_str(), &state) == 0) {
#ifdef __APPLE__
      const timespec& time = state.st_mtimespec;
#else
      const timespec& time = state.st_mtim;
#endif
      entry = {state.st_dev, state.st_ino, state.st_size, time.tv_sec, time.tv_nsec};
    }
    version.entries.push_back(entry);
  }
  return version;
}

}  // namespace detail
}  // namespace eigenformer

#endif
