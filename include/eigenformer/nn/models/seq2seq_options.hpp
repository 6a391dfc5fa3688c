#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "eigenformer/nn/attention/positional.hpp"
#include "eigenformer/nn/module/options.hpp"

namespace eigenformer {

/// Which matrices of a Seq2SeqTransformer are one.
enum class Tying {
  none,
  target,  ///< target embedding and output projection (Press and Wolf 2017)
  all,     ///< source embedding too; both languages have one vocabulary (Vaswani et al. 2017, 3.4)
};

/// Everything that fixes a Seq2SeqTransformer's shape and behaviour; the sizes' defaults are PyTorch's.
struct Seq2SeqOptions {
  index_t source_vocab_size = 0;  ///< must be given
  index_t target_vocab_size = 0;  ///< 0: source_vocab_size
  index_t d_model = defaults::d_model;
  index_t num_heads = defaults::num_heads;
  index_t num_encoder_layers = defaults::num_layers;
  index_t num_decoder_layers = defaults::num_layers;
  index_t dim_feedforward = defaults::dim_feedforward;
  double dropout = defaults::dropout;            ///< sets the four rates below where they are left out
  std::optional<double> embedding_dropout{};     ///< on embedding + position
  std::optional<double> attention_dropout{};     ///< on the attention weights
  std::optional<double> feed_forward_dropout{};  ///< between the two layers of the feed-forward network
  std::optional<double> residual_dropout{};      ///< on each sub-layer's output
  double layer_drop = 0;  ///< stochastic depth: the rate of the last layers, to which the others' rise
  Activation activation = Activation::relu;
  AttentionKind attention = AttentionKind::softmax;
  bool gated = false;       ///< gated feed-forward networks: GLU, GEGLU, SwiGLU, as the activation is
  bool norm_first = false;  ///< pre-norm
  NormKind norm = NormKind::layer_norm;
  bool sandwich_norm = false;   ///< a norm before and one after each sub-layer
  bool embedding_norm = false;  ///< a norm of embedding + position, before its dropout, as BART and BERT have
  bool final_norm = true;       ///< a layer norm after either stack, post-norm models too, as in PyTorch
  double layer_norm_eps = defaults::layer_norm_eps;
  LayerNormFormula layer_norm_formula = LayerNormFormula::pytorch;
  bool layer_norm_scalar_gain = false;
  bool bias = true;
  bool projection_bias = true;
  Tying tying = Tying::none;
  bool scale_embedding = true;  ///< embeddings times sqrt(d_model)
  double logit_scale = 1;       ///< the decoder's output times this is projected; tied T5: d_model^-0.5
  bool causal = true;           ///< a target token sees itself and those before it
  Positions positions = Positions::sinusoidal;
  SinusoidOptions sinusoid{};
  index_t max_length = 1024;  ///< tokens; of learned positions, which end there
  index_t padding_index =
      -1;  ///< its embedding is zero, and trailing ones are padding where no layout is given; -1: none
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
  index_t learned_position_offset = 0;  ///< the row of the learned positions' table that is position 0

  index_t target_size() const noexcept {
    return target_vocab_size == 0 ? source_vocab_size : target_vocab_size;
  }
  double embedding_rate() const noexcept { return embedding_dropout.value_or(dropout); }

  TransformerOptions transformer() const { return detail::transformer_options(*this); }

  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    detail::require_positive(op, "source_vocab_size", source_vocab_size);
    detail::require_positive(op, "target_vocab_size", target_size());
    transformer().validate(op);
    detail::require_rate(op, "embedding_dropout", embedding_dropout);
    if (!std::isfinite(logit_scale)) {
      throw ValueError(op, "logit_scale is " + std::to_string(logit_scale) + ", must be finite");
    }
    if (tying == Tying::all && target_size() != source_vocab_size) {
      throw ValueError(op, "target_vocab_size is " + std::to_string(target_size()) +
                               ", must be source_vocab_size, which is " + std::to_string(source_vocab_size) +
                               ", to tie all embeddings");
    }
    detail::require_positions(op, *this);
    if (padding_index < -1 || padding_index >= source_vocab_size || padding_index >= target_size()) {
      throw ValueError(op, "padding_index is " + std::to_string(padding_index) +
                               ", must be -1 or an id of both vocabularies");
    }
  }
};

}  // namespace eigenformer
