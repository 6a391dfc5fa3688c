#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "eigenformer/core/config.hpp"
#include "eigenformer/core/error.hpp"
#include "eigenformer/kernels/activation.hpp"
#include "eigenformer/kernels/layer_norm.hpp"

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
inline void require_heads(const char* op, index_t d_model, index_t num_heads) {
  require_positive(op, "d_model", d_model);
  require_positive(op, "num_heads", num_heads);
  if (d_model % num_heads != 0) {
    throw ValueError(op, "d_model is " + std::to_string(d_model) +
                             ", must be divisible by num_heads, which is " + std::to_string(num_heads));
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
  double layer_drop = 0;  ///< stochastic depth: the rate at which training leaves a sequence's sub-layer out; in
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
  bool bias = true;  ///< in linear layers and norms

  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    detail::require_heads(op, d_model, num_heads);
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
            .bias = bias};
  }
  void validate(const char* op) const {
    detail::require_positive(op, "num_encoder_layers", num_encoder_layers);
    detail::require_positive(op, "num_decoder_layers", num_decoder_layers);
    layer().validate(op);
  }
};

}  // namespace eigenformer
