#include "translator/training/room.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/folder_transaction.hpp"

namespace eigenformer::detail {

namespace {

// Allocates disk space for a file; returns 0 or the errno of the failure. Where the system or the file system
// cannot allocate in advance, the free space decides.
int take_room(const std::filesystem::path& path, std::uint64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) return errno;
  int error = ENOSYS;
#ifdef __linux__
  do {
    error = ::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
#endif
  ::close(descriptor);
  if (error != EOPNOTSUPP && error != ENOSYS) return error;
  struct statvfs disk {};
  if (::statvfs(path.parent_path().c_str(), &disk) != 0) return 0;  // unknown free space is not an error
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize < bytes ? ENOSPC : 0;
}

}  // namespace

void require_room(const std::filesystem::path& folder, const std::vector<std::uint64_t>& sizes) {
  const FolderTransaction never_committed(folder);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    if (const int error = take_room(never_committed.file("room-" + std::to_string(i)), sizes[i]);
        error != 0) {
      std::uint64_t sum = 0;
      for (const std::uint64_t size : sizes) sum += size;
      throw IoError("training", {"cannot reserve ", sum / 1000000 + 1, " MB in '", folder.string(),
                                 "', which are needed to save the training: ", errno_text(error)});
    }
  }
}

}  // namespace eigenformer::detail
