#include "eigenformer/io/huggingface/huggingface.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/io/import_checkpoint.hpp"
#include "folders.hpp"
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
             {"hf_marian_unequal", {}},
             {"hf_marian_separate", {}},
             {"hf_mbart", {"en_XX", "de_DE", {}}},
             {"hf_mbart50", {"en_XX", "de_DE", {}}},
             {"hf_m2m100", {"en", "de", {}}},
             {"hf_m2m100_implied", {"en", "de", {}}},
             {"hf_nllb", {"eng_Latn", "deu_Latn", {}}},
             {"hf_t5", {{}, {}, "translate to German: "}},
             {"hf_mt5", {{}, {}, "translate to German: "}}};
  }
  if (has_icu_tokenizers()) found.insert(found.end(), {{"hf_bart", {}}, {"hf_bart_unequal", {}}});
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
  CHECK(greedy(model, sources, reference.json.at("max_length")) ==
        reference.json.at("greedy").get<std::vector<Ids>>());
  check_beams(model, reference, sources);
}

}  // namespace

TEST_CASE("Hugging Face models give transformers' ids, logits, greedy and beam results") {
  for (const Family& family : families()) check_family<float>(family, 1e-5);
}

TEST_CASE("lines are sentences by the family: not for BART, and for T5 only in its translation tasks") {
  const auto are_sentences = [](const Family& family) {
    return import_huggingface<float>(CheckpointReference(family.name).folder, family.options)
        .description.text.lines_are_sentences;
  };
  for (const Family& family : families()) {
    CAPTURE(family.name);
    const std::string name = family.name;
    CHECK(are_sentences(family) == !name.starts_with("hf_bart"));
    if (name.ends_with("t5")) CHECK_FALSE(are_sentences({family.name, {{}, {}, "summarize: "}}));
  }
}

TEST_CASE("Hugging Face models load as double too") {
  if (!has_subword_tokenizer()) return;
  check_family<double>({"hf_marian", {}}, 1e-6);
  // transformers computes T5's norms and softmax in float32.
  check_family<double>({"hf_t5_buckets", {{}, {}, "translate to German: "}}, 2e-5);
}

TEST_CASE("an imported Hugging Face model is saved as a model folder and translates the same") {
  for (const Family& family : families()) {
    CAPTURE(family.name);
    const CheckpointReference reference(family.name);
    const auto model = import_checkpoint<float>(reference.folder, family.options);
    TemporaryFolder folder;
    save_model_folder(folder.path(), model.model, model.tokenizers, nlohmann::json::object(),
                      WeightFormat::float32, model.description.text);
    const auto loaded = load_model_folder<float>(folder.path());
    CHECK(loaded.description.text == model.description.text);
    SearchOptions options = search_options(model.description.text);
    options.beam_size = 1;
    options.max_length = 13;
    const auto lines = reference.json.at("lines").get<std::vector<std::string>>();
    const auto translations = translate(loaded, lines, options);
    CHECK(translations == translate(model, lines, options));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      Ids ids = reference.json.at("greedy").at(i).get<Ids>();
      std::erase(ids, model.tokenizers.target->unknown_id());
      CHECK(translations[i] == model.tokenizers.target->decode(ids));
    }
  }
}

namespace {

// What transformers wrote that model with, and what config.json says of tying; nothing: the field is absent.
struct Tied {
  std::string version;
  nlohmann::json tie_word_embeddings{};
  nlohmann::json scale_decoder_outputs{};
};

// The logits of a copy, divided by the reference's: of one tied table, with scaled logits for T5 and without
// for mT5.
double logits_factor(const DamagedCopy& copy, const Tied& tied) {
  nlohmann::json config = nlohmann::json::parse(copy.read("config.json"));
  for (const auto& [name, value] : {std::pair{"tie_word_embeddings", tied.tie_word_embeddings},
                                    std::pair{"scale_decoder_outputs", tied.scale_decoder_outputs}}) {
    config.erase(name);
    if (!value.is_null()) config[name] = value;
  }
  config["transformers_version"] = tied.version;
  copy.write("config.json", config.dump());
  const auto model = import_huggingface<float>(copy.path(), {.source_text = "translate to German: "});
  const auto reference = nlohmann::json::parse(copy.read("reference.json"));
  const Tensor<float> logits = batch_logits(model.model, reference.at("sources").get<std::vector<Ids>>(),
                                            reference.at("targets").get<std::vector<Ids>>())[1];
  const auto expected = SafetensorsFile::open(copy / "reference.safetensors").tensor<float>("logits.1");
  const double factor = static_cast<double>(logits.data()[0]) / static_cast<double>(expected.data()[0]);
  for (index_t i = 0; i < logits.numel(); ++i) {
    CHECK(static_cast<double>(logits.data()[i]) ==
          doctest::Approx(factor * static_cast<double>(expected.data()[i])).epsilon(1e-3));
  }
  return factor;
}

// Writes a second table into the weights: twice the first.
void add_head(const DamagedCopy& copy) {
  SafetensorsWriter all;
  {
    const auto file = SafetensorsFile::open(copy / "model.safetensors");
    for (const std::string& name : file.names()) all.add(name, file.tensor<float>(name).clone());
    Tensor<float> head = file.tensor<float>("shared.weight").clone();
    for (index_t i = 0; i < head.numel(); ++i) head.data()[i] *= 2;
    all.add("lm_head.weight", head);
  }
  all.save(copy / "model.safetensors");
}

}  // namespace

TEST_CASE("tie_word_embeddings of T5 and mT5 is read as transformers reads it") {
  if (!has_subword_tokenizer()) return;
  const doctest::Approx one(1), two(2), root(4);  // d_model is 16
  {
    const DamagedCopy t5("hf_t5");
    CHECK(logits_factor(t5, {"4.56.2"}) == one);
    CHECK(logits_factor(t5, {"4.56.2", true}) == one);
    CHECK(logits_factor(t5, {"5.23.0", true, true}) == one);
    CHECK(logits_factor(t5, {"5.23.0", true, false}) == root);
    CHECK(logits_factor(t5, {"5.23.0"}) == one);
    // transformers would make up a table.
    check_refused([&] { (void)logits_factor(t5, {"4.56.2", false}); }, {"missing: lm_head.weight"});
    add_head(t5);
    CHECK(logits_factor(t5, {"4.56.2"}) == one);
    CHECK(logits_factor(t5, {"4.56.2", true}) == one);
    CHECK(logits_factor(t5, {"4.56.2", false}) == doctest::Approx(8));
    CHECK(logits_factor(t5, {"5.23.0", true, true}) == two);
    CHECK(logits_factor(t5, {"5.23.0", true, false}) == doctest::Approx(8));
  }
  const DamagedCopy mt5("hf_mt5");
  CHECK(logits_factor(mt5, {"5.23.0", true}) == one);
  CHECK(logits_factor(mt5, {"4.56.2", true}) == doctest::Approx(0.25));
  check_refused([&] { (void)logits_factor(mt5, {"4.56.2"}); }, {"missing: lm_head.weight"});
  add_head(mt5);
  CHECK(logits_factor(mt5, {"4.56.2"}) == two);
  CHECK(logits_factor(mt5, {"4.56.2", true}) == doctest::Approx(0.25));
  CHECK(logits_factor(mt5, {"4.56.2", false}) == two);
  CHECK(logits_factor(mt5, {"5.23.0", true}) == two);
}

TEST_CASE("Marian with separate embeddings needs the vocabulary of the target language") {
  DamagedCopy copy("hf_marian_separate");
  copy.remove("target_vocab.json");
  CHECK_THROWS_WITH_AS((void)import_huggingface<float>(copy.path()),
                       doctest::Contains("has no target_vocab.json"), IoError);
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
  refuse({"num_heads, which is 7"});
  copy.set("config.json", "activation_function", "swoosh");
  refuse({"activation_function", "swoosh"});
  copy.write("config.json", config.substr(0, config.size() / 2));
  refuse({"config.json", "not JSON"});
  for (const std::size_t size : {std::size_t{3}, std::size_t{500}, weights.size() - 1}) {
    copy.write("model.safetensors", weights.substr(0, size));
    refuse({"model.safetensors"});
  }
  copy.remove("model.safetensors");
  refuse({"no model.safetensors"});
  copy.write("tf_model.h5", "x");
  refuse({"no model.safetensors", "tf_model.h5 holds TensorFlow weights", "from_tf=True"});
  copy.write("pytorch_model.bin", "x");
  refuse({"no model.safetensors", "pytorch_model.bin holds PyTorch weights",
          "python3 -c \"import transformers;",
          "AutoModelForSeq2SeqLM.from_pretrained('" + copy.path().string() + "').save_pretrained("});
  copy.write("model.safetensors", weights);

  const std::string vocabulary = copy.read("vocab.json"), source = copy.read("source.spm");
  copy.set("vocab.json", "one too many", 5000);
  refuse({"vocab.json", "5000", "rows"});
  copy.write("vocab.json", "{\"<unk>\": 1, \"a\": 2}");
  refuse({"which config.json uses as a special token"});
  copy.write("vocab.json", "[]");
  refuse({"vocab.json", "object"});
  copy.write("vocab.json", vocabulary);
  copy.write("source.spm", source.substr(0, 20));
  refuse({"source.spm'", "truncated or not a SentencePiece model: 20 bytes"});
  copy.write("source.spm", "");
  refuse({"source.spm'", "is empty, expected a SentencePiece model"});
  copy.remove("source.spm");
  refuse({"SentencePiece", "source.spm"});
  copy.remove("config.json");
  check_refused([&] { (void)import_checkpoint<float>(copy.path()); }, {"not a checkpoint", "model.bin"});
  check_refused([&] { (void)import_checkpoint<float>(copy / "nowhere"); }, {"nowhere", "does not exist"});
}

TEST_CASE("ids outside the vocabulary and settings that no search can have are refused by file and name") {
  if (!has_subword_tokenizer()) return;
  DamagedCopy copy("hf_marian");
  const std::string generation = copy.read("generation_config.json");
  const auto refuse = [&](const std::string& name, const nlohmann::json& value, const std::string& expected) {
    for (const char* file : {"generation_config.json", "config.json"}) {
      const std::string before = copy.read(file);
      if (file == std::string("config.json"))
        copy.write("generation_config.json", "{}");  // leaves the word to it
      copy.set(file, name, value);
      check_refused([&] { (void)import_huggingface<float>(copy.path()); },
                    {std::string("/") + file, "sets " + name + " to " + value.dump(), expected});
      copy.write(file, before);
      copy.write("generation_config.json", generation);
    }
  };
  for (const char* name : {"decoder_start_token_id", "eos_token_id", "forced_bos_token_id"}) {
    for (const nlohmann::json& id : {nlohmann::json(48), nlohmann::json(-1), nlohmann::json(4294967296)}) {
      refuse(name, id, "0 to 47");
    }
  }
  refuse("eos_token_id", {99, 0}, "0 to 47");
  refuse("num_beams", 0, "1 to 4096");
  refuse("num_beams", -3, "1 to 4096");
  refuse("num_beams", 4097, "1 to 4096");
  refuse("max_length", 0, "1 to 2147483647");
  refuse("max_new_tokens", -1, "1 to 2147483647");
  refuse("min_length", -1, "0 to 2147483647");
  refuse("no_repeat_ngram_size", -2, "0 to 2147483647");
  refuse("suppress_tokens", {3, 48}, "0 to 47");
  copy.set("generation_config.json", "num_beams", 4096);
  copy.set("generation_config.json", "eos_token_id", nlohmann::json::array({0, 99}));
  CHECK(import_huggingface<float>(copy.path()).description.text.search.at("beam_size") == 4096);
}

TEST_CASE("what is not a checkpoint is refused as what it is") {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::filesystem::path& path, const std::vector<std::string>& words) {
    check_refused([&] { (void)import_checkpoint<float>(path); }, words);
  };
  write_bytes(folder / "config.json", "{}");
  refuse(folder / "config.json", {"config.json' is not a folder"});
  write_bytes(folder / "source_vocabulary.json", "[]");
  refuse(folder.path(), {"but no model.bin", "CTranslate2's source_vocabulary.json"});
  refuse(fixtures_folder() / "translation_model", {"is an eigenformer model already"});
  const TemporaryFolder pickled;
  write_bytes(pickled / "pytorch_model.bin", "x");
  refuse(pickled.path(), {"neither model.safetensors nor", "pytorch_model.bin holds PyTorch weights",
                          "Convert it with", "config.json"});
  DamagedCopy bart("hf_bart");
  bart.remove("vocab.json");
  bart.write("tokenizer.json", "{}");
  refuse(bart.path(), {"tokenizer.json' has no 'model'", "vocab.json with merges.txt"});
}

TEST_CASE("settings of generation_config.json are used, or listed in a warning") {
  if (!has_subword_tokenizer()) return;
  DamagedCopy copy("hf_m2m100");
  std::vector<std::string> told;
  ImportOptions options{"en", "de", {}};
  options.warn = [&](const std::string& what) { told.push_back(what); };
  const auto import = [&] {
    told.clear();
    return import_huggingface<float>(copy.path(), options).description;
  };
  CHECK_FALSE(import().text.search.contains("beam_size"));
  CHECK(told.empty());
  const nlohmann::json done = {{"num_beams", 5},           {"max_length", 41},
                               {"min_length", 4},          {"length_penalty", 0.7},
                               {"early_stopping", true},   {"no_repeat_ngram_size", 3},
                               {"suppress_tokens", {7}},   {"bad_words_ids", {{9}}},
                               {"forced_eos_token_id", 2}, {"repetition_penalty", 1.0},
                               {"do_sample", false},       {"num_beam_groups", 1},
                               {"temperature", 0.3},       {"use_cache", true}};
  for (const auto& [name, value] : done.items()) copy.set("generation_config.json", name, value);
  const ModelDescription description = import();
  CHECK(told.empty());
  const SearchOptions search = search_options(description.text);
  CHECK(search.beam_size == 5);
  CHECK(search.max_length == 40);  // theirs counts the start, and both count the language
  CHECK(search.min_length == 2);
  CHECK(search.length_penalty == 0.7);
  CHECK(search.early_stopping);
  CHECK(search.force_end);
  CHECK(search.no_repeat_ngram_size == 3);
  CHECK(search.forbidden_ids == Ids{9, 7});
  CHECK(detail::conventions_from_json(detail::conventions_to_json(description.text), 100000, 100000) ==
        description.text);
  copy.set("generation_config.json", "max_new_tokens", 21);
  copy.set("generation_config.json", "min_new_tokens", 8);
  CHECK(import().text.search.at("max_length") == 21);
  CHECK(import().text.search.at("min_length") == 7);

  const nlohmann::json told_of = {{"do_sample", true},
                                  {"repetition_penalty", 1.2},
                                  {"num_beam_groups", 2},
                                  {"diversity_penalty", 0.5},
                                  {"encoder_no_repeat_ngram_size", 2},
                                  {"early_stopping", "never"},
                                  {"begin_suppress_tokens", {5}},
                                  {"num_return_sequences", 3},
                                  {"token_healing", true},
                                  {"cache_implementation", "quantized"},
                                  {"of_the_future", 1},
                                  {"stop_strings", {"a"}},
                                  {"eos_token_id", {2, 5}},
                                  {"forced_eos_token_id", 6},
                                  {"exponential_decay_length_penalty", {3, 1.5}}};
  const std::string before = copy.read("generation_config.json");
  for (const auto& entry : told_of.items()) {
    const std::string& name = entry.key();
    const nlohmann::json& value = entry.value();
    CAPTURE(name);
    copy.set("generation_config.json", name, value);
    (void)import();
    REQUIRE(told.size() == 1);
    CHECK(told[0].find("generation_config.json' sets " + name + " to " + value.dump()) != std::string::npos);
    copy.write("generation_config.json", before);
  }
  // What changes no result, or none without do_sample.
  const nlohmann::json without_effect = {{"cache_implementation", "static"},
                                         {"use_mtp", true},
                                         {"top_p", 0.9},
                                         {"max_cache_len", 70},
                                         {"of_the_future", nullptr},
                                         {"_private", 1},
                                         {"num_return_sequences", 1}};
  for (const auto& [name, value] : without_effect.items()) copy.set("generation_config.json", name, value);
  (void)import();
  CHECK(told.empty());
  copy.write("generation_config.json", before);
  nlohmann::json words = nlohmann::json::array();
  words.push_back({3, 4});
  copy.set("generation_config.json", "bad_words_ids", words);
  (void)import();
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("forbids [3,4] in bad_words_ids") != std::string::npos);
  // generate() leaves the end symbol out of bad_words_ids, and not out of suppress_tokens.
  const std::int32_t end = description.text.end_id;
  copy.set("generation_config.json", "bad_words_ids", {{end}, {9}});
  CHECK(import().text.forbidden_ids == Ids{9, 7});
  copy.set("generation_config.json", "suppress_tokens", {7, end});
  CHECK(import().text.forbidden_ids == Ids{9, 7, end});
  CHECK(told.empty());
  copy.set("generation_config.json", "num_beams", "many");
  check_refused([&] { (void)import(); }, {"generation_config.json", "num_beams"});
}

TEST_CASE("the old name for a forced begin symbol counts in config.json and generation_config.json") {
  if (!has_subword_tokenizer()) return;
  DamagedCopy copy("hf_marian");
  const auto prefix = [&] { return import_huggingface<float>(copy.path()).description.text.target_prefix; };
  CHECK(prefix().empty());
  copy.set("generation_config.json", "force_bos_token_to_be_generated", true);
  copy.set("generation_config.json", "bos_token_id", 3);
  CHECK(prefix() == Ids{3});
  copy.remove("generation_config.json");
  CHECK(prefix().empty());
  copy.set("config.json", "force_bos_token_to_be_generated", true);
  copy.set("config.json", "bos_token_id", 4);
  CHECK(prefix() == Ids{4});
}

TEST_CASE("special tokens that a text spells are matched as in transformers, also without a tokenizer.json") {
  if (!has_icu_tokenizers()) return;
  DamagedCopy copy("hf_bart");
  const std::vector<std::string> lines = {"see <mask> the", "the<mask>dog", "</s> the <s><pad> dog",
                                          "a<unk>b", "a \t<mask>  b"};
  const auto ids = [&] { return read_lines_as_ids(import_huggingface<float>(copy.path()), lines); };
  const std::vector<Ids> expected = {{0, 86, 262, 290, 265, 2},
                                     {0, 270, 290, 266, 74, 2},
                                     {0, 2, 265, 224, 0, 1, 275, 2},
                                     {0, 68, 3, 69, 2},
                                     {0, 68, 290, 224, 224, 69, 2}};
  CHECK(ids() == expected);
  copy.write("special_tokens_map.json", R"({"mask_token": {"content": "<mask>", "lstrip": true}})");
  CHECK(ids() == expected);
  // The spaces before the mask stay.
  copy.write("tokenizer_config.json",
             R"({"added_tokens_decoder": {"290": {"content": "<mask>", "lstrip": false, "special": true}}})");
  CHECK(ids()[0] == Ids{0, 86, 262, 224, 290, 265, 2});
  for (const char* field : {"special", "lstrip"}) {
    copy.write("tokenizer_config.json", R"({"added_tokens_decoder": {"290": {"content": "<mask>", ")" +
                                            std::string(field) + R"(": "yes"}}})");
    check_refused([&] { (void)ids(); }, {"tokenizer_config.json", "<mask>", field, "true or false"});
  }
}

namespace {

struct TextsFamily {
  std::string name;
  ImportOptions options;
};

// Those with a texts.json; tests/fixtures/scripts/checkpoints_huggingface.py tells what it holds.
std::vector<TextsFamily> families_with_texts() {
  if (!has_subword_tokenizer()) return {};
  return {{"hf_marian", {}},
          {"hf_m2m100", {"en", "de", {}}},
          {"hf_m2m100_implied", {"en", "de", {}}},
          {"hf_nllb", {"eng_Latn", "deu_Latn", {}}},
          {"hf_t5", {{}, {}, "translate to German: "}}};
}

nlohmann::json texts_of(const std::string& name) {
  return nlohmann::json::parse(
      detail::read_text_file(fixtures_folder() / "checkpoints" / name / "texts.json"));
}

}  // namespace

TEST_CASE("special tokens that a text spells are matched as by transformers' SentencePiece tokenizers") {
  for (const TextsFamily& family : families_with_texts()) {
    CAPTURE(family.name);
    TemporaryFolder folder;
    const auto copy = folder.path() / family.name;
    std::filesystem::copy(CheckpointReference(family.name).folder, copy);
    // The lines' ids are of a tokenizer with 5 sentinels, not T5's usual 100.
    if (family.name == "hf_t5") detail::write_file(copy / "tokenizer_config.json", R"({"extra_ids": 5})");
    const auto model = import_huggingface<float>(copy, family.options);
    model.tokenizers.source->save(folder.path());
    const auto loaded = load_tokenizer(model.tokenizers.source->kind(), folder.path());
    const nlohmann::json texts = texts_of(family.name);
    for (const nlohmann::json& special : texts.at("special")) {
      const auto line = special.at("line").get<std::string>();
      // T5's tokenizer has no second end symbol after one that a text ends with.
      if (family.name == "hf_t5" && line.ends_with("</s>")) continue;
      CAPTURE(line);
      CHECK(read_lines_as_ids(model, {line}) == std::vector<Ids>{special.at("ids").get<Ids>()});
      CHECK(loaded->encode(line) == model.tokenizers.source->encode(line));
    }
  }
}

TEST_CASE("unknown tokens are left out of a translation as by transformers, or kept by an option") {
  for (const TextsFamily& family : families_with_texts()) {
    CAPTURE(family.name);
    const CheckpointReference reference(family.name);
    const nlohmann::json texts = texts_of(family.name);
    const auto model = import_huggingface<float>(reference.folder, family.options);
    const TextTranslator translator(model);
    for (const nlohmann::json& decoded : texts.at("decoded")) {
      const auto ids = decoded.at("ids").get<Ids>();
      CHECK(translator.text_of({}, ids) == decoded.at("text").get<std::string>());
    }
    const auto lines = reference.json.at("lines").get<std::vector<std::string>>();
    TextTranslatorOptions options = text_translator_options(model.description);
    options.search.beam_size = 1;
    options.search.max_length = reference.json.at("max_length");
    const auto texts_with = [&] {
      std::vector<std::string> found;
      for (const Translation& t : translator.with_options(options).translate(lines)) found.push_back(t.text);
      return found;
    };
    const auto dropped = texts_with();
    CHECK(dropped == texts.at("translations").get<std::vector<std::string>>());
    options.unknown = UnknownTokens::drop;
    CHECK(texts_with() == dropped);
    options.unknown = UnknownTokens::keep;
    std::string kept;
    for (const std::string& text : texts_with()) kept += text;
    bool unknown = false;
    for (const nlohmann::json& ids : reference.json.at("greedy")) {
      const auto found = ids.get<Ids>();
      unknown = unknown || std::count(found.begin(), found.end(), model.tokenizers.target->unknown_id()) > 0;
    }
    CHECK((kept.find("\xE2\x81\x87") != std::string::npos) == unknown);
    const Ids one = {model.tokenizers.target->unknown_id()};
    CHECK(translator.with_options(options).text_of({}, one) == "\xE2\x81\x87");
    CHECK(translator.text_of({}, one).empty());
  }
}

TEST_CASE("the maximum length counts a forced first token, as transformers' max_new_tokens") {
  for (const TextsFamily& family : families_with_texts()) {
    CAPTURE(family.name);
    const CheckpointReference reference(family.name);
    const auto model = import_huggingface<float>(reference.folder, family.options);
    const auto sources = reference.json.at("sources").get<std::vector<Ids>>();
    const nlohmann::json texts = texts_of(family.name);
    for (const nlohmann::json& of_length : texts.at("short")) {
      const index_t most = of_length.at("max_length");
      CAPTURE(most);
      CHECK(greedy(model, sources, most) == of_length.at("greedy").get<std::vector<Ids>>());
      SearchOptions options = search_options(model.description.text);
      options.beam_size = 3;
      options.max_length = most;
      const auto found =
          generate(model.model, Context<float>::inference(), std::span<const Ids>(sources), options);
      for (std::size_t i = 0; i < sources.size(); ++i) {
        REQUIRE(found[i].size() == 1);
        CHECK(found[i][0].ids == of_length.at("beam").at(i).get<Ids>());
      }
    }
  }
}

TEST_CASE("only added and special tokens are languages") {
  if (!has_subword_tokenizer()) return;
  const auto refuse = [](const std::string& name, const std::string& from, const std::string& to,
                         const std::vector<std::string>& words) {
    CAPTURE(name);
    CAPTURE(from);
    CAPTURE(to);
    const auto folder = fixtures_folder() / "checkpoints" / name;
    for (const std::string& word : words) {
      CHECK_THROWS_WITH_AS((void)import_huggingface<float>(folder, {from, to, {}}),
                           doctest::Contains(word.c_str()), ValueError);
    }
  };
  // Pieces of words, punctuation and special tokens with another role.
  for (const char* piece : {"d", ".",
                            "\xE2\x96\x81"
                            "d",
                            "<pad>", "</s>", "<s>", "<unk>", "<mask>"}) {
    const std::string quoted = "has no language '" + std::string(piece) + "'";
    refuse("hf_nllb", piece, "deu_Latn", {quoted, "deu_Latn, eng_Latn"});
    refuse("hf_nllb", "eng_Latn", piece, {quoted});
    refuse("hf_m2m100", piece, "de", {quoted, "__de__"});
    refuse("hf_m2m100_implied", "en", piece, {quoted});
    refuse("hf_mbart", piece, "de_DE", {quoted, "ar_AR"});
    refuse("hf_mbart50", "en_XX", piece, {quoted, "fr_XX"});
  }
  refuse("hf_nllb", "en", "deu_Latn", {"'en', expected eng_Latn or one of 1 others"});
  refuse("hf_mbart", "en_XX", "de", {"'de', expected de_DE or one of 2 others"});
  refuse("hf_m2m100_implied", "en", "deu_Latn", {"'deu_Latn', expected __de__ or one of 99 others"});
  const auto prefix = [](const std::string& name, const std::string& from, const std::string& to) {
    return import_huggingface<float>(fixtures_folder() / "checkpoints" / name, {from, to, {}})
        .description.text.target_prefix;
  };
  CHECK(prefix("hf_m2m100_implied", "__en__", "__de__") == prefix("hf_m2m100_implied", "en", "de"));
}

TEST_CASE("languages that no file of a folder lists are those of the tokenizer's class") {
  if (!has_subword_tokenizer()) return;
  DamagedCopy copy("hf_m2m100_implied");
  const auto import = [&](const std::string& to) {
    return import_huggingface<float>(copy.path(), {"en", to, {}}).description.text;
  };
  const Ids german = import("de").target_prefix;
  CHECK(german == Ids{nlohmann::json::parse(copy.read("generation_config.json"))
                          .at("forced_bos_token_id")
                          .get<std::int32_t>()});
  // A list in a file stands for the same ids, in any order.
  copy.write("special_tokens_map.json", R"({"additional_special_tokens": ["__zu__", "__de__", "__af__"]})");
  CHECK(import("de").target_prefix == german);
  copy.write("special_tokens_map.json", "{}");
  copy.set("tokenizer_config.json", "language_codes", "wmt21");
  CHECK(import("en").target_prefix == Ids{german[0] - 16});
  CHECK(import("de").target_prefix == Ids{german[0] - 9});
  CHECK_THROWS_AS((void)import("af"), ValueError);
  copy.set("tokenizer_config.json", "language_codes", "iwslt");
  check_refused([&] { (void)import("de"); }, {"tokenizer_config.json", "language_codes 'iwslt'", "wmt21"});
  // Too few rows for the hundred languages.
  DamagedCopy other("hf_m2m100");
  other.write("special_tokens_map.json", "{}");
  CHECK_THROWS_WITH_AS((void)import_huggingface<float>(other.path(), {"en", "de", {}}),
                       doctest::Contains("list no languages"), ValueError);

  const auto pieces = CheckpointReference("hf_mbart").folder / "sentencepiece.bpe.model";
  for (const auto& [codes, count] : {std::pair{"mbart", 25}, std::pair{"mbart50", 52}}) {
    detail::HuggingFaceVocabulary vocabulary(pieces.parent_path(), 200);
    const auto own = detail::fairseq_pieces(pieces);
    vocabulary.put(pieces, own);
    vocabulary.imply(detail::implied_languages(codes));
    CHECK(vocabulary.languages().size() == static_cast<std::size_t>(count));
    CHECK(detail::find_language(pieces, vocabulary.languages(), "de_DE") ==
          static_cast<std::int32_t>(own.size()) + 2);
  }
}

TEST_CASE("settings that config.json leaves out have the defaults of their model type") {
  if (!has_subword_tokenizer()) return;
  DamagedCopy copy("hf_m2m100");
  const auto options = [&] {
    return import_huggingface<float>(copy.path(), {"en", "de", {}}).description.model;
  };
  copy.set("config.json", "scale_embedding", nullptr);
  copy.set("config.json", "activation_function", nullptr);
  CHECK(options().scale_embedding);
  CHECK(options().layer.activation == Activation::relu);
  DamagedCopy other("hf_mbart");
  other.set("config.json", "scale_embedding", nullptr);
  other.set("config.json", "activation_function", nullptr);
  const auto mbart = import_huggingface<float>(other.path(), {"en_XX", "de_DE", {}}).description.model;
  CHECK(!mbart.scale_embedding);
  CHECK(mbart.layer.activation == Activation::gelu);
}

TEST_CASE("a model of several languages wants them named") {
  if (!has_subword_tokenizer()) return;
  const std::filesystem::path folder = CheckpointReference("hf_nllb").folder;
  CHECK_THROWS_AS((void)import_huggingface<float>(folder), ValueError);
  CHECK_THROWS_AS((void)import_huggingface<float>(folder, {"eng_Latn", "xyz_Latn", {}}), ValueError);
  // Others have no place for them: OPUS-MT's models of several languages take a token in the text.
  for (const char* name : {"hf_marian", "hf_t5"}) {
    const std::filesystem::path one = CheckpointReference(name).folder;
    for (const ImportOptions& options : {ImportOptions{"en", {}, {}}, ImportOptions{{}, "de", {}}}) {
      CHECK_THROWS_WITH_AS((void)import_huggingface<float>(one, options), doctest::Contains("source_text"),
                           ValueError);
    }
  }
}
