#include "../fuzz.hpp"
#include "eigenformer/data/tokenizers/tokenizer.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::read_file_of<IoError>(data, size, [](const std::filesystem::path& path) {
    const auto vocabulary = Vocabulary::load(path);
    for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
      if (id >= Vocabulary::num_specials && vocabulary.id(vocabulary.token(id)) != id)
        throw Error("fuzz", "a token has another id");
    }
  });
}
