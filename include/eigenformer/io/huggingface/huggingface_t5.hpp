#pragma once

#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include "eigenformer/io/huggingface/huggingface_weights.hpp"

namespace eigenformer::detail {

/// The families with T5's layers: mT5 has two tables of weights where config.json says nothing.
inline constexpr std::array<HuggingFaceFamily, 2> t5_families = [] {
  HuggingFaceFamily t5{.type = "t5",
                       .activation = "relu",
                       .norm_first = true,
                       .positions = HuggingFaceFamily::Positions::relative,
                       .vocabulary = HuggingFaceFamily::Vocabulary::pieces,
                       .tokenizer_files = "spiece.model",
                       .implied = HuggingFaceFamily::Implied::sentinels,
                       .texts_of_many_sentences = true};
  HuggingFaceFamily mt5 = t5;
  mt5.type = "mt5";
  mt5.tied = false;
  return std::array{t5, mt5};
}();

/// The options of transformers' T5 and mT5 (Raffel et al. 2020): relative position biases, RMSNorm, no other
/// biases, and unscaled scores and embeddings. Throws IoError for sizes that are invalid or not supported.
EIGENFORMER_IO_FUNCTION Seq2SeqOptions t5_options(const HuggingFaceFamily& family, const JsonFile& config,
                                                  const HuggingFaceWeights& weights);

template <class T>
void t5_stack(WeightImport<T, HuggingFaceWeights>& import, const LayerOptions& o, const std::string& stack,
              index_t layers) {
  const index_t d = o.d_model, ff = o.dim_feedforward, inner = o.num_heads * o.attention.head_dim;
  const bool decoder = stack == "decoder";
  import.take(stack + ".relative_bias.weight",
              {stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
              {std::get<RelativeBiasPositions>(o.attention.positions).buckets, o.num_heads});
  import.take(stack + ".norm.weight", {stack + ".final_layer_norm.weight"}, {d});
  const auto attention = [&](const std::string& to, const std::string& from) {
    import.take(to + ".in_proj_weight", {from + ".q.weight", from + ".k.weight", from + ".v.weight"},
                {3 * inner, d});
    import.take(to + ".out_proj.weight", {from + ".o.weight"}, {d, inner});
  };
  for (index_t i = 0; i < layers; ++i) {
    const std::string to = stack + ".layers." + std::to_string(i) + ".";
    const std::string from = stack + ".block." + std::to_string(i) + ".layer.";
    attention(to + "self_attn", from + "0.SelfAttention");
    import.take(to + "norm1.weight", {from + "0.layer_norm.weight"}, {d});
    // Some files have this table, which is not used: cross-attention has no relative positions.
    import.used(from + "1.EncDecAttention.relative_attention_bias.weight");
    if (decoder) {
      attention(to + "multihead_attn", from + "1.EncDecAttention");
      import.take(to + "norm2.weight", {from + "1.layer_norm.weight"}, {d});
    }
    const std::string last = from + (decoder ? "2" : "1"), feed_forward = last + ".DenseReluDense.";
    import.take(to + (decoder ? "norm3" : "norm2") + ".weight", {last + ".layer_norm.weight"}, {d});
    import.take(to + "linear1.weight", {feed_forward + (o.gated ? "wi_0" : "wi") + ".weight"}, {ff, d});
    if (o.gated) import.take(to + "linear3.weight", {feed_forward + "wi_1.weight"}, {ff, d});
    import.take(to + "linear2.weight", {feed_forward + "wo.weight"}, {d, ff});
  }
}

template <class T>
Seq2SeqTransformer<T> t5_model(const Seq2SeqOptions& o, const HuggingFaceWeights& weights) {
  const Shape table{o.source_vocab_size, o.layer.d_model};
  WeightImport<T, HuggingFaceWeights> import(weights);
  const std::vector<std::string> embeddings = {"shared.weight", "encoder.embed_tokens.weight",
                                               "decoder.embed_tokens.weight", "lm_head.weight"};
  for (const std::string& name : embeddings) import.used(name);
  import.take("source_embedding.weight", {weights.first_of({embeddings[0], embeddings[1]})}, table);
  if (o.tying == Tying::none) {
    import.take("target_embedding.weight", {weights.first_of({embeddings[0], embeddings[2]})}, table);
    import.take("projection.weight", {embeddings[3]}, table);
  }
  t5_stack(import, o.layer, "encoder", o.encoder.num_layers);
  t5_stack(import, o.layer, "decoder", o.decoder.num_layers);
  return import.template model<Seq2SeqTransformer<T>>(o);
}

}  // namespace eigenformer::detail

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer::detail {

EIGENFORMER_IO_FUNCTION Seq2SeqOptions t5_options(const HuggingFaceFamily& family, const JsonFile& config,
                                                  const HuggingFaceWeights& weights) {
  Seq2SeqOptions o;
  o.source_vocab_size = require_size(config, "vocab_size");
  o.target_vocab_size = o.source_vocab_size;
  o.layer.d_model = require_size(config, "d_model");
  o.layer.num_heads = require_size(config, "num_heads");
  o.layer.attention.head_dim = require_size(config, "d_kv");
  o.encoder.num_layers = config.require<index_t>("num_layers");
  o.decoder.num_layers = config.get<index_t>("num_decoder_layers", o.encoder.num_layers);
  o.layer.dim_feedforward = require_size(config, "d_ff");
  require_size(config, "num_heads * d_kv", o.layer.num_heads * o.layer.attention.head_dim);
  o.layer.dropout = {0};
  const auto projection = config.get<std::string>("feed_forward_proj", family.activation);
  o.layer.gated = projection.starts_with("gated-");
  const std::string activation = o.layer.gated ? projection.substr(6) : projection;
  if (activation == "relu") {
    o.layer.activation = Activation::relu;
  } else if (activation == "gelu") {
    o.layer.activation = o.layer.gated ? Activation::gelu_tanh : Activation::gelu;
  } else if (activation == "silu") {
    o.layer.activation = Activation::silu;
  } else {
    throw config.refuse(
        {"has the feed_forward_proj '", projection, "', expected relu, gelu, silu or gated-gelu"});
  }
  o.layer.norm_first = family.norm_first;
  o.final_norm = family.norm_first;
  o.layer.norm.kind = NormKind::rms_norm;
  o.layer.norm.eps = config.get("layer_norm_epsilon", 1e-6);
  o.layer.bias = false;
  o.projection_bias = false;
  // The table of the projection and the scale of the logits. Up to transformers 4, tie_word_embeddings
  // determines both; its default is false for mT5 and true for T5. Version 5 always writes true: there are
  // two tables if the weights have lm_head, and the scale has a field of its own.
  const auto version = config.get<std::string>("transformers_version", "");
  const bool version5 = config.has("scale_decoder_outputs") || std::strtol(version.c_str(), nullptr, 10) >= 5;
  const bool tied = config.get("tie_word_embeddings", family.tied || version5);
  o.tying = tied && !(version5 && weights.contains("lm_head.weight")) ? Tying::all : Tying::none;
  if (config.get("scale_decoder_outputs", tied && (family.tied || !version5)))
    o.logit_scale = 1 / std::sqrt(static_cast<double>(o.layer.d_model));
  o.scale_embedding = family.scale_embedding;
  o.layer.attention.scale = 1;
  const char* const buckets = "relative_attention_num_buckets";
  o.layer.attention.positions =
      RelativeBiasPositions{.buckets = require_size(config, buckets, config.get<index_t>(buckets, 32)),
                            .max_distance = config.get<index_t>("relative_attention_max_distance", 128)};
  o.padding_index = -1;  // the decoder starts with the padding symbol and needs its embedding
  require_valid(config, o);
  require_layers(config, weights, {o.encoder.num_layers, o.decoder.num_layers});
  return o;
}

}  // namespace eigenformer::detail

#endif
