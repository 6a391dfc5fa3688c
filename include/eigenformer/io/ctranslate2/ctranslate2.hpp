#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/io/ctranslate2/ctranslate2_format.hpp"
#include "eigenformer/io/ctranslate2/ctranslate2_tokenizers.hpp"
#include "eigenformer/io/shared/import_tools.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"

namespace eigenformer {

namespace detail {

/// The names and options of a CTranslate2 Transformer.
struct Ct2Transformer {
  Seq2SeqOptions options;
  std::string source_embedding;  ///< the name of the source language's embeddings
  /// Whether the decoder begins with a vector of zeros, the embedding of the last id, which the file lacks.
  bool zero_start = false;
};

/// layer_norm_epsilon: that of config.json, if any. Throws IoError for an unsupported model.
EIGENFORMER_IO_FUNCTION Ct2Transformer describe_ct2(const Ct2File& file,
                                                    std::optional<double> layer_norm_epsilon);

/// The name of a stack's table of positions.
inline std::string ct2_positions(const std::string& stack) { return stack + "/position_encodings/encodings"; }

/// A row of the table of a layer's tensors: a linear layer; without columns a norm.
struct Ct2Row {
  bool has;  // whether the layer has it
  std::string ours;
  std::vector<std::pair<std::string, index_t>> theirs;  // name and rows; ours has the rows of all
  index_t columns = 0;
};

/// Takes the tensors of a row. ours, theirs: what their names begin with. bias: whether linear layers have
/// one, of zeros if the file has none.
template <class T>
void ct2_take(WeightImport<T, Ct2File>& import, const Ct2Row& row, const std::string& ours,
              const std::string& theirs, bool bias) {
  if (!row.has) return;
  const bool norm = row.columns == 0;
  std::vector<std::string> weights;
  std::vector<std::pair<std::string, index_t>> biases;
  index_t rows = 0;
  for (const auto& [name, n] : row.theirs) {
    weights.push_back(theirs + name + (norm ? "/gamma" : "/weight"));
    biases.emplace_back(theirs + name + (norm ? "/beta" : "/bias"), n);
    rows += n;
  }
  import.take(ours + row.ours + "weight", weights, norm ? Shape{rows} : Shape{rows, row.columns});
  if (norm ? import.source().contains(biases[0].first) : bias)
    import.take_vectors(ours + row.ours + "bias", biases, true);
}

/// Takes the layers, norms and tables of positions of a stack.
template <class T>
void ct2_stack(WeightImport<T, Ct2File>& import, const Seq2SeqOptions& options, const std::string& stack) {
  const Ct2File& file = import.source();
  const bool decoder = stack == "decoder", encoder = !decoder;
  const StackOptions<LayerOptions> sizes =
      decoder ? options.transformer().decoder_options() : options.transformer().encoder_options();
  const LayerOptions& layer = sizes.layer;
  const index_t d = layer.d_model, ff = layer.dim_feedforward;
  const index_t q = layer.attention.head_dim != 0 ? layer.num_heads * layer.attention.head_dim : d;
  const index_t norm = file.shape("encoder/layer_0/ffn/linear_0/weight")[1];
  const auto* const relative = std::get_if<RelativeBiasPositions>(&layer.attention.positions);
  const auto* const shaw = std::get_if<ShawPositions>(&layer.attention.positions);
  const std::string side = decoder ? "target" : "source", table = "self_attention/relative_attention_bias";
  const Ct2Row rows[] = {
      {true, "self_attn.in_proj_", {{"self_attention/linear_0", 3 * q}}, d},
      {true, "self_attn.out_proj.", {{"self_attention/linear_1", d}}, q},
      {true, "norm1.", {{"self_attention/layer_norm", norm}}},
      {decoder, "multihead_attn.in_proj_", {{"attention/linear_0", q}, {"attention/linear_1", 2 * q}}, d},
      {decoder, "multihead_attn.out_proj.", {{"attention/linear_2", d}}, q},
      {decoder, "norm2.", {{"attention/layer_norm", norm}}},
      {true, "linear1.", {{"ffn/linear_0", ff}}, d},
      {layer.gated, "linear3.", {{"ffn/linear_0_noact", ff}}, d},
      {true, "linear2.", {{"ffn/linear_1", d}}, ff},
      {decoder, "norm3.", {{"ffn/layer_norm", norm}}},
      {encoder, "norm2.", {{"ffn/layer_norm", norm}}},
  };
  if (relative != nullptr)
    import.take(stack + ".relative_bias.weight", {stack + "/layer_0/" + table},
                {relative->buckets, layer.num_heads});
  if (std::holds_alternative<LearnedPositions>(options.input_positions())) {
    const std::string positions = ct2_positions(stack);
    import.used(positions);
    import.add(side + "_positions.weight", file.tensor<T>(positions).rows(0, options.max_length));
  }
  const Ct2Row norms[] = {
      {options.embedding_norm, side + "_embedding_norm.", {{"/layernorm_embedding", norm}}},
      {sizes.final_norm, stack + ".norm.", {{"/layer_norm", norm}}},
  };
  for (const Ct2Row& row : norms) ct2_take(import, row, "", stack, false);
  for (index_t i = 0; i < sizes.num_layers; ++i) {
    const std::string ours = stack + ".layers." + std::to_string(i) + ".",
                      theirs = stack + "/layer_" + std::to_string(i) + "/";
    if (shaw != nullptr) {
      const Shape distances{2 * shaw->max_distance + 1, q / layer.num_heads};
      for (const std::string part : {"keys", "values"})
        import.take(ours + "self_attn.relative_" + part,
                    {theirs + "self_attention/relative_position_" + part}, distances);
    }
    if (relative != nullptr) import.used(theirs + table);  // the same in each layer
    for (const Ct2Row& row : rows) ct2_take(import, row, ours, theirs, layer.bias);
  }
}

/// Makes the model with the weights of the file.
template <class T>
Seq2SeqTransformer<T> ct2_model(const Ct2File& file, const Ct2Transformer& described) {
  const auto& [options, source_embedding, zero_start] = described;
  const index_t d = options.layer.d_model, source = options.source_vocab_size,
                target = options.target_vocab_size;
  WeightImport<T, Ct2File> import(file);
  import.take_with_row("source_embedding.weight", source_embedding, {source, d},
                       file.shape(source_embedding)[0] != source, 0);
  import.take_with_row("target_embedding.weight", "decoder/embeddings/weight", {target, d}, zero_start, 0);
  import.take_with_row("projection.weight", "decoder/projection/weight", {target, d}, zero_start, 0);
  if (options.projection_bias) {
    // The begin symbol must never be generated: its probability underflows to zero.
    import.take_with_row("projection.bias", "decoder/projection/bias", Shape{target}, zero_start, -1e4);
  }
  for (const std::string stack : {"encoder", "decoder"}) ct2_stack(import, options, stack);
  // Scalars and scales were read already, or are not needed for translation.
  for (const std::string& name : file.names()) {
    if (name.ends_with("_scale") || file.shape(name).numel() == 1) import.used(name);
  }
  return import.template model<Seq2SeqTransformer<T>>(options);
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
  const detail::Ct2File file = detail::Ct2File::open(folder / "model.bin");
  const detail::JsonFile config = detail::JsonFile::open_if_exists(folder / "config.json");
  std::optional<double> eps;
  if (config.has("layer_norm_epsilon")) eps = config.require<double>("layer_norm_epsilon");
  const detail::Ct2Transformer transformer = detail::describe_ct2(file, eps);
  ModelDescription description;
  description.model = transformer.options;
  TokenizerPair tokenizers =
      detail::ctranslate2_tokenizers(folder, config, options, description, transformer.zero_start);
  Seq2SeqTransformer<T> model = detail::ct2_model<T>(file, transformer);
  return {std::move(description), std::move(tokenizers), std::move(model)};
}

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

class Ct2Reader {
 public:
  Ct2Reader(const Ct2File& file, std::optional<double> layer_norm_epsilon)
      : file_(file), layer_norm_epsilon_(layer_norm_epsilon) {}

  Ct2Transformer read() {
    if (file_.version() >= 2 && !file_.spec().starts_with("Transformer"))
      throw file_.refuse({"holds a ", file_.spec(), ", expected an encoder-decoder TransformerSpec"});
    if (!file_.contains("encoder/layer_0/ffn/linear_0/weight") ||
        !file_.contains("decoder/layer_0/attention/linear_0/weight")) {
      throw file_.refuse({"holds a ", file_.spec(),
                          " without encoder/layer_0 or decoder/layer_0/attention, expected an "
                          "encoder-decoder TransformerSpec"});
    }
    described_.source_embedding = file_.contains("encoder/embeddings_0/weight")
                                      ? "encoder/embeddings_0/weight"
                                      : "encoder/embeddings/weight";
    refuse_what_is_not_done();
    Seq2SeqOptions& o = described_.options;
    const Shape source = matrix(described_.source_embedding), target = matrix("decoder/embeddings/weight");
    o.source_vocab_size = source[0];
    o.target_vocab_size = target[0];
    // The zero vector that decoding begins with becomes the embedding of a begin symbol, the last id.
    described_.zero_start = file_.scalar("decoder/start_from_zero_embedding", 0) != 0;
    if (described_.zero_start && o.source_vocab_size == o.target_vocab_size) ++o.source_vocab_size;
    if (described_.zero_start) ++o.target_vocab_size;
    o.encoder.num_layers = layers("encoder");
    o.decoder.num_layers = layers("decoder");
    o.final_norm = file_.contains(final_norm("encoder"));
    if (file_.contains(final_norm("decoder")) != o.final_norm) o.decoder.final_norm = !o.final_norm;
    o.layer = layer("encoder", source[1]);
    o.embedding_norm = file_.contains("encoder/layernorm_embedding/gamma");
    o.projection_bias = described_.zero_start || file_.contains("decoder/projection/bias");
    o.tying = !file_.same("decoder/embeddings/weight", "decoder/projection/weight")  ? Tying::none
              : file_.same(described_.source_embedding, "decoder/embeddings/weight") ? Tying::all
                                                                                     : Tying::target;
    o.scale_embedding = scale_embedding("encoder");
    if (scale_embedding("decoder") != o.scale_embedding)
      throw file_.refuse(
          {"scales the embeddings of one language and not of the other, which is not supported"});
    set_scales();
    set_positions();
    LayerOptions decoder = layer("decoder", source[1]);
    decoder.attention.positions = o.layer.attention.positions;
    decoder.attention.scale = o.layer.attention.scale;
    if (!(decoder == o.layer)) o.decoder.layer = decoder;
    require_valid(file_, o);
    return std::move(described_);
  }

 private:
  static std::string final_norm(const std::string& stack) { return stack + "/layer_norm/gamma"; }

  // Whether any layer has a bias beside those of its norms.
  bool has_biases() const {
    const std::vector<std::string> names = file_.names();
    return std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name.find("/layer_") != std::string::npos && name.ends_with("/bias");
    });
  }

  static std::string first(const std::string& stack) { return stack + "/layer_0/self_attention/"; }

  // f(name, its stack) for every attention of the model, or every self-attention.
  template <class F>
  void for_each_attention(bool cross, F&& f) const {
    for (const std::string stack : {"encoder", "decoder"}) {
      for (index_t i = 0; i < layers(stack); ++i) {
        const std::string layer = stack + "/layer_" + std::to_string(i) + "/";
        f(layer + "self_attention/", stack);
        if (cross && stack == "decoder") f(layer + "attention/", stack);
      }
    }
  }

  Shape matrix(const std::string& name) const { return require_matrix(file_, name); }

  index_t layers(const std::string& stack) const {
    index_t n = 0;
    while (file_.contains(stack + "/layer_" + std::to_string(n) + "/ffn/linear_0/weight")) ++n;
    return n;
  }

  // A number of the file as an integer.
  index_t whole(const std::string& name, double number, double most = 1e6) const {
    if (!(number >= 0 && number <= most) || number != std::floor(number))
      throw file_.refuse({"has '", name, "' of ", std::to_string(number),
                          ", expected a whole number from 0 to ", static_cast<index_t>(most)});
    return static_cast<index_t>(number);
  }

  // Options of the layers of a stack, except for positions and attention_scale, which both stacks share.
  LayerOptions layer(const std::string& stack, index_t d_model) const {
    LayerOptions o;
    const std::string first_layer = stack + "/layer_0/";
    o.d_model = d_model;
    o.num_heads = whole(stack + "/num_heads",
                        file_.scalar(stack + "/num_heads", file_.spec() == "TransformerBig" ? 16 : 8));
    const index_t inner = matrix(first_layer + "self_attention/linear_0/weight")[0] / 3;
    if (inner != d_model && o.num_heads > 0 && inner % o.num_heads == 0)
      o.attention.head_dim = inner / o.num_heads;
    o.dim_feedforward = matrix(first_layer + "ffn/linear_0/weight")[0];
    o.dropout = {0};
    o.activation = activation(whole(stack + "/activation", file_.scalar(stack + "/activation", 0)));
    o.norm_first = file_.scalar(stack + "/pre_norm", 1) != 0;
    o.norm.kind = file_.contains(first_layer + "self_attention/layer_norm/beta") ? NormKind::layer_norm
                                                                                 : NormKind::rms_norm;
    o.norm.eps =
        layer_norm_epsilon_.value_or(o.norm.kind == NormKind::rms_norm ? 1e-6 : defaults::layer_norm_eps);
    o.gated = file_.contains(first_layer + "ffn/linear_0_noact/weight");
    o.bias = o.norm.kind == NormKind::layer_norm || has_biases();
    return o;
  }

  void set_scales() {
    Seq2SeqOptions& o = described_.options;
    const std::string given = first("encoder") + "queries_scale";
    if (file_.contains(given)) o.layer.attention.scale = file_.scalar(given, 0);
    for_each_attention(true, [&](const std::string& attention, const std::string&) {
      const std::string name = attention + "queries_scale";
      if (file_.contains(name) != file_.contains(given) || file_.scalar(name, 0) != file_.scalar(given, 0))
        throw file_.refuse({"has a '", name, "' that differs from '", given, "', which is not supported"});
    });
    o.logit_scale = file_.scalar("decoder/scale_outputs", 1);
  }

  // Reads the kind of positions from the encoder's first layer; the decoder must have the same.
  void set_positions() {
    Seq2SeqOptions& o = described_.options;
    const std::string encoder = first("encoder"), decoder = first("decoder");
    for (const char* name : {"relative_position_keys", "relative_attention_bias", "rotary_dim"}) {
      if (file_.contains(encoder + name) != file_.contains(decoder + name)) {
        throw file_.refuse({"has a '", (file_.contains(encoder + name) ? encoder : decoder), name,
                            "' in the encoder or the decoder alone, which is not supported"});
      }
    }
    if (file_.contains(encoder + "relative_position_keys")) {
      const index_t distances = matrix(encoder + "relative_position_keys")[0];
      if (distances < 3 || distances % 2 == 0)
        throw file_.refuse({"has 'relative_position_keys' of ", distances, " rows, expected an odd number"});
      o.layer.attention.positions = ShawPositions{distances / 2};
    } else if (file_.contains(encoder + "relative_attention_bias")) {
      o.layer.attention.positions = relative_bias();
    } else if (file_.contains(encoder + "rotary_dim")) {
      o.layer.attention.positions = RotaryPositions{
          .base = rotary("rotary_base", 10000),
          .dim = whole("rotary_dim", rotary("rotary_dim", 0)),
          .pairing = rotary("rotary_interleave", 1) != 0 ? RotaryPairing::adjacent : RotaryPairing::halves};
    } else if (file_.contains(ct2_positions("encoder"))) {
      o.positions = LearnedPositions{};
      o.max_length = std::min(matrix(ct2_positions("encoder"))[0], matrix(ct2_positions("decoder"))[0]);
    } else {
      o.positions = SinusoidalPositions{.order = SinusoidOrder::concatenated,
                                        .exponent = SinusoidExponent::tensor2tensor,
                                        .first_position = 1};
    }
  }

  // T5's bias: one table for each stack, which all of its layers name.
  RelativeBiasPositions relative_bias() const {
    const std::string table = "relative_attention_bias", distance = "relative_attention_max_distance";
    const auto reach = [&](const std::string& attention) {
      return whole(attention + distance, file_.scalar(attention + distance, 128), 1e9);
    };
    RelativeBiasPositions bias{.buckets = matrix(first("encoder") + table)[0],
                               .max_distance = reach(first("encoder"))};
    for_each_attention(false, [&](const std::string& attention, const std::string& stack) {
      if (file_.same(attention + table, first(stack) + table) &&
          matrix(attention + table)[0] == bias.buckets && reach(attention) == bias.max_distance) {
        return;
      }
      throw file_.refuse({"has in '", attention,
                          "' another bias by distance than in the stack's first "
                          "layer, or than the encoder's of ",
                          bias.buckets, " buckets up to the distance ", bias.max_distance,
                          ", which is not supported"});
    });
    return bias;
  }

  double rotary(const std::string& name, double missing) const {
    const double value = file_.scalar(first("encoder") + name, missing);
    for_each_attention(false, [&](const std::string& attention, const std::string&) {
      if (file_.scalar(attention + name, missing) != value) {
        throw file_.refuse({"has a '", name, "' in '", attention,
                            "' that differs from the first layer's, which is not supported"});
      }
    });
    return value;
  }

  Activation activation(index_t number) const {
    static constexpr std::pair<index_t, Activation> known[] = {
        {0, Activation::relu}, {1, Activation::gelu_tanh}, {2, Activation::silu},
        {3, Activation::gelu}, {5, Activation::tanh},      {6, Activation::sigmoid}};
    for (const auto& [theirs, ours] : known) {
      if (theirs == number) return ours;
    }
    throw file_.refuse(
        {"has the activation ", number, ", expected 0 (ReLU), 1 (GELU, tanh), 2 (SiLU), 3 (GELU), 5 or 6"});
  }

  // Whether embeddings are multiplied by sqrt(d); older models store that beside the embeddings.
  bool scale_embedding(const std::string& stack) const {
    const double missing = file_.scalar(stack + "/embeddings/multiply_by_sqrt_depth", 1);
    const std::string name = stack + "/scale_embeddings";
    const double scale = file_.scalar(name, missing);
    if (!file_.contains(name) || file_.variable(name).type == Dtype::i8) return scale != 0;
    if (scale == 1) return false;
    const double root = std::sqrt(static_cast<double>(matrix(described_.source_embedding)[1]));
    if (std::abs(scale - root) <= 1e-3 * root) return true;
    throw file_.refuse({"scales embeddings by ", scale, ", expected 1 or the root of d_model"});
  }

  void refuse_what_is_not_done() const {
    for (const char* name :
         {"encoder/embeddings_1/weight", "decoder/project_in/weight", "decoder/final_logit_softcapping",
          "encoder/sliding_window", "decoder/sliding_window"}) {
      if (file_.contains(name)) throw file_.refuse({"has a '", name, "', which is not supported"});
    }
    for (const char* name : {"encoder/multi_query_attention", "decoder/alibi"}) {
      if (file_.scalar(name, 0) != 0) throw file_.refuse({"sets '", name, "', which is not supported"});
    }
    for_each_attention(true, [&](const std::string& attention, const std::string&) {
      const std::string bias = "relative_attention_bias";
      if (file_.contains(attention + bias) && (attention.find("self_attention") == std::string::npos ||
                                               !file_.contains(first("encoder") + bias))) {
        throw file_.refuse({"has a '", attention, bias,
                            "' beside none in the encoder's first self-attention, which is not supported"});
      }
      for (const char* name : {"num_heads_kv", "head_dim", "sliding_window", "rotary_scaling_type",
                               "q_norm/gamma", "v_norm/gamma", "relative_left_max_position",
                               "memory_kv/weight", "layer_norm/layer_norm_use_residual"}) {
        if (file_.contains(attention + name))
          throw file_.refuse({"has a '", attention, name, "', which is not supported"});
      }
    });
  }

  const Ct2File& file_;
  std::optional<double> layer_norm_epsilon_;
  Ct2Transformer described_;
};

EIGENFORMER_IO_FUNCTION Ct2Transformer describe_ct2(const Ct2File& file,
                                                    std::optional<double> layer_norm_epsilon) {
  return Ct2Reader(file, layer_norm_epsilon).read();
}

}  // namespace eigenformer::detail

#endif
