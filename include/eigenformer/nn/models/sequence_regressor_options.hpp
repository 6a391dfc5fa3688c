#pragma once

#include <optional>

#include "eigenformer/nn/attention/positional.hpp"
#include "eigenformer/nn/module/options.hpp"

namespace eigenformer {

/// Everything that fixes a SequenceRegressor's shape and behaviour: the layers of Seq2SeqOptions, for
/// real-valued sequences.
struct SequenceRegressorOptions {
  index_t source_features = 1;
  index_t target_features = 1;
  index_t output_features = 1;
  index_t d_model = defaults::d_model;
  index_t num_heads = defaults::num_heads;
  index_t num_encoder_layers = defaults::num_layers;
  index_t num_decoder_layers = defaults::num_layers;
  index_t dim_feedforward = defaults::dim_feedforward;
  double dropout = defaults::dropout;            ///< sets the four rates below where they are left out
  std::optional<double> embedding_dropout{};     ///< on input + position
  std::optional<double> attention_dropout{};     ///< on the attention weights
  std::optional<double> feed_forward_dropout{};  ///< between the two layers of the feed-forward network
  std::optional<double> residual_dropout{};      ///< on each sub-layer's output
  double layer_drop = 0;  ///< stochastic depth: the rate of the last layers, to which the others' rise
  Activation activation = Activation::relu;
  AttentionKind attention = AttentionKind::softmax;
  bool gated = false;       ///< gated feed-forward networks: GLU, GEGLU, SwiGLU, as the activation is
  bool norm_first = false;  ///< pre-norm
  NormKind norm = NormKind::layer_norm;
  bool sandwich_norm = false;  ///< a norm before and one after each sub-layer
  bool final_norm = true;      ///< a norm after either stack, post-norm models too, as in PyTorch
  double layer_norm_eps = defaults::layer_norm_eps;
  LayerNormFormula layer_norm_formula = LayerNormFormula::pytorch;
  bool layer_norm_scalar_gain = false;
  bool bias = true;                                 ///< in the layers; input and output have one in any case
  bool causal = true;                               ///< a target row sees itself and those before it
  Activation output_activation = Activation::none;  ///< sigmoid or tanh for values in a known range
  Positions positions = Positions::sinusoidal;
  SinusoidOptions sinusoid{};
  index_t max_length = 1024;  ///< rows; of learned positions, which end there
  RotaryOptions rotary{};
  RelativeBiasOptions relative_bias{};
  index_t shaw_max_distance = 16;  ///< of Shaw's positions: further away is as if at this distance
  index_t num_key_value_heads =
      0;                         ///< each for num_heads / num_key_value_heads heads of queries; 0: num_heads
  index_t head_dim = 0;          ///< features of a head; 0: d_model / num_heads
  double attention_scale = 0;    ///< of the scores; 0: 1 / sqrt(head_dim)
  index_t attention_window = 0;  ///< self-attention reaches rows less than this far away; 0: all
  bool query_key_norm = false;   ///< a norm of each head's queries and keys (Dehghani et al. 2023)
  NormKind query_key_norm_kind = NormKind::layer_norm;  ///< which: many later models have rms_norm
  index_t learned_position_offset = 0;  ///< the row of the learned positions' table that is position 0

  double embedding_rate() const noexcept { return embedding_dropout.value_or(dropout); }
  TransformerOptions transformer() const { return detail::transformer_options(*this); }

  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    detail::require_positive(op, "source_features", source_features);
    detail::require_positive(op, "target_features", target_features);
    detail::require_positive(op, "output_features", output_features);
    transformer().validate(op);
    detail::require_rate(op, "embedding_dropout", embedding_dropout);
    detail::require_positions(op, *this);
  }
};

}  // namespace eigenformer
