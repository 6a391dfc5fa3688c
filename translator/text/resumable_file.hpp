#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "eigenformer/data/files/posix.hpp"

namespace eigenformer {

/// A file that appears under its name when it is complete, and whose writing can be resumed after an
/// interruption at any moment, a power failure included.
///
/// Bytes go to `<name>.part`. save() makes them durable and stores their number in `<name>.part.state`, with
/// a text of the caller that describes the progress. The next ResumableFile of this name reads that text, and
/// resume() drops all bytes after that point and appends. commit() renames the file. The part is locked, so
/// only one process can write it.
///
/// ```cpp
/// ResumableFile file("out.txt");
/// std::size_t done = file.saved() ? std::stoul(*file.saved()) : 0;
/// file.saved() ? file.resume() : file.restart();
/// for (; done < n; file.save(std::to_string(done))) file.write(result(done++));
/// file.commit();
/// ```
class ResumableFile {
 public:
  /// Opens and locks the part, and creates it if necessary. Throws IoError when the folder cannot be written,
  /// when the target exists and is not a regular file, when another process is writing it, and for a damaged
  /// state file.
  explicit ResumableFile(const std::filesystem::path& path) : target_(path) {
    std::error_code ignored;
    if (std::filesystem::is_symlink(path, ignored)) {
      const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, ignored);
      if (!resolved.empty()) target_ = resolved;
    }
    part_ = target_;
    part_ += ".part";
    state_ = part_;
    state_ += ".state";
    struct stat existing {};
    const bool exists = ::stat(target_.c_str(), &existing) == 0;
    if (exists && !S_ISREG(existing.st_mode)) {
      throw IoError("write", "cannot write '" + target_.string() + "': it exists and is not a regular file");
    }
    open_part();
    try {
      if (exists && ::fchmod(descriptor_, existing.st_mode & 07777U) != 0)
        fail("set the permissions of", part_, errno);
      read_state();
    } catch (...) {
      ::close(descriptor_);
      throw;
    }
  }
  ResumableFile(const ResumableFile&) = delete;
  ResumableFile& operator=(const ResumableFile&) = delete;
  /// Keeps the part when something was saved, else removes it.
  ~ResumableFile() {
    if (descriptor_ < 0) return;
    if (!saved_) ::unlink(part_.c_str());
    ::close(descriptor_);
  }

  /// The text passed to the last save(), of this object or of an interrupted process; nothing without one.
  const std::optional<std::string>& saved() const noexcept { return saved_; }
  /// The path of the part, which holds the bytes written so far.
  const std::filesystem::path& part() const noexcept { return part_; }
  /// Number of bytes in the part; 0 before resume() or restart().
  std::uint64_t bytes_written() const noexcept { return bytes_; }

  /// Continues after the last saved byte. Throws ValueError when nothing was saved, IoError when the part
  /// cannot be truncated.
  void resume() { resume(saved_bytes_); }
  /// Continues after the first `bytes` bytes, such as those that a file saved together with this one belongs
  /// to. Throws as above, and ValueError when fewer were saved.
  void resume(std::uint64_t bytes) {
    if (!saved_) throw ValueError("write", "there is no saved state to resume from");
    if (bytes > saved_bytes_) {
      throw ValueError("write", "cannot resume '" + part_.string() + "' after " + std::to_string(bytes) +
                                    " bytes, must be at most the " + std::to_string(saved_bytes_) +
                                    " that were saved");
    }
    begin_at(bytes);
  }
  /// Discards what was saved and begins with an empty part. Throws IoError.
  void restart() {
    saved_.reset();
    if (::unlink(state_.c_str()) != 0 && errno != ENOENT) fail("remove", state_, errno);
    begin_at(0);
  }

  /// Appends bytes; call resume() or restart() first. Throws IoError without that, after commit(), and when
  /// writing fails; saved bytes are kept.
  void write(std::string_view text) {
    require_begun();
    const int error =
        detail::write_all(descriptor_, std::as_bytes(std::span<const char>(text.data(), text.size())));
    if (error != 0) fail("write", part_, error);
    bytes_ += text.size();
  }

  /// Makes all bytes written so far durable, and stores `state` with their number. Throws IoError; the state
  /// saved before is then kept.
  void save(std::string_view state) {
    require_begun();
    if (const int error = detail::sync_data(descriptor_); error != 0) fail("write", part_, error);
    std::filesystem::path fresh = state_;
    fresh += ".new";  // fixed name: the part is locked, and a killed process leaves no other names behind
    const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) fail("write", fresh, errno);
    const std::string text = std::to_string(bytes_) + '\n' + std::string(state);
    int error = detail::write_all(file, std::as_bytes(std::span<const char>(text.data(), text.size())));
    if (error == 0 && ::fsync(file) != 0) error = errno;
    ::close(file);
    if (error == 0 && ::rename(fresh.c_str(), state_.c_str()) != 0) error = errno;
    if (error != 0) {
      ::unlink(fresh.c_str());
      fail("write", state_, error);
    }
    detail::sync_directory("write", target_.parent_path());
    saved_ = std::string(state);
    saved_bytes_ = bytes_;
  }

  /// Makes the file durable and renames it to the target. Throws IoError.
  void commit() {
    require_begun();
    if (::fsync(descriptor_) != 0) fail("write", part_, errno);
    if (::rename(part_.c_str(), target_.c_str()) != 0) fail("rename a temporary file to", target_, errno);
    ::close(std::exchange(descriptor_, -1));
    begun_ = false;
    detail::sync_directory("write", target_.parent_path());
    ::unlink(state_.c_str());
  }

 private:
  [[noreturn]] static void fail(const char* action, const std::filesystem::path& path, int error) {
    throw detail::errno_error("write", action, path, error);
  }
  void require_begun() const {
    if (!begun_)
      throw IoError(
          "write",
          "'" + target_.string() +
              "' is not being written: it was committed already, or resume() or restart() was not called");
  }

  void open_part() {
    for (;;) {
      descriptor_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      if (descriptor_ < 0) fail("write", target_, errno);
      if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        ::close(descriptor_);
        throw IoError("write", "cannot write '" + target_.string() +
                                   "': another process is writing it, to '" + part_.string() + "'");
      }  // a file system without locks is used without
      // The process that held the lock may have renamed or removed the file meanwhile.
      struct stat opened {
      }, named{};
      if (::fstat(descriptor_, &opened) == 0 && ::stat(part_.c_str(), &named) == 0 &&
          opened.st_dev == named.st_dev && opened.st_ino == named.st_ino) {
        size_ = static_cast<std::uint64_t>(opened.st_size);
        return;
      }
      ::close(descriptor_);
    }
  }

  void read_state() {
    std::error_code ignored;
    if (!std::filesystem::exists(state_, ignored)) return;
    if (size_ == 0) return;  // left by a crash between the last two steps of commit()
    const std::string text = read_file(state_);
    const std::size_t line = text.find('\n');
    const char* const end = text.data() + (line == std::string::npos ? 0 : line);
    const auto [read, error] = std::from_chars(text.data(), end, saved_bytes_);
    if (line == std::string::npos || read != end || error != std::errc() || saved_bytes_ > size_) {
      throw IoError("write", "cannot resume '" + part_.string() + "', which has " + std::to_string(size_) +
                                 " bytes: '" + state_.string() +
                                 "' does not describe it; remove both to start again");
    }
    saved_ = text.substr(line + 1);
  }

  void begin_at(std::uint64_t bytes) {
    if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail("write", part_, errno);
    if (::lseek(descriptor_, static_cast<off_t>(bytes), SEEK_SET) < 0) fail("write", part_, errno);
    bytes_ = bytes;
    begun_ = true;
  }

  std::filesystem::path target_, part_, state_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;   // of the part when it was opened
  std::uint64_t bytes_ = 0;  // in it now
  std::uint64_t saved_bytes_ = 0;
  std::optional<std::string> saved_;
  bool begun_ = false;
};

}  // namespace eigenformer
