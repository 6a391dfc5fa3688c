#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/attention/attention.hpp"
#include "eigenformer/autograd/ops/attention/linear_attention.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/nn/attention/attention_options.hpp"

namespace eigenformer {

/// Queries, keys and values ready for an attention, as they were projected: all in one matrix, keys and
/// values in one, or each in its own.
template <class T>
struct ProjectedHeads {
  Var<T> all;        ///< (..., (H + 2 G) head_dim), or undefined, and then:
  Var<T> q;          ///< (..., H head_dim), and
  Var<T> key_value;  ///< (..., 2 G head_dim), or undefined, and then:
  Var<T> k, v;       ///< (..., G head_dim) each

  /// The same in matrices of their own; heads: H head_dim and G head_dim.
  [[nodiscard]] ProjectedHeads apart(index_t query_width, index_t key_width) const {
    if (all.defined()) {
      return {.all = {},
              .q = slice(all, -1, 0, query_width),
              .key_value = {},
              .k = slice(all, -1, query_width, query_width + key_width),
              .v = slice(all, -1, query_width + key_width)};
    }
    if (!key_value.defined()) return *this;
    return {.all = {},
            .q = q,
            .key_value = {},
            .k = slice(key_value, -1, 0, key_width),
            .v = slice(key_value, -1, key_width)};
  }
};

/// The softmax attention of projected heads, without a matrix of weights. op, relative: as the attention ops
/// take them.
template <class T>
[[nodiscard]] Var<T> softmax_attention(const Context<T>& ctx, const ProjectedHeads<T>& heads,
                                       const SequenceLayout& queries, const SequenceLayout& keys,
                                       const AttentionMask& mask, const AttentionOp& op,
                                       const RelativePositions<T>& relative = {}) {
  if (heads.all.defined()) return self_attention(ctx, heads.all, queries, mask, op, relative);
  if (heads.key_value.defined()) {
    return cross_attention(ctx, heads.q, heads.key_value, queries, keys, mask, op, relative);
  }
  return attention(ctx, heads.q, heads.k, heads.v, queries, keys, mask, op, relative);
}

/// The linear attention of projected heads (Katharopoulos et al. 2020): elu(x) + 1 of queries and keys in
/// place of the softmax. mask: none(), causal() and key_padding().
template <class T>
[[nodiscard]] Var<T> linear_attention(const ProjectedHeads<T>& heads,
                                      const MultiHeadAttentionOptions& options, const SequenceLayout& queries,
                                      const SequenceLayout& keys, const AttentionMask& mask,
                                      std::vector<std::int32_t> key_sequence = {}) {
  mask.check(queries.batch(), options.num_heads, queries.max_length(), keys.batch(), keys.max_length());
  const LinearAttentionOp op{options.num_heads, mask.right() == 0, std::move(key_sequence),
                             admitted_keys(mask, keys)};
  const ProjectedHeads<T> apart = heads.apart(options.query_width(), options.key_width());
  return linear_attention(apart.q, apart.k, apart.v, queries, keys, op);
}

}  // namespace eigenformer
