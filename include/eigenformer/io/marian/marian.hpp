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
  MarianImport(const MarianFile& file, const MarianTransformer& described)
      : described_(described), file_(file), import_(file) {
    embeddings();
    const Seq2SeqOptions& o = described.options;
    for (const std::string stack : {"encoder", "decoder"}) {
      const std::vector<Row> rows = layer(stack == "decoder");
      const index_t layers = stack == "decoder" ? o.decoder.num_layers : o.encoder.num_layers;
      for (index_t i = 0; i < layers; ++i) {
        for (const Row& row : rows)
          take(row, stack + ".layers." + std::to_string(i) + ".", stack + "_l" + std::to_string(i + 1) + "_");
      }
    }
    for (const std::string& name : file_.names()) {
      if (name.ends_with("_QuantMultA") || name == "special:model.yml") import_.used(name);
    }
  }

  /// Makes the model with these weights.
  Seq2SeqTransformer<T> model() const {
    return import_.template model<Seq2SeqTransformer<T>>(described_.options);
  }
  const MarianNames& names() const noexcept { return names_; }

 private:
  // A linear layer; without parts a norm.
  struct Row {
    bool has;  // whether the layer has it
    std::string ours, theirs;
    std::vector<std::string> parts{};  // what follows W and b in their names; ours has the rows of all
    index_t rows = 0, columns = 0;     // of a part
    bool bias = true;
  };

  std::vector<Row> layer(bool decoder) const {
    const index_t d = described_.options.layer.d_model, ff = described_.options.layer.dim_feedforward;
    const bool encoder = !decoder;
    return {
        {decoder, "ssru.input.", "rnn", {""}, d, d, false},
        {decoder, "ssru.forget.", "rnn", {"f"}, d, d},
        {decoder, "norm1.", "rnn_ffn"},
        {decoder, "multihead_attn.in_proj_", "context", {"q", "k", "v"}, d, d},
        {decoder, "multihead_attn.out_proj.", "context", {"o"}, d, d},
        {decoder, "norm2.", "context_Wo"},
        {encoder, "self_attn.in_proj_", "self", {"q", "k", "v"}, d, d},
        {encoder, "self_attn.out_proj.", "self", {"o"}, d, d},
        {encoder, "norm1.", "self_Wo"},
        {true, "linear1.", "ffn", {"1"}, ff, d},
        {true, "linear2.", "ffn", {"2"}, d, ff},
        {decoder, "norm3.", "ffn_ffn"},
        {encoder, "norm2.", "ffn_ffn"},
    };
  }

  void take(const Row& row, std::string ours, std::string theirs) {
    if (!row.has) return;
    ours += row.ours;
    theirs += row.theirs;
    if (row.parts.empty()) {
      const index_t d = described_.options.layer.d_model;
      take_vectors(ours + "weight", {{theirs + "_ln_scale", d}});
      take_vectors(ours + "bias", {{theirs + "_ln_bias", d}});
      return;
    }
    std::vector<std::string>& weights = names_[ours + "weight"];
    std::vector<std::pair<std::string, index_t>> biases;
    for (const std::string& part : row.parts) {
      weights.push_back(theirs + "_W" + part);
      biases.emplace_back(theirs + "_b" + part, row.rows);
    }
    import_.take(ours + "weight", weights, {static_cast<index_t>(row.parts.size()) * row.rows, row.columns});
    if (row.bias) take_vectors(ours + "bias", biases);
  }

  void embeddings() {
    const Seq2SeqOptions& o = described_.options;
    const index_t d = o.layer.d_model, target = o.target_vocab_size;
    const std::string source_table = described_.source_embedding, table = described_.target_embedding;
    const std::string bias = "decoder_ff_logit_out_b";
    // The begin symbol, which Marian does not have, has an embedding of zeros; the projection is tied.
    import_.take_with_row("source_embedding.weight", source_table, {o.source_vocab_size, d},
                          described_.joint(), 0);
    if (!described_.joint()) import_.take_with_row("target_embedding.weight", table, {target, d}, true, 0);
    names_ = {{"source_embedding.weight", {source_table}},
              {"target_embedding.weight", {table}},
              {"projection.weight", {table}}};
    require_vector(bias, described_.target_words());
    // The begin symbol must never be generated: its probability underflows to zero.
    import_.take_with_row("projection.bias", bias, Shape{target}, true, -1e4);
  }

  void require_vector(const std::string& theirs, index_t size) const {
    const Shape shape = file_.shape(theirs);
    if (shape == Shape{1, size} || shape == Shape{size}) return;
    throw file_.refuse({"has a '", theirs, "' of shape ", shape.str(), ", expected ", Shape{1, size}.str()});
  }
  void take_vectors(const std::string& ours, const std::vector<std::pair<std::string, index_t>>& theirs) {
    for (const auto& [name, size] : theirs) require_vector(name, size);
    import_.take_or_zero(ours, theirs);
  }

  const MarianTransformer& described_;
  const MarianFile& file_;
  WeightImport<T, MarianFile> import_;
  MarianNames names_;
};

/// Whether a Marian model, given as its file or folder, has int8 weights. Throws as import_marian() does for
/// a missing or damaged file.
inline bool is_marian_int8(const std::filesystem::path& from) {
  return MarianFile::open(find_marian_files(from).model).has_int8();
}

}  // namespace detail

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
  const detail::MarianFile file = detail::MarianFile::open(files.model);
  const detail::MarianTransformer transformer = detail::describe_marian(file);
  ModelDescription description;
  description.model = transformer.options;
  TokenizerPair tokenizers = detail::marian_tokenizers(files, transformer, options, description);
  Seq2SeqTransformer<T> model = detail::MarianImport<T>(file, transformer).model();
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

// The int8 data of one of our matrices.
struct MarianRows {
  std::vector<std::int8_t> values;
  std::vector<float> scale;
  std::vector<float> multiplier;  // of the inputs; 0: none
};

// Nothing when a part of the matrix is float32.
EIGENFORMER_IO_FUNCTION std::optional<MarianRows> read_int8_rows(const MarianFile& file,
                                                                 const MarianTransformer& described,
                                                                 const std::vector<std::string>& theirs,
                                                                 const Shape& shape) {
  MarianRows rows;
  for (const std::string& name : theirs) {
    if (!file.is_int8(name)) return std::nullopt;
    float scale = 0;
    const std::int8_t* values = file.int8_values(name, &scale);
    const Shape part = file.shape(name);
    rows.values.insert(rows.values.end(), values, values + part.numel());
    const auto count = static_cast<std::size_t>(part[0]);
    rows.scale.insert(rows.scale.end(), count, scale);
    std::optional<float> multiplier = file.input_multiplier(name);
    // The output layer's multiplier may be stored as "none" instead of the name of the embedding.
    if (!multiplier && name == described.target_embedding) multiplier = file.input_multiplier("none");
    rows.multiplier.insert(rows.multiplier.end(), count, multiplier.value_or(0.0f));
  }
  // The row of the begin symbol, which Marian does not have.
  rows.values.resize(static_cast<std::size_t>(shape.numel()));
  rows.scale.resize(static_cast<std::size_t>(shape[0]), rows.scale.back());
  rows.multiplier.resize(static_cast<std::size_t>(shape[0]), rows.multiplier.back());
  return rows;
}

// Packs the int8 matrices of a Marian file: bytes and scales are kept, and inputs are quantised with the
// steps of the file. A matrix that is float32 in the file is quantised.
EIGENFORMER_IO_FUNCTION std::shared_ptr<const kernels::PackedWeights> pack_marian_int8(
    const Seq2SeqTransformer<float>& model, const MarianFile& file, const MarianTransformer& described,
    const MarianNames& names, const ImportOptions& options) {
  auto packed = std::make_shared<kernels::PackedWeights>();
  std::map<std::string, const Parameter<float>*> parameters;
  for_each_parameter(
      model, [&](const std::string& name, const Parameter<float>& p) { parameters.emplace(name, &p); });
  for (const auto& [ours, products] : int8_products(model)) {
    const Parameter<float>& weight = *parameters.at(ours);
    const index_t in = weight.shape()[1];
    const std::optional<MarianRows> rows = read_int8_rows(file, described, names.at(ours), weight.shape());
    for (const Int8Rows& product : products) {
      if (!rows) {
        packed->add(weight.id(), product.first,
                    kernels::PackedMatrix::pack(weight.value().data() + product.first * in, product.count, in,
                                                false, WeightFormat::int8));
        continue;
      }
      kernels::PackedMatrix matrix = kernels::PackedMatrix::pack_int8(
          rows->values.data() + product.first * in, rows->scale.data() + product.first, product.count, in);
      // One multiplier for all rows of a product: the smallest, which does not clip any input.
      const auto begin = rows->multiplier.begin() + product.first;
      const auto [least, greatest] = std::minmax_element(begin, begin + product.count);
      if (*least != *greatest && options.warn) {
        options.warn("'" + file.path().string() + "' quantises the inputs of '" + ours +
                     "' with multipliers from " + std::to_string(*least) + " to " + std::to_string(*greatest) +
                     "; the smallest is used for all");
      }
      if (*least > 0) matrix = matrix.with_input_step(1.0f / *least);
      packed->add(weight.id(), product.first, std::move(matrix));
    }
  }
  return packed;
}

}  // namespace detail

EIGENFORMER_IO_FUNCTION PackedModel<Seq2SeqTransformer<float>> import_marian_int8(
    const std::filesystem::path& from, const ImportOptions& options) {
  const detail::MarianFiles files = detail::find_marian_files(from);
  detail::require_no_languages(files.model, options);
  const detail::MarianFile file = detail::MarianFile::open(files.model);
  const detail::MarianTransformer transformer = detail::describe_marian(file);
  ModelDescription description;
  description.model = transformer.options;
  description.weights = WeightFormat::int8;
  TokenizerPair tokenizers = detail::marian_tokenizers(files, transformer, options, description);
  const detail::MarianImport<float> import(file, transformer);
  Seq2SeqTransformer<float> model = import.model();
  auto packed = detail::pack_marian_int8(model, file, transformer, import.names(), options);
  release_packed_weights(model, *packed);
  return {{std::move(description), std::move(tokenizers), std::move(model)}, std::move(packed)};
}

}  // namespace eigenformer

#endif
