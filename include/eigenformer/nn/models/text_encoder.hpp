#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "eigenformer/autograd/ops/shape/pool.hpp"
#include "eigenformer/nn/models/text_embedding.hpp"
#include "eigenformer/nn/stacks/encoder.hpp"

namespace eigenformer {

template <>
struct EnumNames<Pooling> {
  static constexpr std::array names = {"mean", "first"};
};

/// Everything that fixes a TextEncoder's shape and behaviour. What BERT is: learned positions, two token
/// types, embedding_norm, no final_norm, no scale_embedding, gelu.
struct TextEncoderOptions {
  index_t vocab_size = 0;  ///< must be given
  index_t num_layers = defaults::num_layers;
  LayerOptions layer{};
  bool final_norm = true;                     ///< a norm after the last layer
  index_t num_token_types = 0;                ///< kinds of tokens with a vector each; 0: none
  std::optional<InputPositions> positions{};  ///< left out: sinusoidal, unless layer.positions has some
  index_t max_length = 1024;                  ///< tokens; the size of learned positions' table
  std::optional<double> embedding_dropout{};  ///< on the sum of embeddings; left out: layer.dropout.rate
  bool embedding_norm = false;                ///< a norm of that sum, before its dropout
  bool scale_embedding = true;                ///< token vectors times sqrt(d_model)
  Pooling pooling = Pooling::mean;
  index_t padding_index = SpecialIds::pad;  ///< trailing ones are padding where no layout is given; -1: none

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

  TextEmbeddingOptions embedding() const {
    return {.vocab_size = vocab_size,
            .d_model = layer.d_model,
            .num_token_types = num_token_types,
            .dropout = embedding_dropout.value_or(layer.dropout.rate),
            .scale = scale_embedding,
            .positions = input_positions(positions, layer),
            .max_length = max_length,
            .padding_index = padding_index};
  }
  EncoderOptions stack() const { return {num_layers, final_norm, layer}; }

  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    validate_fields(op, *this);
    stack().validate(op);
    embedding().validate(op);
  }
};

/// An encoder of texts: tokens in, one vector for each token or for the whole text out. Devlin et al. 2019,
/// with the layers that the options say.
///
///     ef::TextEncoder<float> encoder({.vocab_size = 23, .layer = {.d_model = 12, .num_heads = 3}}, rng);
///     auto rows = encoder(ctx, ids);             // (B, L) -> (B, L, 12)
///     auto vectors = encoder.vectors(ctx, ids);  // (B, L) -> (B, 12)
///
/// Names: embedding.weight, positions.weight, token_types.weight, embedding_norm,
/// encoder.layers.0.self_attn..., and encoder.norm.
template <class T = float>
struct TextEncoder {
  using value_type = T;
  using Tokens = Tensor<std::int32_t>;
  using Options = TextEncoderOptions;
  /// What the options.json of its model folder says that it is.
  static constexpr const char* format = "eigenformer-text-encoder";

  TextEmbedding<T> embedding;
  Encoder<T> encoder;
  TextEncoderOptions options;

  /// Throws ValueError that names an impossible field.
  TextEncoder(const TextEncoderOptions& given, RandomGenerator& rng)
      : embedding(name, validated(given).embedding(), make_norm(given), rng),
        encoder(given.stack(), rng),
        options(given) {
    name_parameters(*this);
  }

  /// A vector for each token: ids (B, L) -> (B, L, D); trailing ids equal to padding_index are padding.
  /// types: as ids, where the model has token types; left out: all 0. Throws ShapeError for other shapes,
  /// IndexError for an id outside its table.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& ids, const Tokens& types = {}) const {
    return (*this)(ctx, ids, token_layout(name, ids, options.padding_index), types);
  }

  /// The same for rows as the layout says: ids (B, L) or (rows). mask is joined with the layout's padding;
  /// maps, when given, receives each layer's attention weights (B, H, L, L).
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout,
                                  const Tokens& types = {}, const AttentionMask& mask = {},
                                  std::vector<Var<T>>* maps = nullptr) const {
    return encoder(ctx, embedding(ctx, name, ids, layout, types), layout, mask, maps);
  }

  /// A vector for each text, pooled as the options say: ids (B, L) -> (B, D). Padding is dropped before
  /// anything is computed.
  [[nodiscard]] Var<T> vectors(const Context<T>& ctx, const Tokens& ids, const Tokens& types = {}) const {
    return vectors(ctx, ids, token_layout(name, ids, options.padding_index), types);
  }
  /// The same for rows as the layout says.
  [[nodiscard]] Var<T> vectors(const Context<T>& ctx, const Tokens& ids, const SequenceLayout& layout,
                               const Tokens& types = {}) const {
    check_tokens(name, "tokens", ids, layout);
    if (types.defined()) check_tokens(name, "token types", types, layout);
    const SequenceLayout packed = packed_layout(layout);
    const Var<T> rows = (*this)(ctx, pack_tokens(ids, layout), packed,
                                types.defined() ? pack_tokens(types, layout) : Tokens());
    return pool(rows, packed, options.pooling);
  }

  static void fields(auto& self, auto&& visit) {
    visit("", self.embedding);
    visit("encoder", self.encoder);
  }

 private:
  static constexpr const char* name = "text_encoder";

  static const TextEncoderOptions& validated(const TextEncoderOptions& options) {
    options.validate(name);
    return options;
  }
  static OptionalModule<Norm<T>> make_norm(const TextEncoderOptions& o) {
    if (!o.embedding_norm) return {};
    return Norm<T>(detail::norm_options(o.layer));
  }
};

static_assert(std::is_nothrow_move_constructible_v<TextEncoder<float>>);

EIGENFORMER_MODULE_INSTANCES(TextEncoder)

}  // namespace eigenformer
