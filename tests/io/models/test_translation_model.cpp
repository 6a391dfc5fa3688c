#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "folders.hpp"
#include "nn/attention_variants.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using testing::contains;
using testing::message_of;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

nlohmann::json options_of(const fs::path& folder) {
  return nlohmann::json::parse(read(folder / "options.json"));
}

TokenizerPair word_tokenizers(bool joint) {
  ParallelCorpus corpus;
  corpus.source = {"the dog sleeps", "a cat sees the dog"};
  corpus.target = {"der Hund schläft", "eine Katze sieht den Hund"};
  return train_tokenizers({.kind = "word", .vocabulary_size = 100, .joint = joint}, corpus);
}

Seq2SeqTransformer<float> model_for(const TokenizerPair& t, std::uint64_t seed, Tying tying = Tying::none) {
  RandomGenerator rng(seed);
  return {{.source_vocab_size = t.source->vocabulary_size(),
           .target_vocab_size = t.target->vocabulary_size(),
           .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20, .norm_first = true},
           .encoder = {.num_layers = 1},
           .decoder = {.num_layers = 2},
           .tying = tying},
          rng};
}

template <class M>
std::vector<float> weights_of(const M& model) {
  std::vector<float> all;
  for_each_parameter(model, [&](const std::string&, const auto& p) {
    all.insert(all.end(), p.value().span().begin(), p.value().span().end());
  });
  return all;
}

/// A saved folder of a small model.
struct Saved {
  TemporaryFolder scratch;
  fs::path folder = scratch.path() / "model";
  Saved() {
    const TokenizerPair tokenizers = word_tokenizers(false);
    save_model_folder(folder, model_for(tokenizers, 1), tokenizers, {{"epochs", 3}});
  }
  std::string refusal() const {
    return message_of<IoError>([&] { (void)load_model_folder(folder); });
  }
};

std::vector<std::string> translate(const TranslationModel<float>& m, const std::vector<std::string>& lines,
                                   index_t beam) {
  std::vector<std::vector<std::int32_t>> sources;
  for (const std::string& line : lines) {
    sources.push_back(m.tokenizers.source->encode(line));
    sources.back().push_back(SpecialIds::end);
  }
  std::vector<std::string> out;
  for (const auto& found :
       generate(m.model, Context<float>::inference(), sources, {.beam_size = beam, .max_length = 20})) {
    out.push_back(m.tokenizers.target->decode(found.front().ids));
  }
  return out;
}

}  // namespace

TEST_CASE("a model of another variant comes back as it was") {
  const TokenizerPair tokenizers = word_tokenizers(false);
  RandomGenerator rng(3);
  const Seq2SeqTransformer<float> model({.source_vocab_size = tokenizers.source->vocabulary_size(),
                                         .target_vocab_size = tokenizers.target->vocabulary_size(),
                                         .layer = {.d_model = 12,
                                                   .num_heads = 3,
                                                   .dim_feedforward = 20,
                                                   .layer_drop = 0.25,
                                                   .activation = Activation::silu,
                                                   .gated = true,
                                                   .norm = {.kind = NormKind::rms_norm},
                                                   .sandwich_norm = true},
                                         .encoder = {.num_layers = 1},
                                         .decoder = {.num_layers = 2},
                                         .embedding_norm = true,
                                         .logit_scale = 0.5},
                                        rng);
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "model";
  save_model_folder(folder, model, tokenizers);
  const auto loaded = load_model_folder(folder);
  CHECK(options_to_json(loaded.model.options) == options_to_json(model.options));
  CHECK(weights_of(loaded.model) == weights_of(model));
  const auto ids = Tensor<std::int32_t>::from({1, 3}, {4, 5, 3});
  const auto run = [&](const auto& m) { return m(Context<float>::inference(), ids, ids).value(); };
  CHECK(testing::values(run(loaded.model)) == testing::values(run(model)));
}

TEST_CASE("a model folder comes back with the same bits, options and words") {
  for (const bool joint : {false, true}) {
    CAPTURE(joint);
    const TemporaryFolder scratch;
    const TokenizerPair tokenizers = word_tokenizers(joint);
    const auto model = model_for(tokenizers, 1, joint ? Tying::all : Tying::target);
    save_model_folder(scratch.path() / "a/model", model, tokenizers, {{"epochs", 3}});
    const auto loaded = load_model_folder(scratch.path() / "a/model");
    CHECK(weights_of(loaded.model) == weights_of(model));
    CHECK(options_to_json(loaded.model.options) == options_to_json(model.options));
    CHECK(loaded.tokenizers.joint() == joint);
    CHECK(loaded.tokenizers.source->encode("the cat sleeps") == tokenizers.source->encode("the cat sleeps"));
    CHECK(loaded.tokenizers.target->encode("der Hund") == tokenizers.target->encode("der Hund"));
    CHECK(loaded.description.library_version == version_string());
    CHECK(loaded.description.training == nlohmann::json{{"epochs", 3}});
    CHECK(is_model_folder(scratch.path() / "a/model"));
    CHECK_FALSE(is_model_folder(scratch.path() / "a"));
  }
}

TEST_CASE("saving again replaces the model and leaves other files alone") {
  Saved saved;
  write(saved.folder / "notes.txt", "mine");
  const TokenizerPair tokenizers = word_tokenizers(false);
  const auto other = model_for(tokenizers, 2);
  save_model_folder(saved.folder, other, tokenizers);
  CHECK(weights_of(load_model_folder(saved.folder).model) == weights_of(other));
  CHECK(read(saved.folder / "notes.txt") == "mine");
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(saved.folder)) ++files;
  CHECK(files == 5);  // options, weights, two vocabularies, the note
}

TEST_CASE("a model is found whole after a commit that was interrupted half-way") {
  Saved saved;
  const std::vector<float> weights = weights_of(load_model_folder(saved.folder).model);
  fs::create_directory(saved.folder / FolderTransaction::commit_name);
  for (const char* name : {"model.safetensors", "target.vocab"}) {
    fs::rename(saved.folder / name, saved.folder / FolderTransaction::commit_name / name);
  }
  CHECK(weights_of(load_model_folder(saved.folder).model) == weights);
}

TEST_CASE("folders that are missing, foreign, damaged or too new are refused, and the file is named") {
  Saved saved;
  const auto with_options = [&](auto&& change) {
    const std::string before = read(saved.folder / "options.json");
    nlohmann::json json = nlohmann::json::parse(before);
    change(json);
    write(saved.folder / "options.json", json.dump());
    const std::string message = saved.refusal();
    write(saved.folder / "options.json", before);
    CHECK(contains(message, "options.json"));
    return message;
  };
  CHECK(
      contains(message_of<IoError>([&] { (void)load_model_folder(saved.folder / "no"); }), "does not exist"));
  CHECK(contains(message_of<IoError>([&] { (void)load_model_folder(saved.scratch.path()); }),
                 "is not a model folder"));
  const auto adapter = saved.scratch.path() / "adapter";
  std::filesystem::create_directory(adapter);
  write(adapter / "adapter_config.json", "{}");
  CHECK(contains(message_of<IoError>([&] { (void)load_model_folder(adapter); }), "it holds an adapter"));
  {
    const std::string before = read(saved.folder / "options.json");
    write(saved.folder / "options.json", "{\"format_version\": 1, " + before.substr(before.find('{') + 1));
    const std::string message = saved.refusal();
    write(saved.folder / "options.json", before);
    CHECK(contains(message, "options.json' has the name 'format_version' twice"));
  }
  CHECK(contains(with_options([](auto& j) { j["format_version"] = 99; }),
                 "has format_version 99, this version of the library"));
  CHECK(contains(with_options([](auto& j) { j["format_version"] = 0; }), "format_version 0"));
  CHECK(
      contains(with_options([](auto& j) { j["format_version"] = 4294967297; }), "format_version 4294967297"));
  CHECK(contains(with_options([](auto& j) { j.erase("format_version"); }), "expected format_version"));
  CHECK(contains(with_options([](auto& j) { j["model"]["rotary"] = true; }), "'rotary' is not an option"));
  CHECK(
      contains(with_options([](auto& j) { j["model"]["num_heads"] = 5; }), "must be divisible by num_heads"));
  CHECK(contains(with_options([](auto& j) { j["model"]["d_model"] = -12; }), "d_model is -12"));
  for (const std::int64_t length :
       {std::int64_t{-1}, std::int64_t{0}, std::int64_t{2'147'483'648}, std::int64_t{1'000'000'000'000}}) {
    CHECK(contains(with_options([&](auto& j) { j["model"]["max_length"] = length; }),
                   "max_length is " + std::to_string(length) + ", must be at least 1"));
  }
  CHECK(contains(with_options([](auto& j) { j["model"]["sinusoid_base"] = 0; }),
                 "sinusoid_base is 0, must be positive"));
  CHECK(contains(with_options([](auto& j) { j["model"]["sinusoid_first_position"] = -2; }),
                 "sinusoid_first_position is -2"));
  CHECK(contains(with_options([](auto& j) { j["format"] = "other"; }),
                 "format is \"other\", expected \"eigenformer-translation\""));
  CHECK(contains(with_options([](auto& j) { j.erase("format"); }), "format is absent"));
  CHECK(contains(with_options([](auto& j) { j["tokenizer"] = "word"; }), "expected kind and joint"));
  CHECK(contains(with_options([](auto& j) { j["model"]["d_model"] = 1'800'000'000; }),
                 "tensor 'source_embedding.weight' has shape"));
  CHECK(contains(with_options([](auto& j) { j["model"]["dim_feedforward"] = 1'000'000'000; }),
                 "dim_feedforward is 1000000000"));
  CHECK(contains(with_options([](auto& j) { j["model"]["num_encoder_layers"] = 100'000'000; }),
                 "has no tensor 'encoder.layers.99999999"));
  CHECK(contains(with_options([](auto& j) { j["model"]["target_vocab_size"] = 999; }),
                 "options.json says 999"));
  CHECK(options_of(saved.folder).at("format_version") == 1);

  const auto truncated = [&](const char* name) {
    const std::string before = read(saved.folder / name);
    std::string messages;
    for (const std::size_t keep : {before.size() - 1, before.size() / 2, std::size_t{3}, std::size_t{0}}) {
      CAPTURE(name);
      CAPTURE(keep);
      write(saved.folder / name, before.substr(0, keep));
      const std::string message = saved.refusal();
      if (keep < before.size() - 1) CHECK(contains(message, name));
      messages += message;
    }
    write(saved.folder / name, before);
    return messages;
  };
  CHECK(contains(truncated("options.json"), "is truncated or not JSON"));
  CHECK(contains(truncated("model.safetensors"), "truncated"));
  {
    const std::string before = read(saved.folder / "source.vocab");
    write(saved.folder / "source.vocab", before.substr(0, before.size() / 2));
    const std::string message = saved.refusal();
    CHECK((contains(message, "source tokenizer has") || contains(message, "source.vocab")));
    write(saved.folder / "source.vocab", before);
  }
  for (const char* name : {"model.safetensors", "source.vocab", "target.vocab"}) {
    CAPTURE(name);
    fs::rename(saved.folder / name, saved.folder / "away");
    CHECK(contains(saved.refusal(), name));
    fs::rename(saved.folder / "away", saved.folder / name);
  }
  CHECK(saved.refusal() == "no error");
}

TEST_CASE("weights of another model are refused with all that does not fit") {
  Saved saved;
  const TokenizerPair tokenizers = word_tokenizers(false);
  RandomGenerator rng(1);
  const Seq2SeqTransformer<float> other(
      {.source_vocab_size = tokenizers.source->vocabulary_size(),
       .target_vocab_size = tokenizers.target->vocabulary_size(),
       .layer = {.d_model = 12, .num_heads = 2, .dim_feedforward = 20, .bias = false},
       .encoder = {.num_layers = 2},
       .decoder = {.num_layers = 2}},
      rng);
  save_model(saved.folder / "model.safetensors", other);
  const std::string message = saved.refusal();
  CHECK(contains(message, "model.safetensors"));
  CHECK(contains(message, "missing: "));
  CHECK(contains(message, "encoder.layers.0.linear1.bias"));
  CHECK(contains(message, "encoder.layers.1.linear1.weight"));
}

TEST_CASE("a folder that cannot be written keeps its model") {
  Saved saved;
  const std::vector<float> weights = weights_of(load_model_folder(saved.folder).model);
  const TokenizerPair tokenizers = word_tokenizers(false);
  const std::string message = message_of<IoError>(
      [&] { save_model_folder(saved.folder / "options.json", model_for(tokenizers, 2), tokenizers); });
  CHECK(contains(message, "options.json"));
  CHECK(weights_of(load_model_folder(saved.folder).model) == weights);
}

TEST_CASE("the committed folder loads and translates as it did") {
  const fs::path folder = testing::fixtures_folder() / "translation_model";
  const auto loaded = load_model_folder(folder);
  CHECK(loaded.description.model.layer.d_model == 16);
  CHECK(loaded.description.tokenizer == "word");
  CHECK_FALSE(loaded.tokenizers.joint());
  CHECK(loaded.description.training.at("warmup") == 20);
  const std::vector<std::string> lines = {"I see the dog.", "Do you see the house?", "The cat sleeps.",
                                          "We are old."};
  const std::vector<std::string> expected = {"Ich sehe den Hund.", "Siehst du das Haus?",
                                             "Die Katze schläft.", "Wir sind alt."};
  CHECK(translate(loaded, lines, 1) == expected);
  CHECK(translate(loaded, lines, 4) == expected);
}

TEST_CASE("a model of every variant of positions and heads saves, loads, packs and translates") {
  const TokenizerPair tokenizers = word_tokenizers(false);
  for (const auto& variant : testing::attention_variants()) {
    const std::string& name = variant.first;
    Seq2SeqOptions options = variant.second;
    CAPTURE(name);
    options.source_vocab_size = tokenizers.source->vocabulary_size();
    options.target_vocab_size = tokenizers.target->vocabulary_size();
    RandomGenerator rng(3);
    TranslationModel<float> made{{}, tokenizers, {options, rng}};
    rng.fill_normal(made.model.projection_bias.value().data(), options.target_vocab_size, 0, 0.5);
    TemporaryFolder scratch;
    save_model_folder(scratch.path() / "model", made.model, tokenizers);
    const auto loaded = load_model_folder<float>(scratch.path() / "model");
    CHECK(weights_of(loaded.model) == weights_of(made.model));
    const std::vector<std::string> lines{"the dog sees a cat", "a dog"};
    const auto translations = translate(made, lines, 2);
    CHECK(translate(loaded, lines, 2) == translations);
    const auto packed = Context<float>::inference().with_packed_weights(pack_weights(loaded.model));
    const std::vector<std::vector<std::int32_t>> sources{{5, 6, 7, 3}};
    const auto a = generate(loaded.model, packed, sources, {.max_length = 8});
    const auto b = generate(loaded.model, Context<float>::inference(), sources, {.max_length = 8});
    CHECK(a[0][0].ids == b[0][0].ids);
  }
}

namespace {

// An encoder layer with parameters that the library's layers do not have.
struct ScaledLayer : EncoderLayer<float> {
  Parameter<float> scale;
  ScaledLayer(const LayerOptions& options, RandomGenerator& rng)
      : EncoderLayer<float>(options, rng), scale(Tensor<float>::ones({options.d_model})) {
    name_parameters(*this);
  }
  static void fields(auto& self, auto&& visit) {
    visit("layer", static_cast<std::conditional_t<std::is_const_v<std::remove_reference_t<decltype(self)>>,
                                                  const EncoderLayer<float>, EncoderLayer<float>>&>(self));
    visit("scale", self.scale);
  }
};

// Encoder and decoder share their feed-forward networks.
struct SharedFeedForward : Seq2SeqTransformer<float> {
  SharedFeedForward(const Seq2SeqOptions& options, RandomGenerator& rng)
      : Seq2SeqTransformer<float>(options, rng) {
    tie(transformer.decoder.layers[0].feed_forward, transformer.encoder.layers[0].feed_forward);
    name_parameters(*this);
  }
};

}  // namespace

TEST_CASE("a model that was saved alone loads by load_model_folder and load_packed_folder") {
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "model";
  RandomGenerator rng(1);
  const Seq2SeqTransformer<float> model(
      {.source_vocab_size = 20, .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}}, rng);
  save_model_folder(folder, model);
  const auto loaded = load_model_folder(folder);
  CHECK(weights_of(loaded.model) == weights_of(model));
  CHECK(loaded.tokenizers.source == nullptr);
  const auto packed = load_packed_folder(folder);
  const std::vector<std::vector<std::int32_t>> sources = {{7, 8, 9, 3}};
  const auto ctx = Context<float>::inference();
  CHECK(generate(packed.loaded.model, packed.context(), sources)[0][0].ids ==
        generate(model, ctx, sources)[0][0].ids);
}

TEST_CASE("a folder of a model with layers of another type says so, and loads as that type") {
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "model";
  using Own = Seq2SeqTransformer<float, ScaledLayer>;
  RandomGenerator rng(1);
  const Seq2SeqOptions options{.source_vocab_size = 20,
                               .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                               .encoder = {.num_layers = 2},
                               .decoder = {.num_layers = 1}};
  const Own model(options, rng);
  for (const WeightFormat format : {WeightFormat::float32, WeightFormat::bf16, WeightFormat::int8}) {
    CAPTURE(word_of(format));
    save_model_folder(folder, model, {}, {}, format);
    CHECK(message_of<IoError>([&] { (void)load_model_folder(folder); }) ==
          "[load_model_folder] '" + folder.string() +
              "' holds a model of another type, such as one with layers of its own: 26 of its tensors, the "
              "first "
              "being 'encoder.layers.0.layer.linear1.bias', are not in this type, which has 24 others, the "
              "first "
              "being 'encoder.layers.0.linear1.bias'; load it by load_model_folder<M>(folder), M being the "
              "type "
              "that was saved, such as Seq2SeqTransformer<float, MyLayer>");
    CHECK(weights_of(load_model_folder<Own>(folder).model).size() == weights_of(model).size());
  }
  save_model_folder(folder, model);
  CHECK(weights_of(load_model_folder<Own>(folder).model) == weights_of(model));
}

TEST_CASE("layers that share parameters are saved once, and shared again after loading") {
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "model";
  RandomGenerator rng(1);
  const Seq2SeqOptions options{.source_vocab_size = 20,
                               .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                               .encoder = {.num_layers = 1},
                               .decoder = {.num_layers = 1}};
  const SharedFeedForward model(options, rng);
  const std::vector<std::vector<std::int32_t>> sources = {{7, 8, 9, 3}};
  for (const WeightFormat format : {WeightFormat::float32, WeightFormat::int8}) {
    CAPTURE(word_of(format));
    save_model_folder(folder, model, {}, {}, format);
    const SafetensorsFile file = SafetensorsFile::open(folder / "model.safetensors");
    CHECK(file.contains("encoder.layers.0.linear1.weight"));
    CHECK_FALSE(file.contains("decoder.layers.0.linear1.weight"));
    const auto loaded = load_model_folder<SharedFeedForward>(folder);
    CHECK(count_parameters(loaded.model) == count_parameters(model));
    CHECK(loaded.model.transformer.decoder.layers[0].feed_forward.linear1.weight.id() ==
          loaded.model.transformer.encoder.layers[0].feed_forward.linear1.weight.id());
    if (format == WeightFormat::float32) CHECK(weights_of(loaded.model) == weights_of(model));
    const auto packed = load_packed_folder<SharedFeedForward>(folder);
    CHECK(generate(packed.loaded.model, packed.context(), sources)[0][0].ids.size() > 0);
  }
}
