#pragma once

#include "eigenformer/nn/module/options.hpp"

namespace eigenformer {

struct MultiHeadAttentionOptions {
  index_t d_model = defaults::d_model;
  index_t num_heads = defaults::num_heads;
  double dropout = 0;  ///< on the attention weights; 0 as in PyTorch
  bool bias = true;
  /// linear: no mask but causal() and key_padding(), no dropout of weights, and no weights to show.
  AttentionKind kind = AttentionKind::softmax;
  index_t kdim = 0;                       ///< features of the keys; 0: d_model
  index_t vdim = 0;                       ///< features of the values; 0: d_model
  Positions positions = Positions::none;  ///< those from rotary on; a relative bias is given to the call
  RotaryOptions rotary{};
  index_t shaw_max_distance = 16;  ///< of Shaw's positions: further away is as if at this distance
  index_t num_key_value_heads =
      0;                         ///< each for num_heads / num_key_value_heads heads of queries; 0: num_heads
  index_t head_dim = 0;          ///< features of a head; 0: d_model / num_heads
  double attention_scale = 0;    ///< of the scores; 0: 1 / sqrt(head_dim)
  index_t attention_window = 0;  ///< reaches tokens less than this far away; 0: all
  bool query_key_norm = false;   ///< a norm of each head's queries and keys (Dehghani et al. 2023)
  NormKind query_key_norm_kind = NormKind::layer_norm;  ///< which: many later models have rms_norm

  index_t head_features() const noexcept { return head_dim != 0 ? head_dim : d_model / num_heads; }
  index_t key_value_heads() const noexcept {
    return num_key_value_heads != 0 ? num_key_value_heads : num_heads;
  }
  /// Features of all heads of queries, and of all heads of keys or values.
  index_t query_width() const noexcept { return num_heads * head_features(); }
  index_t key_width() const noexcept { return key_value_heads() * head_features(); }

  void validate(const char* op) const {
    detail::require_attention(op, *this);
    detail::require_rate(op, "dropout", dropout);
    detail::require_not_negative(op, "kdim", kdim);
    detail::require_not_negative(op, "vdim", vdim);
    if (kind == AttentionKind::linear) detail::require_linear(op, *this);
  }
};

}  // namespace eigenformer
