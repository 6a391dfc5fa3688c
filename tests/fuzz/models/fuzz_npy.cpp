#include "../fuzz.hpp"
#include "eigenformer/io/numpy/npy.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read_file_of<IoError>(data, size, [](const std::filesystem::path& path) {
    try {
      (void)load_npy<double>(path).clone();
    } catch (const IoError&) {
      (void)load_npy<std::int64_t>(path).clone();
    }
  });
}
