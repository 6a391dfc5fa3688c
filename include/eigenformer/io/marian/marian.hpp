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

/// A row of the table of a layer's items: a linear layer; without parts a norm.
struct MarianRow {
  bool has;  // whether the layer has it
  std::string ours, theirs;
  std::vector<std::string> parts{};  // what follows W and b in their names; ours has the rows of all
  index_t rows = 0, columns = 0;     // of a part
  bool bias = true;
};

/// Makes the model with the weights of the file, and stores their names. Throws IoError for weights that do
/// not match the model's settings.
template <class T>
Seq2SeqTransformer<T> marian_model(const MarianFile& file, const MarianTransformer& described,
                                   MarianNames& names) {
  const auto& [o, source_table, table] = described;
  const index_t d = o.layer.d_model, ff = o.layer.dim_feedforward, target = o.target_vocab_size;
  WeightImport<T, MarianFile> import(file);
  // The begin symbol, which Marian does not have, has an embedding of zeros; the projection is tied.
  import.take_with_row("source_embedding.weight", source_table, {o.source_vocab_size, d}, described.joint(),
                       0);
  if (!described.joint()) import.take_with_row("target_embedding.weight", table, {target, d}, true, 0);
  names = {{"source_embedding.weight", {source_table}},
           {"target_embedding.weight", {table}},
           {"projection.weight", {table}}};
  // The begin symbol must never be generated: its probability underflows to zero.
  import.take_with_row("projection.bias", "decoder_ff_logit_out_b", Shape{target}, true, -1e4);
  for (const std::string stack : {"encoder", "decoder"}) {
    const bool decoder = stack == "decoder", encoder = !decoder;
    const MarianRow rows[] = {
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
    const index_t layers = decoder ? o.decoder.num_layers : o.encoder.num_layers;
    for (index_t i = 0; i < layers; ++i) {
      for (const MarianRow& row : rows) {
        if (!row.has) continue;
        const std::string ours = stack + ".layers." + std::to_string(i) + "." + row.ours,
                          theirs = stack + "_l" + std::to_string(i + 1) + "_" + row.theirs;
        if (row.parts.empty()) {
          import.take(ours + "weight", {theirs + "_ln_scale"}, {d});
          import.take(ours + "bias", {theirs + "_ln_bias"}, {d});
          continue;
        }
        std::vector<std::string>& weights = names[ours + "weight"];
        std::vector<std::pair<std::string, index_t>> biases;
        for (const std::string& part : row.parts) {
          weights.push_back(theirs + "_W" + part);
          biases.emplace_back(theirs + "_b" + part, row.rows);
        }
        import.take(ours + "weight", weights,
                    {static_cast<index_t>(row.parts.size()) * row.rows, row.columns});
        if (row.bias) import.take_vectors(ours + "bias", biases);
      }
    }
  }
  for (const std::string& name : file.names()) {
    if (name.ends_with("_QuantMultA") || name == "special:model.yml") import.used(name);
  }
  return import.template model<Seq2SeqTransformer<T>>(o);
}

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
  detail::MarianNames names;
  Seq2SeqTransformer<T> model = detail::marian_model<T>(file, transformer, names);
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
struct MarianInt8 {
  std::vector<std::int8_t> values;
  std::vector<float> scale;
  std::vector<float> multiplier;  // of the inputs; 0: none
};

// Nothing when a part of the matrix is float32.
EIGENFORMER_IO_FUNCTION std::optional<MarianInt8> read_int8_rows(const MarianFile& file,
                                                                 const MarianTransformer& described,
                                                                 const std::vector<std::string>& theirs,
                                                                 const Shape& shape) {
  MarianInt8 rows;
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
    const std::optional<MarianInt8> rows = read_int8_rows(file, described, names.at(ours), weight.shape());
    for (const Int8Rows& product : products) {
      if (!rows) {
        packed->add(weight.id(), product.first,
                    kernels::PackedMatrix::pack(weight.value().data() + product.first * in, product.count, in,
                                                WeightFormat::int8));
        continue;
      }
      kernels::PackedMatrix matrix = kernels::PackedMatrix::pack_int8(
          rows->values.data() + product.first * in, rows->scale.data() + product.first, product.count, in);
      // One multiplier for all rows of a product: the smallest, which does not clip any input.
      const auto begin = rows->multiplier.begin() + product.first;
      const auto [least, greatest] = std::minmax_element(begin, begin + product.count);
      if (*least != *greatest && options.warn) {
        options.warn("'" + file.path().string() + "' quantises the inputs of '" + ours +
                     "' with multipliers from " + std::to_string(*least) + " to " +
                     std::to_string(*greatest) + "; the smallest is used for all");
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
  detail::MarianNames names;
  Seq2SeqTransformer<float> model = detail::marian_model<float>(file, transformer, names);
  auto packed = detail::pack_marian_int8(model, file, transformer, names, options);
  release_packed_weights(model, *packed);
  return {{std::move(description), std::move(tokenizers), std::move(model)}, std::move(packed)};
}

}  // namespace eigenformer

#endif
