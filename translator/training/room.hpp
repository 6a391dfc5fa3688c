#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace eigenformer::detail {

/// Throws IoError unless the disk has room for new files of these sizes (bytes) in a folder. Creates the
/// folder if it is missing; the files it allocates for the check are removed.
void require_room(const std::filesystem::path& folder, const std::vector<std::uint64_t>& sizes);

}  // namespace eigenformer::detail
