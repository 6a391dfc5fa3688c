#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/tokenizers/tokenizer_factory.hpp"
#include "eigenformer/io/adapters/adapter_folder.hpp"
#include "eigenformer/io/models/conventions_json.hpp"
#include "eigenformer/io/models/folder_sizes.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/io/models/quantized_model.hpp"
#include "eigenformer/version.hpp"

/// A model folder holds all that a model needs:
///
///   options.json         format (the kind of model), format_version, the weights' format, the model's
///   options,
///                        the tokenizer's kind, what training was told; of models from elsewhere also `text`,
///                        their conventions
///   model.safetensors    the weights, under PyTorch's names (io/models/quantized_model.hpp: bf16 and int8)
///   tokenizer.model      (subword), tokenizer.vocab (char, word) or tokenizer.tokenizer (from elsewhere);
///                        source.* and target.* where the languages have tokenizers of their own; none of
///                        them for a model without a tokenizer
namespace eigenformer {

/// The newest version of the model folder's format that this library reads and writes. Float32 weights are
/// version 1, so that older readers take them, bfloat16 ones version 2, models with conventions from
/// elsewhere version 3, models with stacks that differ, or with positions both added and in attention,
/// version 4, int8 weights as the kernels read them version 5 (in older folders of int8 weights they were
/// rows of a matrix), models with an SSRU or a constant_id, and int8 weights that came with scales of their
/// own (see quantized_model.hpp), version 6.
inline constexpr int model_format_version = 6;

/// A model that a folder can hold: a module made of options that list their fields, and of a generator;
/// M::format says in options.json what it is.
///
///     struct MyModel {
///       static constexpr const char* format = "my-model";
///       MyOptions options;
///       MyModel(const MyOptions&, ef::RandomGenerator&);
///       ...
///     };
template <class M>
concept FolderModel = Module<M> && requires(const M& model) {
  typename M::value_type;
  requires OptionsStruct<std::remove_cvref_t<decltype(model.options)>>;
  { M::format } -> std::convertible_to<std::string>;
} && std::constructible_from<M, const decltype(M::options)&, RandomGenerator&>;

/// What a model folder's options.json says.
template <OptionsStruct Options>
struct FolderDescription {
  int format_version = 1;
  std::string library_version = version_string();  ///< of the library that wrote it
  WeightFormat weights = WeightFormat::float32;    ///< in the file; what is loaded are float parameters
  Options model{};
  std::string tokenizer = "subword";  ///< its kind, such as char, word or subword; empty: there is none
  bool joint = true;                  ///< one vocabulary for both languages
  TextConventions text{};             ///< what stands around a sentence, and which ids the search is to know
  nlohmann::json training =
      nlohmann::json::object();  ///< what training was told; running the model does not look at it
};

/// A model of a folder, with its tokenizers (null for a model without) and what the folder says of it.
template <class M>
struct LoadedModel {
  FolderDescription<std::remove_cvref_t<decltype(M::options)>> description;
  TokenizerPair tokenizers;
  M model;
};

namespace detail {

inline std::string tokenizer_file(const std::string& kind, const std::string& name) {
  if (kind == "char" || kind == "word") return name + ".vocab";
  return name + (kind == "subword" ? ".model" : ".tokenizer");
}

// What may wait for ever when it is opened, such as a named pipe, is no file of a model.
inline void require_no_stream(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || std::filesystem::is_regular_file(path, ignored) ||
      std::filesystem::is_directory(path, ignored)) {
    return;
  }
  throw IoError("load_model_folder", "cannot open '" + path.string() + "': it is not a regular file");
}

// Each file is looked up by itself: an interrupted commit may have moved one of them and not the other.
inline std::shared_ptr<const Tokenizer> load_folder_tokenizer(const std::string& kind,
                                                              const std::filesystem::path& folder,
                                                              const std::string& name) {
  const std::filesystem::path path = folder_file(folder, tokenizer_file(kind, name));
  require_no_stream(path);
  return load_tokenizer(kind, path.parent_path(), name);
}

inline TokenizerPair load_folder_tokenizers(const std::string& kind, bool joint,
                                            const std::filesystem::path& folder) {
  TokenizerPair pair;
  if (kind.empty()) return pair;
  pair.source = load_folder_tokenizer(kind, folder, joint ? "tokenizer" : "source");
  pair.target = joint ? pair.source : load_folder_tokenizer(kind, folder, "target");
  return pair;
}

// The number of ids that a model's options ask of its tokenizers; 0: any.
template <class Options>
std::pair<index_t, index_t> vocabulary_sizes(const Options& o) {
  if constexpr (requires { o.source_vocab_size + o.target_size(); }) {
    return {o.source_vocab_size, o.target_size()};
  } else if constexpr (requires { o.vocab_size + index_t{}; }) {
    return {o.vocab_size, o.vocab_size};
  } else {
    return {0, 0};
  }
}

template <class Options>
void validate_file_options(const Options& o) {
  if constexpr (requires {
                  input_positions(o.positions, o.layer);
                  o.max_length;
                }) {
    // Positions are counted in 32 bits, as tokens are; max_length also cuts what models without a table of
    // positions read.
    constexpr index_t most = std::numeric_limits<std::int32_t>::max();
    const InputPositions positions = input_positions(o.positions, o.layer);
    const auto* learned = std::get_if<LearnedPositions>(&positions);
    const index_t offset = learned == nullptr ? 0 : std::clamp<index_t>(learned->offset, 0, most - 1);
    if (o.max_length < 1 || o.max_length > most - offset) {
      throw ValueError("options", "max_length is " + std::to_string(o.max_length) +
                                      ", must be at least 1 and with learned_position_offset at most " +
                                      std::to_string(most));
    }
  }
  if constexpr (requires { o.validate("options"); }) {
    o.validate("options");
  } else {
    validate_fields("options", o);
  }
}

}  // namespace detail

/// Whether a folder holds a model, of whatever kind, version and state.
inline bool is_model_folder(const std::filesystem::path& folder) {
  return has_folder_file(folder, "options.json") || has_folder_file(folder, "model.safetensors");
}

namespace detail {

/// Files that every save of a model replaces; see read_folder().
inline const std::vector<std::string>& files_of_each_save() {
  static const std::vector<std::string> names = {"options.json", "model.safetensors"};
  return names;
}

/// stage_model() with the weights written by write_weights(path).
template <FolderModel M, class F>
void stage_folder(const FolderTransaction& save, const M& model, const TokenizerPair& tokenizers,
                  const nlohmann::json& training, WeightFormat weights, const TextConventions& text,
                  int least_version, F&& write_weights) {
  const std::string kind = tokenizers.source ? tokenizers.source->kind() : "";
  nlohmann::json options = {
      {"format", M::format},
      {"format_version", 1},
      {"library_version", version_string()},
      {"model", options_to_json(model.options)},
      {"tokenizer", nullptr},
      {"training", training},
  };
  if (!kind.empty()) options["tokenizer"] = {{"kind", kind}, {"joint", tokenizers.joint()}};
  int version = least_version;
  if (weights != WeightFormat::float32) {
    version = std::max(version, 2);
    options["weights"] = weight_format_name(weights);
  }
  if (text != TextConventions{}) {
    version = std::max(version, 3);
    options["text"] = conventions_to_json(text);
  }
  if (!is_readable_by_0_1_0(options.at("model"))) version = std::max(version, 4);
  if (weights == WeightFormat::int8) version = std::max(version, 5);
  if (is_of_version_6(options.at("model"))) version = std::max(version, 6);
  options["format_version"] = version;
  write_file(save.file("options.json"), options.dump(2) + "\n");
  write_weights(save.file("model.safetensors"));
  for (const char* name : {"tokenizer", "source", "target"}) {
    if (kind.empty() || tokenizers.joint() != (std::string(name) == "tokenizer")) continue;
    const Tokenizer& tokenizer = std::string(name) == "target" ? *tokenizers.target : *tokenizers.source;
    tokenizer.save(save.file(tokenizer_file(kind, name)).parent_path(), name);
  }
}

/// save_model_folder() with the weights written by write_weights(path).
template <FolderModel M, class F>
void save_folder(const std::filesystem::path& folder, const M& model, const TokenizerPair& tokenizers,
                 const nlohmann::json& training, WeightFormat weights, const TextConventions& text,
                 int least_version, F&& write_weights) {
  FolderTransaction save(folder);
  stage_folder(save, model, tokenizers, training, weights, text, least_version,
               std::forward<F>(write_weights));
  save.commit();
}

}  // namespace detail

/// Writes the files of a model folder into a transaction, which the caller commits, with files of its own
/// perhaps. Otherwise as save_model_folder().
template <FolderModel M>
void stage_model(const FolderTransaction& save, const M& model, const TokenizerPair& tokenizers = {},
                 const nlohmann::json& training = nlohmann::json::object(),
                 WeightFormat weights = WeightFormat::float32, const TextConventions& text = {}) {
  detail::stage_folder(save, model, tokenizers, training, weights, text, 1,
                       [&](const auto& path) { save_quantized_model(path, model, weights); });
}

/// Writes a model folder. Its files are replaced together: an error or an interruption leaves the old model
/// as it was. The tokenizer's kind is taken from the tokenizers; none are saved where they are null.
/// `weights` is the format they are written in, `text` what a model from elsewhere expects around a sentence.
/// Throws IoError, and ValueError for weights that are not finite or were released.
template <FolderModel M>
void save_model_folder(const std::filesystem::path& folder, const M& model,
                       const TokenizerPair& tokenizers = {},
                       const nlohmann::json& training = nlohmann::json::object(),
                       WeightFormat weights = WeightFormat::float32, const TextConventions& text = {}) {
  detail::save_folder(folder, model, tokenizers, training, weights, text, 1,
                      [&](const auto& path) { save_quantized_model(path, model, weights); });
}

/// Writes what load_model_folder() or an import gave, with its tokenizers and conventions.
template <FolderModel M>
void save_model_folder(const std::filesystem::path& folder, const LoadedModel<M>& loaded,
                       WeightFormat weights = WeightFormat::float32) {
  save_model_folder(folder, loaded.model, loaded.tokenizers, loaded.description.training, weights,
                    loaded.description.text);
}

namespace detail {

// read_model_description(), at a moment when nobody writes.
template <FolderModel M>
FolderDescription<std::remove_cvref_t<decltype(M::options)>> read_description(
    const std::filesystem::path& folder) {
  using Options = std::remove_cvref_t<decltype(M::options)>;
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    throw IoError("load_model_folder", "the folder '" + folder.string() + "' does not exist");
  }
  const std::filesystem::path path = folder_file(folder, "options.json");
  if (!std::filesystem::exists(path, ignored)) {
    throw IoError("load_model_folder",
                  "'" + folder.string() + "' is not a model folder: " +
                      (is_adapter_folder(folder)
                           ? "it holds an adapter; give the model that it adapts and this folder as its "
                             "adapter, or merge the two"
                           : "it has no options.json"));
  }
  require_no_stream(path);
  const std::string text = read_text_file(path);
  const auto refuse = [&](const std::string& what) {
    return IoError("load_model_folder", "'" + path.string() + "' " + what);
  };
  nlohmann::json json;
  try {
    json = parse_json(text);
  } catch (const nlohmann::json::exception&) {
    throw refuse("is truncated or not JSON");
  } catch (const ValueError& error) {
    throw refuse(message_of(error));
  }
  if (!json.is_object() || !json.contains("format_version") ||
      !json.at("format_version").is_number_integer() || !json.contains("model") ||
      !json.contains("tokenizer")) {
    throw refuse("is not that of a model folder: expected format_version, model and tokenizer");
  }
  if (!json.contains("format") || json.at("format") != M::format) {
    throw refuse("describes another kind of model: format is " +
                 (json.contains("format") ? json.at("format").dump() : std::string("absent")) +
                 ", expected \"" + M::format + "\"");
  }
  FolderDescription<Options> d;
  const nlohmann::json& format_version = json.at("format_version");
  if (format_version < 1 || format_version > model_format_version) {
    throw refuse("has format_version " + format_version.dump() + ", this version of the library (" +
                 version_string() + ") reads 1 to " + std::to_string(model_format_version));
  }
  d.format_version = format_version.template get<int>();
  try {
    if (json.contains("library_version"))
      detail::option_from_json("library_version", json.at("library_version"), d.library_version);
    if (json.contains("weights")) detail::option_from_json("weights", json.at("weights"), d.weights);
    d.model = options_from_json<Options>(json.at("model"));
    detail::validate_file_options(d.model);
    const nlohmann::json& tokenizer = json.at("tokenizer");
    d.tokenizer.clear();
    if (!tokenizer.is_null()) {
      if (!tokenizer.is_object() || !tokenizer.contains("kind") || !tokenizer.contains("joint")) {
        throw ValueError("options", "tokenizer is " + tokenizer.dump() + ", expected kind and joint");
      }
      detail::option_from_json("kind", tokenizer.at("kind"), d.tokenizer);
      detail::option_from_json("joint", tokenizer.at("joint"), d.joint);
    }
    if (json.contains("text")) {
      auto [source_size, target_size] = detail::vocabulary_sizes(d.model);
      if (source_size == 0) source_size = target_size = std::numeric_limits<std::int32_t>::max();
      d.text = conventions_from_json(json.at("text"), source_size, target_size);
    }
    if (json.contains("training")) d.training = json.at("training");
  } catch (const ValueError& error) {
    throw refuse("is damaged or foreign: " + std::string(error.what()));
  }
  return d;
}

}  // namespace detail

/// Reads the options.json of a folder of M's. Throws IoError that names the file and what is wrong with it.
template <FolderModel M>
FolderDescription<std::remove_cvref_t<decltype(M::options)>> read_model_description(
    const std::filesystem::path& folder) {
  return read_folder(folder, detail::files_of_each_save(),
                     [&] { return detail::read_description<M>(folder); });
}

namespace detail {

// load_folder(), at a moment when nobody writes.
template <FolderModel M, class F>
LoadedModel<M> load_files(const std::filesystem::path& folder, F&& load_weights) {
  auto description = read_description<M>(folder);
  TokenizerPair tokenizers = detail::load_folder_tokenizers(description.tokenizer, description.joint, folder);
  const auto check = [&](const char* side, const std::shared_ptr<const Tokenizer>& tokenizer, index_t size) {
    if (!tokenizer || size == 0 || tokenizer->vocabulary_size() == size) return;
    throw IoError("load_model_folder", "the " + std::string(side) + " tokenizer of '" + folder.string() +
                                           "' does not match its model: the " + side + " tokenizer has " +
                                           std::to_string(tokenizer->vocabulary_size()) +
                                           " ids, options.json says " + std::to_string(size));
  };
  const auto [source_size, target_size] = detail::vocabulary_sizes(description.model);
  check("source", tokenizers.source, source_size);
  check("target", tokenizers.target, target_size);
  const std::filesystem::path weights = folder_file(folder, "model.safetensors");
  detail::require_sizes(weights, description.model);
  RandomGenerator rng = RandomGenerator::idle();
  M model(description.model, rng);
  load_weights(weights, model, description);
  return {std::move(description), std::move(tokenizers), std::move(model)};
}

/// A model of a folder, its weights by load_weights(path of the file, model, description).
template <FolderModel M, class F>
LoadedModel<M> load_folder(const std::filesystem::path& folder, F&& load_weights) {
  return read_folder(folder, files_of_each_save(), [&] { return load_files<M>(folder, load_weights); });
}

}  // namespace detail

/// Reads a model folder. Throws IoError that names the file and what is wrong with it: missing, truncated,
/// foreign, of a newer format; ValueError for a kind of tokenizer that is not built in.
///
///     auto loaded = ef::load_model_folder<ef::LanguageModel<float>>("tales");
template <FolderModel M>
LoadedModel<M> load_model_folder(const std::filesystem::path& folder) {
  return detail::load_folder<M>(folder, [](const auto& path, M& model, const auto& description) {
    load_quantized_model(path, model, description.weights);
  });
}

}  // namespace eigenformer
