#pragma once

#include <string>
#include <utility>
#include <vector>

#include "eigenformer/nn/attention/attention.hpp"
#include "eigenformer/nn/layers/feed_forward.hpp"
#include "eigenformer/nn/layers/residual.hpp"
#include "eigenformer/nn/module/optional_module.hpp"

namespace eigenformer {

namespace detail {

// Of attention to a memory: its keys stand in no order that the queries' positions belong to.
inline MultiHeadAttentionOptions attention_options(const LayerOptions& o) {
  return {.d_model = o.d_model,
          .num_heads = o.num_heads,
          .dropout = o.attention_dropout.value_or(o.dropout),
          .bias = o.bias,
          .kind = o.attention,
          .num_key_value_heads = o.num_key_value_heads,
          .head_dim = o.head_dim,
          .attention_scale = o.attention_scale,
          .query_key_norm = o.query_key_norm,
          .query_key_norm_kind = o.query_key_norm_kind};
}
inline MultiHeadAttentionOptions self_attention_options(const LayerOptions& o) {
  MultiHeadAttentionOptions options = attention_options(o);
  options.positions = o.positions;
  options.rotary = o.rotary;
  options.shaw_max_distance = o.shaw_max_distance;
  options.attention_window = o.attention_window;
  return options;
}
// The bias by distance of a stack whose layers want one.
template <class T>
OptionalModule<RelativeBias<T>> make_relative_bias(const LayerOptions& o, bool bidirectional,
                                                   RandomGenerator& rng) {
  if (o.positions != Positions::relative_bias) return {};
  return RelativeBias<T>(o.relative_bias, o.num_heads, bidirectional, rng);
}
inline FeedForwardOptions feed_forward_options(const LayerOptions& o) {
  return {.d_model = o.d_model,
          .dim_feedforward = o.dim_feedforward,
          .activation = o.activation,
          .dropout = o.feed_forward_dropout.value_or(o.dropout),
          .bias = o.bias,
          .gated = o.gated};
}
inline NormOptions norm_options(const LayerOptions& o) {
  return {.kind = o.norm,
          .size = o.d_model,
          .eps = o.layer_norm_eps,
          .formula = o.layer_norm_formula,
          .scalar_gain = o.layer_norm_scalar_gain,
          .bias = o.bias};
}
// The norm of a sub-layer's output, where there is one.
template <class T>
OptionalModule<Norm<T>> sandwich_norm(const LayerOptions& o) {
  if (!o.sandwich_norm) return {};
  return Norm<T>(norm_options(o));
}
inline const LayerOptions& validated(const char* op, const LayerOptions& options) {
  options.validate(op);
  return options;
}

// Layers that were not made together must at least have one width. Throws ValueError.
template <class Layer, class Norm>
void check_stack(const char* op, const std::vector<Layer>& layers, const OptionalModule<Norm>& norm) {
  if (layers.empty()) throw ValueError(op, "there are no layers, there must be at least one");
  const index_t d = layers.front().options.d_model;
  for (std::size_t i = 1; i < layers.size(); ++i) {
    if (layers[i].options.d_model != d) {
      throw ValueError(op, "layer " + std::to_string(i) + " has d_model " +
                               std::to_string(layers[i].options.d_model) +
                               ", must be that of layer 0, which is " + std::to_string(d));
    }
  }
  if (norm && norm->options.size != d) {
    throw ValueError(op, "norm has size " + std::to_string(norm->options.size) +
                             ", must be d_model, which is " + std::to_string(d));
  }
}

// Layers drawn one after the other, so that no two start alike.
template <class Layer>
std::vector<Layer> make_layers(const char* op, const StackOptions& options, RandomGenerator& rng) {
  options.validate(op);
  std::vector<Layer> layers;
  layers.reserve(static_cast<std::size_t>(options.num_layers));
  LayerOptions layer = options.layer;
  for (index_t i = 0; i < options.num_layers; ++i) {
    // Linear decay: the deeper, the more dispensable. Huang et al. 2016, eq. 4.
    layer.layer_drop =
        options.layer.layer_drop * static_cast<double>(i + 1) / static_cast<double>(options.num_layers);
    layers.emplace_back(layer, rng);
  }
  return layers;
}

}  // namespace detail

/// Self-attention and a feed-forward network, each with residual connection and norm. Vaswani et al.
/// 2017, 3.1; names as PyTorch's nn.TransformerEncoderLayer.
///
///     ef::EncoderLayer<float> layer({.d_model = 12, .num_heads = 3, .dim_feedforward = 20}, rng);
///     auto y = layer(ctx, x);  // (B, L, 12) -> (B, L, 12)
template <class T = float>
struct EncoderLayer {
  using value_type = T;

  MultiHeadAttention<T> self_attn;
  FeedForward<T> feed_forward;  ///< its parameters are the layer's linear1 and linear2
  Norm<T> norm1;
  Norm<T> norm2;
  OptionalModule<Norm<T>> post_norm1;  ///< of the sub-layers' outputs, with sandwich_norm
  OptionalModule<Norm<T>> post_norm2;
  LayerOptions options;

  /// Throws ValueError that names an impossible field.
  EncoderLayer(const LayerOptions& given, RandomGenerator& rng)
      : self_attn(detail::self_attention_options(detail::validated("encoder_layer", given)), rng),
        feed_forward(detail::feed_forward_options(given), rng),
        norm1(detail::norm_options(given)),
        norm2(detail::norm_options(given)),
        post_norm1(detail::sandwich_norm<T>(given)),
        post_norm2(detail::sandwich_norm<T>(given)),
        options(given) {
    name_parameters(*this);
  }

  /// x: (B, L, D), or (L, D) of one sequence. Returns the same shape. Throws ShapeError where x or the mask
  /// do not fit.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x,
                                  const AttentionMask& mask = {}) const {
    return (*this)(ctx, x, full_layout("encoder_layer", x.shape()), mask);
  }

  /// The same for rows as the layout says. weights, when given, receives the attention's weights (B, H, L,
  /// L). bias: (H, 2 R + 1), added to the scores by distance.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const AttentionMask& mask = {}, Var<T>* weights = nullptr,
                                  const Var<T>& bias = {}) const {
    return with_attention(ctx.for_rows(layout), x, [&](const Context<T>& c, const Var<T>& h) {
      if (weights == nullptr) return self_attn(c, h, layout, h, h, layout, mask, {}, bias);
      auto result = self_attn.with_weights(c, h, layout, h, h, layout, mask, HeadWeights::per_head, {}, bias);
      *weights = std::move(result.weights);
      return std::move(result.output);
    });
  }

  /// The layer around the caller's own self-attention, f(ctx, rows) -> rows; ctx must know the rows' layout.
  template <class F>
  [[nodiscard]] Var<T> with_attention(const Context<T>& ctx, const Var<T>& x, F&& f) const {
    const Var<T> h =
        sub_layer(ctx, x, norm1, post_norm1, options, [&](const Var<T>& rows) { return f(ctx, rows); });
    return sub_layer(ctx, h, norm2, post_norm2, options,
                     [&](const Var<T>& rows) { return feed_forward(ctx, rows); });
  }

  static void fields(auto& self, auto&& visit) {
    visit("self_attn", self.self_attn);
    visit("", self.feed_forward);
    visit("norm1", self.norm1);
    visit("norm2", self.norm2);
    visit("post_norm1", self.post_norm1);
    visit("post_norm2", self.post_norm2);
  }
};

static_assert(std::is_nothrow_move_constructible_v<EncoderLayer<float>>);

/// N encoder layers, which start different, and an optional final norm.
///
///     ef::Encoder<float> encoder({.num_layers = 2, .layer = {.d_model = 12, .num_heads = 3}}, rng);
///     auto memory = encoder(ctx, x, ef::AttentionMask::key_padding(padding));  // (B, L, 12)
template <class T = float>
struct Encoder {
  using value_type = T;

  std::vector<EncoderLayer<T>> layers;
  OptionalModule<Norm<T>> norm;
  OptionalModule<RelativeBias<T>> relative_bias;  ///< with these positions; one for all layers

  /// Throws ValueError that names an impossible field.
  Encoder(const EncoderOptions& options, RandomGenerator& rng)
      : layers(detail::make_layers<EncoderLayer<T>>("encoder", options, rng)) {
    if (options.final_norm) norm.emplace(detail::norm_options(options.layer));
    relative_bias = detail::make_relative_bias<T>(options.layer, true, rng);
    finish();
  }

  /// From given layers. Throws ValueError when there are none or their widths differ.
  explicit Encoder(std::vector<EncoderLayer<T>> given, OptionalModule<Norm<T>> final_norm = {})
      : layers(std::move(given)), norm(std::move(final_norm)) {
    finish();
  }

  /// x: (B, L, D), or (L, D) of one sequence. Returns the same shape.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x,
                                  const AttentionMask& mask = {}) const {
    return (*this)(ctx, x, full_layout("encoder", x.shape()), mask);
  }

  /// The same for rows as the layout says. maps, when given, receives each layer's attention weights (B, H,
  /// L, L).
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const AttentionMask& mask = {}, std::vector<Var<T>>* maps = nullptr) const {
    check_rows("encoder", "input", x.shape(), layout);
    if (maps != nullptr) maps->assign(layers.size(), Var<T>());
    const Var<T> bias = relative_bias ? (*relative_bias)(ctx) : Var<T>();
    Var<T> h = x;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      h = layers[i](ctx, h, layout, mask, maps == nullptr ? nullptr : &(*maps)[i], bias);
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
    detail::check_stack("encoder", layers, norm);
    name_parameters(*this);
  }
};

static_assert(std::is_nothrow_move_constructible_v<Encoder<float>>);

EIGENFORMER_MODULE_INSTANCES(EncoderLayer)
EIGENFORMER_MODULE_INSTANCES(Encoder)

}  // namespace eigenformer
