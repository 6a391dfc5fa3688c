#include "translator/text/resumable_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <span>
#include <system_error>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/mapped_file.hpp"

namespace eigenformer {

namespace {

// Makes the bytes and the size of a file durable, not necessarily its other properties. Returns 0 or the
// errno of the failure.
int sync_data(int descriptor) {
#ifdef __linux__
  return ::fdatasync(descriptor) == 0 ? 0 : errno;
#else
  return ::fsync(descriptor) == 0 ? 0 : errno;
#endif
}

}  // namespace

ResumableFile::ResumableFile(const std::filesystem::path& path) : target_(path) {
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
    throw IoError("write", {"cannot write '", target_.string(), "': it exists and is not a regular file"});
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

ResumableFile::~ResumableFile() {
  if (descriptor_ < 0) return;
  if (!saved_) ::unlink(part_.c_str());
  ::close(descriptor_);
}

void ResumableFile::resume(std::uint64_t bytes) {
  if (!saved_) throw ValueError("write", "there is no saved state to resume from");
  if (bytes > saved_bytes_) {
    throw ValueError("write", {"cannot resume '", part_.string(), "' after ", bytes,
                               " bytes, must be at most the ", saved_bytes_, " that were saved"});
  }
  begin_at(bytes);
}

void ResumableFile::restart() {
  saved_.reset();
  if (::unlink(state_.c_str()) != 0 && errno != ENOENT) fail("remove", state_, errno);
  begin_at(0);
}

void ResumableFile::write(std::string_view text) {
  require_begun();
  const int error = detail::write_all(descriptor_, std::as_bytes(std::span(text)));
  if (error != 0) fail("write", part_, error);
  bytes_ += text.size();
}

void ResumableFile::save(std::string_view state) {
  require_begun();
  if (const int error = sync_data(descriptor_); error != 0) fail("write", part_, error);
  std::filesystem::path fresh = state_;
  fresh += ".new";  // fixed name: the part is locked, and a killed process leaves no other names behind
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail("write", fresh, errno);
  const std::string text = std::to_string(bytes_) + '\n' + std::string(state);
  int error = detail::write_all(file, std::as_bytes(std::span(text)));
  if (error == 0 && ::fsync(file) != 0) error = errno;
  ::close(file);
  if (error == 0 && ::rename(fresh.c_str(), state_.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(fresh.c_str());
    fail("write", state_, error);
  }
  detail::sync_directory(target_.parent_path());
  saved_ = std::string(state);
  saved_bytes_ = bytes_;
}

void ResumableFile::commit() {
  require_begun();
  if (::fsync(descriptor_) != 0) fail("write", part_, errno);
  if (::rename(part_.c_str(), target_.c_str()) != 0) fail("rename a temporary file to", target_, errno);
  ::close(std::exchange(descriptor_, -1));
  begun_ = false;
  detail::sync_directory(target_.parent_path());
  ::unlink(state_.c_str());
}

void ResumableFile::fail(const char* action, const std::filesystem::path& path, int error) {
  throw detail::errno_error("write", action, path, error);
}

void ResumableFile::require_begun() const {
  if (!begun_)
    throw IoError(
        "write",
        {"'", target_.string(),
         "' is not being written: it was committed already, or resume() or restart() was not called"});
}

void ResumableFile::open_part() {
  for (;;) {
    descriptor_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("write", target_, errno);
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(descriptor_);
      throw IoError("write", {"cannot write '", target_.string(), "': another process is writing it, to '",
                              part_.string(), "'"});
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

void ResumableFile::read_state() {
  if (!detail::file_exists(state_)) return;
  if (size_ == 0) return;  // left by a crash between the last two steps of commit()
  const std::string text = detail::read_file(state_);
  const std::size_t line = text.find('\n');
  const char* const end = text.data() + (line == std::string::npos ? 0 : line);
  const auto [read, error] = std::from_chars(text.data(), end, saved_bytes_);
  if (line == std::string::npos || read != end || error != std::errc() || saved_bytes_ > size_) {
    throw IoError("write", {"cannot resume '", part_.string(), "', which has ", size_, " bytes: '",
                            state_.string(), "' does not describe it; remove both to start again"});
  }
  saved_ = text.substr(line + 1);
}

void ResumableFile::begin_at(std::uint64_t bytes) {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail("write", part_, errno);
  if (::lseek(descriptor_, static_cast<off_t>(bytes), SEEK_SET) < 0) fail("write", part_, errno);
  bytes_ = bytes;
  begun_ = true;
}

}  // namespace eigenformer
