#include "../fuzz.hpp"
#include "eigenformer/io/ctranslate2/ctranslate2_format.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read_file_of<IoError>(data, size, [](const std::filesystem::path& path) {
    const detail::Ct2File file = detail::Ct2File::open(path);
    for (const std::string& name : file.names()) {
      (void)file.same(name, "decoder/projection/weight");
      if (file.shape(name).numel() == 1) (void)file.scalar(name, 0);
      if (file.variable(name).type != Dtype::i32) (void)file.tensor<float>(name);
    }
  });
}
