#pragma once

#include <cmath>
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include "eigenformer/io/huggingface/huggingface_weights.hpp"

namespace eigenformer::detail {

inline constexpr HuggingFaceFamily t5_family{.type = "t5",
                                             .activation = "relu",
                                             .norm_first = true,
                                             .positions = HuggingFaceFamily::Positions::relative,
                                             .vocabulary = HuggingFaceFamily::Vocabulary::pieces,
                                             .tokenizer_files = "spiece.model",
                                             .implied = HuggingFaceFamily::Implied::sentinels,
                                             .texts_of_many_sentences = true};

/// The supported families: four with BART's layers, then those with T5's, of which mT5 has two tables of
/// weights where config.json says nothing.
inline constexpr HuggingFaceFamily huggingface_families[] = {
    {.type = "bart",
     .vocabulary = HuggingFaceFamily::Vocabulary::bytes,
     .tokenizer_files = "vocab.json with merges.txt",
     .begin_and_mask = true,
     .texts_of_many_sentences = true},
    {.type = "mbart",
     .norm_first = true,
     .implied = HuggingFaceFamily::Implied::mbart_languages,
     .languages = true,
     .begin_and_mask = true},
    {.type = "marian",
     .positions = HuggingFaceFamily::Positions::sinusoidal,
     .vocabulary = HuggingFaceFamily::Vocabulary::map,
     .tokenizer_files = "source.spm and target.spm"},
    {.type = "m2m_100",
     .activation = "relu",
     .norm_first = true,
     .scale_embedding = true,
     .positions = HuggingFaceFamily::Positions::sinusoidal_after_padding,
     .implied = HuggingFaceFamily::Implied::language_codes,
     .languages = true,
     .begin_and_mask = true},
    t5_family,
    [] {
      HuggingFaceFamily mt5 = t5_family;
      mt5.type = "mt5";
      mt5.tied = false;
      return mt5;
    }(),
};

/// The options of a model of transformers' BART family: bart, mbart, marian and m2m_100 (M2M100, NLLB), which
/// have the same names of weights and differ in norms and positions. Throws IoError for sizes that are
/// invalid or not supported.
EIGENFORMER_IO_FUNCTION Seq2SeqOptions bart_options(const HuggingFaceFamily& family, const JsonFile& config,
                                                    const HuggingFaceWeights& weights);

template <class T>
void bart_stack(WeightImport<T, HuggingFaceWeights>& import, const Seq2SeqOptions& o,
                const std::string& stack, const StackOptions<LayerOptions>& sizes) {
  const index_t d = sizes.layer.d_model, ff = sizes.layer.dim_feedforward;
  const bool decoder = stack == "decoder";
  const std::string theirs = "model." + stack + ".", side = decoder ? "target" : "source";
  const std::string positions = theirs + "embed_positions.weight";
  if (std::holds_alternative<LearnedPositions>(o.input_positions())) {
    // The first two rows are not used as positions.
    import.take(side + "_positions.weight", {positions}, {o.max_length, d}, 2);
  } else {
    import.used(positions);
    import.used(theirs + "embed_positions.weights");
  }
  if (o.embedding_norm)
    import.take_with_bias(side + "_embedding_norm.", {theirs + "layernorm_embedding"}, {d});
  if (sizes.final_norm) import.take_with_bias(stack + ".norm.", {theirs + "layer_norm"}, {d});
  const auto attention = [&](const std::string& to, const std::string& from) {
    import.take_with_bias(to + ".in_proj_", {from + ".q_proj", from + ".k_proj", from + ".v_proj"},
                          {3 * d, d});
    import.take_with_bias(to + ".out_proj.", {from + ".out_proj"}, {d, d});
  };
  for (index_t i = 0; i < sizes.num_layers; ++i) {
    const std::string to = stack + ".layers." + std::to_string(i) + ".";
    const std::string from = theirs + "layers." + std::to_string(i) + ".";
    attention(to + "self_attn", from + "self_attn");
    import.take_with_bias(to + "norm1.", {from + "self_attn_layer_norm"}, {d});
    if (decoder) {
      attention(to + "multihead_attn", from + "encoder_attn");
      import.take_with_bias(to + "norm2.", {from + "encoder_attn_layer_norm"}, {d});
    }
    import.take_with_bias(to + "linear1.", {from + "fc1"}, {ff, d});
    import.take_with_bias(to + "linear2.", {from + "fc2"}, {d, ff});
    import.take_with_bias(to + (decoder ? "norm3." : "norm2."), {from + "final_layer_norm"}, {d});
  }
}

template <class T>
Seq2SeqTransformer<T> bart_model(const Seq2SeqOptions& o, const HuggingFaceWeights& weights) {
  const index_t d = o.layer.d_model;
  WeightImport<T, HuggingFaceWeights> import(weights);
  const std::vector<std::string> embeddings = {"model.shared.weight", "model.encoder.embed_tokens.weight",
                                               "model.decoder.embed_tokens.weight", "lm_head.weight"};
  const std::string source = weights.first_of({embeddings[1], embeddings[0]});
  const std::string target = weights.first_of({embeddings[2], embeddings[0]});
  for (const std::string& name : embeddings) import.used(name);
  import.take("source_embedding.weight", {source}, {o.source_vocab_size, d});
  if (o.tying != Tying::all) import.take("target_embedding.weight", {target}, {o.target_vocab_size, d});
  if (o.tying == Tying::none) {
    import.take("projection.weight", {weights.first_of({embeddings[3], target})}, {o.target_vocab_size, d});
  }
  if (o.projection_bias) import.take("projection.bias", {"final_logits_bias"}, {o.target_vocab_size});
  bart_stack(import, o, "encoder", o.transformer().encoder_options());
  bart_stack(import, o, "decoder", o.transformer().decoder_options());
  return import.template model<Seq2SeqTransformer<T>>(o);
}

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

EIGENFORMER_IO_FUNCTION Seq2SeqOptions bart_options(const HuggingFaceFamily& family, const JsonFile& config,
                                                    const HuggingFaceWeights& weights) {
  Seq2SeqOptions o;
  o.source_vocab_size = require_size(config, "vocab_size");
  o.target_vocab_size =
      require_size(config, "decoder_vocab_size", config.get("decoder_vocab_size", o.source_vocab_size));
  o.layer.d_model = require_size(config, "d_model");
  o.encoder.num_layers = config.require<index_t>("encoder_layers");
  o.decoder.num_layers = config.require<index_t>("decoder_layers");
  o.layer.num_heads = config.require<index_t>("encoder_attention_heads");
  o.layer.dim_feedforward = require_size(config, "encoder_ffn_dim");
  o.layer.dropout = {0};
  // What transformers' configuration classes have as defaults.
  o.layer.activation = huggingface_activation(config, "activation_function", family.activation);
  o.layer.norm_first = family.norm_first;
  o.final_norm = o.layer.norm_first;
  o.projection_bias = weights.contains("final_logits_bias");
  const bool shared = config.get("share_encoder_decoder_embeddings", true),
             tied = config.get("tie_word_embeddings", family.tied);
  o.tying = !tied ? Tying::none : shared ? Tying::all : Tying::target;
  o.scale_embedding = config.get("scale_embedding", family.scale_embedding);
  const auto pad = config.get<index_t>("pad_token_id", 1);
  o.max_length = require_size(config, "max_position_embeddings");
  if (family.positions == HuggingFaceFamily::Positions::sinusoidal) {
    o.positions = SinusoidalPositions{.order = SinusoidOrder::concatenated};
  } else if (family.positions == HuggingFaceFamily::Positions::sinusoidal_after_padding) {
    o.positions = SinusoidalPositions{.order = SinusoidOrder::concatenated,
                                      .exponent = SinusoidExponent::tensor2tensor,
                                      .first_position = pad + 1};
  } else {
    o.positions = LearnedPositions{};
    o.embedding_norm = true;
  }
  LayerOptions decoder = o.layer;
  decoder.num_heads = config.require<index_t>("decoder_attention_heads");
  decoder.dim_feedforward = require_size(config, "decoder_ffn_dim");
  if (!(decoder == o.layer)) o.decoder.layer = decoder;
  // A decoder that starts with the padding symbol needs its embedding.
  const auto start = config.get<index_t>("decoder_start_token_id", -1);
  o.padding_index = start == pad ? -1 : pad;
  if (start == pad) o.constant_id = pad;
  require_valid(config, o);
  require_layers(config, weights, {o.encoder.num_layers, o.decoder.num_layers});
  return o;
}

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
