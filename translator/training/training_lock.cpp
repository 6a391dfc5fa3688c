#include "translator/training/training_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"

namespace eigenformer {

TrainingLock::TrainingLock(const std::filesystem::path& folder)
    : folder_(folder), path_(folder / "training" / "lock") {
  std::error_code error;
  made_folder_ = std::filesystem::create_directories(folder_, error);
  while (!take()) {
  }
}

TrainingLock::~TrainingLock() {
  if (descriptor_ < 0) return;
  // The path may name another file by now: the folder may have been moved.
  if (held_ && is_at_its_path()) {
    ::unlink(path_.c_str());
    ::rmdir(path_.parent_path().c_str());
    if (made_folder_) ::rmdir(folder_.c_str());
  }
  ::close(descriptor_);
}

bool TrainingLock::take() {
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    const int reason = errno;
    if (reason == EINTR || (reason == ENOENT && !error)) return false;
    throw detail::errno_error("training", "write", path_, error ? error.value() : reason);
  }
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    if (reason == EINTR) continue;
    if (reason == ENOLCK || reason == ENOSYS || reason == EOPNOTSUPP) return true;
    const std::string other = holder();
    ::close(std::exchange(descriptor_, -1));
    if (reason != EWOULDBLOCK) throw detail::errno_error("training", "lock", path_, reason);
    throw IoError("training",
                  {"'", folder_.string(), "' is in use by the training of ",
                   (other.empty() ? std::string("another process") : "process " + other), " ('",
                   path_.string(), "' is locked); only one process may train in a folder at a time"});
  }
  if (!is_at_its_path()) {
    ::close(std::exchange(descriptor_, -1));
    return false;
  }
  held_ = true;
  const std::string id = std::to_string(::getpid()) + '\n';
  // On a full disk the process id is missing; that only affects the message of a second training.
  if (::ftruncate(descriptor_, 0) == 0) (void)detail::write_all(descriptor_, std::as_bytes(std::span(id)));
  return true;
}

bool TrainingLock::is_at_its_path() const noexcept {
  struct stat own {};
  struct stat there {};
  return ::fstat(descriptor_, &own) == 0 && ::stat(path_.c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

std::string TrainingLock::holder() const {
  std::array<char, 32> bytes{};
  const ssize_t n = ::pread(descriptor_, bytes.data(), bytes.size(), 0);
  const std::string_view text(bytes.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  return std::string(text.substr(0, text.find_first_not_of("0123456789")));
}

}  // namespace eigenformer
