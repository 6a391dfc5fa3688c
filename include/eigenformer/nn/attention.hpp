#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/arithmetic.hpp"
#include "eigenformer/autograd/ops/attention.hpp"
#include "eigenformer/autograd/ops/linear_attention.hpp"
#include "eigenformer/autograd/ops/reduce.hpp"
#include "eigenformer/autograd/ops/shape.hpp"
#include "eigenformer/nn/linear.hpp"
#include "eigenformer/nn/rows.hpp"

namespace eigenformer {

struct MultiHeadAttentionOptions {
  index_t d_model = defaults::d_model;
  index_t num_heads = defaults::num_heads;
  double dropout = 0;  ///< on the attention weights; 0 as in PyTorch
  bool bias = true;
  /// linear: no mask but causal(), no dropout of weights, and no weights to show.
  AttentionKind kind = AttentionKind::softmax;
  index_t kdim = 0;  ///< features of the keys; 0: d_model
  index_t vdim = 0;  ///< features of the values; 0: d_model

  void validate(const char* op) const {
    detail::require_heads(op, d_model, num_heads);
    detail::require_rate(op, "dropout", dropout);
    if (kdim < 0) throw ValueError(op, "kdim is " + std::to_string(kdim) + ", must not be negative");
    if (vdim < 0) throw ValueError(op, "vdim is " + std::to_string(vdim) + ", must not be negative");
  }
};

/// An attention's output and its weights, before dropout: (B, H, Lq, Lk) per head, (B, Lq, Lk) averaged over
/// heads.
template <class T>
struct AttentionResult {
  Var<T> output;
  Var<T> weights;
};

enum class HeadWeights { averaged, per_head };

/// Multi-head attention with a fused in-projection. Vaswani et al. 2017, 3.2.2; names and shapes as PyTorch's
/// nn.MultiheadAttention with batch_first.
///
///     ef::MultiHeadAttention<float> attention({.d_model = 12, .num_heads = 3}, rng);
///     auto y = attention(ctx, x, x, x, ef::AttentionMask::causal());          // (B, L, 12)
///     auto [z, weights] = attention.with_weights(ctx, x, memory, memory);      // (B, L, 12), (B, L, Lk)
template <class T = float>
struct MultiHeadAttention {
  using value_type = T;

  Parameter<T>
      in_proj_weight;  ///< (3 D, D): queries, keys, values; absent when kdim or vdim differ from D, and then:
  Parameter<T> q_proj_weight;  ///< (D, D)
  Parameter<T> k_proj_weight;  ///< (D, kdim)
  Parameter<T> v_proj_weight;  ///< (D, vdim)
  Parameter<T> in_proj_bias;   ///< (3 D), absent without bias
  Linear<T> out_proj;          ///< D -> D
  MultiHeadAttentionOptions options;

  /// Weights start Xavier uniform (the fused one by its own fans, as in PyTorch), biases zero. Throws
  /// ValueError that names an impossible field.
  MultiHeadAttention(const MultiHeadAttentionOptions& given, RandomGenerator& rng)
      : MultiHeadAttention(Validated{given}, InProjection(given, rng), rng) {}

  /// query: (B, Lq, D) or (Lq, D) of one sequence; key: (B, Lk, kdim), value: (B, Lk, vdim). Returns query's
  /// shape. Throws ShapeError where shapes or mask do not fit.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& query, const Var<T>& key,
                                  const Var<T>& value, const AttentionMask& mask = {}) const {
    return (*this)(ctx, query, full_layout(name, query.shape()), key, value, full_layout(name, key.shape()),
                   mask);
  }

  /// The same for rows as the layouts say, padded or packed. key_sequence: the sequence of keys that each
  /// sequence of queries looks at; empty: its own number.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& query, const SequenceLayout& queries,
                                  const Var<T>& key, const Var<T>& value, const SequenceLayout& keys,
                                  const AttentionMask& mask,
                                  std::vector<std::int32_t> key_sequence = {}) const {
    const AttentionOp op = attention_op(std::move(key_sequence));
    check_inputs(query, queries, key, value, keys, op);
    if (linear_kind()) return attend_linear(ctx, query, queries, key, value, keys, mask, op);
    if (fused() && same(key, value)) {
      if (same(query, key) && op.key_sequence.empty() && queries == keys) {
        return out_proj(ctx, self_attention(ctx, project_query_key_value(ctx, query), queries, mask, op));
      }
      const Var<T> q = project_query(ctx, query);
      return out_proj(ctx, cross_attention(ctx, q, project_key_value(ctx, key), queries, keys, mask, op));
    }
    const Var<T> q = project_query(ctx, query), k = project_key(ctx, key), v = project_value(ctx, value);
    return out_proj(ctx, attention(ctx, q, k, v, queries, keys, mask, op));
  }

  /// Output and weights, both differentiable. Holds a matrix of Lq x Lk for each head, which operator() never
  /// does.
  [[nodiscard]] AttentionResult<T> with_weights(const Context<T>& ctx, const Var<T>& query, const Var<T>& key,
                                                const Var<T>& value, const AttentionMask& mask = {},
                                                HeadWeights heads = HeadWeights::averaged) const {
    return with_weights(ctx, query, full_layout(name, query.shape()), key, value,
                        full_layout(name, key.shape()), mask, heads);
  }
  [[nodiscard]] AttentionResult<T> with_weights(const Context<T>& ctx, const Var<T>& query,
                                                const SequenceLayout& queries, const Var<T>& key,
                                                const Var<T>& value, const SequenceLayout& keys,
                                                const AttentionMask& mask,
                                                HeadWeights heads = HeadWeights::averaged,
                                                std::vector<std::int32_t> key_sequence = {}) const {
    if (linear_kind()) throw ValueError(name, "linear attention has no weights to show");
    const AttentionOp op = attention_op(std::move(key_sequence));
    check_inputs(query, queries, key, value, keys, op);
    const Var<T> q = project_query(ctx, query), k = project_key(ctx, key), v = project_value(ctx, value);
    const Var<T> weights = attention_weights(ctx, q, k, queries, keys, mask, op);
    return {out_proj(ctx, attention(ctx, q, k, v, queries, keys, mask, op)),
            heads == HeadWeights::averaged ? mean(weights, {1}) : weights};
  }

  bool linear_kind() const noexcept { return options.kind == AttentionKind::linear; }

  /// Whether queries, keys and values have one weight (kdim and vdim are d_model).
  bool fused() const noexcept { return in_proj_weight.defined(); }

  /// The parts of the in-projection, for decoding with a key/value cache. x: (..., D), (..., kdim) or (...,
  /// vdim). Return (..., D); project_key_value (..., 2 D) and project_query_key_value (..., 3 D), side by
  /// side. The last two throw ValueError where the weights are not fused.
  [[nodiscard]] Var<T> project_query(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, q_proj_weight, 0, 1);
  }
  [[nodiscard]] Var<T> project_key(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, k_proj_weight, 1, 1);
  }
  [[nodiscard]] Var<T> project_value(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, v_proj_weight, 2, 1);
  }
  [[nodiscard]] Var<T> project_key_value(const Context<T>& ctx, const Var<T>& x) const {
    require_fused();
    return project(ctx, x, in_proj_weight, 1, 2);
  }
  [[nodiscard]] Var<T> project_query_key_value(const Context<T>& ctx, const Var<T>& x) const {
    require_fused();
    return project(ctx, x, in_proj_weight, 0, 3);
  }

  /// What the attention ops take: heads, dropout and the memory of each sequence of queries.
  AttentionOp attention_op(std::vector<std::int32_t> key_sequence = {}) const {
    return {.heads = options.num_heads,
            .scale = 0,
            .dropout = options.dropout,
            .key_sequence = std::move(key_sequence)};
  }

  static void fields(auto& self, auto&& visit) {
    visit("in_proj_weight", self.in_proj_weight);
    visit("q_proj_weight", self.q_proj_weight);
    visit("k_proj_weight", self.k_proj_weight);
    visit("v_proj_weight", self.v_proj_weight);
    visit("in_proj_bias", self.in_proj_bias);
    visit("out_proj", self.out_proj);
  }

 private:
  static constexpr const char* name = "multi_head_attention";

  struct Validated {
    explicit Validated(const MultiHeadAttentionOptions& given) : options(given) {
      options.validate(name);
      if (options.kdim == 0) options.kdim = options.d_model;
      if (options.vdim == 0) options.vdim = options.d_model;
    }
    MultiHeadAttentionOptions options;
  };

  // Drawn before out_proj, so that a seed gives the weights in the order of the fields.
  struct InProjection {
    InProjection(const MultiHeadAttentionOptions& given, RandomGenerator& rng) {
      const MultiHeadAttentionOptions o = Validated(given).options;
      const auto weight = [&](index_t out, index_t in) {
        return Parameter<T>(init::xavier_uniform<T>({out, in}, rng));
      };
      if (o.kdim == o.d_model && o.vdim == o.d_model) {
        fused = weight(3 * o.d_model, o.d_model);
      } else {
        q = weight(o.d_model, o.d_model);
        k = weight(o.d_model, o.kdim);
        v = weight(o.d_model, o.vdim);
      }
      if (o.bias) bias = Parameter<T>(Tensor<T>::zeros({3 * o.d_model}));
    }
    Parameter<T> fused, q, k, v, bias;
  };

  MultiHeadAttention(const Validated& valid, InProjection in, RandomGenerator& rng)
      : in_proj_weight(std::move(in.fused)),
        q_proj_weight(std::move(in.q)),
        k_proj_weight(std::move(in.k)),
        v_proj_weight(std::move(in.v)),
        in_proj_bias(std::move(in.bias)),
        out_proj({valid.options.d_model, valid.options.d_model, valid.options.bias}, rng),
        options(valid.options) {
    name_parameters(*this);
  }

  static bool same(const Var<T>& a, const Var<T>& b) {
    return a.value().data() == b.value().data() && a.shape() == b.shape() && a.node() == b.node();
  }

  // Part `first` (0 query, 1 key, 2 value) and those after it, of the fused weight or of the part's own.
  Var<T> project(const Context<T>& ctx, const Var<T>& x, const Parameter<T>& own, index_t first,
                 index_t parts) const {
    const index_t d = options.d_model;
    if (fused()) return linear_slice(ctx, x, in_proj_weight, in_proj_bias, first * d, parts * d);
    const Var<T> projected = linear(ctx, x, own, Parameter<T>());
    if (!in_proj_bias.defined()) return projected;
    return add(projected, slice(ctx.use(in_proj_bias), 0, first * d, (first + 1) * d));
  }

  Var<T> attend_linear(const Context<T>& ctx, const Var<T>& query, const SequenceLayout& queries,
                       const Var<T>& key, const Var<T>& value, const SequenceLayout& keys,
                       const AttentionMask& mask, const AttentionOp& op) const {
    const LinearAttentionOp linear{op.heads, !mask.is_none(), op.key_sequence};
    if (linear.causal && !mask.is_causal()) {
      throw ValueError(name,
                       "linear attention takes no mask but causal(); what is padding, the layouts say");
    }
    const index_t d = options.d_model;
    Var<T> q, k, v;
    if (fused() && same(key, value) && same(query, key)) {
      const Var<T> all = project_query_key_value(ctx, query);
      q = slice(all, -1, 0, d), k = slice(all, -1, d, 2 * d), v = slice(all, -1, 2 * d, 3 * d);
    } else if (fused() && same(key, value)) {
      const Var<T> both = project_key_value(ctx, key);
      q = project_query(ctx, query), k = slice(both, -1, 0, d), v = slice(both, -1, d, 2 * d);
    } else {
      q = project_query(ctx, query), k = project_key(ctx, key), v = project_value(ctx, value);
    }
    return out_proj(ctx, linear_attention(q, k, v, queries, keys, linear));
  }

  void require_fused() const {
    if (!fused())
      throw ValueError(name, "keys and values have weights of their own: project them one by one");
  }

  void check_inputs(const Var<T>& query, const SequenceLayout& queries, const Var<T>& key,
                    const Var<T>& value, const SequenceLayout& keys, const AttentionOp& op) const {
    if (op.key_sequence.empty() && queries.batch() != keys.batch()) {
      throw ShapeError(name,
                       std::to_string(queries.batch()) + " sequences of queries and " +
                           std::to_string(keys.batch()) + " of keys, must be equal without a key_sequence",
                       {query.shape(), key.shape()});
    }
    check_rows(name, "query", query.shape(), queries);
    check_rows(name, "key", key.shape(), keys);
    check_rows(name, "value", value.shape(), keys);
    const auto check_width = [&](const char* what, const Var<T>& x, index_t width) {
      if (x.dim(-1) == width) return;
      throw ShapeError(name,
                       std::string(what) + " of shape " + x.shape().str() + " must have " +
                           std::to_string(width) + " features, to match '" +
                           (fused() ? in_proj_weight : q_proj_weight).name() + "'",
                       {x.shape()});
    };
    check_width("query", query, options.d_model);
    check_width("key", key, options.kdim);
    check_width("value", value, options.vdim);
  }
};

static_assert(std::is_nothrow_move_constructible_v<MultiHeadAttention<float>>);

}  // namespace eigenformer
