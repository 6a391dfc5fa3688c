#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/adapters/load_adapter.hpp"
#include "eigenformer/io/import_checkpoint.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "folders.hpp"
#include "nn/seq2seq_test_tools.hpp"
#include "temporary_folder.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace fs = std::filesystem;

namespace {

Seq2SeqTransformer<double> imported(const std::string& name) {
  ImportOptions options;
  if (name == "nllb") options = {.source_language = "eng_Latn", .target_language = "deu_Latn"};
  return import_checkpoint<double>(fixtures_folder() / "checkpoints" / ("hf_" + name), options).model;
}

AdapterNames names_of_family(const std::string& name) {
  return name == "t5" ? AdapterNames::t5 : AdapterNames::bart;
}

nlohmann::json read_json(const fs::path& path) { return nlohmann::json::parse(detail::read_text_file(path)); }

// A model with a random adapter.
Seq2SeqTransformer<float> small_adapted(const std::string& targets = "q_proj,linear2") {
  auto model = make_seq2seq<float>(small_seq2seq());
  RandomGenerator rng(5);
  add_lora(model, {.rank = 2, .alpha = 3, .dropout = 0.25, .targets = targets}, rng);
  for (const auto& p : lora_parameters(model)) rng.fill_normal(p->value.data(), p->value.numel(), 0, 0.3);
  return model;
}

template <class M, class T = typename M::value_type>
auto logits_of(const M& model, const Context<T>& ctx = Context<T>::inference()) {
  const TokenBatch batch;
  return values(model(ctx, batch.source, batch.source_layout, batch.target_in, batch.target_layout).value());
}

}  // namespace

TEST_CASE("PEFT's adapters of Marian, NLLB, BART and T5 load, and are written as PEFT writes them") {
  for (const std::string name : {"marian", "nllb", "bart", "t5"}) {
    CAPTURE(name);
    const fs::path folder = fixtures_folder() / "adapters" / name;
    auto model = imported(name);
    load_adapter(folder, model);
    const TemporaryFolder out;
    save_adapter(out.path(), model, {.base = "hf_" + name, .names = names_of_family(name)});

    const auto theirs = SafetensorsFile::open(folder / "adapter_model.safetensors"),
               ours = SafetensorsFile::open(out.path() / "adapter_model.safetensors");
    CHECK(ours.names() == theirs.names());
    for (const std::string& tensor : theirs.names()) {
      CAPTURE(tensor);
      CHECK(values(ours.tensor<float>(tensor)) == values(theirs.tensor<float>(tensor)));
    }
    const auto their_config = read_json(folder / "adapter_config.json"),
               our_config = read_json(out.path() / "adapter_config.json");
    for (const char* field : {"peft_type", "use_rslora", "bias", "base_model_name_or_path", "lora_dropout"}) {
      CAPTURE(field);
      CHECK(our_config.at(field) == their_config.at(field));
    }
    // With ranks and alphas of modules' own, "r" may be any of them.
    if (name != "bart") {
      for (const char* field : {"r", "lora_alpha", "target_modules"}) {
        CAPTURE(field);
        CHECK(our_config.at(field) == their_config.at(field));
      }
    }
    auto again = imported(name);
    load_adapter(out.path(), again);
    const auto a = lora_adapters(model), b = lora_adapters(again);
    for (const auto& rows : detail::adaptable_rows(model)) {
      if (rows.weight->adapter() == nullptr) continue;
      for (const auto& other : detail::adaptable_rows(again)) {
        if (other.module != rows.module) continue;
        REQUIRE(other.weight->adapter() != nullptr);
        CHECK(other.weight->adapter()->parts.size() == rows.weight->adapter()->parts.size());
        CHECK(other.weight->adapter()->parts[0].scale() == rows.weight->adapter()->parts[0].scale());
      }
    }

    // What merging gives is what PEFT's merging gives.
    merge_lora(model);
    const auto reference = SafetensorsFile::open(folder / "lora.safetensors");
    const auto rows = detail::adaptable_rows(model);
    const auto names = detail::adapter_module_names(rows, names_of_family(name));
    int merged = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string tensor = "merged." + names[i] + ".weight";
      if (!reference.contains(tensor)) continue;
      ++merged;
      CAPTURE(tensor);
      const auto expected = reference.tensor<double>(tensor);
      const index_t first = rows[i].first_row * expected.dim(1);
      REQUIRE(expected.dim(0) == rows[i].rows);
      double worst = 0;
      for (index_t k = 0; k < expected.numel(); ++k) {
        worst = std::max(worst, std::fabs(expected.data()[k] - rows[i].weight->value().data()[first + k]));
      }
      CHECK(worst < 1e-6);
    }
    CHECK(merged >= 2);
  }
}

TEST_CASE("an adapter is written and read with all that it says, and its base is known by its weights") {
  auto model = small_adapted();
  const TemporaryFolder out;
  CHECK_FALSE(is_adapter_folder(out.path()));
  save_adapter(out.path(), model, {.base = "en-de", .training = {{"seed", 7}}});
  CHECK(is_adapter_folder(out.path()));
  const AdapterDescription read = read_adapter_description(out.path());
  CHECK(read.base == "en-de");
  CHECK(read.training.at("seed") == 7);
  CHECK(read.fingerprint == detail::adapted_fingerprint(model));

  auto base = make_seq2seq<float>(small_seq2seq());
  const auto without = logits_of(base);
  load_adapter(out.path(), base);
  CHECK(logits_of(base) == logits_of(model));
  CHECK(logits_of(base) != without);
  for (const auto& p : parameters(base)) CHECK(p->frozen);
  const auto& part = detail::adaptable_rows(base).front().weight->adapter()->parts.front();
  CHECK(part.dropout == 0.25);
  CHECK(part.scale() == 1.5);

  // Rounded to bfloat16 the base is the same, with other weights it is not.
  auto rounded = make_seq2seq<float>(small_seq2seq());
  for (const auto& p : parameters(rounded)) {
    for (float& x : p->value.span()) x = static_cast<float>(static_cast<bfloat16>(x));
  }
  (void)read_adapter(out.path(), rounded);
  RandomGenerator rng(8);
  Seq2SeqTransformer<float> other(small_seq2seq(), rng);
  CHECK(contains(message_of<IoError>([&] { load_adapter(out.path(), other); }),
                 "was trained on another model than this one: on 'en-de'"));
  CHECK(lora_parameters(other).empty());
  fs::remove(out.path() / "base.json");  // as PEFT leaves it
  load_adapter(out.path(), other);
  CHECK(read_adapter_description(out.path()).base == "en-de");
  CHECK(contains(message_of<ValueError>([&] { load_adapter(out.path(), other); }), "has adapters"));
  CHECK(contains(
      message_of<ValueError>([&] { save_adapter(out.path(), make_seq2seq<float>(small_seq2seq())); }),
      "has no adapters to save"));
}

TEST_CASE("an adapter that does not fit is refused with all that is wrong with it") {
  const TemporaryFolder out;
  const auto read = [&] {
    auto base = make_seq2seq<float>(small_seq2seq());
    return message_of<IoError>([&] { load_adapter(out.path(), base); });
  };
  CHECK(contains(read(), "is not an adapter folder"));
  save_adapter(out.path(), small_adapted("q_proj,linear2"));
  const auto file = SafetensorsFile::open(out.path() / "adapter_model.safetensors");
  const auto rewritten = [&](auto&& change) {
    std::vector<std::pair<std::string, Tensor<float>>> tensors;
    for (const std::string& name : file.names()) tensors.emplace_back(name, file.tensor<float>(name).clone());
    change(tensors);
    save_safetensors(out.path() / "adapter_model.safetensors", tensors);
    return read();
  };
  const std::string module = "base_model.model.decoder.layers.0.linear2";
  const std::string message = rewritten([&](auto& tensors) {
    std::erase_if(tensors, [&](const auto& t) {
      return t.first == module + ".lora_B.weight" ||
             t.first.find("decoder.layers.1.linear2") != std::string::npos;
    });
    for (auto& [name, tensor] : tensors) {
      if (name == "base_model.model.encoder.layers.0.linear2.lora_A.weight") tensor = Tensor<float>({2, 5});
    }
    tensors.emplace_back("base_model.model.encoder.layers.7.linear2.lora_A.weight", Tensor<float>({2, 20}));
    tensors.emplace_back(module + ".lora_magnitude_vector", Tensor<float>({12}));
  });
  CHECK(contains(message, "missing: base_model.model.decoder.layers.1.linear2.lora_A.weight, " + module +
                              ".lora_B.weight"));
  CHECK(contains(
      message,
      "that match no weight matrix of the model: base_model.model.encoder.layers.7.linear2.lora_A.weight"));
  CHECK(contains(message, "not supported: " + module + ".lora_magnitude_vector"));
  CHECK(contains(
      message,
      "of the wrong shape: base_model.model.encoder.layers.0.linear2.lora_A.weight is (2, 5), expected "
      "(r, 20)"));

  auto config = read_json(out.path() / "adapter_config.json");
  const auto with = [&](const char* field, const nlohmann::json& value) {
    auto changed = config;
    changed[field] = value;
    std::ofstream(out.path() / "adapter_config.json") << changed.dump();
    return read();
  };
  CHECK(contains(with("bias", "lora_only"), "settings that are not supported here: bias: \"lora_only\""));
  CHECK(contains(with("use_dora", true), "use_dora: true"));
  CHECK(contains(with("init_lora_weights", "pissa"), "init_lora_weights: \"pissa\""));
  CHECK(contains(with("modules_to_save", {"lm_head"}), "modules_to_save: [\"lm_head\"]"));
  CHECK(contains(with("of_the_future", {{"a", 1}}), "of_the_future: {\"a\":1}"));
  CHECK(contains(with("peft_type", "IA3"), "an adapter of the type \"IA3\", expected \"LORA\""));
  CHECK(contains(with("lora_alpha", "much"), "is damaged"));
  const std::string own = config.dump();
  detail::write_file(out.path() / "adapter_config.json", "{\"lora_alpha\": 3, " + own.substr(1));
  CHECK(contains(read(), "'lora_alpha' twice"));
  detail::write_file(out.path() / "adapter_config.json", own);
  const std::string base = detail::read_file(out.path() / "base.json");
  detail::write_file(out.path() / "base.json", "{\"base\": \"x\", " + base.substr(1));
  CHECK(contains(read(), "'base' twice"));
  detail::write_file(out.path() / "base.json", base);
  CHECK(contains(with("alpha_pattern", {{".*q", 3}}), "alpha_pattern '.*q', expected names of modules"));
}

TEST_CASE("an adapter of a much larger model is refused with the first names and the number of the rest") {
  Seq2SeqOptions deep = small_seq2seq();
  deep.encoder.num_layers = 9;
  RandomGenerator rng(1);
  Seq2SeqTransformer<float> model(deep, rng);
  add_lora(model, {.rank = 1, .targets = "encoder.*.linear1"}, rng);
  const TemporaryFolder out;
  save_adapter(out.path(), model);
  auto base = make_seq2seq<float>(small_seq2seq());
  const std::string message = message_of<IoError>([&] { load_adapter(out.path(), base); });
  CHECK(contains(
      message,
      "that match no weight matrix of the model: base_model.model.encoder.layers.2.linear1.lora_A.weight, "));
  CHECK(contains(message, "encoder.layers.4.linear1.lora_B.weight and 8 more"));
}
