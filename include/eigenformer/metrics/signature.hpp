#pragma once

#include <string>

#include "eigenformer/version.hpp"

namespace eigenformer::detail {

/// The version field of a metric's signature.
inline std::string version_field() { return "version:eigenformer-" + version_string(); }

}  // namespace eigenformer::detail
