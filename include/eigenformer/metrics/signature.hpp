#pragma once

#include <string>

#include "eigenformer/version.hpp"

namespace eigenformer::detail {

/// The field of a metric's signature that says whose numbers these are.
inline std::string version_field() { return "version:eigenformer-" + version_string(); }

}  // namespace eigenformer::detail
