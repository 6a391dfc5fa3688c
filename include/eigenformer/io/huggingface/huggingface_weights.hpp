#pragma once

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/safetensors/safetensors.hpp"
#include "eigenformer/io/shared/import_tools.hpp"

namespace eigenformer::detail {

/// What the classes of one model_type have in transformers and its files do not say. A new family of the
/// same layers is one more row of huggingface_families.
struct HuggingFaceFamily {
  /// Where positions of inputs come from.
  enum class Positions { learned, sinusoidal, sinusoidal_after_padding, relative };
  /// What the vocabulary is read from without a tokenizer.json.
  enum class Vocabulary {
    bytes,   ///< vocab.json and merges.txt
    map,     ///< vocab.json, with SentencePiece models that may begin with codes of languages
    either,  ///< vocab.json, or without one the pieces of the SentencePiece model as fairseq counts them
    pieces,  ///< the pieces of the SentencePiece model
  };
  /// Tokens that the tokenizer's class has without listing them.
  enum class Implied { none, language_codes, mbart_languages, sentinels };

  const char* type;                          ///< model_type in config.json
  const char* activation = "gelu";           ///< where config.json has none
  bool norm_first = false;                   ///< layer norms before the sub-layers, and after the last layer
  bool scale_embedding = false;              ///< where config.json says nothing
  Positions positions = Positions::learned;  ///< relative in attention, or added to inputs
  bool tied = true;  ///< one table for embeddings and projection, where config.json says nothing
  Vocabulary vocabulary = Vocabulary::either;               ///< its files
  const char* tokenizer_files = "sentencepiece.bpe.model";  ///< as messages name them
  Implied implied = Implied::none;                          ///< beside the vocabulary
  bool languages = false;                                   ///< whether an import must name two
  bool begin_and_mask = false;           ///< whether the class matches <s> and <mask> in a text
  bool texts_of_many_sentences = false;  ///< what it was trained on
};

/// The weights of a Hugging Face folder: model.safetensors, or the files that model.safetensors.index.json
/// lists.
class HuggingFaceWeights {
 public:
  /// Throws IoError when there are no readable weights; for weights in other formats, the message has the
  /// Python command that converts them.
  static HuggingFaceWeights open(const std::filesystem::path& folder,
                                 const char* python_class = "AutoModelForSeq2SeqLM");

  bool contains(const std::string& name) const { return places_.count(name) > 0; }
  const Shape& shape(const std::string& name) const { return file(name).info(name).shape; }
  template <class T>
  Tensor<T> tensor(const std::string& name) const {
    return file(name).template tensor<T>(name);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& place : places_) found.push_back(place.first);
    return found;
  }
  /// The first of these names that exists; the first one when none does.
  std::string first_of(const std::vector<std::string>& names) const {
    const auto found =
        std::find_if(names.begin(), names.end(), [&](const std::string& n) { return contains(n); });
    return found == names.end() ? names.front() : *found;
  }

  IoError refuse(std::initializer_list<MessagePart> what) const {
    return IoError("import", {"'", path_.string(), "' ", join(what)});
  }

  /// The end of a message that names weights in another format and the command that converts them; empty when
  /// there are none.
  static std::string other_weights(const std::filesystem::path& folder, const std::string& python_class);

 private:
  void add(SafetensorsFile file);
  const SafetensorsFile& file(const std::string& name) const {
    const auto place = places_.find(name);
    if (place == places_.end()) throw refuse({"has no tensor '", name, "'"});
    return files_[place->second];
  }

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> places_;
};

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION HuggingFaceWeights HuggingFaceWeights::open(const std::filesystem::path& folder,
                                                                    const char* python_class) {
  HuggingFaceWeights weights;
  const std::filesystem::path single = folder / "model.safetensors",
                              index = folder / "model.safetensors.index.json";
  if (file_exists(single)) {
    weights.path_ = single;
    weights.add(SafetensorsFile::open(single));
    return weights;
  }
  weights.path_ = index;
  if (!file_exists(index)) {
    throw IoError("import",
                  {"'", folder.string(), "' has no model.safetensors", other_weights(folder, python_class)});
  }
  const JsonFile json = JsonFile::open(index);
  std::set<std::string> files;
  for (const auto& [name, file] : json.object("weight_map").items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
      throw json.refuse({"has the weight_map ", name, ": ", file.dump(), ", expected a file beside it"});
    files.insert(file.get<std::string>());
  }
  for (const std::string& name : files) weights.add(SafetensorsFile::open(folder / name));
  return weights;
}

EIGENFORMER_IO_FUNCTION std::string HuggingFaceWeights::other_weights(const std::filesystem::path& folder,
                                                                      const std::string& python_class) {
  struct Format {
    const char *file, *what, *argument;
  };
  for (const auto& [file, what, argument] :
       {Format{"pytorch_model.bin", "PyTorch weights pickled by Python", ""},
        Format{"pytorch_model.bin.index.json", "PyTorch weights pickled by Python, in several files", ""},
        Format{"tf_model.h5", "TensorFlow weights, which transformers before version 5 reads",
               ", from_tf=True"},
        Format{"flax_model.msgpack", "Flax weights, which transformers before version 5 reads",
               ", from_flax=True"}}) {
    if (!file_exists(folder / file)) continue;
    const std::string name = folder.string();
    return std::string("; its ") + file + " holds " + what +
           ", and is not read here. Convert it with: python3 -c \"import transformers; transformers." +
           python_class + ".from_pretrained('" + name + "'" + argument + ").save_pretrained('" + name +
           "', safe_serialization=True)\"";
  }
  return "";
}

EIGENFORMER_IO_FUNCTION void HuggingFaceWeights::add(SafetensorsFile file) {
  for (const std::string& name : file.names()) {
    if (!places_.emplace(name, files_.size()).second)
      throw refuse({"lists files that hold '", name, "' twice"});
  }
  files_.push_back(std::move(file));
}

// Throws IoError for more layers than the weights have tensors, before any loop over layers.
EIGENFORMER_IO_FUNCTION void require_layers(const JsonFile& config, const HuggingFaceWeights& weights,
                                            std::initializer_list<index_t> numbers) {
  const auto most = static_cast<index_t>(weights.names().size());
  for (const index_t n : numbers) {
    if (n > most) throw config.refuse({"has ", n, " layers, but the weights have only ", most, " tensors"});
  }
}

// The activation named in a config.json. Throws IoError for an unknown one.
EIGENFORMER_IO_FUNCTION Activation huggingface_activation(const JsonFile& config, const std::string& field,
                                                          const std::string& missing) {
  const auto name = config.get<std::string>(field, missing);
  if (name == "relu") return Activation::relu;
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::gelu_tanh;
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "tanh") return Activation::tanh;
  if (name == "sigmoid") return Activation::sigmoid;
  throw config.refuse(
      {"has the ", field, " '", name, "', expected relu, gelu, gelu_new, silu, swish, tanh or sigmoid"});
}

}  // namespace eigenformer::detail

#endif
