#include "eigenformer/io/ctranslate2/ctranslate2.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "eigenformer/io/huggingface/huggingface.hpp"
#include "io/checkpoint_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const std::vector<std::string> names = {
    "ct2_pre",    "ct2_post",     "ct2_float16",         "ct2_bfloat16",
    "ct2_int16",  "ct2_int8",     "ct2_learned",         "ct2_prefix",
    "ct2_shaw",   "ct2_rotary",   "ct2_rotary_adjacent", "ct2_embedding_norm",
    "ct2_scales", "ct2_version1", "ct2_unequal",         "ct2_version1_int16",
    "ct2_marian", "ct2_t5"};

ImportOptions languages_of(const std::string& name) {
  ImportOptions options;
  if (name == "ct2_prefix") options.target_language = "de";
  if (name == "ct2_t5") options.source_text = "translate to German: ";
  return options;
}

bool needs_sentencepiece(const std::string& name) {
  return name == "ct2_pre" || name == "ct2_prefix" || name == "ct2_marian" || name == "ct2_t5";
}

// The first `n` columns.
template <class T>
Tensor<T> columns(const Tensor<T>& x, index_t n) {
  Tensor<T> out(Shape{x.dim(0), n});
  for (index_t r = 0; r < x.dim(0); ++r) std::copy_n(x.data() + r * x.dim(1), n, out.data() + r * n);
  return out;
}

template <class T>
void check_model(const std::string& name, double tolerance) {
  CAPTURE(name);
  const CheckpointReference reference(name);
  const auto model = import_ctranslate2<T>(reference.folder, languages_of(name));
  const TextConventions& text = model.description.text;

  const auto sources = read_lines_as_ids(model, reference.json.at("lines").get<std::vector<std::string>>());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    std::vector<std::string> tokens;
    for (const std::int32_t id : sources[i]) tokens.push_back(model.tokenizers.source->token(id));
    auto expected = reference.json.at("sources").at(i).get<std::vector<std::string>>();
    if (!text.source_suffix.empty()) expected.push_back("</s>");  // old folders leave it to the caller
    REQUIRE(tokens.size() == expected.size());
    for (std::size_t k = 0; k < tokens.size(); ++k) {
      if (tokens[k] != "<unk>") CHECK(tokens[k] == expected[k]);
    }
  }

  const auto expected = reference.json.at("greedy").get<std::vector<Ids>>();
  const index_t max_length = reference.json.at("max_length");
  CHECK(greedy(model, sources, max_length) == expected);
  check_beams(model, reference, sources);

  // The logits of each greedy step, all sentences in one batch.
  std::vector<Ids> targets;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    Ids target = {text.begin_id};
    target.insert(target.end(), text.target_prefix.begin(), text.target_prefix.end());
    target.insert(target.end(), expected[i].begin(), expected[i].end());
    target.resize(static_cast<std::size_t>(reference.tensors.info("logits." + std::to_string(i)).shape[0]));
    targets.push_back(target);
  }
  const auto logits = batch_logits(model.model, sources, targets);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto wanted = reference.tensors.tensor<T>("logits." + std::to_string(i));
    // A begin symbol that the file lacks has no logit there.
    const index_t added = name == "ct2_marian" ? 1 : 0;
    REQUIRE(logits[i].dim(1) == wanted.dim(1) + added);
    CHECK(logits_error(columns(logits[i], wanted.dim(1)), wanted) <= tolerance);
  }
}

}  // namespace

TEST_CASE("CTranslate2 models of every weight type give CTranslate2's logits, greedy and beam results") {
  for (const std::string& name : names) {
    if (needs_sentencepiece(name) && !has_subword_tokenizer()) continue;
    check_model<float>(name, 1e-5);
  }
}

TEST_CASE("a model.bin of version 1 has the names and numbers of later versions") {
  const CheckpointReference reference("ct2_version1");
  const detail::Ct2File file = detail::Ct2File::open(reference.folder / "model.bin");
  CHECK(file.version() == 1);
  for (const char* name : {"encoder/embeddings/weight", "encoder/layer_0/self_attention/linear_1/bias",
                           "encoder/layer_norm/gamma", "decoder/layer_0/self_attention/layer_norm/beta",
                           "decoder/layer_0/attention/linear_0/weight", "decoder/layer_0/ffn/linear_1/weight",
                           "decoder/projection/weight"}) {
    CAPTURE(name);
    CHECK(file.contains(name));
  }
  CHECK(file.names().size() == 40);
  CHECK(import_ctranslate2<float>(reference.folder).description.model.layer.num_heads == 8);
}

TEST_CASE("int16 without a scale, as version 1 has it, is in thousandths") {
  const detail::Ct2File file =
      detail::Ct2File::open(CheckpointReference("ct2_version1_int16").folder / "model.bin");
  const std::string name = "encoder/embeddings/weight";
  REQUIRE(file.variable(name).type == Dtype::i16);
  CHECK_FALSE(file.contains(name + "_scale"));
  std::int16_t first = 0;
  std::memcpy(&first, file.variable(name).bytes.data(), 2);
  CHECK(first != 0);
  CHECK(file.tensor<float>(name).data()[0] == static_cast<float>(first) / 1000.0f);
}

TEST_CASE("a decoder that begins with zeros has a begin symbol of its own, which it never generates") {
  if (!has_subword_tokenizer()) return;
  const auto model = import_ctranslate2<float>(CheckpointReference("ct2_marian").folder);
  const Seq2SeqOptions& o = model.description.model;
  CHECK(o.target_size() == 48);  // 47 in the file
  CHECK(o.source_vocab_size == 48);
  CHECK(o.tying == Tying::all);
  CHECK(model.description.text.begin_id == 47);
  CHECK(model.description.text.end_id == 0);
  const Tensor<float> row = model.model.source_embedding.weight.value().rows(47, 1);
  CHECK(std::all_of(row.data(), row.data() + row.numel(), [](float x) { return x == 0; }));
  CHECK(model.model.projection_bias.value().data()[47] == -1e4f);
}

TEST_CASE("a T5 that CTranslate2 converted is the model that transformers has") {
  if (!has_subword_tokenizer()) return;
  const ImportOptions options = languages_of("ct2_t5");
  const auto model = import_ctranslate2<float>(CheckpointReference("ct2_t5").folder, options);
  const auto original = import_huggingface<float>(CheckpointReference("hf_t5_buckets").folder, options);
  const Seq2SeqOptions& o = model.description.model;
  CHECK(std::get<RelativeBiasPositions>(o.layer.attention.positions) ==
        RelativeBiasPositions{.buckets = 7, .max_distance = 5});
  CHECK(o.layer.attention.head_dim == 6);
  CHECK_FALSE(o.layer.bias);
  CHECK(o.layer == original.description.model.layer);
  CHECK(o.tying == Tying::none);
  CHECK(o.logit_scale == original.description.model.logit_scale);
  CHECK_FALSE(o.scale_embedding);
  const auto ours = state_dict(model.model), theirs = state_dict(original.model);
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    CHECK(ours[i].name == theirs[i].name);
    CHECK(std::equal(ours[i].value.data(), ours[i].value.data() + ours[i].value.numel(),
                     theirs[i].value.data()));
  }
  CHECK(model.description.text.source_suffix == Ids{1});
}

TEST_CASE("a bias by distance that is not T5's is refused by name") {
  if (!has_subword_tokenizer()) return;
  DamagedCopy copy("ct2_t5");
  const std::string whole = copy.read("model.bin");
  const auto replaced = [&](const std::string& from, const std::string& to,
                            const std::vector<std::string>& words) {
    std::string bytes = whole;
    REQUIRE(bytes.find(from) != std::string::npos);
    for (std::size_t at; (at = bytes.find(from)) != std::string::npos;) bytes.replace(at, from.size(), to);
    copy.write("model.bin", bytes);
    check_refused([&] { (void)import_ctranslate2<float>(copy.path()); }, words);
  };
  const std::string first = "/layer_0/self_attention/relative_attention_bia";
  replaced("decoder" + first + "s", "decoder" + first + "_", {"encoder" + first + "s", "alone"});
  replaced("encoder" + first + "s", "encoder" + first + "_", {"relative_attention_bias", "not supported"});
  replaced("encoder/layer_1/self_attention/relative_attention_bias",
           "encoder/layer_1/self_attention/relative_attention_bia_", {"encoder/layer_1/self_attention/"});
}

TEST_CASE("names of version 1 lose the part 'transformer' at their beginning and nowhere else") {
  DamagedCopy copy("ct2_version1");
  const std::string whole = copy.read("model.bin");
  std::string bytes = whole;
  const std::vector<std::string> added = {"encoder/extra/kernel:0", "transformer/extra/transformer/kernel:0"};
  std::uint32_t count = 0;
  std::memcpy(&count, bytes.data() + 4, 4);
  count += 2;
  std::memcpy(bytes.data() + 4, &count, 4);
  for (const std::string& name : added) {  // one int8 of rank 0
    bytes.insert(
        8, std::string{static_cast<char>(name.size() + 1), 0} + name + std::string("\0\0\1\1\0\0\0\7", 8));
  }
  copy.write("model.bin", bytes);
  const detail::Ct2File file = detail::Ct2File::open(copy.path() / "model.bin");
  CHECK(file.contains("encoder/extra/weight"));
  CHECK(file.contains("extra/transformer/weight"));
}

TEST_CASE("CTranslate2 models load as double too") { check_model<double>("ct2_post", 1e-5); }

TEST_CASE("a CTranslate2 model's options say what its folder says") {
  const auto& o = import_ctranslate2<float>(CheckpointReference("ct2_post").folder).description.model;
  CHECK(o.source_vocab_size == 19);
  CHECK(o.target_vocab_size == 23);
  CHECK(o.encoder.num_layers == 2);
  CHECK(o.decoder.num_layers == 1);
  CHECK(o.layer.num_heads == 3);
  CHECK(o.layer.dim_feedforward == 20);
  CHECK_FALSE(o.layer.norm_first);
  CHECK_FALSE(o.final_norm);
  CHECK_FALSE(o.scale_embedding);
  CHECK(o.layer.activation == Activation::silu);
  CHECK(o.tying == Tying::target);
  CHECK(std::get<SinusoidalPositions>(o.input_positions()).first_position == 1);
  const auto learned = import_ctranslate2<float>(CheckpointReference("ct2_learned").folder).description.model;
  CHECK(std::holds_alternative<LearnedPositions>(learned.input_positions()));
  CHECK(learned.max_length == 21);
  CHECK(learned.layer.norm.eps == doctest::Approx(1e-3));
  CHECK_FALSE(learned.projection_bias);
  CHECK(import_ctranslate2<float>(CheckpointReference("ct2_int8").folder).description.model.tying ==
        Tying::all);
  const auto scales = import_ctranslate2<float>(CheckpointReference("ct2_scales").folder).description.model;
  CHECK(scales.layer.attention.scale == doctest::Approx(0.8));
  CHECK(scales.logit_scale == doctest::Approx(0.6));
  CHECK(scales.projection_bias);
  CHECK_FALSE(scales.decoder.layer.has_value());
  const auto unequal = import_ctranslate2<float>(CheckpointReference("ct2_unequal").folder).description.model;
  CHECK(unequal.layer.num_heads == 3);
  CHECK(unequal.final_norm);
  REQUIRE(unequal.decoder.layer.has_value());
  CHECK(unequal.decoder.layer->num_heads == 2);
  CHECK(unequal.decoder.layer->dim_feedforward == 14);
  CHECK(unequal.decoder.layer->activation == Activation::silu);
  CHECK_FALSE(unequal.decoder.layer->norm_first);
  CHECK(unequal.decoder.final_norm == false);
}

TEST_CASE("an imported CTranslate2 model is saved as a model folder and translates the same") {
  for (const std::string& name : names) {
    if (needs_sentencepiece(name) && !has_subword_tokenizer()) continue;
    CAPTURE(name);
    const CheckpointReference reference(name);
    const auto model = import_ctranslate2<float>(reference.folder, languages_of(name));
    TemporaryFolder folder;
    save_model_folder(folder.path(), model.model, model.tokenizers, nlohmann::json::object(),
                      WeightFormat::float32, model.description.text);
    const auto loaded = load_model_folder<float>(folder.path());
    CHECK(loaded.description.text == model.description.text);
    const auto lines = reference.json.at("lines").get<std::vector<std::string>>();
    SearchOptions options = search_options(model.description.text);
    options.max_length = 14;
    CHECK(translate(loaded, lines, options) == translate(model, lines, options));
    options.beam_size = 1;
    options.max_length = 14;
    const auto translations = translate(loaded, lines, options);
    if (needs_sentencepiece(name)) continue;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::string expected;
      for (const std::string token : reference.json.at("greedy_tokens").at(i)) {
        if (token == "<s>" || token == "<blank>") continue;
        expected += (expected.empty() ? "" : " ") + (token == "<unk>" ? std::string("\xE2\x81\x87") : token);
      }
      CHECK(translations[i] == expected);
    }
  }
}

TEST_CASE("lines are cut where learned positions end, and no search goes beyond them") {
  const auto model = import_ctranslate2<float>(CheckpointReference("ct2_learned").folder);
  std::string line;
  for (int i = 0; i < 50; ++i) line += "w1 ";
  bool cut = false;
  CHECK(source_ids(model.description.text, *model.tokenizers.source, line,
                   max_source_tokens(model.description), &cut)
            .size() == 21);
  CHECK(cut);
  CHECK(translate(model, {line, "", " "}).size() == 3);
}

TEST_CASE("a model.bin cut anywhere is refused with its name and the place") {
  DamagedCopy copy("ct2_int8");
  const std::string whole = copy.read("model.bin");
  for (std::size_t size = 0; size < whole.size(); size = size < 600 ? size + 1 : size + 397) {
    copy.write("model.bin", whole.substr(0, size));
    check_refused([&] { (void)import_ctranslate2<float>(copy.path()); }, {"model.bin", "truncated"});
  }
  copy.write("model.bin", whole + "x");
  check_refused([&] { (void)import_ctranslate2<float>(copy.path()); }, {"model.bin", "1 bytes after"});
}

TEST_CASE(
    "a model.bin with any byte changed loads or is refused, and takes no memory that the file does not "
    "have") {
  DamagedCopy copy("ct2_int8");
  const std::string whole = copy.read("model.bin");
  RandomGenerator rng(3);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    const std::size_t at =
        i < 200 ? static_cast<std::size_t>(rng.uniform_int(400))
                : static_cast<std::size_t>(rng.uniform_int(static_cast<index_t>(whole.size())));
    damaged[at] = static_cast<char>(rng.uniform_int(256));
    copy.write("model.bin", damaged);
    try {
      (void)import_ctranslate2<float>(copy.path());
    } catch (const IoError&) {
    }
  }
}

TEST_CASE("a damaged model.bin is refused with what is wrong and where") {
  DamagedCopy copy("ct2_post");
  const std::string whole = copy.read("model.bin");
  const auto refuse = [&](const std::string& bytes, const std::vector<std::string>& words) {
    copy.write("model.bin", bytes);
    check_refused([&] { (void)import_ctranslate2<float>(copy.path()); }, words);
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    const std::size_t at = bytes.find(from);
    REQUIRE(at != std::string::npos);
    return bytes.replace(at, from.size(), to);
  };
  refuse(std::string("\x07\0\0\0", 4) + whole.substr(4), {"version 7", "byte 0"});
  refuse(replaced("TransformerSpec", "WhisperModSpecs"), {"WhisperModSpecs", "expected"});
  refuse(replaced("encoder/layer_1/ffn/linear_0/bias", "encoder/layer_1/ffn/linear_0/bia_"),
         {"encoder/layer_1/ffn/linear_0/bia_", "unexpected"});
  refuse(replaced("encoder/layer_1/ffn/linear_1/weight", "encoder/layer_1/ffn/linear_1/weig__"),
         {"missing: encoder/layer_1/ffn/linear_1/weight"});
  // A dimension that the file cannot hold.
  std::string bytes = whole;
  const std::size_t at = bytes.find(std::string("decoder/embeddings/weight\0", 26)) + 26 + 1;
  std::memcpy(bytes.data() + at, "\xff\xff\xff\xff", 4);
  refuse(bytes, {"decoder/embeddings/weight", "4294967295", "cannot hold"});
  bytes = whole;
  std::memcpy(bytes.data() + at, "\x18\0\0\0", 4);
  refuse(bytes, {"decoder/embeddings/weight", "(24, 12)", "expected 1152"});
  bytes[at + 8] = 9;
  refuse(bytes, {"decoder/embeddings/weight", "type 9"});
}

TEST_CASE("what an encoder-decoder may have in CTranslate2 and not here is refused by name") {
  DamagedCopy copy("ct2_rotary");
  const std::string whole = copy.read("model.bin");
  const auto with = [&](const std::string& name, std::uint8_t value) {
    // version, spec, revision, number of variables; then one more: rank 0, int8, one byte
    const std::size_t count = 4 + 2 + static_cast<std::uint8_t>(whole[4]) + 4;
    std::string bytes = whole;
    std::uint32_t n = 0;
    std::memcpy(&n, bytes.data() + count, 4);
    ++n;
    std::memcpy(bytes.data() + count, &n, 4);
    std::string variable = {static_cast<char>(name.size() + 1), 0};
    variable += name + std::string("\0\0\1\1\0\0\0", 7) + static_cast<char>(value);
    copy.write("model.bin", bytes.insert(count + 4, variable));
    check_refused([&] { (void)import_ctranslate2<float>(copy.path()); },
                  {"model.bin", name, "not supported"});
  };
  for (const std::string name :
       {"relative_attention_bias", "num_heads_kv", "head_dim", "sliding_window", "rotary_scaling_type",
        "q_norm/gamma", "v_norm/gamma", "relative_left_max_position", "memory_kv/weight", "queries_scale"}) {
    with("decoder/layer_1/self_attention/" + name, 2);
  }
  for (const std::string name : {"encoder/embeddings_1/weight", "decoder/project_in/weight",
                                 "decoder/final_logit_softcapping", "decoder/sliding_window"}) {
    with(name, 1);
  }
  with("encoder/layer_0/self_attention/relative_position_keys", 2);
  // Positions in one stack alone, or others in one layer.
  const auto replaced = [&](const std::string& from, const std::string& to,
                            const std::vector<std::string>& words) {
    std::string bytes = whole;
    const std::size_t at = bytes.find(from);
    REQUIRE(at != std::string::npos);
    copy.write("model.bin", bytes.replace(at, from.size(), to));
    check_refused([&] { (void)import_ctranslate2<float>(copy.path()); }, words);
  };
  replaced("decoder/layer_0/self_attention/rotary_dim", "decoder/layer_0/self_attention/rotary_di_",
           {"rotary_dim", "alone"});
  replaced("decoder/layer_1/self_attention/rotary_base", "decoder/layer_1/self_attention/rotary_bas_",
           {"rotary_base", "decoder/layer_1/self_attention/"});
  const std::string alibi("decoder/alibi\0\0\1\1\0\0\0\0", 21), on("decoder/alibi\0\0\1\1\0\0\0\1", 21);
  replaced(alibi, on, {"decoder/alibi", "not supported"});
}

TEST_CASE("numbers of heads and the like that are no counts are refused by name") {
  DamagedCopy copy("ct2_post");
  std::string bytes = copy.read("model.bin");
  const std::string name = "encoder/num_heads";
  const std::size_t at = bytes.find(name + '\0');
  REQUIRE(at != std::string::npos);
  // After the name: its end, the rank, the type, the number of bytes in four bytes, and the number.
  const std::size_t header = at + name.size() + 1;
  const auto size = static_cast<std::uint8_t>(bytes[header + 2]);
  bytes[header + 6 + size - 1] = '\xff';  // the sign
  copy.write("model.bin", bytes);
  check_refused([&] { (void)import_ctranslate2<float>(copy.path()); },
                {"model.bin", name, "expected a whole number from 0 to 1000000"});
}

TEST_CASE("vocabularies and config.json that do not fit are refused by name") {
  DamagedCopy copy("ct2_post");
  const auto refuse = [&](const std::vector<std::string>& words) {
    check_refused([&] { (void)import_ctranslate2<float>(copy.path()); }, words);
  };
  const std::string vocabulary = copy.read("target_vocabulary.txt");
  copy.write("target_vocabulary.txt", vocabulary + "one\ntwo\n");
  refuse({"target_vocabulary.txt", "25 tokens", "23 rows"});
  copy.write("target_vocabulary.txt", vocabulary.substr(0, vocabulary.find("</s>")));
  refuse({"target_vocabulary.txt", "no token '</s>'"});
  copy.write("target_vocabulary.txt", "a\n\xff\n");
  refuse({"target_vocabulary.txt", "UTF-8 at byte 2"});
  copy.remove("target_vocabulary.txt");
  refuse({"no vocabulary"});
  copy.write("target_vocabulary.json", "[\"<s>\", 3]");
  refuse({"target_vocabulary.json", "token 1"});
  copy.write("target_vocabulary.json", "[\"<s>\", ");
  refuse({"target_vocabulary.json", "not JSON"});
  copy.write("target_vocabulary.txt", vocabulary);
  copy.remove("target_vocabulary.json");
  copy.set("config.json", "layer_norm_epsilon", "small");
  refuse({"config.json", "layer_norm_epsilon"});
  copy.write("config.json", "{");
  refuse({"config.json", "not JSON"});
  copy.remove("model.bin");
  refuse({"model.bin"});
}

TEST_CASE("rows of the embedding beyond the vocabulary have no text") {
  DamagedCopy copy("ct2_post");
  const std::string vocabulary = copy.read("target_vocabulary.txt");
  copy.write("target_vocabulary.txt", vocabulary.substr(0, vocabulary.rfind("v18")));
  const auto model = import_ctranslate2<float>(copy.path());
  CHECK(model.tokenizers.target->vocabulary_size() == 23);
  CHECK(model.tokenizers.target->decode(Ids{5, 22, 6}) == "v1 v2");
}

TEST_CASE("an empty vocabulary, and one that lacks more than padding, are errors") {
  DamagedCopy copy("ct2_post");
  copy.write("target_vocabulary.txt", "");
  CHECK_THROWS_WITH_AS((void)import_ctranslate2<float>(copy.path()),
                       doctest::Contains("target_vocabulary.txt' is incomplete: it has 0 tokens"), IoError);
  std::vector<std::string> tokens(100, "x");
  detail::fit_vocabulary("vocabulary.txt", tokens, 227, "source");
  CHECK(tokens.size() == 227);
  tokens.resize(100);
  CHECK_THROWS_WITH_AS(detail::fit_vocabulary("vocabulary.txt", tokens, 228, "source"),
                       doctest::Contains("has 100 tokens, the source embedding has 228 rows"), IoError);
}

TEST_CASE("a model that leaves the first token to the caller wants a target language") {
  DamagedCopy copy("ct2_post");
  copy.set("config.json", "decoder_start_token", nullptr);
  CHECK_THROWS_AS((void)import_ctranslate2<float>(copy.path()), ValueError);
  std::string vocabulary = copy.read("target_vocabulary.txt");
  const std::size_t at = vocabulary.find("\nv4\n");
  REQUIRE(at != std::string::npos);
  vocabulary.replace(at + 1, 2, "__v4__");
  copy.write("target_vocabulary.txt", vocabulary);
  const auto model = import_ctranslate2<float>(copy.path(), {.target_language = "v4"});
  CHECK(model.description.text.begin_id == 8);
  CHECK(model.description.text.target_prefix.empty());
  // Pieces of words and special tokens are no languages.
  for (const char* other : {"xx", "v5", "</s>", "<blank>"}) {
    CHECK_THROWS_WITH_AS((void)import_ctranslate2<float>(copy.path(), {.target_language = other}),
                         doctest::Contains("expected __v4__"), ValueError);
  }
}
