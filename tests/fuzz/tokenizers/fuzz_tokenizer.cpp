#include <string>
#include <vector>

#include "../fuzz.hpp"
#include "eigenformer/data/tokenizers/foreign_tokenizer.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read_file_of<IoError>(data, size, [](const std::filesystem::path& path) {
    const detail::TokenizerParts parts = detail::TokenizerParts::load(path);
    (void)parts.list("tokens");
    (void)parts.ids("special");
    (void)parts.ids("unknown");
  });
}
