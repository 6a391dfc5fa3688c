#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/io/ctranslate2/ctranslate2_options.hpp"
#include "eigenformer/io/ctranslate2/ctranslate2_tokenizers.hpp"
#include "eigenformer/io/shared/import_tools.hpp"

namespace eigenformer {

namespace detail {

template <class T>
void ct2_norm(WeightImport<T, Ct2File>& import, const std::string& ours, const std::string& theirs) {
  const Shape shape{import.source().shape("encoder/layer_0/ffn/linear_0/weight")[1]};
  import.take(ours + ".weight", {theirs + "/gamma"}, shape);
  if (import.source().contains(theirs + "/beta")) {
    import.take(ours + ".bias", {theirs + "/beta"}, shape);
  }
}

// parts: (name, rows), concatenated by rows in our weight. bias: whether the layer has one, of zeros if the
// file has none.
template <class T>
void ct2_linear(WeightImport<T, Ct2File>& import, const std::string& ours,
                const std::vector<std::pair<std::string, index_t>>& parts, index_t in, bool bias) {
  std::vector<std::string> weights;
  std::vector<std::pair<std::string, index_t>> biases;
  index_t rows = 0;
  for (const auto& [name, n] : parts) {
    weights.push_back(name + "/weight");
    biases.emplace_back(name + "/bias", n);
    rows += n;
  }
  import.take(ours + "weight", weights, {rows, in});
  if (bias) import.take_or_zero(ours + "bias", biases);
}

/// Makes the model with the weights of the file.
template <class T>
Seq2SeqTransformer<T> ct2_model(const Ct2Transformer& described) {
  const Ct2File& file = described.file();
  const Seq2SeqOptions& options = described.options();
  const index_t d = options.layer.d_model;
  WeightImport<T, Ct2File> import(file);
  const auto take = [&](const std::string& ours, const std::string& theirs, const Shape& shape,
                        bool row_is_missing, double row) {
    if (row_is_missing) {
      import.take_with_row(ours, theirs, shape, row);
    } else {
      import.take(ours, {theirs}, shape);
    }
  };
  const bool zero_start = described.zero_start();
  take("source_embedding.weight", described.source_embedding(), {options.source_vocab_size, d},
       file.shape(described.source_embedding())[0] != options.source_vocab_size, 0);
  take("target_embedding.weight", "decoder/embeddings/weight", {options.target_vocab_size, d}, zero_start, 0);
  take("projection.weight", "decoder/projection/weight", {options.target_vocab_size, d}, zero_start, 0);
  if (options.projection_bias) {
    // The begin symbol must never be generated: its probability underflows to zero.
    take("projection.bias", "decoder/projection/bias", Shape{options.target_vocab_size}, zero_start, -1e4);
  }
  for (const std::string stack : {"encoder", "decoder"}) {
    const bool decoder = stack == "decoder";
    const StackOptions<LayerOptions> sizes =
        decoder ? options.transformer().decoder_options() : options.transformer().encoder_options();
    const index_t ff = sizes.layer.dim_feedforward;
    const index_t inner = sizes.layer.head_dim != 0 ? sizes.layer.num_heads * sizes.layer.head_dim : d;
    const bool bias = sizes.layer.bias;
    if (std::holds_alternative<RelativeBiasPositions>(sizes.layer.positions)) {
      const std::string table = "/layer_0/self_attention/relative_attention_bias";
      import.take(stack + ".relative_bias.weight", {stack + table},
                  {std::get<RelativeBiasPositions>(sizes.layer.positions).buckets, sizes.layer.num_heads});
      for (index_t i = 1; i < sizes.num_layers; ++i)
        import.used(stack + "/layer_" + std::to_string(i) + "/self_attention/relative_attention_bias");
    }
    if (std::holds_alternative<LearnedPositions>(options.added_positions())) {
      const Tensor<T> table = file.tensor<T>(Ct2Transformer::encodings(stack));
      import.used(Ct2Transformer::encodings(stack));
      import.add(decoder ? "target_positions.weight" : "source_positions.weight",
                 table.rows(0, options.max_length));
    }
    if (options.embedding_norm) {
      ct2_norm(import, decoder ? "target_embedding_norm" : "source_embedding_norm",
               stack + "/layernorm_embedding");
    }
    if (sizes.final_norm) ct2_norm(import, stack + ".norm", stack + "/layer_norm");
    for (index_t i = 0; i < sizes.num_layers; ++i) {
      const std::string ours = stack + ".layers." + std::to_string(i) + ".";
      const std::string theirs = stack + "/layer_" + std::to_string(i) + "/";
      ct2_linear(import, ours + "self_attn.in_proj_", {{theirs + "self_attention/linear_0", 3 * inner}}, d,
                 bias);
      ct2_linear(import, ours + "self_attn.out_proj.", {{theirs + "self_attention/linear_1", d}}, inner,
                 bias);
      ct2_norm(import, ours + "norm1", theirs + "self_attention/layer_norm");
      if (const auto* shaw = std::get_if<ShawPositions>(&sizes.layer.positions)) {
        const Shape shape{2 * shaw->max_distance + 1, inner / sizes.layer.num_heads};
        import.take(ours + "self_attn.relative_keys", {theirs + "self_attention/relative_position_keys"},
                    shape);
        import.take(ours + "self_attn.relative_values", {theirs + "self_attention/relative_position_values"},
                    shape);
      }
      if (decoder) {
        ct2_linear(import, ours + "multihead_attn.in_proj_",
                   {{theirs + "attention/linear_0", inner}, {theirs + "attention/linear_1", 2 * inner}}, d,
                   bias);
        ct2_linear(import, ours + "multihead_attn.out_proj.", {{theirs + "attention/linear_2", d}}, inner,
                   bias);
        ct2_norm(import, ours + "norm2", theirs + "attention/layer_norm");
      }
      ct2_linear(import, ours + "linear1.", {{theirs + "ffn/linear_0", ff}}, d, bias);
      if (sizes.layer.gated)
        ct2_linear(import, ours + "linear3.", {{theirs + "ffn/linear_0_noact", ff}}, d, bias);
      ct2_linear(import, ours + "linear2.", {{theirs + "ffn/linear_1", d}}, ff, bias);
      ct2_norm(import, ours + (decoder ? "norm3" : "norm2"), theirs + "ffn/layer_norm");
    }
  }
  // Scalars and scales were read already, or are not needed for translation.
  for (const std::string& name : file.names()) {
    if (name.ends_with("_scale") || file.shape(name).numel() == 1) import.used(name);
  }
  import.check();
  RandomGenerator rng(0);
  Seq2SeqTransformer<T> model(options, rng);
  import.load_into(model);
  return model;
}

}  // namespace detail

/// Imports a CTranslate2 folder: model.bin, config.json, and its vocabularies. With a SentencePiece model in
/// the folder (source.spm and target.spm, or one for both) text is tokenized by it, else split at spaces.
/// Weights of any type are converted to T; search and scores are those of CTranslate2. A decoder that begins
/// with a vector of zeros (conversions of Marian's models) gets one more id, the begin symbol.
///
///     auto model = ef::import_ctranslate2("opus-ct2");
///     ef::save_model_folder("opus", model);
///
/// Throws IoError that names the file and what is wrong: missing, truncated, another architecture, a
/// vocabulary that does not match the weights; ValueError for a language that the model does not have.
template <class T = float>
TranslationModel<T> import_ctranslate2(const std::filesystem::path& folder,
                                       const ImportOptions& options = {}) {
  const Ct2File file = Ct2File::open(folder / "model.bin");
  const detail::JsonFile config = detail::JsonFile::open_if_exists(folder / "config.json");
  std::optional<double> eps;
  if (config.has("layer_norm_epsilon")) eps = config.require<double>("layer_norm_epsilon");
  const detail::Ct2Transformer transformer(file, eps);
  ModelDescription description;
  description.model = transformer.options();
  TokenizerPair tokenizers =
      detail::ctranslate2_tokenizers(folder, config, options, description, transformer.zero_start());
  Seq2SeqTransformer<T> model = detail::ct2_model<T>(transformer);
  return {std::move(description), std::move(tokenizers), std::move(model)};
}

}  // namespace eigenformer
