#pragma once

#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "eigenformer/nn/stacks/encoder.hpp"
#include "eigenformer/nn/stacks/pass.hpp"

namespace eigenformer {

/// Options of an Ssru.
struct SsruOptions {
  index_t d_model = defaults::d_model;  ///< features of a row
  bool bias = true;                     ///< a bias in the forget gate
};

/// The Simpler Simple Recurrent Unit of Kim et al. 2019 ("From Research to Production and Back"), which
/// replaces a decoder's self-attention:
///
///     f = sigmoid(forget(x)),  c[t] = f[t] * c[t - 1] + (1 - f[t]) * input(x)[t],  y = relu(c)
///
/// A token sees earlier ones through c alone, which starts at zero, so decoding stores one vector for each
/// sequence and layer, whatever the length.
///
///     ef::Ssru<float> unit({.d_model = 12}, rng);
///     ef::SequencePass<float> pass(layout);
///     auto y = unit(ctx, x, pass);  // (rows, 12)
template <class T = float>
struct Ssru {
  using value_type = T;  ///< element type, float or double

  Linear<T> input;   ///< D -> D, without bias
  Linear<T> forget;  ///< D -> D, the forget gate

  /// Throws ValueError for a d_model that is not positive.
  Ssru(const SsruOptions& options, RandomGenerator& rng)
      : input({options.d_model, options.d_model, false}, rng),
        forget({options.d_model, options.d_model, options.bias}, rng) {
    name_parameters(*this);
  }

  /// x: the rows of the pass, (rows, D). Returns the same shape. Throws as LayerPass::recurrence does.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, LayerPass<T>& pass) const {
    return relu(pass.recurrence(ctx, sigmoid(forget(ctx, x)), input(ctx, x)));
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("input", self.input);
    visit("forget", self.forget);
  }
};

EIGENFORMER_MODULE_INSTANCES(Ssru)

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

  detail::OptionalModule<MultiHeadAttention<T>> self_attn;  ///< absent with SelfMixing::ssru
  detail::OptionalModule<Ssru<T>> ssru;                     ///< with SelfMixing::ssru
  MultiHeadAttention<T> multihead_attn;                     ///< attention to the memory
  FeedForward<T> feed_forward;  ///< its parameters are listed as the layer's linear1, linear2, linear3
  Norm<T> norm1;                ///< of self-attention or the SSRU
  Norm<T> norm2;                ///< of the attention to the memory
  Norm<T> norm3;                ///< of the feed-forward network
  detail::OptionalModule<Norm<T>> post_norm1;  ///< of the first sub-layer's output, with sandwich_norm
  detail::OptionalModule<Norm<T>> post_norm2;  ///< of the memory attention's output, with sandwich_norm
  detail::OptionalModule<Norm<T>> post_norm3;  ///< of the feed-forward network's output, with sandwich_norm
  LayerOptions options;                        ///< as given

  /// Throws ValueError that names the invalid field.
  DecoderLayer(const LayerOptions& given, RandomGenerator& rng)
      : self_attn(make_attention(detail::validated("decoder_layer", given), rng)),
        ssru(make_ssru(given, rng)),
        multihead_attn(detail::memory_attention_options(given), rng),
        feed_forward(detail::feed_forward_options(given), rng),
        norm1(detail::norm_options(given)),
        norm2(detail::norm_options(given)),
        norm3(detail::norm_options(given)),
        post_norm1(detail::optional_norm<T>(given.sandwich_norm, given)),
        post_norm2(detail::optional_norm<T>(given.sandwich_norm, given)),
        post_norm3(detail::optional_norm<T>(given.sandwich_norm, given)),
        options(given) {
    name_parameters(*this);
  }

  /// x: (rows, D), the rows of the pass, which must have a memory. Returns the same shape. In training ctx
  /// must have the layout of the rows (Context::for_rows), which Stack sets. Throws ValueError without a
  /// memory.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, LayerPass<T>& pass) const {
    Var<T> h = detail::sub_layer(ctx, x, norm1, post_norm1, options, [&](const Var<T>& rows) {
      return ssru ? (*ssru)(ctx, rows, pass) : pass.self_attention(ctx, *self_attn, rows);
    });
    h = detail::sub_layer(ctx, h, norm2, post_norm2, options, [&](const Var<T>& rows) {
      return pass.memory_attention(ctx, multihead_attn, rows);
    });
    return detail::sub_layer(ctx, h, norm3, post_norm3, options,
                             [&](const Var<T>& rows) { return feed_forward(ctx, rows); });
  }

  /// The layer on its own. x: (B, T, D), or (T, D) for one sequence. Returns the same shape. Throws
  /// ShapeError if shapes or masks do not match.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const Memory<T>& memory,
                                  const DecoderMasks& masks = {}) const {
    return (*this)(ctx, x, detail::full_layout("decoder_layer", x.shape()), memory, masks);
  }
  /// The same for rows in the given layout.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const Memory<T>& memory, const DecoderMasks& masks = {}) const {
    SequencePass<T> pass(layout, masks.target, {memory}, masks.memory);
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
  static detail::OptionalModule<MultiHeadAttention<T>> make_attention(const LayerOptions& o,
                                                                      RandomGenerator& rng) {
    if (o.self_mixing != SelfMixing::attention) return {};
    return MultiHeadAttention<T>(detail::self_attention_options(o), rng);
  }
  static detail::OptionalModule<Ssru<T>> make_ssru(const LayerOptions& o, RandomGenerator& rng) {
    if (o.self_mixing != SelfMixing::ssru) return {};
    return Ssru<T>({.d_model = o.d_model, .bias = o.bias}, rng);
  }
};

/// N decoder layers, as PyTorch's nn.TransformerDecoder.
template <class T = float>
using Decoder = Stack<DecoderLayer<T>>;

EIGENFORMER_MODULE_INSTANCES(DecoderLayer)
EIGENFORMER_STACK_INSTANCES(DecoderLayer)

}  // namespace eigenformer
