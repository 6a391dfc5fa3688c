#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace eigenformer::fuzz {

using Target = int (*)(const std::uint8_t* data, std::size_t size);

/// All targets by the names of what they read; the definition is made by CMakeLists.txt.
extern const std::vector<std::pair<std::string, Target>> targets;

}  // namespace eigenformer::fuzz
