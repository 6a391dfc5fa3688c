#include "../fuzz.hpp"
#include "eigenformer/io/huggingface/huggingface_tokenizers.hpp"

using namespace eigenformer;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder({"tokenizer.json"});
  return folder.read_as<IoError>(data, size, [](const std::filesystem::path& path) {
    const auto json = detail::TokenizerJson::open(path / "tokenizer.json");
    (void)json.text_template();
    detail::HuggingFaceVocabulary vocabulary(path, 400);
    vocabulary.read(json);
    vocabulary.read_added();
    const auto tokenizer = json.tokenizer(vocabulary.finish(json.unknown(), {}));
    (void)tokenizer->decode(
        tokenizer->encode(" the  dog </s>e\xCC\x81\xEF\xAC\x81 12<gap> \xE7\x8A\xAC\r\n"));
  });
}
