#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "eigenformer/core/base/config.hpp"

/// Functions that Linux has and that other POSIX systems, such as macOS, lack or name differently. All other
/// files use them through this header, so that a port changes one place.
namespace eigenformer::detail {

struct FileTime {
  std::int64_t seconds = 0, nanoseconds = 0;
  bool operator==(const FileTime&) const = default;
};

/// When a file was last written to.
inline FileTime modification_time(const struct stat& state) noexcept {
#ifdef __APPLE__
  return {state.st_mtimespec.tv_sec, state.st_mtimespec.tv_nsec};
#else
  return {state.st_mtim.tv_sec, state.st_mtim.tv_nsec};
#endif
}

/// Makes the bytes and the size of a file durable, not necessarily its other properties. Returns 0 or the
/// errno of the failure.
inline int sync_data(int descriptor) noexcept {
#ifdef __linux__
  return ::fdatasync(descriptor) == 0 ? 0 : errno;
#else
  return ::fsync(descriptor) == 0 ? 0 : errno;
#endif
}

/// Allocates `bytes` of disk space for a file. Returns 0 or the errno of the failure: EOPNOTSUPP or ENOSYS if
/// the system or the file system cannot allocate space in advance.
EIGENFORMER_IO_FUNCTION int reserve_room(int descriptor, std::uint64_t bytes) noexcept;

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION int reserve_room(int descriptor, std::uint64_t bytes) noexcept {
#ifdef __linux__
  while (::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
#else
  (void)descriptor, (void)bytes;
  return ENOSYS;
#endif
}

}  // namespace eigenformer::detail

#endif
