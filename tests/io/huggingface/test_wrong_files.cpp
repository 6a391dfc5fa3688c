#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/io/huggingface/huggingface.hpp"
#include "folders.hpp"
#include "io/checkpoint_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

struct Attacked {
  std::string name;
  ImportOptions options{};
  std::vector<std::string> files{};
};

// Sets each field of each file to each of these values, and takes it away.
const std::vector<nlohmann::json>& wrong_values() {
  static const std::vector<nlohmann::json> values = {nullptr,
                                                     true,
                                                     -1,
                                                     0,
                                                     4294967298,
                                                     18446744073709551615u,
                                                     1e300,
                                                     "x",
                                                     nlohmann::json::array(),
                                                     {4294967298, -1},
                                                     {{"content", 3}}};
  return values;
}

// Imports, or throws an error of the library; anything else fails the test.
void import_or_refuse(const DamagedCopy& copy, const Attacked& attacked) {
  try {
    const auto model = import_huggingface<float>(copy.path(), attacked.options);
    const auto read = read_lines_as_ids(model, {"a </s> tree"});
    for (const std::int32_t id : read[0]) CHECK(id < model.description.model.source_vocab_size);
    detail::conventions_from_json(detail::conventions_to_json(model.description.text),
                                  model.description.model.source_vocab_size,
                                  model.description.model.target_size());
  } catch (const IoError& error) {
    CHECK(std::string(error.what()).starts_with("[import] "));
  } catch (const ValueError& error) {
    CHECK(std::string(error.what()).starts_with("[import] "));
  }
}

}  // namespace

TEST_CASE("a folder with any wrong field is refused by an error of the library, or imported") {
  if (!has_subword_tokenizer()) return;
  const std::vector<std::string> common = {"config.json", "generation_config.json"};
  std::vector<Attacked> all = {
      {"hf_marian", {}, {"vocab.json"}},
      {"hf_m2m100_implied", {"en", "de", {}}, {"tokenizer_config.json", "special_tokens_map.json"}},
      {"hf_t5", {}, {}}};
  for (Attacked& attacked : all) {
    CAPTURE(attacked.name);
    const DamagedCopy copy(attacked.name);
    attacked.files.insert(attacked.files.end(), common.begin(), common.end());
    if (attacked.name == "hf_t5") {
      copy.write("tokenizer_config.json", R"({"extra_ids": 5, "tokenizer_class": "T5Tokenizer"})");
      attacked.files.push_back("tokenizer_config.json");
    }
    for (const std::string& file : attacked.files) {
      CAPTURE(file);
      const std::string before = copy.read(file);
      const nlohmann::json fields = nlohmann::json::parse(before);
      int done = 0;
      for (const auto& field : fields.items()) {
        if (file == "vocab.json" && ++done > 2) break;
        const std::string& name = field.key();
        CAPTURE(name);
        for (const nlohmann::json& value : wrong_values()) {
          const std::string text = value.dump();
          CAPTURE(text);
          copy.set(file, name, value);
          import_or_refuse(copy, attacked);
        }
        nlohmann::json without = fields;
        without.erase(name);
        copy.write(file, without.dump());
        import_or_refuse(copy, attacked);
        copy.write(file, before);
      }
    }
  }
}

TEST_CASE("sizes whose product overflows are refused") {
  const DamagedCopy copy("hf_t5");
  copy.set("config.json", "num_heads", 2147483648);
  copy.set("config.json", "d_kv", 2147483648);
  check_refused([&] { (void)import_huggingface<float>(copy.path()); },
                {"config.json", "num_heads * d_kv 4611686018427387904"});
}

TEST_CASE("wrong files of a tokenizer are refused by file and name") {
  if (!has_subword_tokenizer()) return;
  const DamagedCopy copy("hf_m2m100_implied");
  const std::string config = copy.read("tokenizer_config.json"), map = copy.read("special_tokens_map.json"),
                    generation = copy.read("generation_config.json");
  const auto refuse = [&](const std::vector<std::string>& words) {
    check_refused([&] { (void)import_huggingface<float>(copy.path(), {"en", "de", {}}); }, words);
    copy.write("tokenizer_config.json", config);
    copy.write("special_tokens_map.json", map);
    copy.write("generation_config.json", generation);
  };
  copy.set("tokenizer_config.json", "added_tokens_decoder", nlohmann::json::array({"<s>"}));
  refuse({"tokenizer_config.json", "added_tokens_decoder", "not an object"});
  copy.set("tokenizer_config.json", "added_tokens_decoder", {{"4294967298", {{"content", "a"}}}});
  refuse({"tokenizer_config.json", "4294967298", "expected a number"});
  copy.set("tokenizer_config.json", "added_tokens_decoder", {{"999999", {{"content", "a"}}}});
  refuse({"tokenizer_config.json", "999999", "rows"});
  copy.set("tokenizer_config.json", "unk_token", 7);
  refuse({"tokenizer_config.json", "added token 7"});
  copy.write("tokenizer.json", R"({"added_tokens": {"a": 1}})");
  refuse({"tokenizer.json", "added_tokens", "not a list"});
  copy.remove("tokenizer.json");
  for (const char* name : {"bad_words_ids", "suppress_tokens"}) {
    copy.set("generation_config.json", name, 5);
    refuse({"generation_config.json", std::string("sets ") + name + " to 5, expected a list"});
  }
  copy.set("generation_config.json", "early_stopping", "sometimes");
  refuse({"generation_config.json", "early_stopping", "true or false"});
  // As older files name it.
  copy.set("tokenizer_config.json", "unk_token", {{"__type", "AddedToken"}, {"content", "<unk>"}});
  CHECK(import_huggingface<float>(copy.path(), {"en", "de", {}}).tokenizers.source->unknown_id() == 3);
}

TEST_CASE("a list of very many special tokens is read in linear time") {
  if (!has_subword_tokenizer()) return;
  const DamagedCopy copy("hf_m2m100_implied");
  nlohmann::json tokens = nlohmann::json::array();
  for (int i = 0; i < 300000; ++i) tokens.push_back("__zu__");
  copy.write("special_tokens_map.json", nlohmann::json{{"additional_special_tokens", tokens}}.dump());
  CHECK(import_huggingface<float>(copy.path(), {"en", "zu", {}}).description.text.target_prefix.size() == 1);
}
