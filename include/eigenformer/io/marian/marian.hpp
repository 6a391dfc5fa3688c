#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/marian/marian_folder.hpp"
#include "eigenformer/io/models/int8_panels.hpp"
#include "eigenformer/io/models/translation_model.hpp"

namespace eigenformer {

namespace detail {

/// The tensors of a Marian file by our names; several are concatenated by rows.
using MarianNames = std::map<std::string, std::vector<std::string>>;

/// Collects the weights of a Marian model. Throws IoError for weights that do not match the model's settings.
template <class T>
class MarianImport {
 public:
  explicit MarianImport(const MarianTransformer& described)
      : described_(described), file_(described.file()), import_(file_) {
    const Seq2SeqOptions& o = described.options();
    const index_t d = o.layer.d_model, ff = o.layer.dim_feedforward;
    embeddings();
    for (const std::string stack : {"encoder", "decoder"}) {
      const bool decoder = stack == "decoder";
      const index_t layers = decoder ? o.decoder.num_layers : o.encoder.num_layers;
      for (index_t i = 0; i < layers; ++i) {
        const std::string ours = stack + ".layers." + std::to_string(i) + ".";
        const std::string theirs = stack + "_l" + std::to_string(i + 1) + "_";
        if (decoder) {
          linear(ours + "ssru.input.", theirs + "rnn", {"W"}, {}, {d}, d);
          linear(ours + "ssru.forget.", theirs + "rnn", {"Wf"}, {"bf"}, {d}, d);
          norm(ours + "norm1", theirs + "rnn_ffn");
          attention(ours + "multihead_attn.", theirs + "context", d);
          norm(ours + "norm2", theirs + "context_Wo");
        } else {
          attention(ours + "self_attn.", theirs + "self", d);
          norm(ours + "norm1", theirs + "self_Wo");
        }
        linear(ours + "linear1.", theirs + "ffn", {"W1"}, {"b1"}, {ff}, d);
        linear(ours + "linear2.", theirs + "ffn", {"W2"}, {"b2"}, {d}, ff);
        norm(ours + (decoder ? "norm3" : "norm2"), theirs + "ffn_ffn");
      }
    }
    for (const std::string& name : file_.names()) {
      if (name.ends_with("_QuantMultA") || name == "special:model.yml") import_.used(name);
    }
    import_.check();
  }

  /// Makes the model with these weights.
  Seq2SeqTransformer<T> model() const {
    RandomGenerator rng = RandomGenerator::idle();
    Seq2SeqTransformer<T> model(described_.options(), rng);
    import_.load_into(model);
    return model;
  }
  const MarianNames& names() const noexcept { return names_; }

 private:
  void embeddings() {
    const Seq2SeqOptions& o = described_.options();
    const index_t d = o.layer.d_model;
    const Tensor<T> source = table(described_.source_embedding(), o.source_vocab_size, d);
    const Tensor<T> target =
        described_.joint() ? source : table(described_.target_embedding(), o.target_vocab_size, d);
    import_.add("source_embedding.weight", source);
    import_.add("target_embedding.weight", target);
    import_.add("projection.weight", target);
    names_["source_embedding.weight"] = {described_.source_embedding()};
    names_["target_embedding.weight"] = names_["projection.weight"] = {described_.target_embedding()};
    const std::string bias = "decoder_ff_logit_out_b";
    const Tensor<T> given = vector(bias, described_.target_words());
    Tensor<T> whole(Shape{o.target_vocab_size});
    std::copy_n(given.data(), given.numel(), whole.data());
    // The begin symbol must never be generated: its probability underflows to zero.
    whole.data()[given.numel()] = T(-1e4);
    import_.add("projection.bias", whole);
  }

  // An embedding table, with a row of zeros added when the vocabulary has the begin symbol.
  Tensor<T> table(const std::string& theirs, index_t rows, index_t d) {
    import_.used(theirs);
    const Tensor<T> given = file_.tensor<T>(theirs);
    if (given.dim(0) == rows) return given;
    Tensor<T> whole = Tensor<T>::zeros(Shape{rows, d});
    std::copy_n(given.data(), given.numel(), whole.data());
    return whole;
  }
  Tensor<T> vector(const std::string& theirs, index_t size) {
    import_.used(theirs);
    if (file_.shape(theirs) != Shape{1, size} && file_.shape(theirs) != Shape{size}) {
      throw file_.refuse("has a '" + theirs + "' of shape " + file_.shape(theirs).str() + ", expected " +
                         Shape{1, size}.str());
    }
    return file_.tensor<T>(theirs).reshape(Shape{size});
  }

  // weights and biases: those of parts with these numbers of outputs, concatenated by rows in ours.
  void linear(const std::string& ours, const std::string& theirs, const std::vector<std::string>& weights,
              const std::vector<std::string>& biases, const std::vector<index_t>& outputs, index_t in,
              const char* joint = "") {
    std::vector<std::string> names;
    index_t rows = 0;
    for (const std::string& weight : weights) names.push_back(theirs + "_" + weight);
    for (const index_t n : outputs) rows += n;
    import_.take(ours + joint + "weight", names, {rows, in});
    names_[ours + joint + "weight"] = names;
    if (biases.empty()) return;
    Tensor<T> bias(Shape{rows});
    T* out = bias.data();
    for (std::size_t i = 0; i < biases.size(); ++i)
      out = std::copy_n(vector(theirs + "_" + biases[i], outputs[i]).data(), outputs[i], out);
    import_.add(ours + joint + "bias", bias);
  }
  void attention(const std::string& ours, const std::string& theirs, index_t d) {
    linear(ours, theirs, {"Wq", "Wk", "Wv"}, {"bq", "bk", "bv"}, {d, d, d}, d, "in_proj_");
    linear(ours + "out_proj.", theirs, {"Wo"}, {"bo"}, {d}, d);
  }
  void norm(const std::string& ours, const std::string& theirs) {
    const index_t d = described_.options().layer.d_model;
    import_.add(ours + ".weight", vector(theirs + "_ln_scale", d));
    import_.add(ours + ".bias", vector(theirs + "_ln_bias", d));
  }

  const MarianTransformer& described_;
  const MarianFile& file_;
  WeightImport<T, MarianFile> import_;
  MarianNames names_;
};

/// Packs the int8 matrices of a Marian file: bytes and scales are kept, and inputs are quantised with the
/// steps of the file. A matrix that is float32 in the file is quantised.
class MarianInt8 {
 public:
  MarianInt8(const MarianTransformer& described, const MarianNames& names, const ImportOptions& options)
      : described_(described), file_(described.file()), names_(names), options_(options) {}

  std::shared_ptr<const kernels::PackedWeights> pack(const Seq2SeqTransformer<float>& model) const;

 private:
  // The int8 data of one of our matrices.
  struct Rows {
    std::vector<std::int8_t> values;
    std::vector<float> scale;
    std::vector<float> multiplier;  // of the inputs; 0: none
  };

  std::optional<Rows> read(const std::vector<std::string>& theirs, const Shape& shape) const;

  // One multiplier for all rows of a product: the smallest, which does not clip any input.
  float input_multiplier(const std::string& ours, const Rows& rows, const Int8Rows& product) const;

  const MarianTransformer& described_;
  const MarianFile& file_;
  const MarianNames& names_;
  const ImportOptions& options_;
};

}  // namespace detail

/// Whether a Marian model, given as its file or folder, has int8 weights. Throws as import_marian() does for
/// a missing or damaged file.
inline bool is_marian_int8(const std::filesystem::path& from) {
  return MarianFile::open(detail::find_marian_files(from).model).has_int8();
}

/// Imports a Marian model as browsers ship them: a .bin file with float32 or intgemm8 weights, which are
/// dequantised, and in the same folder its SentencePiece vocabularies and optionally decoder.yml or
/// config.yml. from: the file, or a folder with one model. Supported are post-norm Transformers with an SSRU
/// in the decoder and tied embeddings. One id is added to the vocabulary, the begin symbol, whose embedding
/// is zero.
///
///     auto model = ef::import_marian("en-de");
///     ef::save_model_folder("en-de-model", model);
///
/// Throws IoError that names the file, the item and what is wrong: missing, truncated, another architecture,
/// a vocabulary that does not match the weights; ValueError for languages in the options, which these models
/// have no place for, and in a program built without SentencePiece.
template <class T = float>
TranslationModel<T> import_marian(const std::filesystem::path& from, const ImportOptions& options = {}) {
  const detail::MarianFiles files = detail::find_marian_files(from);
  detail::require_no_languages(files.model, options);
  const MarianFile file = MarianFile::open(files.model);
  const detail::MarianTransformer transformer(file);
  ModelDescription description;
  description.model = transformer.options();
  TokenizerPair tokenizers = detail::marian_tokenizers(files, transformer, options, description);
  Seq2SeqTransformer<T> model = detail::MarianImport<T>(transformer).model();
  return {std::move(description), std::move(tokenizers), std::move(model)};
}

/// Imports a Marian model for inference in int8: bytes and scales of an intgemm8 file are kept, and inputs
/// are quantised with the steps of the file if it has any ("alphas"). Matrices of a float32 file are
/// quantised as pack_weights() does. Throws as import_marian() does.
///
///     ef::save_packed_folder("en-de-model", ef::import_marian_int8("en-de"));
EIGENFORMER_IO_FUNCTION PackedModel<Seq2SeqTransformer<float>> import_marian_int8(
    const std::filesystem::path& from, const ImportOptions& options = {});

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_IO_FUNCTION std::shared_ptr<const kernels::PackedWeights> MarianInt8::pack(
    const Seq2SeqTransformer<float>& model) const {
  auto packed = std::make_shared<kernels::PackedWeights>();
  std::map<std::string, const Parameter<float>*> parameters;
  for_each_parameter(
      model, [&](const std::string& name, const Parameter<float>& p) { parameters.emplace(name, &p); });
  for (const auto& [ours, products] : int8_products(model)) {
    const Parameter<float>& weight = *parameters.at(ours);
    const index_t in = weight.shape()[1];
    const std::optional<Rows> rows = read(names_.at(ours), weight.shape());
    for (const Int8Rows& product : products) {
      if (!rows) {
        packed->add(weight.id(), product.first,
                    kernels::PackedMatrix::pack(weight.value().data() + product.first * in, product.count, in,
                                                false, WeightFormat::int8));
        continue;
      }
      kernels::PackedMatrix matrix = kernels::PackedMatrix::pack_int8(
          rows->values.data() + product.first * in, rows->scale.data() + product.first, product.count, in);
      const float multiplier = input_multiplier(ours, *rows, product);
      if (multiplier > 0) matrix = matrix.with_input_step(1.0f / multiplier);
      packed->add(weight.id(), product.first, std::move(matrix));
    }
  }
  return packed;
}

EIGENFORMER_IO_FUNCTION std::optional<MarianInt8::Rows> MarianInt8::read(
    const std::vector<std::string>& theirs, const Shape& shape) const {
  Rows rows;
  for (const std::string& name : theirs) {
    if (!file_.is_int8(name)) return std::nullopt;
    float scale = 0;
    const std::int8_t* values = file_.int8_values(name, &scale);
    const Shape& part = file_.shape(name);
    rows.values.insert(rows.values.end(), values, values + part.numel());
    const auto count = static_cast<std::size_t>(part[0]);
    rows.scale.insert(rows.scale.end(), count, scale);
    std::optional<float> multiplier = file_.input_multiplier(name);
    // The output layer's multiplier may be stored as "none" instead of the name of the embedding.
    if (!multiplier && name == described_.target_embedding()) multiplier = file_.input_multiplier("none");
    rows.multiplier.insert(rows.multiplier.end(), count, multiplier.value_or(0.0f));
  }
  // The row of the begin symbol, which Marian does not have.
  rows.values.resize(static_cast<std::size_t>(shape.numel()));
  rows.scale.resize(static_cast<std::size_t>(shape[0]), rows.scale.back());
  rows.multiplier.resize(static_cast<std::size_t>(shape[0]), rows.multiplier.back());
  return rows;
}

EIGENFORMER_IO_FUNCTION float MarianInt8::input_multiplier(const std::string& ours, const Rows& rows,
                                                           const Int8Rows& product) const {
  const auto begin = rows.multiplier.begin() + product.first;
  const auto [least, greatest] = std::minmax_element(begin, begin + product.count);
  if (*least != *greatest && options_.warn) {
    options_.warn("'" + file_.path().string() + "' quantises the inputs of '" + ours +
                  "' with multipliers from " + std::to_string(*least) + " to " + std::to_string(*greatest) +
                  "; the smallest is used for all");
  }
  return *least;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION PackedModel<Seq2SeqTransformer<float>> import_marian_int8(
    const std::filesystem::path& from, const ImportOptions& options) {
  const detail::MarianFiles files = detail::find_marian_files(from);
  detail::require_no_languages(files.model, options);
  const MarianFile file = MarianFile::open(files.model);
  const detail::MarianTransformer transformer(file);
  ModelDescription description;
  description.model = transformer.options();
  description.weights = WeightFormat::int8;
  TokenizerPair tokenizers = detail::marian_tokenizers(files, transformer, options, description);
  const detail::MarianImport<float> import(transformer);
  Seq2SeqTransformer<float> model = import.model();
  auto packed = detail::MarianInt8(transformer, import.names(), options).pack(model);
  release_packed_weights(model, *packed);
  return {{std::move(description), std::move(tokenizers), std::move(model)}, std::move(packed)};
}

}  // namespace eigenformer

#endif
