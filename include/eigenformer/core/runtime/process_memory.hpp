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

// A line "<key>: <n> kB" of what Linux says of this process.
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

/// The memory of this process that is in RAM, in bytes; nothing where the system does not say (only Linux
/// does).
inline std::optional<std::size_t> resident_bytes() { return detail::process_status("VmRSS"); }

/// Gives what the C library keeps of freed memory back to the system, where it can be asked to (glibc).
inline void release_freed_memory() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

/// The most that it was since the process began.
inline std::optional<std::size_t> peak_resident_bytes() { return detail::process_status("VmHWM"); }

}  // namespace eigenformer
