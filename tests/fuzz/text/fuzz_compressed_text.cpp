#include "../fuzz.hpp"
#include "eigenformer/data/text/text_file.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read_file_of<IoError>(data, size,
                                     [](const std::filesystem::path& path) { (void)read_lines(path); });
}
