#pragma once

#include "eigenformer/nn/layers/feed_forward.hpp"
#include "eigenformer/nn/layers/residual.hpp"
#include "eigenformer/nn/stacks/stack.hpp"

namespace eigenformer {

namespace detail {

inline MultiHeadAttentionOptions self_attention_options(const LayerOptions& o) {
  return {.d_model = o.d_model,
          .num_heads = o.num_heads,
          .dropout = o.attention_dropout(),
          .bias = o.bias,
          .attention = o.attention,
          .norm_eps = o.norm.eps};
}
// For attention to a memory: without positions and window, because distances between target and source tokens
// mean nothing.
inline MultiHeadAttentionOptions memory_attention_options(const LayerOptions& o) {
  MultiHeadAttentionOptions options = self_attention_options(o);
  options.attention.positions = NoPositions{};
  options.attention.window = 0;
  options.cross = true;
  return options;
}
inline FeedForwardOptions feed_forward_options(const LayerOptions& o) {
  return {.d_model = o.d_model,
          .dim_feedforward = o.dim_feedforward,
          .activation = o.activation,
          .dropout = o.feed_forward_dropout(),
          .bias = o.bias,
          .gated = o.gated};
}
// For layers without other self-mixing.
inline const LayerOptions& with_attention(const char* op, const LayerOptions& options) {
  if (options.self_mixing == SelfMixing::attention) return validated(op, options);
  throw ValueError(op, "self_mixing is ssru, must be attention in a layer that may look ahead");
}

}  // namespace detail

/// Self-attention and a feed-forward network, each with residual connection and norm. Vaswani et al.
/// 2017, 3.1; names as in PyTorch's nn.TransformerEncoderLayer.
///
///     ef::EncoderLayer<float> layer({.d_model = 12, .num_heads = 3, .dim_feedforward = 20}, rng);
///     auto y = layer(ctx, x);  // (B, L, 12) -> (B, L, 12)
template <class T = float>
struct EncoderLayer {
  using value_type = T;                                 ///< element type, float or double
  using Options = LayerOptions;                         ///< what the layer is constructed from
  static constexpr const char* stack_name = "encoder";  ///< name of a Stack of these layers in messages

  MultiHeadAttention<T> self_attn;  ///< of the rows of a sequence to each other
  FeedForward<T> feed_forward;      ///< its parameters are listed as the layer's linear1, linear2, linear3
  Norm<T> norm1;                    ///< of self-attention
  Norm<T> norm2;                    ///< of the feed-forward network
  detail::OptionalModule<Norm<T>> post_norm1;  ///< of self-attention's output, with sandwich_norm
  detail::OptionalModule<Norm<T>> post_norm2;  ///< of the feed-forward network's output, with sandwich_norm
  LayerOptions options;                        ///< as given

  /// Throws ValueError that names the invalid field, and for self_mixing ssru.
  EncoderLayer(const LayerOptions& given, RandomGenerator& rng)
      : self_attn(detail::self_attention_options(detail::with_attention("encoder_layer", given)), rng),
        feed_forward(detail::feed_forward_options(given), rng),
        norm1(detail::norm_options(given)),
        norm2(detail::norm_options(given)),
        post_norm1(detail::optional_norm<T>(given.sandwich_norm, given)),
        post_norm2(detail::optional_norm<T>(given.sandwich_norm, given)),
        options(given) {
    name_parameters(*this);
  }

  /// x: (rows, D), the rows of the pass. Returns the same shape. In training ctx must have the layout of the
  /// rows (Context::for_rows), which Stack sets.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, LayerPass<T>& pass) const {
    const Var<T> h = detail::sub_layer(ctx, x, norm1, post_norm1, options, [&](const Var<T>& rows) {
      return pass.self_attention(ctx, self_attn, rows);
    });
    return detail::sub_layer(ctx, h, norm2, post_norm2, options,
                             [&](const Var<T>& rows) { return feed_forward(ctx, rows); });
  }

  /// The layer on its own. x: (B, L, D), or (L, D) for one sequence. Returns the same shape. Throws
  /// ShapeError if x or the mask has the wrong shape.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x,
                                  const AttentionMask& mask = {}) const {
    return (*this)(ctx, x, detail::full_layout("encoder_layer", x.shape()), mask);
  }
  /// The same for rows in the given layout.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const AttentionMask& mask = {}) const {
    SequencePass<T> pass(layout, mask);
    return (*this)(ctx.for_rows(layout), x, pass);
  }

  /// Features of a row.
  index_t d_model() const noexcept { return options.d_model; }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("self_attn", self.self_attn);
    visit("", self.feed_forward);
    visit("norm1", self.norm1);
    visit("norm2", self.norm2);
    visit("post_norm1", self.post_norm1);
    visit("post_norm2", self.post_norm2);
  }
};

/// N encoder layers, as PyTorch's nn.TransformerEncoder.
template <class T = float>
using Encoder = Stack<EncoderLayer<T>>;

EIGENFORMER_MODULE_INSTANCES(EncoderLayer)
EIGENFORMER_STACK_INSTANCES(EncoderLayer)

}  // namespace eigenformer
