#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../support/temporary_folder.hpp"

/// libFuzzer calls this with bytes; so does replay.cpp, under another name, with the seed corpus.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace eigenformer::fuzz {

/// A file in memory alone, for readers that take a path.
class InputFile {
 public:
  explicit InputFile(std::span<const std::uint8_t> bytes) {
    descriptor_ = ::memfd_create("input", MFD_CLOEXEC);
    while (!bytes.empty()) {
      const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
      if (n <= 0) std::abort();
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() { ::close(descriptor_); }

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_ = -1;
};

/// A folder in which some files get the input's bytes, for readers that take a folder.
class InputFolder {
 public:
  explicit InputFolder(std::vector<std::string> files) : files_(std::move(files)) {}

  const std::filesystem::path& path() const { return folder_.path(); }

  /// As read_file_of, with f(the folder).
  template <class Expected, class F>
  int read_as(const std::uint8_t* data, std::size_t size, F&& f) const {
    for (const std::string& file : files_) {
      std::ofstream(folder_ / file, std::ios::binary)
          .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    }
    try {
      f(path());
    } catch (const Expected&) {
      return 0;
    }
    return 0;
  }

 private:
  std::vector<std::string> files_;
  testing::TemporaryFolder folder_;
};

/// Calls f(path of a file with these bytes). An exception of type Expected is the right answer to bad input;
/// any other ends the process, as a crash does.
template <class Expected, class F>
int read_file_of(const std::uint8_t* data, std::size_t size, F&& f) {
  const InputFile file({data, size});
  try {
    f(file.path());
  } catch (const Expected&) {
    return 0;
  }
  return 0;
}

}  // namespace eigenformer::fuzz
