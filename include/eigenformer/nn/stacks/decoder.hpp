#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/nn/stacks/encoder.hpp"

namespace eigenformer {

/// Who may attend to whom in a decoder. Nothing is causal unless the mask says so.
struct DecoderMasks {
  AttentionMask target{};  ///< of the self-attention
  AttentionMask memory{};  ///< of the attention to the encoder's output
};

/// What a decoder attends to: the encoder's output and whose it is.
template <class T>
struct Memory {
  Var<T> rows;            ///< (M, D) or (B, S, D)
  SequenceLayout layout;  ///< of these rows
  std::vector<std::int32_t>
      key_sequence{};  ///< the sequence of memory of each target sequence; empty: its own number

  /// Memory of full sequences, (B, S, D) or (S, D), or with a layout.
  explicit Memory(Var<T> encoded) : rows(std::move(encoded)), layout(full_layout("decoder", rows.shape())) {}
  Memory(Var<T> encoded, SequenceLayout encoded_layout, std::vector<std::int32_t> sequences = {})
      : rows(std::move(encoded)), layout(std::move(encoded_layout)), key_sequence(std::move(sequences)) {}
};

/// The attention weights of a decoder, one (B, H, Lq, Lk) for each layer.
template <class T>
struct DecoderMaps {
  std::vector<Var<T>> target;
  std::vector<Var<T>> memory;
};

/// Self-attention, attention to a memory, and a feed-forward network. Vaswani et al. 2017, 3.1; names as
/// PyTorch's nn.TransformerDecoderLayer.
///
///     ef::DecoderLayer<float> layer({.d_model = 12, .num_heads = 3, .dim_feedforward = 20}, rng);
///     auto y = layer(ctx, x, ef::Memory<float>(memory), {.target = ef::AttentionMask::causal()});
///
/// x and y are (B, T, 12), memory is (B, S, 12).
template <class T = float>
struct DecoderLayer {
  using value_type = T;

  MultiHeadAttention<T> self_attn;
  MultiHeadAttention<T> multihead_attn;  ///< to the memory
  FeedForward<T> feed_forward;           ///< its parameters are the layer's linear1 and linear2
  Norm<T> norm1;
  Norm<T> norm2;
  Norm<T> norm3;
  OptionalModule<Norm<T>> post_norm1;  ///< of the sub-layers' outputs, with sandwich_norm
  OptionalModule<Norm<T>> post_norm2;
  OptionalModule<Norm<T>> post_norm3;
  LayerOptions options;

  /// Throws ValueError that names an impossible field.
  DecoderLayer(const LayerOptions& given, RandomGenerator& rng)
      : self_attn(detail::self_attention_options(detail::validated("decoder_layer", given)), rng),
        multihead_attn(detail::attention_options(given), rng),
        feed_forward(detail::feed_forward_options(given), rng),
        norm1(detail::norm_options(given)),
        norm2(detail::norm_options(given)),
        norm3(detail::norm_options(given)),
        post_norm1(detail::sandwich_norm<T>(given)),
        post_norm2(detail::sandwich_norm<T>(given)),
        post_norm3(detail::sandwich_norm<T>(given)),
        options(given) {
    name_parameters(*this);
  }

  /// x: (B, T, D), or (T, D) of one sequence. Returns the same shape. Throws ShapeError where shapes or masks
  /// do not fit.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const Memory<T>& memory,
                                  const DecoderMasks& masks = {}) const {
    return (*this)(ctx, x, full_layout("decoder_layer", x.shape()), memory, masks);
  }

  /// The same for rows as the layout says. The last two, when given, receive the weights (B, H, T, T) and (B,
  /// H, T, S). bias: (H, 2 R + 1), added to the self-attention's scores by distance.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const Memory<T>& memory, const DecoderMasks& masks = {},
                                  Var<T>* target_weights = nullptr, Var<T>* memory_weights = nullptr,
                                  const Var<T>& bias = {}) const {
    const auto attend = [](const MultiHeadAttention<T>& attention, const Context<T>& c, const Var<T>& query,
                           const SequenceLayout& queries, const Var<T>& key, const SequenceLayout& keys,
                           const AttentionMask& mask, const std::vector<std::int32_t>& key_sequence,
                           Var<T>* weights, const Var<T>& by_distance) {
      if (weights == nullptr)
        return attention(c, query, queries, key, key, keys, mask, key_sequence, by_distance);
      auto result = attention.with_weights(c, query, queries, key, key, keys, mask, HeadWeights::per_head,
                                           key_sequence, by_distance);
      *weights = std::move(result.weights);
      return std::move(result.output);
    };
    return with_attention(
        ctx.for_rows(layout), x,
        [&](const Context<T>& c, const Var<T>& h) {
          return attend(self_attn, c, h, layout, h, layout, masks.target, {}, target_weights, bias);
        },
        [&](const Context<T>& c, const Var<T>& h) {
          return attend(multihead_attn, c, h, layout, memory.rows, memory.layout, masks.memory,
                        memory.key_sequence, memory_weights, {});
        });
  }

  /// The layer around the caller's own attentions, each f(ctx, rows) -> rows: what decoding with a key/value
  /// cache is built on. ctx must know the rows' layout where it drops.
  template <class SelfAttention, class MemoryAttention>
  [[nodiscard]] Var<T> with_attention(const Context<T>& ctx, const Var<T>& x, SelfAttention&& self_attention,
                                      MemoryAttention&& memory_attention) const {
    Var<T> h = sub_layer(ctx, x, norm1, post_norm1, options,
                         [&](const Var<T>& rows) { return self_attention(ctx, rows); });
    h = sub_layer(ctx, h, norm2, post_norm2, options,
                  [&](const Var<T>& rows) { return memory_attention(ctx, rows); });
    return sub_layer(ctx, h, norm3, post_norm3, options,
                     [&](const Var<T>& rows) { return feed_forward(ctx, rows); });
  }

  static void fields(auto& self, auto&& visit) {
    visit("self_attn", self.self_attn);
    visit("multihead_attn", self.multihead_attn);
    visit("", self.feed_forward);
    visit("norm1", self.norm1);
    visit("norm2", self.norm2);
    visit("norm3", self.norm3);
    visit("post_norm1", self.post_norm1);
    visit("post_norm2", self.post_norm2);
    visit("post_norm3", self.post_norm3);
  }
};

static_assert(std::is_nothrow_move_constructible_v<DecoderLayer<float>>);

/// N decoder layers, which start different, and an optional final norm.
///
///     ef::Decoder<float> decoder({.num_layers = 2, .layer = {.d_model = 12, .num_heads = 3}}, rng);
///     auto y = decoder(ctx, x, ef::Memory<float>(memory), {.target = ef::AttentionMask::causal()});
template <class T = float>
struct Decoder {
  using value_type = T;

  std::vector<DecoderLayer<T>> layers;
  OptionalModule<Norm<T>> norm;
  OptionalModule<RelativeBias<T>> relative_bias;  ///< with these positions; one for all layers

  /// Throws ValueError that names an impossible field.
  Decoder(const DecoderOptions& options, RandomGenerator& rng)
      : layers(detail::make_layers<DecoderLayer<T>>("decoder", options, rng)) {
    if (options.final_norm) norm.emplace(detail::norm_options(options.layer));
    relative_bias = detail::make_relative_bias<T>(options.layer, false, rng);
    finish();
  }

  /// From given layers. Throws ValueError when there are none or their widths differ.
  explicit Decoder(std::vector<DecoderLayer<T>> given, OptionalModule<Norm<T>> final_norm = {})
      : layers(std::move(given)), norm(std::move(final_norm)) {
    finish();
  }

  /// x: (B, T, D), or (T, D) of one sequence. Returns the same shape.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const Memory<T>& memory,
                                  const DecoderMasks& masks = {}) const {
    return (*this)(ctx, x, full_layout("decoder", x.shape()), memory, masks);
  }

  /// The same for rows as the layout says. maps, when given, receives the attention weights of every layer.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const Memory<T>& memory, const DecoderMasks& masks = {},
                                  DecoderMaps<T>* maps = nullptr) const {
    check_rows("decoder", "target", x.shape(), layout);
    check_rows("decoder", "memory", memory.rows.shape(), memory.layout);
    if (maps != nullptr) *maps = {std::vector<Var<T>>(layers.size()), std::vector<Var<T>>(layers.size())};
    const Var<T> bias = relative_bias ? (*relative_bias)(ctx) : Var<T>();
    Var<T> h = x;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      h = layers[i](ctx, h, layout, memory, masks, maps == nullptr ? nullptr : &maps->target[i],
                    maps == nullptr ? nullptr : &maps->memory[i], bias);
    }
    return norm ? (*norm)(ctx, h) : h;
  }

  index_t d_model() const { return layers.front().options.d_model; }

  static void fields(auto& self, auto&& visit) {
    visit("layers", self.layers);
    visit("norm", self.norm);
    visit("relative_bias", self.relative_bias);
  }

 private:
  void finish() {
    detail::check_stack("decoder", layers, norm);
    name_parameters(*this);
  }
};

static_assert(std::is_nothrow_move_constructible_v<Decoder<float>>);

EIGENFORMER_MODULE_INSTANCES(DecoderLayer)
EIGENFORMER_MODULE_INSTANCES(Decoder)

}  // namespace eigenformer
