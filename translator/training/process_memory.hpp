#pragma once

#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace eigenformer::detail {

/// The memory of this process that is in RAM, in bytes; std::nullopt where it is unknown (on systems other
/// than Linux).
inline std::optional<std::size_t> resident_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmRSS:", 0) != 0) continue;
    const std::size_t digit = line.find_first_of("0123456789");
    if (digit == std::string::npos) break;
    return std::stoull(line.substr(digit)) * 1024;
  }
  return std::nullopt;
}

/// Returns the freed memory that the C library keeps to the system (glibc; elsewhere it does nothing).
inline void release_freed_memory() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace eigenformer::detail
