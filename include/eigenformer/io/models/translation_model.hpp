#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/tokenizers/tokenizer_factory.hpp"
#include "eigenformer/io/models/conventions_json.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/io/models/quantized_model.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/version.hpp"

/// A model folder holds all that translating needs:
///
///   options.json         format_version, the weights' format, the model's options, the tokenizer's kind,
///   what training
///                        was told; of models from elsewhere also `text`, their conventions
///   model.safetensors    the weights, under PyTorch's names (io/quantized_model.hpp: bf16 and int8)
///   tokenizer.model      (subword), tokenizer.vocab (char, word) or tokenizer.tokenizer (from elsewhere);
///   source.* and
///                        target.* where the languages have tokenizers of their own
namespace eigenformer {

/// The newest version of the model folder's format that this library reads and writes. Float32 weights are
/// version 1, so that older readers take them, smaller ones version 2, models with conventions from elsewhere
/// version 3.
inline constexpr int model_format_version = 3;

/// What a model folder's options.json says.
struct ModelDescription {
  int format_version = 1;
  std::string library_version = version_string();  ///< of the library that wrote it
  WeightFormat weights = WeightFormat::float32;    ///< in the file; what is loaded are float parameters
  Seq2SeqOptions model{};
  std::string tokenizer = "subword";  ///< char, word or subword
  bool joint = true;                  ///< one vocabulary for both languages
  TextConventions text{};             ///< what stands around a sentence, and which ids the search is to know
  nlohmann::json training =
      nlohmann::json::object();  ///< what training was told; translating does not look at it
};

/// A model with its tokenizers: text in, text out.
template <class T = float>
struct TranslationModel {
  ModelDescription description;
  TokenizerPair tokenizers;
  Seq2SeqTransformer<T> model;
};

namespace detail {

inline std::string tokenizer_file(const std::string& kind, const std::string& name) {
  if (kind == "char" || kind == "word") return name + ".vocab";
  return name + (kind == "subword" ? ".model" : ".tokenizer");
}

// Each file is looked up by itself: an interrupted commit may have moved one of them and not the other.
inline std::shared_ptr<const Tokenizer> load_folder_tokenizer(const std::string& kind,
                                                              const std::filesystem::path& folder,
                                                              const std::string& name) {
  return load_tokenizer(kind, folder_file(folder, tokenizer_file(kind, name)).parent_path(), name);
}

// What options.json says that it is.
inline constexpr const char* model_format = "eigenformer-translation";

// The options of a file, in the file's names where they are not the field's. Positions are counted in 32
// bits, as tokens are; max_length also cuts what models without a table of positions read.
inline void validate_file_options(const Seq2SeqOptions& o) {
  constexpr index_t most = std::numeric_limits<std::int32_t>::max();
  if (o.max_length < 1 || o.max_length > most - std::clamp<index_t>(o.learned_position_offset, 0, most - 1)) {
    throw ValueError("options", "max_length is " + std::to_string(o.max_length) +
                                    ", must be at least 1 and with learned_position_offset at most " +
                                    std::to_string(most));
  }
  if (o.positions == Positions::sinusoidal && !(o.sinusoid.base > 0)) {
    throw ValueError("options", "sinusoid_base is " + std::to_string(o.sinusoid.base) + ", must be positive");
  }
  if (o.positions == Positions::sinusoidal && o.sinusoid.first_position < 0) {
    throw ValueError("options", "sinusoid_first_position is " + std::to_string(o.sinusoid.first_position) +
                                    ", must not be negative");
  }
  o.validate("options");
}

// Finds sizes in the options that are not the file's before a model of such sizes takes memory.
inline void require_sizes(const std::filesystem::path& path, const Seq2SeqOptions& o) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const auto require = [&](const std::string& name, index_t axis, index_t size, const char* option) {
    if (!file.contains(name)) {
      throw IoError("load_model_folder",
                    "'" + path.string() + "' has no tensor '" + name + "', which options.json asks for");
    }
    const Shape& shape = file.info(name).shape;
    if (shape.rank() == 2 && shape[axis] == size) return;
    throw IoError("load_model_folder", "'" + path.string() + "' does not fit options.json: tensor '" + name +
                                           "' has shape " + shape.str() + ", but " + option + " is " +
                                           std::to_string(size));
  };
  const auto layer = [](const char* stack, index_t i, const char* name) {
    return std::string(stack) + ".layers." + std::to_string(i) + name;
  };
  require("source_embedding.weight", 0, o.source_vocab_size, "source_vocab_size");
  require("source_embedding.weight", 1, o.d_model, "d_model");
  require(layer("encoder", o.num_encoder_layers - 1, ".linear1.weight"), 0, o.dim_feedforward,
          "dim_feedforward");
  require(layer("decoder", o.num_decoder_layers - 1, ".linear1.weight"), 0, o.dim_feedforward,
          "dim_feedforward");
  for (const auto& [stack, layers] :
       {std::pair{"encoder", o.num_encoder_layers}, std::pair{"decoder", o.num_decoder_layers}}) {
    const index_t heads =
        o.num_heads + 2 * (o.num_key_value_heads != 0 ? o.num_key_value_heads : o.num_heads);
    const index_t head_dim = o.head_dim != 0 ? o.head_dim : o.d_model / o.num_heads;
    require(layer(stack, layers - 1, ".self_attn.in_proj_weight"), 0, heads * head_dim,
            "(num_heads + 2 num_key_value_heads) head_dim");
    if (o.positions == Positions::shaw) {
      require(layer(stack, layers - 1, ".self_attn.relative_keys"), 0, 2 * o.shaw_max_distance + 1,
              "2 shaw_max_distance + 1");
    }
    if (o.positions == Positions::relative_bias) {
      require(std::string(stack) + ".relative_bias.weight", 0, o.relative_bias.buckets,
              "relative_bias_buckets");
    }
  }
  if (o.positions == Positions::learned) {
    require("source_positions.weight", 0, o.learned_position_offset + o.max_length,
            o.learned_position_offset == 0 ? "max_length" : "learned_position_offset + max_length");
  }
}

}  // namespace detail

/// Whether a folder holds a model, of whatever version and state.
inline bool is_model_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder_file(folder, "options.json"), ignored) ||
         std::filesystem::exists(folder_file(folder, "model.safetensors"), ignored);
}

/// Writes a model folder. Its files are replaced together: an error or an interruption leaves the old model
/// as it was. The description's sizes and tokenizer are taken from the model and the tokenizers; `weights` is
/// the format they are written in, `text` what a model from elsewhere expects around a sentence. Throws
/// IoError, and ValueError for weights that are not finite or were given back.
template <class T>
void save_model_folder(const std::filesystem::path& folder, const Seq2SeqTransformer<T>& model,
                       const TokenizerPair& tokenizers,
                       const nlohmann::json& training = nlohmann::json::object(),
                       WeightFormat weights = WeightFormat::float32, const TextConventions& text = {}) {
  const std::string kind = tokenizers.source->kind();
  nlohmann::json options = {
      {"format", detail::model_format},
      {"format_version", 1},
      {"library_version", version_string()},
      {"model", options_to_json(model.options)},
      {"tokenizer", {{"kind", kind}, {"joint", tokenizers.joint()}}},
      {"training", training},
  };
  if (weights != WeightFormat::float32) {
    options["format_version"] = 2;
    options["weights"] = weight_format_name(weights);
  }
  if (text != TextConventions{}) {
    options["format_version"] = 3;
    options["text"] = conventions_to_json(text);
  }
  FolderTransaction save(folder);
  write_file(save.file("options.json"), options.dump(2) + "\n");
  save_quantized_model(save.file("model.safetensors"), model, weights);
  for (const char* name : {"tokenizer", "source", "target"}) {
    if (tokenizers.joint() != (std::string(name) == "tokenizer")) continue;
    const Tokenizer& tokenizer = std::string(name) == "target" ? *tokenizers.target : *tokenizers.source;
    tokenizer.save(save.file(detail::tokenizer_file(kind, name)).parent_path(), name);
  }
  save.commit();
}

/// Reads a model folder's options.json. Throws IoError that names the file and what is wrong with it.
inline ModelDescription read_model_description(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    throw IoError("load_model_folder", "the folder '" + folder.string() + "' does not exist");
  }
  const std::filesystem::path path = folder_file(folder, "options.json");
  if (!std::filesystem::exists(path, ignored)) {
    throw IoError("load_model_folder",
                  "'" + folder.string() + "' is not a model folder: it has no options.json");
  }
  const std::string text = read_text_file(path);
  const auto refuse = [&](const std::string& what) {
    return IoError("load_model_folder", "'" + path.string() + "' " + what);
  };
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) throw refuse("is truncated or not JSON");
  if (!json.is_object() || !json.contains("format_version") ||
      !json.at("format_version").is_number_integer() || !json.contains("model") ||
      !json.contains("tokenizer")) {
    throw refuse("is not that of a model folder: expected format_version, model and tokenizer");
  }
  if (!json.contains("format") || json.at("format") != detail::model_format) {
    throw refuse("is not that of a model folder: format is " +
                 (json.contains("format") ? json.at("format").dump() : std::string("absent")) +
                 ", expected \"" + detail::model_format + "\"");
  }
  ModelDescription d;
  d.format_version = json.at("format_version").get<int>();
  if (d.format_version < 1 || d.format_version > model_format_version) {
    throw refuse("has format_version " + std::to_string(d.format_version) +
                 ", this version of the library (" + version_string() + ") reads 1 to " +
                 std::to_string(model_format_version));
  }
  try {
    if (json.contains("library_version"))
      detail::option_from_json("library_version", json.at("library_version"), d.library_version);
    if (json.contains("weights")) detail::option_from_json("weights", json.at("weights"), d.weights);
    d.model = options_from_json<Seq2SeqOptions>(json.at("model"));
    detail::validate_file_options(d.model);
    const nlohmann::json& tokenizer = json.at("tokenizer");
    if (!tokenizer.is_object() || !tokenizer.contains("kind") || !tokenizer.contains("joint")) {
      throw ValueError("options", "tokenizer is " + tokenizer.dump() + ", expected kind and joint");
    }
    detail::option_from_json("kind", tokenizer.at("kind"), d.tokenizer);
    detail::option_from_json("joint", tokenizer.at("joint"), d.joint);
    if (json.contains("text")) {
      d.text = conventions_from_json(json.at("text"), d.model.source_vocab_size, d.model.target_size());
    }
    if (json.contains("training")) d.training = json.at("training");
  } catch (const ValueError& error) {
    throw refuse("is damaged or foreign: " + std::string(error.what()));
  }
  return d;
}

/// Reads a model folder. Throws IoError that names the file and what is wrong with it: missing, truncated,
/// foreign, of a newer format; ValueError for a kind of tokenizer that is not built in.
template <class T = float>
TranslationModel<T> load_model_folder(const std::filesystem::path& folder) {
  ModelDescription description = read_model_description(folder);
  const std::string& kind = description.tokenizer;
  TokenizerPair tokenizers;
  tokenizers.source = detail::load_folder_tokenizer(kind, folder, description.joint ? "tokenizer" : "source");
  tokenizers.target =
      description.joint ? tokenizers.source : detail::load_folder_tokenizer(kind, folder, "target");
  const auto check = [&](const char* side, const Tokenizer& tokenizer, index_t size) {
    if (tokenizer.vocabulary_size() == size) return;
    throw IoError("load_model_folder", "'" + folder.string() + "' does not fit together: the " + side +
                                           " tokenizer has " + std::to_string(tokenizer.vocabulary_size()) +
                                           " ids, options.json says " + std::to_string(size));
  };
  check("source", *tokenizers.source, description.model.source_vocab_size);
  check("target", *tokenizers.target, description.model.target_size());
  const std::filesystem::path weights = folder_file(folder, "model.safetensors");
  detail::require_sizes(weights, description.model);
  RandomGenerator rng = RandomGenerator::idle();
  Seq2SeqTransformer<T> model(description.model, rng);
  load_quantized_model(weights, model, description.weights);
  return {std::move(description), std::move(tokenizers), std::move(model)};
}

}  // namespace eigenformer
