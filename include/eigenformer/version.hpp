#pragma once

#include <string>

// The only place where the version is written; CMake reads these lines.

/// The first number of the version.
#define EIGENFORMER_VERSION_MAJOR 0
/// The second number of the version.
#define EIGENFORMER_VERSION_MINOR 1
/// The third number of the version.
#define EIGENFORMER_VERSION_PATCH 0

namespace eigenformer {

/// The library's version, such as "0.1.0".
inline std::string version_string() {
  return std::to_string(EIGENFORMER_VERSION_MAJOR) + "." + std::to_string(EIGENFORMER_VERSION_MINOR) + "." +
         std::to_string(EIGENFORMER_VERSION_PATCH);
}

}  // namespace eigenformer
