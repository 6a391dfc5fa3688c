#pragma once

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/files/posix.hpp"

namespace eigenformer::detail {

// Allocates disk space for a file; returns 0 or the errno of the failure. Where the file system cannot
// allocate in advance, its free space decides.
EIGENFORMER_IO_FUNCTION int take_room(const std::filesystem::path& path, std::uint64_t bytes);

/// Throws IoError unless the disk has room for new files of these sizes (bytes) in a folder. Creates the
/// folder if it is missing; the files it allocates for the check are removed.
EIGENFORMER_IO_FUNCTION void require_room(const std::filesystem::path& folder,
                                          const std::vector<std::uint64_t>& sizes);

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION int take_room(const std::filesystem::path& path, std::uint64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) return errno;
  const int error = reserve_room(descriptor, bytes);
  ::close(descriptor);
  if (error != EOPNOTSUPP && error != ENOSYS) return error;
  struct statvfs disk {};
  if (::statvfs(path.parent_path().c_str(), &disk) != 0) return 0;  // unknown free space is not an error
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize < bytes ? ENOSPC : 0;
}

EIGENFORMER_IO_FUNCTION void require_room(const std::filesystem::path& folder,
                                          const std::vector<std::uint64_t>& sizes) {
  const FolderTransaction never_committed(folder);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string name = "room-" + std::to_string(i);
    if (sizes[i] == 0) continue;
    if (const int error = detail::take_room(never_committed.file(name), sizes[i]); error != 0) {
      std::uint64_t sum = 0;
      for (const std::uint64_t size : sizes) sum += size;
      throw IoError("training", {"cannot reserve ", sum / 1000000 + 1, " MB in '", folder.string(),
                                 "', which are needed to save the training: ", detail::errno_text(error)});
    }
  }
}

}  // namespace eigenformer::detail

#endif
