#include "eigenformer/io/huggingface.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/io/import_checkpoint.hpp"
#include "io/checkpoint_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

struct Family {
  std::string name;
  ImportOptions options{};
};

// Those that this program has the tokenizers for.
std::vector<Family> families() {
  std::vector<Family> found;
  if (has_subword_tokenizer()) {
    found = {{"hf_marian", {}},
             {"hf_mbart", {"en_XX", "de_DE", {}}},
             {"hf_mbart50", {"en_XX", "de_DE", {}}},
             {"hf_m2m100", {"en", "de", {}}},
             {"hf_nllb", {"eng_Latn", "deu_Latn", {}}},
             {"hf_t5", {{}, {}, "translate to German: "}},
             {"hf_mt5", {{}, {}, "translate to German: "}}};
  }
  if (has_icu_tokenizers()) found.push_back({"hf_bart", {}});
  return found;
}

template <class T>
void check_family(const Family& family, double tolerance) {
  CAPTURE(family.name);
  const CheckpointReference reference(family.name);
  const auto model = import_huggingface<T>(reference.folder, family.options);
  const auto sources = read_lines_as_ids(model, reference.json.at("lines").get<std::vector<std::string>>());
  CHECK(sources == reference.json.at("sources").get<std::vector<Ids>>());
  const auto targets = reference.json.at("targets").get<std::vector<Ids>>();
  const auto logits = batch_logits(model.model, sources, targets);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    CAPTURE(i);
    CHECK(logits_error(logits[i], reference.tensors.tensor<T>("logits." + std::to_string(i))) <= tolerance);
  }
  CHECK(greedy(model, sources, reference.json.at("max_length")) == reference.json.at("greedy").get<std::vector<Ids>>());
  check_beams(model, reference, sources);
}

}  // namespace

TEST_CASE("Hugging Face models give transformers' ids, logits, greedy and beam results") {
  for (const Family& family : families()) check_family<float>(family, 1e-5);
}

TEST_CASE("Hugging Face models load as double too") {
  if (has_subword_tokenizer()) check_family<double>({"hf_marian", {}}, 1e-6);
}

TEST_CASE("an imported Hugging Face model is saved as a model folder and translates the same") {
  for (const Family& family : families()) {
    CAPTURE(family.name);
    const CheckpointReference reference(family.name);
    const auto model = import_checkpoint<float>(reference.folder, family.options);
    TemporaryFolder folder;
    save_model_folder(folder.path(), model.model, model.tokenizers, nlohmann::json::object(), WeightFormat::float32,
                      model.description.text);
    const auto loaded = load_model_folder<float>(folder.path());
    CHECK(loaded.description.text == model.description.text);
    GenerationOptions options = generation_options(model.description);
    options.beam_size = 1;
    options.max_length = 13 - static_cast<index_t>(options.prefix_ids.size());
    const auto lines = reference.json.at("lines").get<std::vector<std::string>>();
    const auto translations = translate(loaded, lines, options);
    CHECK(translations == translate(model, lines, options));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      CHECK(translations[i] == model.tokenizers.target->decode(reference.json.at("greedy").at(i).get<Ids>()));
    }
  }
}

TEST_CASE("weights in several files are read as in one") {
  if (!has_subword_tokenizer()) return;
  DamagedCopy copy("hf_marian");
  nlohmann::json index = {{"weight_map", nlohmann::json::object()}};
  {
    const auto file = SafetensorsFile::open(copy / "model.safetensors");
    SafetensorsWriter first, second;
    std::size_t i = 0;
    for (const std::string& name : file.names()) {
      const bool even = i++ % 2 == 0;
      (even ? first : second).add(name, file.tensor<float>(name));
      index["weight_map"][name] = even ? "model-1.safetensors" : "model-2.safetensors";
    }
    first.save(copy / "model-1.safetensors");
    second.save(copy / "model-2.safetensors");
  }
  copy.remove("model.safetensors");
  copy.write("model.safetensors.index.json", index.dump());
  const auto whole = import_huggingface<float>(CheckpointReference("hf_marian").folder);
  const auto parts = import_huggingface<float>(copy.path());
  CHECK(translate(parts, {"a tree"}) == translate(whole, {"a tree"}));
  copy.remove("model-2.safetensors");
  check_refused([&] { (void)import_huggingface<float>(copy.path()); }, {"model-2.safetensors"});
  index["weight_map"]["a"] = "../b";
  copy.write("model.safetensors.index.json", index.dump());
  check_refused([&] { (void)import_huggingface<float>(copy.path()); }, {"weight_map a", "expected a file"});
}

TEST_CASE("what does not fit in a Hugging Face folder is refused with its file and what is wrong") {
  if (!has_subword_tokenizer()) return;
  DamagedCopy copy("hf_marian");
  const std::string config = copy.read("config.json"), weights = copy.read("model.safetensors");
  const auto refuse = [&](const std::vector<std::string>& words) {
    check_refused([&] { (void)import_checkpoint<float>(copy.path()); }, words);
    copy.write("config.json", config);
  };
  copy.set("config.json", "model_type", 3);
  refuse({"config.json", "model_type"});
  copy.set("config.json", "model_type", nullptr);
  refuse({"config.json", "model_type"});
  copy.set("config.json", "model_type", "gpt2");
  refuse({"config.json", "gpt2", "marian"});
  copy.set("config.json", "d_model", 18);
  refuse({"model.safetensors", "wrong shape", "18)"});
  copy.set("config.json", "d_model", 1000000000000);
  refuse({"config.json", "d_model"});
  copy.set("config.json", "d_model", 2000000000);
  refuse({"config.json", "memory"});
  copy.set("config.json", "encoder_layers", 1000000000);
  refuse({"config.json", "1000000000 layers"});
  copy.set("config.json", "encoder_layers", 3);
  refuse({"missing", "model.encoder.layers.2.self_attn.q_proj.weight"});
  copy.set("config.json", "decoder_layers", 1);
  refuse({"unexpected", "model.decoder.layers.1."});
  copy.set("config.json", "encoder_attention_heads", 7);
  refuse({"encoder_attention_heads"});
  copy.set("config.json", "activation_function", "swoosh");
  refuse({"activation_function", "swoosh"});
  copy.write("config.json", config.substr(0, config.size() / 2));
  refuse({"config.json", "not JSON"});
  for (const std::size_t size : {std::size_t{3}, std::size_t{500}, weights.size() - 1}) {
    copy.write("model.safetensors", weights.substr(0, size));
    refuse({"model.safetensors"});
  }
  copy.remove("model.safetensors");
  copy.write("pytorch_model.bin", "x");
  refuse({"no model.safetensors", "pytorch_model.bin"});
  copy.write("model.safetensors", weights);

  const std::string vocabulary = copy.read("vocab.json"), source = copy.read("source.spm");
  copy.set("vocab.json", "one too many", 5000);
  refuse({"vocab.json", "5000", "rows"});
  copy.write("vocab.json", "{\"<unk>\": 1, \"a\": 2}");
  refuse({"does not fit"});
  copy.write("vocab.json", "[]");
  refuse({"vocab.json", "object"});
  copy.write("vocab.json", vocabulary);
  copy.write("source.spm", source.substr(0, 20));
  refuse({"source.spm"});
  copy.remove("source.spm");
  refuse({"SentencePiece", "source.spm"});
  copy.remove("config.json");
  check_refused([&] { (void)import_checkpoint<float>(copy.path()); }, {"no checkpoint", "model.bin"});
  check_refused([&] { (void)import_checkpoint<float>(copy / "nowhere"); }, {"nowhere", "does not exist"});
}

TEST_CASE("a model of several languages wants them named") {
  if (!has_subword_tokenizer()) return;
  const std::filesystem::path folder = CheckpointReference("hf_nllb").folder;
  CHECK_THROWS_AS((void)import_huggingface<float>(folder), ValueError);
  CHECK_THROWS_AS((void)import_huggingface<float>(folder, {"eng_Latn", "xyz_Latn", {}}), ValueError);
}
