#include "eigenformer/io/marian/marian.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/tokenizers/sentencepiece/sentencepiece_tokenizer.hpp"
#include "eigenformer/io/import_checkpoint.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "io/checkpoint_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Model = Seq2SeqTransformer<float>;

// The logits of every sentence of a reference, against what plain loops made of the file.
template <class T>
void check_logits(const CheckpointReference& reference, const TranslationModel<T>& loaded,
                  const Context<T>& ctx, double tolerance) {
  const auto sources = reference.json.at("sources").get<std::vector<Ids>>();
  const auto targets = reference.json.at("targets").get<std::vector<Ids>>();
  CHECK(read_lines_as_ids(loaded, reference.json.at("lines").get<std::vector<std::string>>()) == sources);
  const Memory<T> memory = loaded.model.encode_sentences(ctx, sources);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    CAPTURE(i);
    const auto expected = reference.tensors.tensor<double>("logits." + std::to_string(i));
    const Memory<T> own(memory.rows, memory.layout, {static_cast<std::int32_t>(i)});
    DecoderState<T> state = loaded.model.begin(ctx, own);
    std::int32_t read = loaded.description.text.begin_id;
    double worst = 0, largest = 0;
    for (std::size_t t = 0; t < targets[i].size(); ++t) {
      const auto y = loaded.model.logits(ctx, state.step(Tensor<std::int32_t>::from({1}, {read}))).value();
      REQUIRE(y.dim(1) == expected.dim(1) + 1);
      for (index_t v = 0; v < expected.dim(1); ++v) {
        const double e = expected.at({static_cast<index_t>(t), v});
        worst = std::max(worst, std::abs(static_cast<double>(y.at({0, v})) - e));
        largest = std::max(largest, std::abs(e));
      }
      CHECK(y.at({0, expected.dim(1)}) < T(-9000));  // the begin symbol
      read = targets[i][t];
    }
    CHECK(worst < tolerance * largest);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("a float32 model of Marian gives the logits of plain loops", T, float, double) {
  const CheckpointReference reference("marian_float32");
  const auto loaded = import_marian<T>(reference.folder);
  const Seq2SeqOptions& o = loaded.model.options;
  CHECK(o.tying == Tying::all);
  CHECK(!o.layer.norm_first);
  CHECK(o.transformer().decoder_options().layer.self_mixing == SelfMixing::ssru);
  check_logits<T>(reference, loaded, Context<T>::inference(), sizeof(T) == 4 ? 1e-5 : 1e-6);
}

TEST_CASE(
    "int8 models of Marian give the logits of plain loops, with the numbers that inputs are rounded by") {
  for (const char* name : {"marian_int8", "marian_separate"}) {
    CAPTURE(name);
    const CheckpointReference reference(name);
    const auto packed = import_marian_int8(reference.folder);
    check_logits<float>(reference, packed.loaded, packed.context(), 1e-4);
    // The weights that they stand for, with inputs as they are: near, and not the same.
    const auto plain = import_marian(reference.folder);
    check_logits<float>(reference, plain, Context<float>::inference(), 0.5);
  }
}

TEST_CASE("a folder keeps an int8 model of Marian as it is") {
  const CheckpointReference reference("marian_int8");
  const auto packed = import_marian_int8(reference.folder);
  const TemporaryFolder folder;
  save_packed_folder(folder / "model", packed, {{"imported_from", "here"}});
  const auto back = load_packed_folder(folder / "model");
  CHECK(back.loaded.description.text == packed.loaded.description.text);
  CHECK(back.loaded.description.training.at("imported_from") == "here");
  check_logits<float>(reference, back.loaded, back.context(), 1e-4);
  CHECK(back.weights->bytes() == packed.weights->bytes());
  // As parameters: the numbers that the int8 ones stand for.
  const auto loaded = load_model_folder(folder / "model");
  const auto plain = import_marian(reference.folder);
  const auto a = state_dict(loaded.model), b = state_dict(plain.model);
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].name);
    CHECK(std::equal(a[i].value.span().begin(), a[i].value.span().end(), b[i].value.span().begin()));
  }
  // And once more, from what was loaded.
  save_packed_folder(folder / "again", back);
  CHECK(detail::read_text_file(folder / "again" / "model.safetensors") ==
        detail::read_text_file(folder / "model" / "model.safetensors"));
}

TEST_CASE("a damaged step of inputs, or row, of a folder is refused") {
  const CheckpointReference reference("marian_int8");
  const TemporaryFolder folder;
  save_packed_folder(folder / "model", import_marian_int8(reference.folder));
  const auto path = folder / "model" / "model.safetensors";
  const std::string good = detail::read_text_file(path);
  const auto damaged = [&](const std::string& tensor, const void* bytes, std::size_t n) {
    const SafetensorsFile file = SafetensorsFile::open(path);
    std::string changed = good;
    const float step = file.tensor<float>(tensor).data()[0];
    const std::size_t found = changed.rfind(std::string(reinterpret_cast<const char*>(&step), sizeof step));
    REQUIRE(found != std::string::npos);
    changed.replace(found, n, std::string(static_cast<const char*>(bytes), n));
    write_bytes(path, changed);
  };
  const float zero = 0;
  damaged("decoder.layers.1.linear2.weight_input_step", &zero, sizeof zero);
  check_refused([&] { (void)load_packed_folder(folder / "model"); },
                {"linear2.weight", "input step", "between 1e-30 and 1e30"});
  write_bytes(path, good);
  CHECK_NOTHROW((void)load_packed_folder(folder / "model"));
}

TEST_CASE("an imported model of Marian translates text, and checkpoints are told apart") {
  const CheckpointReference reference("marian_float32");
  CHECK(detail::is_marian_checkpoint(reference.folder));
  CHECK(detail::is_marian_checkpoint(reference.folder / "model.bin"));
  CHECK(!detail::is_marian_checkpoint(fixtures_folder() / "checkpoints" / "ct2_post"));
  CHECK(!detail::is_marian_int8(reference.folder));
  CHECK(detail::is_marian_int8(fixtures_folder() / "checkpoints" / "marian_int8"));
  const auto loaded = import_checkpoint<float>(reference.folder);
  auto options = text_translator_options(loaded.description);
  CHECK(options.search.rule == SearchRule::marian);
  CHECK(options.search.forbidden_ids == std::vector<std::int32_t>{1, options.search.begin_id});
  options.search.max_length = 12;
  const TextTranslator translator(loaded, options);
  const auto translations =
      translator.translate(std::vector<std::string>{"the dog sees a tree .", "", "a dog"});
  CHECK(!translations[0].text.empty());
  CHECK(translations[1].text.empty());
  CHECK(translations[0].text == translator.translate("the dog sees a tree .").text);
}

TEST_CASE("settings beside a model of Marian are read") {
  const DamagedCopy copy("marian_float32");
  copy.write("decoder.yml",
             "# of the decoder\nvocabs:\n  - vocab.spm\n  - vocab.spm\nbeam-size: 6\nnormalize: 0.6\n"
             "word-penalty: 0.5\nshortlist:\n  - lex.s2t.bin\n  - false\n");
  std::vector<std::string> warnings;
  const auto loaded =
      import_marian(copy.path(), {.warn = [&](const auto& text) { warnings.push_back(text); }});
  const nlohmann::json& search = loaded.description.text.search;
  CHECK(search.at("beam_size") == 6);
  CHECK(search.at("length_penalty") == 0.6);
  CHECK(search.at("word_penalty") == 0.5);
  CHECK(search.at("max_length_factor") == 3);
  CHECK(warnings.empty());
  copy.write("decoder.yml", "max-length-factor: 0\n");
  check_refused([&] { (void)import_marian(copy.path()); },
                {"decoder.yml", "max-length-factor", "a number above 0"});
  copy.write("decoder.yml", "beam-size: many\n");
  check_refused([&] { (void)import_marian(copy.path()); }, {"decoder.yml", "beam-size", "many", "number"});
  copy.write("decoder.yml", "beam-size: 1e300\n");
  check_refused([&] { (void)import_marian(copy.path()); },
                {"decoder.yml", "beam-size", "1e300", "1 to 1000"});
  copy.write("decoder.yml", "just words\n");
  check_refused([&] { (void)import_marian(copy.path()); }, {"decoder.yml", "line 1", "key: value"});
}

TEST_CASE("a folder that holds no model of Marian, or not all of it, is refused") {
  const DamagedCopy copy("marian_float32");
  std::filesystem::copy(copy / "model.bin", copy / "second.bin");
  check_refused([&] { (void)import_marian(copy.path()); }, {"several", "model.bin", "second.bin"});
  CHECK_NOTHROW((void)import_marian(copy / "second.bin"));
  copy.remove("second.bin");
  std::filesystem::copy(copy / "vocab.spm", copy / "other.spm");
  check_refused([&] { (void)import_marian(copy.path()); }, {"2 vocabularies", "srcvocab"});
  copy.write("config.yml", "vocabs: [vocab.spm, other.spm]\n");
  check_refused([&] { (void)import_marian(copy.path()); }, {"one embedding", "other.spm"});
  copy.remove("config.yml");
  copy.remove("other.spm");
  const std::string vocabulary = copy.read("vocab.spm");
  copy.write("vocab.spm", vocabulary.substr(0, 100));
  check_refused([&] { (void)import_marian(copy.path()); }, {"vocab.spm", "SentencePiece"});
  copy.remove("vocab.spm");
  check_refused([&] { (void)import_marian(copy.path()); }, {"0 vocabularies", ".spm"});
  copy.remove("model.bin");
  check_refused([&] { (void)import_marian(copy.path()); }, {"no Marian model"});
}

TEST_CASE("a folder with the vocabulary of one language of two is refused") {
  for (const auto& [missing, there] :
       {std::pair{"trgvocab.de.spm", "srcvocab.en.spm"}, std::pair{"srcvocab.en.spm", "trgvocab.de.spm"}}) {
    const DamagedCopy copy("marian_separate");
    copy.remove(missing);
    check_refused([&] { (void)import_marian(copy.path()); }, {there, "of the other language"});
  }
}

TEST_CASE("languages are an error: a model of Marian has no place for them") {
  const DamagedCopy copy("marian_float32");
  CHECK(contains(message_of<ValueError>([&] { (void)import_marian(copy.path(), {.target_language = "de"}); }),
                 "is not a multilingual model, so target_language must be empty, not 'de'"));
  CHECK(contains(
      message_of<ValueError>([&] { (void)import_marian_int8(copy.path(), {.source_language = "en"}); }),
      "so source_language must be empty, not 'en'"));
}

TEST_CASE("a model of Marian that the import is not for is refused with the setting's name") {
  const DamagedCopy copy("marian_float32");
  const std::string good = copy.read("model.bin");
  const auto with = [&](const std::string& from, const std::string& to) {
    REQUIRE(from.size() == to.size());
    std::string changed = good;
    const std::size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    changed.replace(at, from.size(), to);
    copy.write("model.bin", changed);
    return [&] { (void)import_marian(copy.path()); };
  };
  check_refused(with("autoreg: rnn", "autoreg: xyz"), {"transformer-decoder-autoreg xyz", "expected rnn"});
  check_refused(with("dec-cell: ssru", "dec-cell: lstm"), {"dec-cell lstm", "expected ssru"});
  check_refused(with("postprocess: dan", "postprocess: da "), {"transformer-postprocess da", "expected dan"});
  check_refused(with("activation: relu", "activation: tanh"), {"transformer-ffn-activation tanh", "relu"});
  check_refused(with("tied-embeddings-all: true\n", "tied-embeddings-all: off \n"),
                {"tied-embeddings-all off"});
  check_refused(with("dim-emb: 16", "dim-emb: 17"), {"embeddings of 16", "17"});
  check_refused(with("enc-depth: 2", "enc-depth: 3"), {"missing: encoder_l3"});
  check_refused(with("dec-depth: 2", "dec-depth: 1"), {"unexpected", "decoder_l2"});
  check_refused(with("dec-depth: 2", "dec-depth: 0"), {"dec-depth 0"});
  check_refused(with("tied-layers: []", "tied-layers: 12"), {"transformer-tied-layers"});
  check_refused(with("encoder_l1_ffn_W1", "encoder_l1_ffn_W9"), {"encoder_l1_ffn_W1", "encoder_l1_ffn_W9"});
  check_refused(with("transformer-heads: 2", "transformer-heads: 3"), {"num_heads, which is 3"});
}
