#pragma once

#include <utility>

#include "eigenformer/nn/stacks/encoder.hpp"
#include "eigenformer/nn/stacks/ssru.hpp"

namespace eigenformer {

/// Self-attention or an SSRU, attention to a memory, and a feed-forward network, each with residual
/// connection and norm. Vaswani et al. 2017, 3.1; names as in PyTorch's nn.TransformerDecoderLayer.
///
///     ef::DecoderLayer<float> layer({.d_model = 12, .num_heads = 3, .dim_feedforward = 20}, rng);
///     auto y = layer(ctx, x, ef::Memory<float>(memory), {.target = ef::AttentionMask::causal()});
///
/// x and y are (B, T, 12), memory is (B, S, 12).
template <class T = float>
struct DecoderLayer {
  using value_type = T;                                 ///< element type, float or double
  using Options = LayerOptions;                         ///< what the layer is constructed from
  static constexpr const char* stack_name = "decoder";  ///< name of a Stack of these layers in messages
  static constexpr bool is_decoder = true;  ///< in a Stack, a relative bias is not bidirectional by default

  OptionalModule<MultiHeadAttention<T>> self_attn;  ///< absent with SelfMixing::ssru
  OptionalModule<Ssru<T>> ssru;                     ///< with SelfMixing::ssru
  MultiHeadAttention<T> multihead_attn;             ///< attention to the memory
  FeedForward<T> feed_forward;         ///< its parameters are listed as the layer's linear1, linear2, linear3
  Norm<T> norm1;                       ///< of self-attention or the SSRU
  Norm<T> norm2;                       ///< of the attention to the memory
  Norm<T> norm3;                       ///< of the feed-forward network
  OptionalModule<Norm<T>> post_norm1;  ///< of the first sub-layer's output, with sandwich_norm
  OptionalModule<Norm<T>> post_norm2;  ///< of the memory attention's output, with sandwich_norm
  OptionalModule<Norm<T>> post_norm3;  ///< of the feed-forward network's output, with sandwich_norm
  LayerOptions options;                ///< as given

  /// Throws ValueError that names the invalid field.
  DecoderLayer(const LayerOptions& given, RandomGenerator& rng)
      : self_attn(make_attention(detail::validated("decoder_layer", given), rng)),
        ssru(make_ssru(given, rng)),
        multihead_attn(detail::memory_attention_options(given), rng),
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

  /// x: (rows, D), the rows of the pass, which must have a memory. Returns the same shape. In training ctx
  /// must have the layout of the rows (Context::for_rows), which Stack sets. Throws ValueError without a
  /// memory.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, LayerPass<T>& pass) const {
    Var<T> h = sub_layer(ctx, x, norm1, post_norm1, options, [&](const Var<T>& rows) {
      return ssru ? (*ssru)(ctx, rows, pass) : pass.self_attention(ctx, *self_attn, rows);
    });
    h = sub_layer(ctx, h, norm2, post_norm2, options,
                  [&](const Var<T>& rows) { return pass.memory_attention(ctx, multihead_attn, rows); });
    return sub_layer(ctx, h, norm3, post_norm3, options,
                     [&](const Var<T>& rows) { return feed_forward(ctx, rows); });
  }

  /// The layer on its own. x: (B, T, D), or (T, D) for one sequence. Returns the same shape. Throws
  /// ShapeError if shapes or masks do not match.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const Memory<T>& memory,
                                  const DecoderMasks& masks = {}) const {
    return (*this)(ctx, x, full_layout("decoder_layer", x.shape()), memory, masks);
  }
  /// The same for rows in the given layout. maps, if not null, receives the weights (B, H, T, T) and (B, H,
  /// T, S).
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const Memory<T>& memory, const DecoderMasks& masks = {},
                                  DecoderMaps<T>* maps = nullptr) const {
    SequencePass<T> pass(layout, masks.target, {memory}, masks.memory);
    if (maps != nullptr) {
      *maps = {};
      pass.collect(maps);
    }
    return (*this)(ctx.for_rows(layout), x, pass);
  }

  /// Features of a row.
  index_t d_model() const noexcept { return options.d_model; }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("self_attn", self.self_attn);
    visit("ssru", self.ssru);
    visit("multihead_attn", self.multihead_attn);
    visit("", self.feed_forward);
    visit("norm1", self.norm1);
    visit("norm2", self.norm2);
    visit("norm3", self.norm3);
    visit("post_norm1", self.post_norm1);
    visit("post_norm2", self.post_norm2);
    visit("post_norm3", self.post_norm3);
  }

 private:
  static OptionalModule<MultiHeadAttention<T>> make_attention(const LayerOptions& o, RandomGenerator& rng) {
    if (o.self_mixing != SelfMixing::attention) return {};
    return MultiHeadAttention<T>(detail::self_attention_options(o), rng);
  }
  static OptionalModule<Ssru<T>> make_ssru(const LayerOptions& o, RandomGenerator& rng) {
    if (o.self_mixing != SelfMixing::ssru) return {};
    return Ssru<T>({.d_model = o.d_model, .bias = o.bias}, rng);
  }
};

static_assert(std::is_nothrow_move_constructible_v<DecoderLayer<float>>);

/// N decoder layers, as PyTorch's nn.TransformerDecoder.
template <class T = float>
using Decoder = Stack<DecoderLayer<T>>;

EIGENFORMER_MODULE_INSTANCES(DecoderLayer)
EIGENFORMER_STACK_INSTANCES(DecoderLayer)

}  // namespace eigenformer
