#include "../fuzz.hpp"
#include "eigenformer/io/marian/marian_file.hpp"
#include "eigenformer/io/marian/marian_folder.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read_file_of<IoError>(data, size, [](const std::filesystem::path& path) {
    const detail::MarianFile file = detail::MarianFile::open(path);
    for (const std::string& name : file.names()) {
      if (file.item(name).type == detail::MarianType::int8) {
        (void)file.text(name);
      } else {
        (void)file.tensor<float>(name);
        (void)file.input_multiplier(name);
      }
    }
    (void)detail::describe_marian(file);
  });
}
