#include "../fuzz.hpp"
#include "eigenformer/io/numpy/npz.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read_file_of<IoError>(data, size, [](const std::filesystem::path& path) {
    const auto file = NpzFile::open(path);
    for (const std::string& name : file.names()) {
      const Dtype dtype = file.info(name).dtype;
      if (detail::is_floating_point(dtype)) {
        (void)file.tensor<float>(name).clone();
      } else if (dtype == Dtype::boolean) {
        (void)file.tensor<bool>(name).clone();
      } else {
        (void)file.tensor<std::int32_t>(name).clone();
      }
    }
  });
}
