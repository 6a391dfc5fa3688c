#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "eigenformer/autograd/ops/shape/pool.hpp"
#include "eigenformer/nn/models/text_embedding.hpp"
#include "eigenformer/nn/stacks/encoder.hpp"

namespace eigenformer {

EIGENFORMER_ENUM_NAMES(Pooling, "mean", "first")

/// Options of a TextEncoder: its shape and behaviour. BERT has learned positions, two token types,
/// embedding_norm, no final_norm, no scale_embedding, and gelu.
struct TextEncoderOptions {
  index_t vocab_size = 0;                     ///< ids are below it; required
  index_t num_layers = defaults::num_layers;  ///< at least 1
  LayerOptions layer{};                       ///< of every layer
  bool final_norm = true;                     ///< a norm after the last layer
  index_t num_token_types = 0;                ///< kinds of tokens with a vector each; 0: none
  std::optional<InputPositions>
      positions{};  ///< unset: sinusoidal, or none if layer.attention.positions has some
  /// Most tokens of a sequence; enforced only for learned positions, as their table's size.
  index_t max_length = 1024;
  std::optional<double> embedding_dropout{};  ///< on the sum of embeddings; unset: layer.dropout.rate
  bool embedding_norm = false;                ///< a norm of that sum, before its dropout
  bool scale_embedding = true;                ///< multiply token vectors by sqrt(d_model)
  Pooling pooling = Pooling::mean;            ///< how vectors() makes one vector of a text
  /// Id whose embedding starts at zero and gets no gradient from lookups; trailing ones are padding if no
  /// layout is given; -1: none.
  index_t padding_index = SpecialIds::pad;

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"vocab_size", "vocabulary size", Allowed::positive}, self.vocab_size);
    visit(OptionField{"num_layers", "number of layers", Allowed::positive}, self.num_layers);
    LayerOptions::fields(self.layer, visit);
    visit(OptionField{"final_norm", "norm after the last layer"}, self.final_norm);
    detail::visit_tokens(self, visit);
    visit(OptionField{"num_token_types",
                      "number of token types (BERT's segments), each with an embedding; 0: none",
                      Allowed::not_negative},
          self.num_token_types);
    visit(OptionField{"pooling", "vector of a text: mean of its token vectors, or the first one"},
          self.pooling);
  }

  /// Options of the model's TextEmbedding.
  TextEmbeddingOptions embedding() const {
    return {.vocab_size = vocab_size,
            .d_model = layer.d_model,
            .num_token_types = num_token_types,
            .dropout = embedding_dropout.value_or(layer.dropout.rate),
            .scale = scale_embedding,
            .positions = detail::input_positions(positions, layer),
            .max_length = max_length,
            .padding_index = padding_index};
  }
  /// Options of the model's Encoder.
  EncoderOptions stack() const { return {num_layers, final_norm, layer}; }

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const;
};

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void TextEncoderOptions::validate(const char* op) const {
  validate_fields(op, *this);
  stack().validate(op);
  embedding().validate(op);
}

#endif

/// An encoder of texts: tokens in, one vector for each token or text out. Devlin et al. 2019, with the layers
/// that the options choose.
///
///     ef::TextEncoder<float> encoder({.vocab_size = 23, .layer = {.d_model = 12, .num_heads = 3}}, rng);
///     auto rows = encoder(ctx, ids);             // (B, L) -> (B, L, 12)
///     auto vectors = encoder.vectors(ctx, ids);  // (B, L) -> (B, 12)
///
/// Names: embedding.weight, positions.weight, token_types.weight, embedding_norm,
/// encoder.layers.0.self_attn..., and encoder.norm.
template <class T = float>
struct TextEncoder {
  using value_type = T;                 ///< element type, float or double
  using Tokens = Tensor<std::int32_t>;  ///< token ids
  using Options = TextEncoderOptions;   ///< what the model is constructed from
  /// The model type recorded in the options.json of a model folder.
  static constexpr const char* format = "eigenformer-text-encoder";

  TextEmbedding<T> embedding;  ///< ids -> (..., D)
  Encoder<T> encoder;          ///< the layers
  TextEncoderOptions options;  ///< as given

  /// Throws ValueError that names the invalid field.
  TextEncoder(const TextEncoderOptions& given, RandomGenerator& rng)
      : embedding(name, detail::validated(name, given).embedding(),
                  detail::optional_norm<T>(given.embedding_norm, given.layer), rng),
        encoder(given.stack(), rng),
        options(given) {
    name_parameters(*this);
  }

  /// A vector for each token: ids (B, L) -> (B, L, D). Trailing ids equal to padding_index are padding.
  /// types: shape of ids, if the model has token types; undefined: all 0. Throws ShapeError for other shapes,
  /// IndexError for an id outside its table, ValueError for padding between tokens or for types if the model
  /// has none.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& ids, const Tokens& types = {}) const {
    return (*this)(ctx, ids, token_layout(name, ids, options.padding_index), types);
  }

  /// The same for rows in the given layout: ids (B, L) or (rows). mask is joined with the layout's padding;
  /// maps, if not null, receives each layer's attention weights (B, H, L, L).
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout,
                                  const Tokens& types = {}, const AttentionMask& mask = {},
                                  std::vector<Var<T>>* maps = nullptr) const {
    return encoder(ctx, embedding(ctx, name, ids, layout, types), layout, mask, maps);
  }

  /// A vector for each text, pooled as the options say: ids (B, L) -> (B, D). Padding is removed first.
  /// Throws as the call for tokens does.
  [[nodiscard]] Var<T> vectors(const Context<T>& ctx, const Tokens& ids, const Tokens& types = {}) const {
    return vectors(ctx, ids, token_layout(name, ids, options.padding_index), types);
  }
  /// The same for rows in the given layout.
  [[nodiscard]] Var<T> vectors(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout,
                               const Tokens& types = {}) const {
    detail::check_tokens(name, "tokens", ids, layout);
    if (types.defined()) detail::check_tokens(name, "token types", types, layout);
    const SequenceLayout packed = detail::packed_layout(layout);
    const Var<T> rows = (*this)(ctx, detail::pack_tokens(ids, layout), packed,
                                types.defined() ? detail::pack_tokens(types, layout) : Tokens());
    return pool(rows, packed, options.pooling);
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("", self.embedding);
    visit("encoder", self.encoder);
  }

 private:
  static constexpr const char* name = "text_encoder";
};

EIGENFORMER_MODULE_INSTANCES(TextEncoder)

}  // namespace eigenformer
