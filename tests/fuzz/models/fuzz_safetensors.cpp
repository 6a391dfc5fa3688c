#include "../fuzz.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read_file_of<IoError>(data, size, [](const std::filesystem::path& path) {
    const auto file = SafetensorsFile::open(path);
    for (const std::string& name : file.names()) {
      const auto read = [&](auto example) {
        try {
          const auto tensor = file.tensor<decltype(example)>(name);
          // Every element is read, so that one outside the file would be seen.
          return tensor.numel() > 0 && tensor.clone().data() == nullptr;
        } catch (const IoError&) {
          return false;
        }
      };
      read(float{});
      read(std::int64_t{});
      read(false);
    }
    for (const auto& [name, stored] : file.aliases()) (void)file.info(name);
  });
}
