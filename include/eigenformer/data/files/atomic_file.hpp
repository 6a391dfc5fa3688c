#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

namespace detail {

/// The operating system's message for an errno value, such as "No space left on device".
inline std::string errno_text(int error) { return std::generic_category().message(error); }

/// The IoError "[op] cannot <action> '<path>': <errno text>".
inline IoError errno_error(const char* op, const std::string& action, const std::filesystem::path& path,
                           int error) {
  return IoError(op, "cannot " + action + " '" + path.string() + "': " + errno_text(error));
}

/// Whether there is a file or folder; false when the system cannot tell.
inline bool file_exists(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// Writes all bytes to a descriptor, continuing after interruptions and short writes. Returns 0, or the errno
/// of the failure.
EIGENFORMER_FUNCTION int write_all(int descriptor, std::span<const std::byte> bytes) noexcept;

/// Makes renames and new names inside a directory durable. Does nothing on file systems that cannot sync
/// directories. Throws IoError.
EIGENFORMER_FUNCTION void sync_directory(const std::filesystem::path& directory);

/// A suffix that no other running process or thread of this machine uses.
inline std::string unique_suffix() {
  static std::atomic<unsigned> counter{0};
  return std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace detail

/// A file that appears under its name completely or not at all.
///
/// Bytes go to a temporary file in the same folder; commit() makes them durable and renames it to the target,
/// so that a full disk, a crash or an exception leaves an existing target unchanged. Without commit() the
/// destructor removes the temporary file. Symbolic links are followed, and the permission bits of an existing
/// file are kept. Not thread-safe.
class AtomicFile {
 public:
  /// Opens the temporary file. Throws IoError when the folder does not exist or cannot be written, and when
  /// the target exists and is not a regular file.
  explicit AtomicFile(const std::filesystem::path& path);

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() { discard(); }

  /// Appends bytes. Throws IoError with the system's message; the temporary file is then removed and the
  /// target unchanged. Throws IoError after commit() and after an earlier failure, too.
  void write(std::span<const std::byte> bytes) {
    require_open();
    if (const int error = detail::write_all(descriptor_, bytes); error != 0) fail("write", error);
    written_ += bytes.size();
  }
  /// Appends the bytes of a text. Throws as the other write().
  void write(std::string_view text) { write(std::as_bytes(std::span<const char>(text.data(), text.size()))); }

  /// Number of bytes written so far.
  std::uint64_t bytes_written() const noexcept { return written_; }

  /// Makes the file durable and renames it to the target. Throws IoError when that fails, or when the size of
  /// the file is not the number of bytes written; the target is then unchanged, unless only syncing its
  /// folder failed: then the message says that the new file is in place. Either way the object is finished:
  /// write() and commit() throw IoError from then on.
  void commit();

 private:
  void open_temporary();

  void require_open() const {
    if (descriptor_ < 0) {
      throw IoError("write", {"'", target_.string(), "' was already committed or has failed to be written"});
    }
  }

  [[noreturn]] void fail(const char* action, int error) {
    discard();
    throw detail::errno_error("write", action, target_, error);
  }

  void discard() noexcept {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
  }

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::uint64_t written_ = 0;
};

namespace detail {

/// Replaces the contents of a file, completely or not at all, by AtomicFile. Throws IoError as it does.
inline void write_file(const std::filesystem::path& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

}  // namespace detail

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_FUNCTION int write_all(int descriptor, std::span<const std::byte> bytes) noexcept {
  // Linux writes at most 0x7ffff000 bytes a call.
  constexpr std::size_t at_most = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor, bytes.data(), std::min(bytes.size(), at_most));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

EIGENFORMER_FUNCTION void sync_directory(const std::filesystem::path& directory) {
  const std::filesystem::path name = directory.empty() ? std::filesystem::path(".") : directory;
  const int descriptor = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    // A directory that may be written but not listed cannot be opened to sync it.
    if (errno == EACCES) return;
    throw errno_error("write", "open the folder", name, errno);
  }
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0 && error != EINVAL && error != ENOTSUP && error != EROFS) {
    throw errno_error("write", "write the folder", name, error);
  }
}

}  // namespace detail

EIGENFORMER_FUNCTION AtomicFile::AtomicFile(const std::filesystem::path& path) : target_(path) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, ignored);
    if (!resolved.empty()) target_ = resolved;
  }
  struct stat existing {};
  const bool exists = ::stat(target_.c_str(), &existing) == 0;
  if (exists && !S_ISREG(existing.st_mode)) {
    throw IoError("write", {"cannot write '", target_.string(), "': it exists and is not a regular file"});
  }
  open_temporary();
  if (exists && ::fchmod(descriptor_, existing.st_mode & 07777U) != 0) fail("set the permissions of", errno);
}

EIGENFORMER_FUNCTION void AtomicFile::commit() {
  require_open();
  struct stat state {};
  if (::fstat(descriptor_, &state) != 0) fail("write", errno);
  if (static_cast<std::uint64_t>(state.st_size) != written_) fail("write", EIO);
  if (::fsync(descriptor_) != 0) fail("write", errno);
  if (const int descriptor = std::exchange(descriptor_, -1); ::close(descriptor) != 0) fail("write", errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("rename a temporary file to", errno);
  temporary_.clear();
  try {
    detail::sync_directory(target_.parent_path());
  } catch (const IoError& error) {
    throw IoError("write", {detail::message_of(error), "; '", target_.string(),
                            "' is replaced, but may be lost if the system fails now"});
  }
}

EIGENFORMER_FUNCTION void AtomicFile::open_temporary() {
  for (;;) {
    temporary_ = target_;
    temporary_ += ".tmp-" + detail::unique_suffix();
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) return;
    if (errno == EEXIST || errno == EINTR) continue;
    const int error = errno;
    temporary_.clear();
    throw detail::errno_error("write", "write", target_, error);
  }
}

}  // namespace eigenformer

#endif
