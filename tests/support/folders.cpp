#include "folders.hpp"

namespace eigenformer::testing {

std::filesystem::path fixtures_folder() { return EIGENFORMER_FIXTURES; }
std::filesystem::path programs_folder() { return EIGENFORMER_PROGRAMS; }

}  // namespace eigenformer::testing
