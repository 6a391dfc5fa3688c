#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/io/models/conventions_json.hpp"
#include "eigenformer/io/models/folder_checksums.hpp"
#include "eigenformer/io/models/json_file.hpp"
#include "eigenformer/io/models/options_json.hpp"
#include "eigenformer/io/models/quantized_model.hpp"
#include "eigenformer/version.hpp"

/// @file
/// A model folder holds everything that a model needs:
///
/// | file | contents |
/// |---|---|
/// | options.json | format (kind of model), version, weight format, model options, kind of tokenizer |
/// | model.safetensors | the weights, with PyTorch's names; for bf16 and int8 see quantized_model.hpp |
/// | tokenizer.model, .vocab or .tokenizer | the tokenizer: subword; char and word; of another library |
///
/// options.json also has the options of the training, the checksums of the files (see folder_checksums.hpp)
/// and, for imported models, their conventions (`text`).
/// Instead of tokenizer.* there are source.* and target.* when each language has its own tokenizer, and none
/// of them for a model without a tokenizer.
namespace eigenformer {

namespace detail {

/// The version of the format of model folders.
inline constexpr int model_format_version = 1;

}  // namespace detail

/// A model that can be stored in a folder: a module that is made from options, an OptionsStruct, and a random
/// generator. M::format identifies its kind in options.json.
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

/// The contents of a model folder's options.json.
template <OptionsStruct Options>
struct FolderDescription {
  std::string library_version = version_string();      ///< version of the library that wrote it
  WeightFormat weights = WeightFormat::float32;        ///< format in the file; loaded parameters are float
  Options model{};                                     ///< options that the model is made from
  std::string tokenizer = "subword";                   ///< kind, for load_tokenizer(); empty: none
  bool joint = true;                                   ///< one tokenizer for both languages
  ModelConventions text{};                             ///< special ids, prefixes and search options
  nlohmann::json training = nlohmann::json::object();  ///< options of the training; not used for inference
};

namespace detail {

template <class M>
using DescriptionOf = FolderDescription<std::remove_cvref_t<decltype(M::options)>>;

}  // namespace detail

/// A model loaded from a folder, with its description and tokenizers.
template <class M>
struct LoadedModel {
  detail::DescriptionOf<M> description;  ///< contents of options.json
  TokenizerPair tokenizers;              ///< null for a model without
  M model;                               ///< the module with its weights
};

namespace detail {

inline std::string tokenizer_file(const std::string& kind, const std::string& name) {
  if (kind == "char" || kind == "word") return name + ".vocab";
  return name + (kind == "subword" ? ".model" : ".tokenizer");
}

// Refuses files that may block when they are opened, such as named pipes.
EIGENFORMER_IO_FUNCTION void require_no_stream(const std::filesystem::path& path);

EIGENFORMER_IO_FUNCTION TokenizerPair load_folder_tokenizers(const std::string& kind, bool joint,
                                                             const std::filesystem::path& folder);

// The vocabulary sizes that a model's options require of its tokenizers; 0: any.
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
    // Positions are counted in 32 bits, as tokens are; max_length also truncates the input of models without
    // a table of positions.
    constexpr index_t most = std::numeric_limits<std::int32_t>::max();
    const InputPositions positions = input_positions(o.positions, o.layer);
    const auto* learned = std::get_if<LearnedPositions>(&positions);
    const index_t offset = learned == nullptr ? 0 : std::clamp<index_t>(learned->offset, 0, most - 1);
    if (o.max_length < 1 || o.max_length > most - offset) {
      throw ValueError("options", {"max_length is ", o.max_length,
                                   ", must be at least 1 and with learned_position_offset at most ", most});
    }
  }
  if constexpr (requires { o.validate("options"); }) {
    o.validate("options");
  } else {
    validate_fields("options", o);
  }
}

}  // namespace detail

/// Whether a folder has files of a model, of any kind and version, complete or not.
inline bool is_model_folder(const std::filesystem::path& folder) {
  return detail::has_folder_file(folder, "options.json") ||
         detail::has_folder_file(folder, "model.safetensors");
}

/// Whether a folder has an adapter_config.json.
inline bool is_adapter_folder(const std::filesystem::path& folder) {
  return detail::has_folder_file(folder, "adapter_config.json");
}

namespace detail {

/// stage_model() of a model whose matrices are in `packed`, if it is not null.
template <FolderModel M>
void stage_folder(const FolderTransaction& save, const M& model, const TokenizerPair& tokenizers,
                  const nlohmann::json& training, WeightFormat weights, const ModelConventions& text,
                  const kernels::PackedWeights* packed) {
  const std::string kind = tokenizers.source ? tokenizers.source->kind() : "";
  nlohmann::json options = {
      {"format", M::format},
      {"format_version", model_format_version},
      {"library_version", version_string()},
      {"model", options_to_json(model.options)},
      {"tokenizer", nullptr},
      {"training", training},
  };
  if (!kind.empty()) options["tokenizer"] = {{"kind", kind}, {"joint", tokenizers.joint()}};
  if (weights != WeightFormat::float32) options["weights"] = word_of(weights);
  if (text != ModelConventions{}) options["text"] = conventions_to_json(text);
  write_quantized(save.file("model.safetensors"), model, weights, packed);
  std::vector<std::string> files = {"model.safetensors"};
  const auto store = [&](const char* name, const Tokenizer& tokenizer) {
    files.push_back(tokenizer_file(kind, name));
    tokenizer.save(save.file(files.back()).parent_path(), name);
  };
  if (!kind.empty()) store(tokenizers.joint() ? "tokenizer" : "source", *tokenizers.source);
  if (!kind.empty() && !tokenizers.joint()) store("target", *tokenizers.target);
  const std::filesystem::path options_file = save.file("options.json");
  write_file(options_file, options_with_checksums(std::move(options), options_file.parent_path(), files));
}

}  // namespace detail

/// Writes the files of a model folder into a transaction, to which the caller may add files and which the
/// caller commits. Otherwise as save_model_folder().
template <FolderModel M>
void stage_model(const FolderTransaction& save, const M& model, const TokenizerPair& tokenizers = {},
                 const nlohmann::json& training = nlohmann::json::object(),
                 WeightFormat weights = WeightFormat::float32, const ModelConventions& text = {}) {
  detail::stage_folder(save, model, tokenizers, training, weights, text, nullptr);
}

namespace detail {

/// Writes the options.json of a model folder, or the base.json of an adapter folder, into a transaction with
/// other options of the training, so that a resumed training can store its options before it saves a model.
/// All else in the file stays as it is; nothing is written when it has these options already. Throws IoError
/// for a file that is missing or damaged, and when writing fails.
EIGENFORMER_IO_FUNCTION void stage_training_options(const FolderTransaction& save,
                                                    const std::filesystem::path& folder,
                                                    const nlohmann::json& training);

}  // namespace detail

/// Writes a model folder. All files are replaced together: an error or an interruption leaves an old model
/// unchanged. tokenizers: null ones are not saved. training: options of the training, stored for information.
/// weights: the format in which matrices are written. text: the conventions of an imported model. Throws
/// IoError when writing fails, ValueError for int8 weights that are not finite and for weights whose memory
/// was released.
template <FolderModel M>
void save_model_folder(const std::filesystem::path& folder, const M& model,
                       const TokenizerPair& tokenizers = {},
                       const nlohmann::json& training = nlohmann::json::object(),
                       WeightFormat weights = WeightFormat::float32, const ModelConventions& text = {}) {
  FolderTransaction save(folder);
  stage_model(save, model, tokenizers, training, weights, text);
  save.commit();
}

/// Writes a loaded or imported model with its tokenizers and conventions. Throws as the other
/// save_model_folder().
template <FolderModel M>
void save_model_folder(const std::filesystem::path& folder, const LoadedModel<M>& loaded,
                       WeightFormat weights = WeightFormat::float32) {
  save_model_folder(folder, loaded.model, loaded.tokenizers, loaded.description.training, weights,
                    loaded.description.text);
}

namespace detail {

// Reads the fields of an options.json.
template <class Options>
void read_description_fields(const nlohmann::json& json, FolderDescription<Options>& d) {
  if (json.contains("library_version"))
    option_from_json("library_version", json.at("library_version"), d.library_version);
  if (json.contains("weights")) option_from_json("weights", json.at("weights"), d.weights);
  d.model = options_from_json<Options>(json.at("model"));
  validate_file_options(d.model);
  const nlohmann::json& tokenizer = json.at("tokenizer");
  d.tokenizer.clear();
  if (!tokenizer.is_null()) {
    if (!tokenizer.is_object() || !tokenizer.contains("kind") || !tokenizer.contains("joint")) {
      throw ValueError("options", {"tokenizer is ", tokenizer.dump(), ", expected kind and joint"});
    }
    option_from_json("kind", tokenizer.at("kind"), d.tokenizer);
    option_from_json("joint", tokenizer.at("joint"), d.joint);
  }
  if (json.contains("text")) {
    auto [source_size, target_size] = vocabulary_sizes(d.model);
    if (source_size == 0) source_size = target_size = std::numeric_limits<std::int32_t>::max();
    d.text = conventions_from_json(json.at("text"), source_size, target_size);
  }
  if (json.contains("training")) d.training = json.at("training");
}

// read_model_description() without protection from concurrent writers.
template <FolderModel M>
DescriptionOf<M> read_description(const std::filesystem::path& folder) {
  const auto exists = [](const std::filesystem::path& file) {
    std::error_code error;  // set when the answer is not known
    const bool found = std::filesystem::exists(file, error);
    if (error) throw errno_error("load_model_folder", "read", file, error.value());
    return found;
  };
  if (!exists(folder)) {
    throw IoError("load_model_folder", {"the folder '", folder.string(), "' does not exist"});
  }
  const std::filesystem::path path = folder_file(folder, "options.json");
  if (!exists(path)) {
    throw IoError("load_model_folder",
                  {"'", folder.string(), "' is not a model folder: ",
                   (is_adapter_folder(folder)
                        ? "it holds an adapter; give the model that it adapts and this folder as its "
                          "adapter, or merge the two"
                    : exists(folder / "config.json")
                        ? "it has no options.json, but a config.json; import checkpoints of other "
                          "libraries first"
                        : "it has no options.json")});
  }
  require_no_stream(path);
  const JsonFile file = JsonFile::open_unique("load_model_folder", path);
  const nlohmann::json& json = file.json();
  if (!json.contains("format_version") || !json.at("format_version").is_number_integer() ||
      !json.contains("model") || !json.contains("tokenizer")) {
    throw file.refuse(
        {"is not the options.json of a model folder: expected format_version, model and tokenizer"});
  }
  if (!json.contains("format") || !is_text(json.at("format"), M::format)) {
    throw file.refuse({"describes another kind of model: format is ",
                       (json.contains("format") ? json.at("format").dump() : std::string("absent")),
                       ", expected \"", M::format, "\""});
  }
  if (json.at("format_version") != model_format_version) {
    throw file.refuse({"has format_version ", json.at("format_version").dump(),
                       ", this version of the library (", version_string(), ") reads ",
                       model_format_version});
  }
  DescriptionOf<M> d;
  try {
    read_description_fields(json, d);
  } catch (const ValueError& error) {
    throw file.refuse({"is damaged or not written by this library: ", error.what()});
  }
  return d;
}

}  // namespace detail

/// Reads the options.json of a folder with a model of type M, without its weights. Throws IoError that names
/// the file and what is wrong with it, also for another kind of model.
template <FolderModel M>
detail::DescriptionOf<M> read_model_description(const std::filesystem::path& folder) {
  return detail::read_model_files(folder, [&] { return detail::read_description<M>(folder); });
}

namespace detail {

// Throws IoError if a file of weights, unchanged since it was saved, has tensors that the module lacks, and
// lacks some that it has: the folder holds a model of another type, such as one with layers of somebody's
// own.
template <class M>
void require_type(const std::filesystem::path& folder, const std::filesystem::path& weights, const M& model) {
  try {
    verify_files(folder);
  } catch (const IoError&) {
    return;  // damaged, or another file in place of the saved one
  }
  // Quantised matrices are stored in several tensors: NAME, NAME_scale, NAME[0:12], NAME[0:12]_sum, ...
  const auto matrix_of = [](std::string name) {
    for (const char* suffix : {"_scale", "_sum", "_input_step"}) {
      if (name.ends_with(suffix)) name.resize(name.size() - std::string_view(suffix).size());
    }
    return name.substr(0, name.find('['));
  };
  std::set<std::string> stored, own;
  for (const std::string& name : SafetensorsFile::open(weights).names()) stored.insert(matrix_of(name));
  for (const auto& entry : state_dict(model)) own.insert(entry.name);
  const auto without = [](const std::set<std::string>& of, const std::set<std::string>& others) {
    std::vector<std::string> names;
    std::set_difference(of.begin(), of.end(), others.begin(), others.end(), std::back_inserter(names));
    return names;
  };
  const auto more = without(stored, own), fewer = without(own, stored);
  if (more.empty() || fewer.empty()) return;
  throw IoError("load_model_folder",
                {"'", folder.string(),
                 "' holds a model of another type, such as one with layers of its own: ", more.size(),
                 " of its tensors, the first being '", more.front(), "', are not in this type, which has ",
                 fewer.size(), " others, the first being '", fewer.front(),
                 "'; load it by load_model_folder<M>(folder), M being the type that was saved, such as "
                 "Seq2SeqTransformer<float, MyLayer>"});
}

// load_folder() without protection from concurrent writers.
template <FolderModel M, class F>
LoadedModel<M> load_files(const std::filesystem::path& folder, F&& load_weights) {
  auto description = read_description<M>(folder);
  TokenizerPair tokenizers = load_folder_tokenizers(description.tokenizer, description.joint, folder);
  const auto check = [&](const char* side, const std::shared_ptr<const Tokenizer>& tokenizer, index_t size) {
    if (!tokenizer || size == 0 || tokenizer->vocabulary_size() == size) return;
    throw IoError("load_model_folder",
                  {"the ", side, " tokenizer of '", folder.string(), "' does not match its model: the ", side,
                   " tokenizer has ", tokenizer->vocabulary_size(), " ids, options.json says ", size});
  };
  const auto [source_size, target_size] = vocabulary_sizes(description.model);
  check("source", tokenizers.source, source_size);
  check("target", tokenizers.target, target_size);
  const std::filesystem::path weights = folder_file(folder, "model.safetensors");
  require_sizes(weights, description.model);
  RandomGenerator rng = RandomGenerator::idle();
  M model(description.model, rng);
  try {
    load_weights(weights, model, description);
  } catch (const IoError&) {
    require_type(folder, weights, model);
    throw;
  }
  return {std::move(description), std::move(tokenizers), std::move(model)};
}

/// Loads a model, with weights that load_weights(path of the file, model, description) loads.
template <FolderModel M, class F>
LoadedModel<M> load_folder(const std::filesystem::path& folder, F&& load_weights) {
  return read_model_files(folder, [&] { return load_files<M>(folder, load_weights); });
}

}  // namespace detail

/// Loads a model folder; bf16 and int8 weights are converted to parameters of M's type. Throws IoError that
/// names the file and what is wrong: missing, truncated, damaged, another kind of model, a newer format;
/// ValueError for a kind of tokenizer that is not built in.
///
///     auto loaded = ef::load_model_folder<ef::LanguageModel<float>>("tales");
template <FolderModel M>
LoadedModel<M> load_model_folder(const std::filesystem::path& folder) {
  return detail::load_folder<M>(folder, [](const auto& path, M& model, const auto& description) {
    load_quantized_model(path, model, description.weights);
  });
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION void require_no_stream(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!file_exists(path) || std::filesystem::is_regular_file(path, ignored) ||
      std::filesystem::is_directory(path, ignored)) {
    return;
  }
  throw IoError("load_model_folder", {"cannot open '", path.string(), "': it is not a regular file"});
}

EIGENFORMER_IO_FUNCTION TokenizerPair load_folder_tokenizers(const std::string& kind, bool joint,
                                                             const std::filesystem::path& folder) {
  TokenizerPair pair;
  if (kind.empty()) return pair;
  // Looks up each file separately: an interrupted commit may have moved only one of them.
  const auto load = [&](const char* name) {
    const std::filesystem::path path = folder_file(folder, tokenizer_file(kind, name));
    require_no_stream(path);
    return load_tokenizer(kind, path.parent_path(), name);
  };
  pair.source = load(joint ? "tokenizer" : "source");
  pair.target = joint ? pair.source : load("target");
  return pair;
}

EIGENFORMER_IO_FUNCTION void stage_training_options(const FolderTransaction& save,
                                                    const std::filesystem::path& folder,
                                                    const nlohmann::json& training) {
  const char* const name = has_folder_file(folder, "base.json") ? "base.json" : "options.json";
  const std::filesystem::path path = folder_file(folder, name);
  nlohmann::json json = JsonFile::open_unique("stage_training_options", path).json();
  if (json.contains("training") && json.at("training") == training) return;
  json["training"] = training;
  write_file(save.file(name), json.contains("checksums") && json.at("checksums").is_object()
                                  ? options_with_own_checksum(std::move(json))
                                  : json.dump(2) + "\n");
}

}  // namespace eigenformer::detail

#endif
