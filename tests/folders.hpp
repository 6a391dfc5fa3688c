#pragma once

#include <filesystem>

namespace eigenformer::testing {

/// The folder tests/fixtures. A function of one file knows it, so that a cache of compiled files serves every checkout.
std::filesystem::path fixtures_folder();

/// The folder of the programs built beside the tests.
std::filesystem::path programs_folder();

}  // namespace eigenformer::testing
