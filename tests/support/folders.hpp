#pragma once

#include <filesystem>

namespace eigenformer::testing {

/// The folder tests/fixtures. One file knows where the checkout lies, and no other depends on it.
std::filesystem::path fixtures_folder();

/// The folder of the programs built beside the tests.
std::filesystem::path programs_folder();

}  // namespace eigenformer::testing
