#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/attention/attention.hpp"
#include "eigenformer/autograd/ops/attention/linear_attention.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/nn/attention/attention_options.hpp"

namespace eigenformer {

/// Projected queries, keys and values: all in one matrix, keys and values in one, or each in its own.
template <class T>
struct ProjectedHeads {
  Var<T> all;        ///< (..., (H + 2 G) head_dim); unset if q is defined
  Var<T> q;          ///< (..., H head_dim); unset if all is defined
  Var<T> key_value;  ///< (..., 2 G head_dim); unset if all is defined, or k and v are
  Var<T> k,          ///< keys (..., G head_dim); unset if all or key_value is defined
      v;             ///< values, likewise

  /// The same with q, k and v in matrices of their own. query_width: H head_dim; key_width: G head_dim.
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

/// Softmax attention of projected heads, without storing the matrix of weights. op and relative are passed to
/// attention(), self_attention() or cross_attention(), whichever fits the heads. Returns (..., H head_dim).
/// Throws as these ops do.
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

/// Linear attention of projected heads, with elu(x) + 1 of queries and keys in place of the softmax
/// (Katharopoulos et al. 2020). mask: none(), causal() or key_padding(). key_sequence: the sequence of keys
/// of each sequence of queries; empty: the one with the same number. Returns (..., H head_dim). Throws
/// ShapeError if the mask does not match the layouts.
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
