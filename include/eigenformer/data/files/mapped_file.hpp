#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "eigenformer/core/base/bytes.hpp"
#include "eigenformer/data/files/atomic_file.hpp"

namespace eigenformer::detail {

/// A file mapped into memory, copy-on-write: writes to the bytes never reach the file.
///
/// A file replaced by AtomicFile stays readable through an existing mapping. When another program truncates a
/// file in place while it is mapped, access ends the process (SIGBUS), as with every mapping.
class MappedFile {
 public:
  /// Maps a whole regular file; an empty file has no bytes. Throws IoError with its path and the system's
  /// message.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path);

  /// Maps the same file again, even when another file has its name by now, without what was written to the
  /// bytes of this mapping. Throws IoError when the size of the file has changed.
  std::shared_ptr<MappedFile> again() const;

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    ::close(descriptor_);
  }

  /// The bytes of the file, writable in memory only; valid as long as this object.
  std::span<std::byte> bytes() noexcept { return bytes_; }
  /// The bytes of the file; valid as long as this object.
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// An owner of a part of a file's bytes that nothing else uses: with its last copy the whole pages of the
  /// part leave this process's memory, and what was written to them is lost.
  static std::shared_ptr<void> own(std::shared_ptr<MappedFile> file, std::span<std::byte> part);

  /// Removes the whole pages of a part of the bytes from this process's memory. They stay in the system's
  /// page cache, and are read again when they are used; what was written to them is lost.
  static void release(std::span<const std::byte> part) noexcept;

  /// The bytes of the file as characters, without a copy.
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  // Takes over the descriptor.
  MappedFile(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  // An empty file cannot be mapped.
  void map(std::size_t size) {
    if (size == 0) return;
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
    if (data == MAP_FAILED) throw errno_error("read", "read", path_, errno);
    bytes_ = {static_cast<std::byte*>(data), size};
  }

  std::filesystem::path path_;
  int descriptor_;
  std::span<std::byte> bytes_;
};

/// Reads the bytes of a file from front to end. File: refuse(what) makes the error that names it.
template <class File>
struct FileCursor {
  const File& file;
  std::span<const std::byte> bytes;
  std::size_t at = 0;

  std::size_t left() const noexcept { return bytes.size() - at; }
  /// The next n bytes. Throws the file's error, with `what` and the byte offset, beyond its end.
  std::span<const std::byte> take(std::uint64_t n, const std::string& what) {
    if (n > left()) {
      throw file.refuse(
          {"is truncated: ", what, " at byte ", at, " takes ", n, " bytes, the file has ", left(), " left"});
    }
    at += static_cast<std::size_t>(n);
    return bytes.subspan(at - static_cast<std::size_t>(n), static_cast<std::size_t>(n));
  }
  template <class N>
  N number(const std::string& what) {
    return load_as<N>(take(sizeof(N), what).data());
  }
};

/// Reads all bytes of a regular file. Throws IoError with its path and the system's message.
inline std::string read_file(const std::filesystem::path& path) {
  return std::string(MappedFile::open(path)->text());
}

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION std::shared_ptr<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  struct stat state {};
  if (::stat(path.c_str(), &state) != 0) throw errno_error("read", "open", path, errno);
  if (!S_ISREG(state.st_mode)) {
    throw IoError("read", {"cannot open '", path.string(), "': it is not a regular file"});
  }
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw errno_error("read", "open", path, errno);
  std::shared_ptr<MappedFile> file(new MappedFile(path, descriptor));
  if (::fstat(descriptor, &state) != 0) throw errno_error("read", "read", path, errno);
  if (!std::in_range<std::ptrdiff_t>(state.st_size)) throw errno_error("read", "read", path, EFBIG);
  file->map(static_cast<std::size_t>(state.st_size));
  return file;
}

EIGENFORMER_IO_FUNCTION std::shared_ptr<MappedFile> MappedFile::again() const {
  struct stat state {};
  if (::fstat(descriptor_, &state) != 0) throw errno_error("read", "read", path_, errno);
  if (!std::cmp_equal(state.st_size, bytes_.size())) {
    throw IoError("read", {"'", path_.string(), "' has changed since it was opened: it had ", bytes_.size(),
                           " bytes, and now has ", state.st_size});
  }
  const int descriptor = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) throw errno_error("read", "read", path_, errno);
  std::shared_ptr<MappedFile> file(new MappedFile(path_, descriptor));
  file->map(bytes_.size());
  return file;
}

EIGENFORMER_IO_FUNCTION std::shared_ptr<void> MappedFile::own(std::shared_ptr<MappedFile> file,
                                                              std::span<std::byte> part) {
  return {part.data(), [file = std::move(file), part](void*) { release(part); }};
}

EIGENFORMER_IO_FUNCTION void MappedFile::release(std::span<const std::byte> part) noexcept {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto data = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t begin = (data + page - 1) / page * page;
  const std::uintptr_t end = (data + part.size()) / page * page;
  // A failure is harmless: the pages stay.
  if (end > begin) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace eigenformer::detail

#endif
