#pragma once

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace eigenformer {

namespace detail {

// The value in bytes of the line "key: n kB" of /proc/self/status.
inline std::optional<std::size_t> process_status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) != 0) continue;
    const std::size_t digit = line.find_first_of("0123456789");
    if (digit == std::string::npos) break;
    return std::stoull(line.substr(digit)) * 1024;
  }
  return std::nullopt;
}

}  // namespace detail

/// The memory of this process that is in RAM, in bytes; std::nullopt where it is unknown (on systems other
/// than Linux).
inline std::optional<std::size_t> resident_bytes() { return detail::process_status("VmRSS"); }

/// Returns the freed memory that the C library keeps to the system (glibc; elsewhere it does nothing).
inline void release_freed_memory() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

/// The highest resident_bytes() since the process started; std::nullopt where it is unknown.
inline std::optional<std::size_t> peak_resident_bytes() { return detail::process_status("VmHWM"); }

}  // namespace eigenformer
