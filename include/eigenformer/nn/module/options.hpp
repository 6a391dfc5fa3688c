#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/kernels/elementwise/activation.hpp"
#include "eigenformer/kernels/normalization/layer_norm.hpp"
#include "eigenformer/kernels/sequence/rotary.hpp"

namespace eigenformer {

using kernels::Activation;
using kernels::LayerNormFormula;

/// How attention weighs keys.
enum class AttentionKind {
  softmax,  ///< Vaswani et al. 2017
  linear,   ///< Katharopoulos et al. 2020: cost and memory grow with the length, not with its square
};

/// Which normalisation a model's layers have.
enum class NormKind {
  layer_norm,  ///< Ba et al. 2016
  rms_norm,    ///< Zhang and Sennrich 2019: no mean, no bias
};

/// How a model knows where a token stands. The first two are added to the embeddings, the others act in each
/// layer's self-attention.
enum class Positions {
  sinusoidal,     ///< Vaswani et al. 2017
  learned,        ///< a vector for each position (Gehring et al. 2017)
  rotary,         ///< queries and keys turn with their positions (Su et al. 2021)
  alibi,          ///< scores fall with the distance, by a fixed slope for each head (Press et al. 2022)
  relative_bias,  ///< scores have a learned bias by distance, one table for a stack (Raffel et al. 2020, T5)
  shaw,           ///< learned keys and values by distance, in each layer (Shaw et al. 2018)
  none,           ///< causal decoders do without (Haviv et al. 2022)
};

/// Rotary positions: the first `dim` features of each head turn, pair i by position * base^(-2 i / dim).
struct RotaryOptions {
  double base = 10000;
  index_t dim = 0;  ///< even; 0: the whole head
  RotaryPairing pairing = RotaryPairing::adjacent;
};

/// T5's bias by distance: near distances have a bucket each, further ones share buckets that widen by their
/// logarithm, up to max_distance.
struct RelativeBiasOptions {
  index_t buckets = 32;
  index_t max_distance = 128;
  /// Whether keys after the query have buckets of their own or share that of distance 0; empty: they have in
  /// encoders and not in decoders.
  std::optional<bool> bidirectional{};
};

/// The sizes of PyTorch's nn.Transformer (the base model of Vaswani et al. 2017), stated here and nowhere
/// else.
namespace defaults {
inline constexpr index_t d_model = 512;
inline constexpr index_t num_heads = 8;
inline constexpr index_t num_layers = 6;
inline constexpr index_t dim_feedforward = 2048;
inline constexpr double dropout = 0.1;
inline constexpr double layer_norm_eps = 1e-5;
}  // namespace defaults

namespace detail {

// Each throws ValueError that names the field and its value.
inline void require_positive(const char* op, const char* field, index_t value) {
  if (value <= 0)
    throw ValueError(op, std::string(field) + " is " + std::to_string(value) + ", must be positive");
}
inline void require_rate(const char* op, const char* field, double value) {
  if (!(value >= 0 && value < 1)) {
    throw ValueError(op, std::string(field) + " is " + std::to_string(value) + ", must be in [0, 1)");
  }
}
inline void require_rate(const char* op, const char* field, const std::optional<double>& value) {
  if (value) require_rate(op, field, *value);
}
inline void require_eps(const char* op, const char* field, double value) {
  if (!(value >= 0 && std::isfinite(value))) {
    throw ValueError(
        op, std::string(field) + " is " + std::to_string(value) + ", must be finite and not negative");
  }
}
inline void require_not_negative(const char* op, const char* field, index_t value) {
  if (value < 0)
    throw ValueError(op, std::string(field) + " is " + std::to_string(value) + ", must not be negative");
}
inline void require_heads(const char* op, index_t d_model, index_t num_heads, index_t head_dim = 0) {
  require_positive(op, "d_model", d_model);
  require_positive(op, "num_heads", num_heads);
  require_not_negative(op, "head_dim", head_dim);
  if (head_dim == 0 && d_model % num_heads != 0) {
    throw ValueError(op, "d_model is " + std::to_string(d_model) +
                             ", must be divisible by num_heads, which is " + std::to_string(num_heads));
  }
}

// The fields of attention that layers and MultiHeadAttention share. Throws ValueError that names one.
template <class Options>
void require_attention(const char* op, const Options& o) {
  require_heads(op, o.d_model, o.num_heads, o.head_dim);
  require_not_negative(op, "num_key_value_heads", o.num_key_value_heads);
  if (o.num_key_value_heads > 0 && o.num_heads % o.num_key_value_heads != 0) {
    throw ValueError(op, "num_heads is " + std::to_string(o.num_heads) +
                             ", must be divisible by num_key_value_heads, which is " +
                             std::to_string(o.num_key_value_heads));
  }
  if (!(o.attention_scale >= 0 && std::isfinite(o.attention_scale))) {
    throw ValueError(
        op, "attention_scale is " + std::to_string(o.attention_scale) + ", must be finite and not negative");
  }
  require_not_negative(op, "attention_window", o.attention_window);
  const index_t head_dim = o.head_dim != 0 ? o.head_dim : o.d_model / o.num_heads;
  if (o.positions == Positions::rotary) {
    const index_t dim = o.rotary.dim != 0 ? o.rotary.dim : head_dim;
    if (dim < 2 || dim % 2 != 0 || dim > head_dim) {
      throw ValueError(op, "rotary.dim is " + std::to_string(dim) +
                               ", must be even, at least 2 and at most " + std::to_string(head_dim) +
                               ", the features of a head");
    }
    if (!(o.rotary.base > 0 && std::isfinite(o.rotary.base)))
      throw ValueError(op, "rotary.base is " + std::to_string(o.rotary.base) + ", must be positive");
  }
  if (o.positions == Positions::shaw) require_positive(op, "shaw_max_distance", o.shaw_max_distance);
}

// What linear attention has no form of. Throws ValueError that names the field.
template <class Options>
void require_linear(const char* op, const Options& o) {
  const bool by_scores = o.positions == Positions::alibi || o.positions == Positions::relative_bias ||
                         o.positions == Positions::shaw;
  const bool shared = o.num_key_value_heads != 0 && o.num_key_value_heads != o.num_heads;
  if (!by_scores && !shared && o.attention_window == 0 && o.attention_scale == 0) return;
  throw ValueError(op, std::string("linear attention has no ") +
                           (by_scores ? "positions that act on scores, such as alibi, relative_bias and shaw"
                            : shared  ? "num_key_value_heads other than num_heads"
                            : o.attention_window != 0 ? "attention_window"
                                                      : "attention_scale"));
}

inline void require_relative_bias(const char* op, const RelativeBiasOptions& o) {
  // Both directions need an exact bucket and a wider one.
  if (o.buckets < 4 || o.buckets % 4 != 0) {
    throw ValueError(op, "relative_bias.buckets is " + std::to_string(o.buckets) +
                             ", must be divisible by 4 and positive");
  }
  // A table by distance is made of it.
  constexpr index_t most = index_t{1} << 20;
  if (o.max_distance <= o.buckets / 2 || o.max_distance > most) {
    throw ValueError(op, "relative_bias.max_distance is " + std::to_string(o.max_distance) +
                             ", must be above half the buckets, which is " + std::to_string(o.buckets / 2) +
                             ", and at most " + std::to_string(most));
  }
}

}  // namespace detail

/// One encoder or decoder layer. The three rates that may be left out are then `dropout`.
struct LayerOptions {
  index_t d_model = defaults::d_model;
  index_t num_heads = defaults::num_heads;
  index_t dim_feedforward = defaults::dim_feedforward;
  double dropout = defaults::dropout;
  std::optional<double> attention_dropout{};     ///< on the attention weights
  std::optional<double> feed_forward_dropout{};  ///< between the two layers of the feed-forward network
  std::optional<double> residual_dropout{};      ///< on each sub-layer's output
  double layer_drop =
      0;  ///< stochastic depth: the rate at which training leaves a sequence's sub-layer out; in
          ///< a stack that of the last layer, with the others' rising to it (Huang et al. 2016)
  Activation activation = Activation::relu;
  AttentionKind attention = AttentionKind::softmax;
  bool gated = false;       ///< feed-forward of linear2(activation(linear1(x)) * linear3(x)) (Shazeer 2020)
  bool norm_first = false;  ///< normalise a sub-layer's input (pre-norm) and not the sum (post-norm)
  NormKind norm = NormKind::layer_norm;
  bool sandwich_norm = false;  ///< normalise a sub-layer's input and its output, but not the sum, whatever
                               ///< norm_first says (Ding et al. 2021)
  double layer_norm_eps = defaults::layer_norm_eps;
  LayerNormFormula layer_norm_formula = LayerNormFormula::pytorch;
  bool layer_norm_scalar_gain = false;
  bool bias = true;                             ///< in linear layers and norms
  Positions positions = Positions::sinusoidal;  ///< those from rotary on act here
  RotaryOptions rotary{};
  RelativeBiasOptions relative_bias{};
  index_t shaw_max_distance = 16;  ///< of Shaw's positions: further away is as if at this distance
  index_t num_key_value_heads =
      0;                         ///< each for num_heads / num_key_value_heads heads of queries; 0: num_heads
  index_t head_dim = 0;          ///< features of a head; 0: d_model / num_heads
  double attention_scale = 0;    ///< of the scores; 0: 1 / sqrt(head_dim)
  index_t attention_window = 0;  ///< self-attention reaches tokens less than this far away; 0: all
  bool query_key_norm = false;   ///< a norm of each head's queries and keys (Dehghani et al. 2023)
  NormKind query_key_norm_kind = NormKind::layer_norm;  ///< which: many later models have rms_norm

  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    detail::require_attention(op, *this);
    if (attention == AttentionKind::linear) detail::require_linear(op, *this);
    if (positions == Positions::relative_bias) detail::require_relative_bias(op, relative_bias);
    detail::require_positive(op, "dim_feedforward", dim_feedforward);
    detail::require_rate(op, "dropout", dropout);
    detail::require_rate(op, "attention_dropout", attention_dropout);
    detail::require_rate(op, "feed_forward_dropout", feed_forward_dropout);
    detail::require_rate(op, "residual_dropout", residual_dropout);
    detail::require_rate(op, "layer_drop", layer_drop);
    detail::require_eps(op, "layer_norm_eps", layer_norm_eps);
  }
};

/// N layers and an optional final norm; the defaults are those of PyTorch's TransformerEncoder and
/// TransformerDecoder.
struct StackOptions {
  index_t num_layers = defaults::num_layers;
  bool final_norm = false;
  LayerOptions layer{};

  void validate(const char* op) const {
    detail::require_positive(op, "num_layers", num_layers);
    layer.validate(op);
  }
};
using EncoderOptions = StackOptions;
using DecoderOptions = StackOptions;

/// An encoder and a decoder, as PyTorch's nn.Transformer.
struct TransformerOptions {
  index_t d_model = defaults::d_model;
  index_t num_heads = defaults::num_heads;
  index_t num_encoder_layers = defaults::num_layers;
  index_t num_decoder_layers = defaults::num_layers;
  index_t dim_feedforward = defaults::dim_feedforward;
  double dropout = defaults::dropout;  ///< sets the three rates below where they are left out
  std::optional<double> attention_dropout{};
  std::optional<double> feed_forward_dropout{};
  std::optional<double> residual_dropout{};
  double layer_drop = 0;
  Activation activation = Activation::relu;
  AttentionKind attention = AttentionKind::softmax;
  bool gated = false;
  bool norm_first = false;
  NormKind norm = NormKind::layer_norm;
  bool sandwich_norm = false;
  bool final_norm = true;  ///< a layer norm after either stack, post-norm models too, as in PyTorch
  double layer_norm_eps = defaults::layer_norm_eps;
  LayerNormFormula layer_norm_formula = LayerNormFormula::pytorch;
  bool layer_norm_scalar_gain = false;
  bool bias = true;
  Positions positions = Positions::sinusoidal;  ///< those from rotary on act here
  RotaryOptions rotary{};
  RelativeBiasOptions relative_bias{};
  index_t shaw_max_distance = 16;  ///< of Shaw's positions: further away is as if at this distance
  index_t num_key_value_heads =
      0;                         ///< each for num_heads / num_key_value_heads heads of queries; 0: num_heads
  index_t head_dim = 0;          ///< features of a head; 0: d_model / num_heads
  double attention_scale = 0;    ///< of the scores; 0: 1 / sqrt(head_dim)
  index_t attention_window = 0;  ///< self-attention reaches tokens less than this far away; 0: all
  bool query_key_norm = false;   ///< a norm of each head's queries and keys (Dehghani et al. 2023)
  NormKind query_key_norm_kind = NormKind::layer_norm;  ///< which: many later models have rms_norm

  EncoderOptions encoder() const { return {num_encoder_layers, final_norm, layer()}; }
  DecoderOptions decoder() const { return {num_decoder_layers, final_norm, layer()}; }
  LayerOptions layer() const {
    return {.d_model = d_model,
            .num_heads = num_heads,
            .dim_feedforward = dim_feedforward,
            .dropout = dropout,
            .attention_dropout = attention_dropout,
            .feed_forward_dropout = feed_forward_dropout,
            .residual_dropout = residual_dropout,
            .layer_drop = layer_drop,
            .activation = activation,
            .attention = attention,
            .gated = gated,
            .norm_first = norm_first,
            .norm = norm,
            .sandwich_norm = sandwich_norm,
            .layer_norm_eps = layer_norm_eps,
            .layer_norm_formula = layer_norm_formula,
            .layer_norm_scalar_gain = layer_norm_scalar_gain,
            .bias = bias,
            .positions = positions,
            .rotary = rotary,
            .relative_bias = relative_bias,
            .shaw_max_distance = shaw_max_distance,
            .num_key_value_heads = num_key_value_heads,
            .head_dim = head_dim,
            .attention_scale = attention_scale,
            .attention_window = attention_window,
            .query_key_norm = query_key_norm,
            .query_key_norm_kind = query_key_norm_kind};
  }
  void validate(const char* op) const {
    detail::require_positive(op, "num_encoder_layers", num_encoder_layers);
    detail::require_positive(op, "num_decoder_layers", num_decoder_layers);
    layer().validate(op);
  }
};

namespace detail {

// The layers of a model whose own options have the same fields beside others.
template <class Options>
TransformerOptions transformer_options(const Options& o) {
  return {.d_model = o.d_model,
          .num_heads = o.num_heads,
          .num_encoder_layers = o.num_encoder_layers,
          .num_decoder_layers = o.num_decoder_layers,
          .dim_feedforward = o.dim_feedforward,
          .dropout = o.dropout,
          .attention_dropout = o.attention_dropout,
          .feed_forward_dropout = o.feed_forward_dropout,
          .residual_dropout = o.residual_dropout,
          .layer_drop = o.layer_drop,
          .activation = o.activation,
          .attention = o.attention,
          .gated = o.gated,
          .norm_first = o.norm_first,
          .norm = o.norm,
          .sandwich_norm = o.sandwich_norm,
          .final_norm = o.final_norm,
          .layer_norm_eps = o.layer_norm_eps,
          .layer_norm_formula = o.layer_norm_formula,
          .layer_norm_scalar_gain = o.layer_norm_scalar_gain,
          .bias = o.bias,
          .positions = o.positions,
          .rotary = o.rotary,
          .relative_bias = o.relative_bias,
          .shaw_max_distance = o.shaw_max_distance,
          .num_key_value_heads = o.num_key_value_heads,
          .head_dim = o.head_dim,
          .attention_scale = o.attention_scale,
          .attention_window = o.attention_window,
          .query_key_norm = o.query_key_norm,
          .query_key_norm_kind = o.query_key_norm_kind};
}

// What positions that are added to a model's inputs need. Throws ValueError that names a field.
template <class Options>
void require_positions(const char* op, const Options& o) {
  if (o.positions == Positions::learned) {
    require_positive(op, "max_length", o.max_length);
    require_not_negative(op, "learned_position_offset", o.learned_position_offset);
  } else if (o.positions == Positions::sinusoidal) {
    o.sinusoid.validate(op, o.d_model);
  }
}

}  // namespace detail

}  // namespace eigenformer
