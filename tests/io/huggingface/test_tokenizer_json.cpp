#include "eigenformer/io/huggingface/tokenizer_json.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "eigenformer/io/huggingface/huggingface.hpp"
#include "eigenformer/io/huggingface/huggingface_bert.hpp"
#include "folders.hpp"
#include "io/checkpoint_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const std::vector<std::string> names = {"bart",    "bert", "bert_cased", "first",   "mbart",
                                        "mbart50", "nllb", "t5",         "t5_rules"};

std::filesystem::path fixtures() { return fixtures_folder() / "tokenizers"; }

// A folder's tokenizer.json, without the configuration of a model.
std::shared_ptr<const Tokenizer> read_tokenizer(const std::filesystem::path& folder, index_t size) {
  const auto json = detail::TokenizerJson::open(folder / "tokenizer.json");
  detail::HuggingFaceVocabulary vocabulary(folder, size);
  vocabulary.read(json);
  vocabulary.read_added();
  return json.tokenizer(vocabulary.finish(json.unknown(), {}));
}

std::string without(std::string text, const std::string& part) {
  for (std::size_t at; (at = text.find(part)) != std::string::npos;) text.erase(at, part.size());
  return text;
}

}  // namespace

TEST_CASE("a tokenizer.json gives the ids of the tokenizers package, and so does what is saved of it") {
  if (!has_icu_tokenizers()) return;
  const nlohmann::json expected = nlohmann::json::parse(detail::read_text_file(fixtures() / "texts.json"));
  const auto texts = expected.at("texts").get<std::vector<std::string>>();
  for (const std::string& name : names) {
    CAPTURE(name);
    const nlohmann::json& of = expected.at(name);
    const auto tokenizer = read_tokenizer(fixtures() / name, of.at("size").get<index_t>());
    TemporaryFolder folder;
    tokenizer->save(folder.path());
    const auto loaded = load_tokenizer(tokenizer->kind(), folder.path());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(i);
      CAPTURE(texts[i]);
      const auto ids = of.at("ids").at(i).get<Ids>();
      CHECK(tokenizer->encode(texts[i]) == ids);
      CHECK(loaded->encode(texts[i]) == ids);
      CHECK(loaded->decode(ids) == tokenizer->decode(ids));
      // Theirs leaves unknown tokens out or spells them, and tidies the spaces of WordPiece up.
      if (name != "bert" && name != "bert_cased") {
        CHECK(without(tokenizer->decode(ids), "\xE2\x81\x87") ==
              without(of.at("decoded").at(i).get<std::string>(), "<unk>"));
      }
    }
    CHECK(tokenizer->encode("\xff\xfethe").size() >= 1);
  }
}

TEST_CASE("the template of a tokenizer.json says what stands around a text") {
  const nlohmann::json expected = nlohmann::json::parse(detail::read_text_file(fixtures() / "texts.json"));
  for (const std::string& name : names) {
    CAPTURE(name);
    const auto around = detail::TokenizerJson::open(fixtures() / name / "tokenizer.json").text_template();
    REQUIRE(around.has_value());
    const auto ids = expected.at(name).at("around").get<Ids>();
    REQUIRE(ids.size() > around->before.size() + around->after.size());
    CHECK(std::equal(around->before.begin(), around->before.end(), ids.begin()));
    CHECK(std::equal(around->after.rbegin(), around->after.rend(), ids.rbegin()));
  }
}

TEST_CASE("a tokenizer.json stands in for a checkpoint's other tokenizer files") {
  if (!has_icu_tokenizers() || !has_subword_tokenizer()) return;
  struct Case {
    std::string folder, json;
    std::vector<std::string> files;
    ImportOptions options;
  };
  const std::vector<Case> cases = {{"hf_t5", "t5", {"spiece.model"}, {{}, {}, "translate to German: "}},
                                   {"hf_bart", "bart", {"vocab.json", "merges.txt"}, {}}};
  for (const Case& c : cases) {
    CAPTURE(c.folder);
    const auto whole = import_huggingface<float>(CheckpointReference(c.folder).folder, c.options);
    DamagedCopy copy(c.folder);
    for (const std::string& file : c.files) copy.remove(file);
    copy.write("tokenizer.json", detail::read_text_file(fixtures() / c.json / "tokenizer.json"));
    const auto model = import_huggingface<float>(copy.path(), c.options);
    const auto lines = CheckpointReference(c.folder).json.at("lines").get<std::vector<std::string>>();
    CHECK(read_lines_as_ids(model, lines) ==
          CheckpointReference(c.folder).json.at("sources").get<std::vector<Ids>>());
    CHECK(translate(model, lines) == translate(whole, lines));
    TemporaryFolder folder;
    save_model_folder(folder.path(), model.model, model.tokenizers, {}, WeightFormat::float32,
                      model.description.text);
    CHECK(translate(load_model_folder<float>(folder.path()), lines) == translate(whole, lines));
  }
  DamagedCopy bert("hf_bert");
  bert.remove("vocab.txt");
  bert.write("tokenizer.json", detail::read_text_file(fixtures() / "bert/tokenizer.json"));
  const CheckpointReference reference("hf_bert");
  for (std::size_t i = 0; i < reference.json.at("lines").size(); ++i) {
    CHECK(import_bert<float>(bert.path()).ids(reference.json.at("lines").at(i)) ==
          reference.json.at("sources").at(i).get<Ids>());
  }
}

TEST_CASE("a model of several languages takes its language's place from the template") {
  if (!has_icu_tokenizers() || !has_subword_tokenizer()) return;
  DamagedCopy copy("hf_nllb");
  // The same size of vocabulary as the model's: pieces that are never used make up for the rest.
  nlohmann::json json = nlohmann::json::parse(detail::read_text_file(fixtures() / "nllb/tokenizer.json"));
  copy.remove("sentencepiece.bpe.model");
  const auto rows = nlohmann::json::parse(copy.read("config.json")).at("vocab_size").get<std::int64_t>();
  const auto find = [&](const std::string& token) {
    for (const nlohmann::json& added : json.at("added_tokens")) {
      if (added.at("content") == token) return added.at("id").get<std::int32_t>();
    }
    return -1;
  };
  const std::int32_t german = find("deu_Latn"), english = find("eng_Latn");
  REQUIRE(english < rows);
  copy.write("tokenizer.json", json.dump());
  for (const char* file : {"config.json", "generation_config.json"})
    copy.set(file, "forced_bos_token_id", german);
  const auto model = import_huggingface<float>(copy.path(), {"deu_Latn", "eng_Latn", {}});
  CHECK(model.description.text.source_prefix == Ids{german});
  CHECK(model.description.text.source_suffix == Ids{2});
  CHECK(model.description.text.target_prefix == Ids{english});
  std::swap(json["post_processor"]["single"][0], json["post_processor"]["single"][1]);
  std::swap(json["post_processor"]["single"][1], json["post_processor"]["single"][2]);
  copy.write("tokenizer.json", json.dump());
  const auto legacy = import_huggingface<float>(copy.path(), {"deu_Latn", "eng_Latn", {}});
  CHECK(legacy.description.text.source_prefix.empty());
  CHECK(legacy.description.text.source_suffix == Ids{2, german});
}

TEST_CASE("what a tokenizer.json holds beyond its family is refused by name") {
  if (!has_icu_tokenizers()) return;
  TemporaryFolder folder;
  const auto refuse = [&](const std::string& name, const std::string& place, const nlohmann::json& value,
                          const std::vector<std::string>& words) {
    CAPTURE(place);
    nlohmann::json json = nlohmann::json::parse(detail::read_text_file(fixtures() / name / "tokenizer.json"));
    json[nlohmann::json::json_pointer(place)] = value;
    write_bytes(folder / "tokenizer.json", json.dump());
    check_refused(
        [&] {
          (void)read_tokenizer(folder.path(), 400);
          (void)detail::TokenizerJson::open(folder / "tokenizer.json").text_template();
        },
        words);
  };
  refuse("t5", "/normalizer", {{"type", "NFKC"}}, {"tokenizer.json", "normalizer 'NFKC'", "Precompiled"});
  refuse("t5", "/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", ""}},
         {"Replace", "a+"});
  refuse("t5", "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAA"}},
         {"precompiled_charsmap", "base64"});
  refuse("t5", "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}},
         {"table of characters"});
  refuse("t5", "/pre_tokenizer", {{"type", "Digits"}}, {"pre_tokenizer 'Digits'"});
  refuse("t5", "/pre_tokenizer/pretokenizers/1/replacement", "_", {"replacement"});
  refuse("t5", "/decoder/type", "Fuse", {"decoder 'Fuse'"});
  refuse("t5", "/model/type", "WordLevel", {"WordLevel", "Unigram"});
  refuse("t5", "/model/byte_fallback", true, {"byte_fallback"});
  refuse("t5", "/model/unk_id", 5000, {"unk_id 5000"});
  refuse("t5", "/model/vocab/3/1", "x", {"piece", "score"});
  refuse("t5", "/model/vocab/5/0", "<pad>", {"<pad>", "twice"});
  refuse("t5", "/post_processor/type", "Other", {"post_processor 'Other'"});
  refuse("t5", "/post_processor/single/1/SpecialToken/id", "<s>", {"template"});
  refuse("t5", "/truncation", {{"max_length", 3}}, {"truncation"});
  refuse("nllb", "/model/dropout", 0.1, {"dropout", "0.1"});
  refuse("nllb", "/model/merges/0", nlohmann::json::array({"q", "r"}), {"'q'", "not in the vocabulary"});
  refuse("nllb", "/model/merges/0", 7, {"merge 7"});
  refuse("nllb", "/model/unk_token", "[unknown]", {"[unknown]"});
  refuse("nllb", "/model/vocab/<pad>", 0, {"id 0", "twice"});
  refuse("bart", "/pre_tokenizer/add_prefix_space", true, {"add_prefix_space"});
  refuse("bart", "/pre_tokenizer", {{"type", "ByteLevel"}}, {"add_prefix_space 'true'", "expected false"});
  refuse("bart", "/normalizer", {{"type", "NFC"}}, {"normalizer 'NFC'"});
  refuse("bert", "/normalizer/strip_accents", false, {"strip_accents"});
  refuse("bert", "/model/max_input_chars_per_word", 50, {"max_input_chars_per_word", "50"});
  refuse("bert", "/pre_tokenizer/type", "Whitespace", {"Whitespace"});
  refuse("bert", "/added_tokens/0/normalized", true, {"[PAD]", "normalised"});
  write_bytes(folder / "tokenizer.json", "{\"model\": ");
  check_refused([&] { (void)read_tokenizer(folder.path(), 400); }, {"tokenizer.json", "not JSON"});
}
