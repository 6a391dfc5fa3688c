#include "../fuzz.hpp"
#include "eigenformer/io/huggingface/huggingface.hpp"
#include "eigenformer/io/huggingface/huggingface_bert.hpp"

using namespace eigenformer;

// A folder whose config.json, generation_config.json and tokenizer_config.json are the same bytes.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder({"config.json", "generation_config.json", "tokenizer_config.json"});
  static const bool prepared = [] {
    SafetensorsWriter writer;
    for (const char* name : {"a", "b", "c"}) writer.add(name, Tensor<float>::zeros(Shape{2}));
    writer.save(folder.path() / "model.safetensors");
    return true;
  }();
  (void)prepared;
  const auto read = [&](auto&& f) { folder.read_as<IoError>(data, size, f); };
  read([](const std::filesystem::path& path) {
    const detail::HuggingFaceConfig config(path);
    ModelConventions text;
    text.target_prefix = {3};
    text.end_id = config.require_id("eos_token_id", 50);
    ImportOptions options;
    options.warn = [](const std::string&) {};
    detail::read_search(config, options, 50, text);
  });
  const auto weights = detail::HuggingFaceWeights::open(folder.path());
  read([&](const std::filesystem::path& path) {
    (void)detail::bart_options(detail::huggingface_families[0], detail::JsonFile::open(path / "config.json"),
                               weights);
  });
  read([&](const std::filesystem::path& path) {
    (void)detail::t5_options(detail::t5_family, detail::JsonFile::open(path / "config.json"), weights);
  });
  read([&](const std::filesystem::path& path) {
    (void)detail::bert_options(detail::JsonFile::open(path / "config.json"), weights);
  });
  return 0;
}
