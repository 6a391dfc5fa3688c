#pragma once

#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Options of a MultiHeadAttention.
struct MultiHeadAttentionOptions {
  index_t d_model = defaults::d_model;      ///< features of queries and output
  index_t num_heads = defaults::num_heads;  ///< heads of queries, H
  double dropout = 0;                       ///< rate on the attention weights, in training; 0 as in PyTorch
  bool bias = true;                         ///< biases of all projections
  index_t kdim = 0;                         ///< features of the keys' input; 0: d_model
  index_t vdim = 0;                         ///< features of the values' input; 0: d_model
  AttentionOptions
      attention{};  ///< kind, positions and heads; a relative bias itself is an argument of the call
  double norm_eps = defaults::layer_norm_eps;  ///< of query_key_norm
  /// Queries come from one sequence, keys and values from another. Only affects pack_weights(), which then
  /// packs two products, one for each.
  bool cross = false;

  /// Features of a head: head_dim, or d_model / num_heads.
  index_t head_features() const noexcept {
    return attention.head_dim != 0 ? attention.head_dim : d_model / num_heads;
  }
  /// Heads of keys and values.
  index_t key_value_heads() const noexcept {
    return attention.num_key_value_heads != 0 ? attention.num_key_value_heads : num_heads;
  }
  /// Features of all heads of queries.
  index_t query_width() const noexcept { return num_heads * head_features(); }
  /// Features of all heads of keys, and of all heads of values.
  index_t key_width() const noexcept { return key_value_heads() * head_features(); }

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"d_model", "width of queries and output", Allowed::positive}, self.d_model);
    visit(OptionField{"num_heads", "number of attention heads", Allowed::positive}, self.num_heads);
    visit(OptionField{"dropout", "dropout rate of attention weights", Allowed::rate}, self.dropout);
    visit(OptionField{"bias", "biases in the projections"}, self.bias);
    visit(OptionField{"kdim", "width of the key inputs; 0: d_model", Allowed::not_negative}, self.kdim);
    visit(OptionField{"vdim", "width of the value inputs; 0: d_model", Allowed::not_negative}, self.vdim);
    AttentionOptions::fields(self.attention, visit);
    visit(OptionField{"norm_eps", "epsilon of that norm, added to the variance", Allowed::not_negative},
          self.norm_eps);
    visit(OptionField{"cross", "cross-attention: queries from one sequence, keys and values from another"},
          self.cross);
  }
  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const;
};

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void MultiHeadAttentionOptions::validate(const char* op) const {
  validate_fields(op, *this);
  attention.validate(op, d_model, num_heads);
}

#endif

}  // namespace eigenformer
