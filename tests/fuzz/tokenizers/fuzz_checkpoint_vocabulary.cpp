#include <string>

#include "../fuzz.hpp"
#include "eigenformer/io/ctranslate2/ctranslate2_tokenizers.hpp"
#include "eigenformer/io/huggingface/huggingface_tokenizers.hpp"

using namespace eigenformer;

// The vocabulary files of other libraries' checkpoints, the same bytes in all of them.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder({"vocab.json", "vocab.txt", "added_tokens.json",
                                         "tokenizer_config.json", "special_tokens_map.json",
                                         "shared_vocabulary.json", "source_vocabulary.txt"});
  const auto read = [&](auto&& f) { folder.read_as<IoError>(data, size, f); };
  read([](const std::filesystem::path& path) {
    detail::HuggingFaceVocabulary vocabulary(path, 50);
    vocabulary.read_map("vocab.json");
    (void)vocabulary.finish("<unk>", {0, 2});
  });
  read([](const std::filesystem::path& path) {
    detail::HuggingFaceVocabulary vocabulary(path, 50);
    vocabulary.read_lines_of("vocab.txt");
    (void)vocabulary.require("[CLS]");
  });
  read([](const std::filesystem::path& path) {
    detail::HuggingFaceVocabulary vocabulary(path, 50);
    vocabulary.read_added();
    (void)vocabulary.finish("<unk>", {1});
  });
  read([](const std::filesystem::path& path) {
    auto found = detail::read_ctranslate2_vocabulary(path, "shared_vocabulary");
    detail::fit_vocabulary(found.first, found.second, 50, "source");
  });
  read([](const std::filesystem::path& path) {
    const auto found = detail::read_ctranslate2_vocabulary(path, "source_vocabulary");
    const detail::TokenTokenizer tokenizer({found.second, -1, {}});
    (void)tokenizer.encode("a b </s>");
  });
  return 0;
}
