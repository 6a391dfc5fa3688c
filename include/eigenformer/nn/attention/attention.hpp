#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/attention/attention.hpp"
#include "eigenformer/autograd/ops/attention/linear_attention.hpp"
#include "eigenformer/autograd/ops/attention/rotary.hpp"
#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/shape/reduce.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/nn/attention/attention_options.hpp"
#include "eigenformer/nn/attention/relative_bias.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/module/optional_module.hpp"
#include "eigenformer/nn/module/rows.hpp"

namespace eigenformer {

/// Queries, keys and values ready for an attention: side by side in one matrix where that is how they were
/// made.
template <class T>
struct ProjectedHeads {
  Var<T> fused;    ///< (..., (H + 2 G) head_dim), or undefined, and then:
  Var<T> q, k, v;  ///< (..., H head_dim), (..., G head_dim) twice
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
/// nn.MultiheadAttention with batch_first. H heads of queries may share G heads of keys and values (Ainslie
/// et al. 2023; G = 1: Shazeer 2019).
///
///     ef::MultiHeadAttention<float> attention({.d_model = 12, .num_heads = 3}, rng);
///     auto y = attention(ctx, x, x, x, ef::AttentionMask::causal());          // (B, L, 12)
///     auto [z, weights] = attention.with_weights(ctx, x, memory, memory);      // (B, L, 12), (B, L, Lk)
template <class T = float>
struct MultiHeadAttention {
  using value_type = T;

  /// (W, D), W = (H + 2 G) head_dim, 3 D where nothing else is said: queries, keys, values; absent when kdim
  /// or vdim differ from D, and then:
  Parameter<T> in_proj_weight;
  Parameter<T> q_proj_weight;          ///< (H head_dim, D)
  Parameter<T> k_proj_weight;          ///< (G head_dim, kdim)
  Parameter<T> v_proj_weight;          ///< (G head_dim, vdim)
  Parameter<T> in_proj_bias;           ///< (W), absent without bias
  Linear<T> out_proj;                  ///< H head_dim -> D
  OptionalModule<Norm<T>> query_norm;  ///< of each head, with query_key_norm
  OptionalModule<Norm<T>> key_norm;
  Parameter<T> relative_keys;  ///< (2 shaw_max_distance + 1, head_dim), with Shaw's positions
  Parameter<T> relative_values;
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
  /// sequence of queries looks at; empty: its own number. bias: (H, 2 R + 1), added to the scores by
  /// distance, as RelativeBias gives it.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& query, const SequenceLayout& queries,
                                  const Var<T>& key, const Var<T>& value, const SequenceLayout& keys,
                                  const AttentionMask& mask, std::vector<std::int32_t> key_sequence = {},
                                  const Var<T>& bias = {}) const {
    const AttentionOp op = attention_op(std::move(key_sequence));
    check_inputs(query, queries, key, value, keys, op);
    if (linear_kind()) return attend_linear(ctx, query, queries, key, value, keys, mask, op);
    const AttentionMask within = windowed(mask);
    const RelativePositions<T> relative = relative_positions(ctx, bias);
    if (fused() && same(key, value)) {
      if (same(query, key) && op.key_sequence.empty() && queries == keys) {
        const ProjectedHeads<T> p = project_self(ctx, query, queries);
        return out_proj(ctx, p.fused.defined()
                                 ? self_attention(ctx, p.fused, queries, within, op, relative)
                                 : attention(ctx, p.q, p.k, p.v, queries, keys, within, op, relative));
      }
      if (options.positions != Positions::rotary) {
        const Var<T> q = project_query(ctx, query);
        return out_proj(
            ctx, cross_attention(ctx, q, project_key_value(ctx, key), queries, keys, within, op, relative));
      }
    }
    const ProjectedHeads<T> p = project_apart(ctx, query, queries, key, value, keys);
    return out_proj(ctx, attention(ctx, p.q, p.k, p.v, queries, keys, within, op, relative));
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
                                                std::vector<std::int32_t> key_sequence = {},
                                                const Var<T>& bias = {}) const {
    if (linear_kind()) throw ValueError(name, "linear attention has no weights to show");
    const AttentionOp op = attention_op(std::move(key_sequence));
    check_inputs(query, queries, key, value, keys, op);
    const AttentionMask within = windowed(mask);
    const RelativePositions<T> relative = relative_positions(ctx, bias);
    const ProjectedHeads<T> p = project_for_weights(ctx, query, queries, key, value, keys);
    const Var<T> weights = attention_weights(ctx, p.q, p.k, queries, keys, within, op, relative);
    return {out_proj(ctx, attention(ctx, p.q, p.k, p.v, queries, keys, within, op, relative)),
            heads == HeadWeights::averaged ? mean(weights, {1}) : weights};
  }

  bool linear_kind() const noexcept { return options.kind == AttentionKind::linear; }

  /// Whether queries, keys and values have one weight (kdim and vdim are d_model).
  bool fused() const noexcept { return in_proj_weight.defined(); }

  /// The parts of the in-projection, for decoding with a key/value cache; queries and keys normalised where
  /// the options say so, not turned. x: (..., D), (..., kdim) or (..., vdim). Return (..., H head_dim) of
  /// queries,
  /// (..., G head_dim) of keys and of values; project_key_value both, side by side, and
  /// project_query_key_value all three, not normalised. The last two throw ValueError where the weights are
  /// not fused.
  [[nodiscard]] Var<T> project_query(const Context<T>& ctx, const Var<T>& x) const {
    return normalised(ctx, query_norm, project(ctx, x, q_proj_weight, 0, 1));
  }
  [[nodiscard]] Var<T> project_key(const Context<T>& ctx, const Var<T>& x) const {
    return normalised(ctx, key_norm, project(ctx, x, k_proj_weight, 1, 1));
  }
  [[nodiscard]] Var<T> project_value(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, v_proj_weight, 2, 1);
  }
  [[nodiscard]] Var<T> project_key_value(const Context<T>& ctx, const Var<T>& x) const {
    require_fused();
    const Var<T> both = project(ctx, x, in_proj_weight, 1, 2);
    if (!key_norm) return both;
    const index_t width = options.key_width();
    return concat({normalised(ctx, key_norm, slice(both, -1, 0, width)), slice(both, -1, width)}, -1);
  }
  [[nodiscard]] Var<T> project_query_key_value(const Context<T>& ctx, const Var<T>& x) const {
    require_fused();
    return project(ctx, x, in_proj_weight, 0, 3);
  }

  /// What self-attention works on: x (..., D) projected, normalised and turned by the positions of the
  /// layout. Throws ValueError where the weights are not fused.
  [[nodiscard]] ProjectedHeads<T> project_self(const Context<T>& ctx, const Var<T>& x,
                                               const SequenceLayout& layout) const {
    const Var<T> all = project_query_key_value(ctx, x);
    if (!query_norm) {
      return {.fused = turned(all, layout, options.num_heads + options.key_value_heads()),
              .q = {},
              .k = {},
              .v = {}};
    }
    const index_t q = options.query_width(), kv = options.key_width();
    return {
        .fused = {},
        .q = turned(normalised(ctx, query_norm, slice(all, -1, 0, q)), layout, options.num_heads),
        .k = turned(normalised(ctx, key_norm, slice(all, -1, q, q + kv)), layout, options.key_value_heads()),
        .v = slice(all, -1, q + kv)};
  }

  /// What the attention ops take: heads, scale, slopes, dropout and the memory of each sequence of queries.
  AttentionOp attention_op(std::vector<std::int32_t> key_sequence = {}) const {
    return {.heads = options.num_heads,
            .scale = options.attention_scale,
            .dropout = options.dropout,
            .key_sequence = std::move(key_sequence),
            .key_value_heads = options.num_key_value_heads,
            .slopes = slopes_};
  }
  /// What is learned by distance, for the attention ops.
  RelativePositions<T> relative_positions(const Context<T>& ctx, const Var<T>& bias = {}) const {
    return {.bias = bias, .keys = ctx.use(relative_keys), .values = ctx.use(relative_values)};
  }
  /// The mask within this attention's window.
  AttentionMask windowed(const AttentionMask& mask) const {
    if (options.attention_window == 0) return mask;
    return mask & AttentionMask::window(options.attention_window - 1, options.attention_window - 1);
  }

  static void fields(auto& self, auto&& visit) {
    visit("in_proj_weight", self.in_proj_weight);
    visit("q_proj_weight", self.q_proj_weight);
    visit("k_proj_weight", self.k_proj_weight);
    visit("v_proj_weight", self.v_proj_weight);
    visit("in_proj_bias", self.in_proj_bias);
    visit("out_proj", self.out_proj);
    visit("query_norm", self.query_norm);
    visit("key_norm", self.key_norm);
    visit("relative_keys", self.relative_keys);
    visit("relative_values", self.relative_values);
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
      const index_t total = o.query_width() + 2 * o.key_width();
      if (o.kdim == o.d_model && o.vdim == o.d_model) {
        fused = weight(total, o.d_model);
      } else {
        q = weight(o.query_width(), o.d_model);
        k = weight(o.key_width(), o.kdim);
        v = weight(o.key_width(), o.vdim);
      }
      if (o.bias) bias = Parameter<T>(Tensor<T>::zeros({total}));
    }
    Parameter<T> fused, q, k, v, bias;
  };

  MultiHeadAttention(const Validated& valid, InProjection in, RandomGenerator& rng)
      : in_proj_weight(std::move(in.fused)),
        q_proj_weight(std::move(in.q)),
        k_proj_weight(std::move(in.k)),
        v_proj_weight(std::move(in.v)),
        in_proj_bias(std::move(in.bias)),
        out_proj({valid.options.query_width(), valid.options.d_model, valid.options.bias}, rng),
        options(valid.options) {
    const index_t head_dim = options.head_features();
    if (options.query_key_norm) {
      const NormOptions of_head{.kind = options.query_key_norm_kind, .size = head_dim, .bias = false};
      query_norm.emplace(of_head);
      key_norm.emplace(of_head);
    }
    if (options.positions == Positions::rotary) {
      const RotaryOptions& rotary = options.rotary;
      rotary_ = kernels::RotaryTable<T>(rotary.dim != 0 ? rotary.dim : head_dim, rotary.base);
    }
    if (options.positions == Positions::alibi) slopes_ = alibi_slopes(options.num_heads);
    if (options.positions == Positions::shaw) {
      const index_t distances = 2 * options.shaw_max_distance + 1;
      relative_keys = Parameter<T>(init::xavier_uniform<T>({distances, head_dim}, rng));
      relative_values = Parameter<T>(init::xavier_uniform<T>({distances, head_dim}, rng));
    }
    name_parameters(*this);
  }

  static bool same(const Var<T>& a, const Var<T>& b) {
    return a.value().data() == b.value().data() && a.shape() == b.shape() && a.node() == b.node();
  }

  // Part `first` (0 query, 1 key, 2 value) and those after it, of the fused weight or of the part's own.
  Var<T> project(const Context<T>& ctx, const Var<T>& x, const Parameter<T>& own, index_t first,
                 index_t parts) const {
    const auto row = [&](index_t part) {
      return part == 0 ? 0 : options.query_width() + (part - 1) * options.key_width();
    };
    const index_t begin = row(first), end = row(first + parts);
    if (fused()) return linear_slice(ctx, x, in_proj_weight, in_proj_bias, begin, end - begin);
    const Var<T> projected = linear(ctx, x, own, Parameter<T>());
    if (!in_proj_bias.defined()) return projected;
    return add(projected, slice(ctx.use(in_proj_bias), 0, begin, end));
  }

  // Queries, keys and values in matrices of their own.
  ProjectedHeads<T> project_apart(const Context<T>& ctx, const Var<T>& query, const SequenceLayout& queries,
                                  const Var<T>& key, const Var<T>& value, const SequenceLayout& keys) const {
    return {.fused = {},
            .q = turned(project_query(ctx, query), queries, options.num_heads),
            .k = turned(project_key(ctx, key), keys, options.key_value_heads()),
            .v = project_value(ctx, value)};
  }

  // The same from the products that operator() makes: weights that are packed for decoding are packed for
  // these.
  ProjectedHeads<T> project_for_weights(const Context<T>& ctx, const Var<T>& query,
                                        const SequenceLayout& queries, const Var<T>& key, const Var<T>& value,
                                        const SequenceLayout& keys) const {
    const index_t q = options.query_width(), kv = options.key_width();
    if (fused() && same(key, value) && same(query, key) && queries == keys) {
      ProjectedHeads<T> p = project_self(ctx, query, queries);
      if (!p.fused.defined()) return p;
      return {.fused = {},
              .q = slice(p.fused, -1, 0, q),
              .k = slice(p.fused, -1, q, q + kv),
              .v = slice(p.fused, -1, q + kv)};
    }
    if (fused() && same(key, value) && options.positions != Positions::rotary) {
      const Var<T> both = project_key_value(ctx, key);
      return {
          .fused = {}, .q = project_query(ctx, query), .k = slice(both, -1, 0, kv), .v = slice(both, -1, kv)};
    }
    return project_apart(ctx, query, queries, key, value, keys);
  }

  // The norm of each head of x (..., heads * head_dim), if there is one.
  Var<T> normalised(const Context<T>& ctx, const OptionalModule<Norm<T>>& norm, const Var<T>& x) const {
    if (!norm) return x;
    const index_t head_dim = options.head_features();
    return reshape((*norm)(ctx, reshape(x, Shape{x.numel() / head_dim, head_dim})), x.shape());
  }

  Var<T> turned(const Var<T>& x, const SequenceLayout& layout, index_t heads) const {
    if (options.positions != Positions::rotary) return x;
    return rotary(x, layout, heads, options.head_features(), rotary_, options.rotary.pairing);
  }

  Var<T> attend_linear(const Context<T>& ctx, const Var<T>& query, const SequenceLayout& queries,
                       const Var<T>& key, const Var<T>& value, const SequenceLayout& keys,
                       const AttentionMask& mask, const AttentionOp& op) const {
    mask.check(queries.batch(), op.heads, queries.max_length(), keys.batch(), keys.max_length());
    const LinearAttentionOp linear{op.heads, mask.right() == 0, op.key_sequence, admitted_keys(mask, keys)};
    const ProjectedHeads<T> p = project_for_weights(ctx, query, queries, key, value, keys);
    return out_proj(ctx, linear_attention(p.q, p.k, p.v, queries, keys, linear));
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

  kernels::RotaryTable<T> rotary_;
  std::vector<double> slopes_;
};

static_assert(std::is_nothrow_move_constructible_v<MultiHeadAttention<float>>);

EIGENFORMER_MODULE_INSTANCES(MultiHeadAttention)

}  // namespace eigenformer
