#include "eigenformer/io/models/model_folder.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "eigenformer/data/text/text_file.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/sequence_regressor.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"
#include "folders.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using testing::contains;
using testing::message_of;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

std::shared_ptr<const Tokenizer> words() {
  ParallelCorpus corpus;
  corpus.source = corpus.target = {"the dog sleeps", "a cat sees the dog"};
  return train_tokenizers({.kind = "word", .vocabulary_size = 100, .joint = true}, corpus).source;
}

template <class M>
std::vector<float> weights_of(const M& model) {
  std::vector<float> all;
  for_each_parameter(model, [&](const std::string&, const auto& p) {
    all.insert(all.end(), p.value().span().begin(), p.value().span().end());
  });
  return all;
}

nlohmann::json options_of(const fs::path& folder) {
  return nlohmann::json::parse(detail::read_text_file(folder / "options.json"));
}

// A model of somebody's own.
struct SlopeOptions {
  index_t features = 0;
  double slope = 1;
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"features", "features of a row", Allowed::positive}, self.features);
    visit(OptionField{"slope", "factor of the output", Allowed::finite}, self.slope);
  }
};
struct SlopeModel {
  using value_type = float;
  static constexpr const char* format = "test-slope";
  SlopeOptions options;
  Linear<float> linear;
  SlopeModel(const SlopeOptions& given, RandomGenerator& rng)
      : options(given), linear({given.features, given.features}, rng) {
    name_parameters(*this);
  }
  static void fields(auto& self, auto&& visit) { visit("linear", self.linear); }
};
static_assert(FolderModel<SlopeModel>);
static_assert(FolderModel<LanguageModel<double>>);
static_assert(!FolderModel<Linear<float>>);

}  // namespace

TEST_CASE("a language model's folder comes back with its tokenizer, in every weight format") {
  const auto tokenizer = words();
  RandomGenerator rng(1);
  const LanguageModel<float> model({.vocab_size = tokenizer->vocabulary_size(),
                                    .num_layers = 2,
                                    .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                                    .positions = LearnedPositions{},
                                    .max_length = 9,
                                    .tied = true},
                                   rng);
  for (const WeightFormat format : {WeightFormat::float32, WeightFormat::bf16, WeightFormat::int8}) {
    CAPTURE(word_of(format));
    const TemporaryFolder scratch;
    save_model_folder(scratch.path() / "m", model, {tokenizer, tokenizer}, {{"epochs", 3}}, format);
    const auto loaded = load_model_folder<LanguageModel<float>>(scratch.path() / "m");
    CHECK(loaded.description.tokenizer == "word");
    CHECK(loaded.description.weights == format);
    CHECK(loaded.description.training == nlohmann::json{{"epochs", 3}});
    CHECK(loaded.tokenizers.joint());
    CHECK(loaded.tokenizers.target->encode("the cat sees") == tokenizer->encode("the cat sees"));
    CHECK(options_to_json(loaded.model.options) == options_to_json(model.options));
    CHECK((weights_of(loaded.model) == weights_of(model)) == (format == WeightFormat::float32));
    save_model_folder(scratch.path() / "again", loaded, format);
    CHECK(detail::read_text_file(scratch.path() / "again/model.safetensors") ==
          detail::read_text_file(scratch.path() / "m/model.safetensors"));
    CHECK(options_of(scratch.path() / "again") == options_of(scratch.path() / "m"));
  }
}

TEST_CASE("models without a tokenizer, and models of somebody's own, have folders") {
  RandomGenerator rng(1);
  const TemporaryFolder scratch;
  const SlopeModel model({.features = 5, .slope = 0.5}, rng);
  save_model_folder(scratch.path() / "m", model);
  CHECK(options_of(scratch.path() / "m").at("tokenizer").is_null());
  const auto loaded = load_model_folder<SlopeModel>(scratch.path() / "m");
  CHECK(loaded.model.options.slope == 0.5);
  CHECK(loaded.tokenizers.source == nullptr);
  CHECK(loaded.description.tokenizer.empty());
  CHECK(weights_of(loaded.model) == weights_of(model));
  const SequenceRegressor<float> regressor(
      {.source_features = 3, .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}}, rng);
  save_model_folder(scratch.path() / "r", regressor);
  CHECK(weights_of(load_model_folder<SequenceRegressor<float>>(scratch.path() / "r").model) ==
        weights_of(regressor));
  const TextEncoder<float> encoder(
      {.vocab_size = 11, .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}}, rng);
  save_model_folder(scratch.path() / "e", encoder);
  CHECK(weights_of(load_model_folder<TextEncoder<float>>(scratch.path() / "e").model) == weights_of(encoder));

  const Seq2SeqTransformer<float> seq2seq(
      {.source_vocab_size = 11, .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}}, rng);
  save_model_folder(scratch.path() / "s", seq2seq);
  CHECK(weights_of(load_model_folder<Seq2SeqTransformer<float>>(scratch.path() / "s").model) ==
        weights_of(seq2seq));
  CHECK(load_model_folder(scratch.path() / "s").tokenizers.source == nullptr);

  const std::string message = message_of<IoError>([&] { (void)load_model_folder(scratch.path() / "m"); });
  CHECK(contains(message, "format is \"test-slope\", expected \"eigenformer-translation\""));
  CHECK(contains(message, "options.json"));
}

TEST_CASE("models whose stacks or positions differ come back from each format of weights") {
  const auto tokenizer = words();
  RandomGenerator rng(1);
  Seq2SeqOptions options = {.source_vocab_size = tokenizer->vocabulary_size(),
                            .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                            .encoder = {.num_layers = 3},
                            .decoder = {.num_layers = 1}};
  const TemporaryFolder scratch;
  const auto check = [&](const char* name, const auto& model, WeightFormat format = WeightFormat::float32) {
    save_model_folder(scratch.path() / name, model, {tokenizer, tokenizer}, {}, format);
    const auto loaded = load_model_folder<Seq2SeqTransformer<float>>(scratch.path() / name);
    CHECK(options_to_json(loaded.model.options) == options_to_json(model.options));
    if (format == WeightFormat::float32) CHECK(weights_of(loaded.model) == weights_of(model));
    CHECK(options_of(scratch.path() / name).at("format_version") == detail::model_format_version);
  };
  check("same", Seq2SeqTransformer<float>(options, rng));
  check("small", Seq2SeqTransformer<float>(options, rng), WeightFormat::bf16);
  check("small8", Seq2SeqTransformer<float>(options, rng), WeightFormat::int8);
  options.decoder.layer = options.layer;
  check("equal", Seq2SeqTransformer<float>(options, rng));
  options.decoder.layer->num_heads = 2;
  options.decoder.layer->dim_feedforward = 16;
  check("narrow", Seq2SeqTransformer<float>(options, rng));
  check("narrow16", Seq2SeqTransformer<float>(options, rng), WeightFormat::bf16);
  check("narrower", Seq2SeqTransformer<float>(options, rng), WeightFormat::int8);
  options.decoder.layer.reset();
  options.positions = LearnedPositions{};
  options.max_length = 7;
  check("learned", Seq2SeqTransformer<float>(options, rng));
  options.layer.attention.positions = RotaryPositions{};
  check("both", Seq2SeqTransformer<float>(options, rng));
}

TEST_CASE("sizes that are not the file's are refused before a model of them takes memory") {
  RandomGenerator rng(1);
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "m";
  const LanguageModel<float> model(
      {.vocab_size = 11, .num_layers = 2, .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}},
      rng);
  save_model_folder(folder, model);
  const std::string before = detail::read_text_file(folder / "options.json");
  for (const char* name : {"vocab_size", "num_layers", "d_model", "dim_feedforward"}) {
    CAPTURE(name);
    nlohmann::json json = nlohmann::json::parse(before);
    json["model"][name] = 1'800'000'000;
    scratch.write("m/options.json", json.dump());
    const std::string message =
        message_of<IoError>([&] { (void)load_model_folder<LanguageModel<float>>(folder); });
    CHECK(contains(message, "model.safetensors"));
    CHECK(contains(message, std::string(name) + " is 1800000000"));
  }
}
