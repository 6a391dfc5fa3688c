#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "eigenformer/io/atomic_file.hpp"

namespace eigenformer {

/// A file mapped into memory, copy-on-write: what is written to the bytes never reaches the file.
///
/// Files replaced by AtomicFile stay readable through an existing mapping. A file cut short in place by
/// another program while it is mapped ends the process on access (SIGBUS), as with every mapping.
class MappedFile {
 public:
  /// Maps a whole regular file. Throws IoError naming it and the system's reason.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path) {
    struct stat state {};
    if (::stat(path.c_str(), &state) != 0) throw detail::errno_error("read", "open", path, errno);
    if (!S_ISREG(state.st_mode)) {
      throw IoError("read", "cannot open '" + path.string() + "': it is not a regular file");
    }
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) throw detail::errno_error("read", "open", path, errno);
    std::shared_ptr<MappedFile> file(new MappedFile);
    int error = ::fstat(descriptor, &state) == 0 ? 0 : errno;
    // An empty file cannot be mapped, and need not be.
    if (error == 0 && state.st_size > 0) {
      const auto size = static_cast<std::size_t>(state.st_size);
      void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
      if (data == MAP_FAILED) {
        error = errno;
      } else {
        file->bytes_ = {static_cast<std::byte*>(data), size};
      }
    }
    ::close(descriptor);
    if (error != 0) throw detail::errno_error("read", "read", path, error);
    return file;
  }

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }

  /// The file's bytes; writable in memory only.
  std::span<std::byte> bytes() noexcept { return bytes_; }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// The bytes as characters.
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  MappedFile() = default;

  std::span<std::byte> bytes_;
};

/// The whole contents of a regular file. Throws IoError naming it and the system's reason.
inline std::string read_file(const std::filesystem::path& path) {
  return std::string(MappedFile::open(path)->text());
}

}  // namespace eigenformer
