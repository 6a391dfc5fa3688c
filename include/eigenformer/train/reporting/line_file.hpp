#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"

namespace eigenformer {

/// A text file to which whole lines are appended, each with one system call: a killed process leaves no
/// partial line, and a line that a full disk cut short is removed. Not thread-safe.
class LineFile {
 public:
  /// Opens the file for appending; creates it and its folder if they are missing. keep: bytes of an existing
  /// file to keep; the rest is cut off. Throws IoError.
  LineFile(const std::filesystem::path& path, std::uint64_t keep) : path_(path) {
    std::error_code error;
    if (!path_.parent_path().empty()) std::filesystem::create_directories(path_.parent_path(), error);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw detail::errno_error("training", "write", path_, errno);
    struct stat state {};
    if (::fstat(descriptor_, &state) != 0 ||
        (static_cast<std::uint64_t>(state.st_size) > keep && !cut(keep))) {
      const int reason = errno;
      ::close(descriptor_);
      throw detail::errno_error("training", "write", path_, reason);
    }
    bytes_ = std::min(keep, static_cast<std::uint64_t>(state.st_size));
  }
  /// Takes over the file; `other` must not be used afterwards.
  LineFile(LineFile&& other) noexcept
      : path_(std::move(other.path_)),
        bytes_(other.bytes_),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  LineFile& operator=(LineFile&&) = delete;
  ~LineFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  /// Appends a line, given without its line end. Returns 0, or the errno of the failure; the file then keeps
  /// the earlier lines, and a later call may succeed.
  int append(std::string_view line) {
    const std::string text = std::string(line) + '\n';
    const int error =
        detail::write_all(descriptor_, std::as_bytes(std::span<const char>(text.data(), text.size())));
    if (error == 0) {
      bytes_ += text.size();
    } else {
      (void)cut(bytes_);
    }
    return error;
  }

  /// The path given to the constructor.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  bool cut(std::uint64_t bytes) const { return ::ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0; }

  std::filesystem::path path_;
  std::uint64_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace eigenformer
