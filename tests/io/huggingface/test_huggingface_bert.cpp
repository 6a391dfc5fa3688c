#include "eigenformer/io/huggingface/huggingface_bert.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "io/checkpoint_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE(
    "BERT gives transformers' ids, token vectors and mean vectors, several texts of different length in one "
    "batch") {
  if (!has_icu_tokenizers()) return;
  const CheckpointReference reference("hf_bert");
  const auto bert = import_bert<double>(reference.folder);
  const auto lines = reference.json.at("lines").get<std::vector<std::string>>();
  const auto expected = reference.json.at("sources").get<std::vector<Ids>>();
  const Tensor<double> means = bert.vectors(lines);
  const Tensor<float> floats = import_bert<float>(reference.folder).vectors(lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CAPTURE(lines[i]);
    CHECK(bert.ids(lines[i]) == expected[i]);
    const auto n = static_cast<index_t>(expected[i].size());
    const auto hidden =
        bert.model(Context<double>::inference(), Tensor<std::int32_t>::from(Shape{1, n}, expected[i]))
            .value();
    CHECK(logits_error(hidden.reshape(Shape{n, 16}),
                       reference.tensors.tensor<double>("hidden." + std::to_string(i))) <= 1e-6);
    const auto row = static_cast<index_t>(i);
    CHECK(logits_error(means.rows(row, 1).reshape(Shape{16}),
                       reference.tensors.tensor<double>("mean." + std::to_string(i))) <= 1e-6);
    CHECK(logits_error(floats.rows(row, 1).reshape(Shape{16}),
                       reference.tensors.tensor<float>("mean." + std::to_string(i))) <= 1e-5);
  }
  CHECK(bert.vectors({}).shape() == Shape{0, 16});
  CHECK(bert.ids(std::string(500, '!')).size() == 40);
}

TEST_CASE("what does not fit in a BERT folder is refused with its file and what is wrong") {
  if (!has_icu_tokenizers()) return;
  DamagedCopy copy("hf_bert");
  const std::string config = copy.read("config.json"), vocabulary = copy.read("vocab.txt");
  const auto refuse = [&](const std::vector<std::string>& words) {
    check_refused([&] { (void)import_bert<float>(copy.path()); }, words);
    copy.write("config.json", config);
  };
  copy.set("config.json", "model_type", "roberta");
  refuse({"config.json", "roberta"});
  copy.set("config.json", "intermediate_size", 25);
  refuse({"model.safetensors", "wrong shape", "intermediate.dense.weight"});
  copy.set("config.json", "num_hidden_layers", 1);
  refuse({"unexpected", "encoder.layer.1."});
  copy.set("config.json", "max_position_embeddings", 1);
  refuse({"max_position_embeddings 1", "at least 2"});
  copy.write("vocab.txt", vocabulary + "more\n");
  refuse({"vocab.txt", "rows"});
  copy.write("vocab.txt", "[UNK]\n");
  refuse({"[CLS]"});
}

TEST_CASE("special tokens that a text spells are matched as in transformers' BertTokenizer") {
  if (!has_icu_tokenizers()) return;
  DamagedCopy copy("hf_bert");
  const auto bert = import_bert<float>(copy.path());
  CHECK(bert.ids("a [MASK] tree") == Ids{2, 12, 4, 77, 3});
  CHECK(bert.ids("[CLS] a[SEP]") == Ids{2, 2, 12, 3, 3});
  CHECK(bert.ids("the[MASK]dog [UNK]") == Ids{2, 75, 4, 65, 1, 3});
  copy.write("added_tokens.json", R"({"tree": 77})");
  CHECK(import_bert<float>(copy.path()).ids("atree") == Ids{2, 12, 77, 3});
  copy.remove("added_tokens.json");
  copy.set("tokenizer_config.json", "added_tokens_decoder",
           {{"77", {{"content", "tree"}, {"special", false}, {"normalized", true}}}});
  check_refused([&] { (void)import_bert<float>(copy.path()); }, {"vocab.txt", "'tree'", "normalised"});
}

TEST_CASE("settings of BERT's tokenizer that are not supported are refused by name") {
  if (!has_icu_tokenizers()) return;
  DamagedCopy copy("hf_bert");
  const std::string config = copy.read("tokenizer_config.json");
  for (const char* field : {"strip_accents", "tokenize_chinese_chars", "do_basic_tokenize"}) {
    copy.set("tokenizer_config.json", field, true);
    (void)import_bert<float>(copy.path());
    copy.set("tokenizer_config.json", field, false);
    check_refused([&] { (void)import_bert<float>(copy.path()); }, {"tokenizer_config.json", field, "false"});
    copy.write("tokenizer_config.json", config);
  }
  copy.set("tokenizer_config.json", "do_lower_case", false);
  copy.set("tokenizer_config.json", "strip_accents", false);
  CHECK(import_bert<float>(copy.path()).ids("a tree") == Ids{2, 12, 77, 3});
}
