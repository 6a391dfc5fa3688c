#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/autograd/ops/attention/attention.hpp"
#include "eigenformer/autograd/ops/attention/linear_attention.hpp"
#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/linear/linear.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/nn/layers/linear.hpp"
#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/module/init.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/module/optional_module.hpp"
#include "eigenformer/nn/module/rows.hpp"
#include "eigenformer/nn/options/layer.hpp"
#include "eigenformer/nn/options/positions.hpp"

namespace eigenformer {

/// The linear maps to queries, keys and values: one fused weight if all three inputs have d_model features,
/// otherwise one each. Names and shapes as in PyTorch's nn.MultiheadAttention. H heads of queries, G of keys
/// and values. Part of MultiHeadAttention, which checks its options.
template <class T = float>
struct InProjection {
  using value_type = T;  ///< element type, float or double

  /// (W, D), W = (H + 2 G) head_dim: rows of queries, keys, values; absent if not fused().
  Parameter<T> weight;
  Parameter<T> query_weight;  ///< (H head_dim, D); absent if fused()
  Parameter<T> key_weight;    ///< (G head_dim, kdim); absent if fused()
  Parameter<T> value_weight;  ///< (G head_dim, vdim); absent if fused()
  Parameter<T> bias;          ///< (W); absent without bias

  /// Weights start Xavier uniform (the fused one with its own fans, as in PyTorch), biases zero. The options
  /// must be valid.
  InProjection(const MultiHeadAttentionOptions& o, RandomGenerator& rng)
      : query_width_(o.query_width()), key_width_(o.key_width()), cross_(o.cross) {
    const auto draw = [&](index_t out, index_t in) {
      return Parameter<T>(init::xavier_uniform<T>({out, in}, rng));
    };
    const index_t total = query_width_ + 2 * key_width_;
    const index_t kdim = o.kdim != 0 ? o.kdim : o.d_model, vdim = o.vdim != 0 ? o.vdim : o.d_model;
    if (kdim == o.d_model && vdim == o.d_model) {
      weight = draw(total, o.d_model);
    } else {
      query_weight = draw(query_width_, o.d_model);
      key_weight = draw(key_width_, kdim);
      value_weight = draw(key_width_, vdim);
    }
    if (o.bias) bias = Parameter<T>(Tensor<T>::zeros({total}));
  }

  /// Whether queries, keys and values share one weight matrix, because kdim and vdim are d_model.
  bool fused() const noexcept { return weight.defined(); }

  /// Queries of x (..., D): (..., H head_dim).
  [[nodiscard]] Var<T> query(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, query_weight, 0, query_width_);
  }
  /// Keys of x (..., kdim): (..., G head_dim).
  [[nodiscard]] Var<T> key(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, key_weight, query_width_, key_width_);
  }
  /// Values of x (..., vdim): (..., G head_dim).
  [[nodiscard]] Var<T> value(const Context<T>& ctx, const Var<T>& x) const {
    return project(ctx, x, value_weight, query_width_ + key_width_, key_width_);
  }
  /// Keys and values of x (..., D) side by side, in one product: (..., 2 G head_dim). Throws ValueError if
  /// not fused().
  [[nodiscard]] Var<T> key_value(const Context<T>& ctx, const Var<T>& x) const {
    require_fused();
    return project(ctx, x, weight, query_width_, 2 * key_width_);
  }
  /// Queries, keys and values of x (..., D) side by side, in one product: (..., (H + 2 G) head_dim). Throws
  /// ValueError if not fused().
  [[nodiscard]] Var<T> all(const Context<T>& ctx, const Var<T>& x) const {
    require_fused();
    return project(ctx, x, weight, 0, query_width_ + 2 * key_width_);
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("in_proj_weight", self.weight);
    visit("q_proj_weight", self.query_weight);
    visit("k_proj_weight", self.key_weight);
    visit("v_proj_weight", self.value_weight);
    visit("in_proj_bias", self.bias);
  }
  /// Calls visit(weight, {rows}) for each matrix that pack_weights() packs; rows: how many rows make one
  /// product.
  static void products(auto& self, auto&& visit) {
    if (!self.fused()) {
      for (auto* w : {&self.query_weight, &self.key_weight, &self.value_weight}) visit(*w, {w->shape()[0]});
    } else if (self.cross_) {
      visit(self.weight, {self.query_width_, 2 * self.key_width_});
    } else {
      visit(self.weight, {self.weight.shape()[0]});
    }
  }
  /// Calls visit(weight, {rows}) for each matrix that adapters may change; rows: the rows of each part.
  static void adaptable(auto& self, auto&& visit) {
    if (self.fused()) return visit(self.weight, {self.query_width_, self.key_width_, self.key_width_});
    for (auto* w : {&self.query_weight, &self.key_weight, &self.value_weight}) visit(*w, {w->shape()[0]});
  }

 private:
  Var<T> project(const Context<T>& ctx, const Var<T>& x, const Parameter<T>& own, index_t begin,
                 index_t count) const {
    if (fused()) return linear_slice(ctx, x, weight, bias, begin, count);
    const Var<T> projected = linear(ctx, x, own, Parameter<T>());
    if (!bias.defined()) return projected;
    return add(projected, slice(ctx.use(bias), 0, begin, begin + count));
  }

  void require_fused() const {
    if (!fused()) {
      throw ValueError("in_projection",
                       "keys and values have separate weights, because kdim or vdim differs from d_model; "
                       "project each of them separately");
    }
  }

  index_t query_width_, key_width_;
  bool cross_;
};

EIGENFORMER_MODULE_INSTANCES(InProjection)

namespace detail {

/// ALiBi's slopes: 2^(-8 i / n) for heads i = 1 .. n if n is a power of two; otherwise those of the next
/// lower power of two, then every other slope of the next higher one (Press et al. 2022, and its published
/// code).
inline std::vector<double> alibi_slopes(index_t heads) {
  index_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  for (index_t i = 1; i <= power; ++i)
    slopes.push_back(std::exp2(-8 * static_cast<double>(i) / static_cast<double>(power)));
  for (index_t i = 1; static_cast<index_t>(slopes.size()) < heads; i += 2)
    slopes.push_back(std::exp2(-4 * static_cast<double>(i) / static_cast<double>(power)));
  return slopes;
}

/// Vectors by distance that an attention adds to keys and values, of its own in each layer (Shaw et al.
/// 2018). Row c is distance c - max_distance; greater distances are clipped. Part of MultiHeadAttention with
/// ShawPositions.
template <class T>
struct Shaw {
  using value_type = T;  ///< element type, float or double

  Parameter<T> keys;    ///< (2 max_distance + 1, head_dim)
  Parameter<T> values;  ///< (2 max_distance + 1, head_dim)

  /// Both start Xavier uniform. max_distance must be positive.
  Shaw(const ShawPositions& options, index_t head_dim, RandomGenerator& rng) {
    const Shape shape{2 * options.max_distance + 1, head_dim};
    keys = Parameter<T>(init::xavier_uniform<T>(shape, rng));
    values = Parameter<T>(init::xavier_uniform<T>(shape, rng));
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("relative_keys", self.keys);
    visit("relative_values", self.values);
  }
};

}  // namespace detail

/// One attention: the heads that a layer has projected, the layouts of their rows, what they may see, and how
/// weights are computed. Every attention of a layer, in training and in decoding, is the run() of a call that
/// MultiHeadAttention::call() made; a cache replaces its keys and values.
template <class T>
struct AttentionCall {
  AttentionKind kind = AttentionKind::softmax;  ///< softmax, or linear
  detail::AttentionHeads<T> heads;              ///< projected and rotated
  SequenceLayout queries;                       ///< of the rows of heads.q
  SequenceLayout keys;                          ///< of the rows of heads.k and heads.v
  AttentionMask mask{};                         ///< with linear attention none(), causal() or key_padding()
  detail::AttentionOp op{};                     ///< heads, scale, key_sequence, dropout, rule
  detail::RelativePositions<T> relative{};      ///< learned terms by distance
  /// Linear attention in decoding: the sums over each sequence's earlier keys. run() adds the call's own
  /// keys, if it has any, and reads them. null: all keys are in the call.
  Tensor<T>* state = nullptr;

  /// The result, (..., H head_dim). No matrix of weights is stored. Throws as attention() or
  /// linear_attention().
  [[nodiscard]] Var<T> run(const Context<T>& ctx) const {
    if (kind == AttentionKind::softmax) return attention(ctx, heads, queries, keys, mask, op, relative);
    if (state != nullptr)
      return detail::linear_attention_step(heads, queries, op.heads, op.key_sequence, *state);
    mask.check(queries.batch(), op.heads, queries.max_length(), keys.batch(), keys.max_length());
    return linear_attention(
        heads.q.alone(), heads.k.alone(), heads.v.alone(), queries, keys,
        {op.heads, mask.right() == 0, op.key_sequence, detail::admitted_keys(mask, keys)});
  }
  /// The weights of each head, (B, H, Lq, Lk), before dropout. Throws ValueError for linear attention, which
  /// has none.
  [[nodiscard]] Var<T> weights(const Context<T>& ctx) const {
    if (kind == AttentionKind::linear) {
      throw ValueError("multi_head_attention", "linear attention has no attention weights to return");
    }
    return attention_weights(ctx, heads, queries, keys, mask, op, relative);
  }
};

/// The output of an attention and its weights, both differentiable.
template <class T>
struct AttentionResult {
  Var<T> output;   ///< (B, Lq, D), or (Lq, D) for a query of rank 2
  Var<T> weights;  ///< before dropout: (B, H, Lq, Lk) per head, (B, Lq, Lk) averaged
};

/// How MultiHeadAttention::with_weights returns the weights of the heads.
enum class HeadWeights {
  averaged,  ///< mean over the heads, (B, Lq, Lk)
  per_head   ///< (B, H, Lq, Lk)
};

/// Multi-head attention with a fused in-projection. Vaswani et al. 2017, 3.2.2; names and shapes as in
/// PyTorch's nn.MultiheadAttention with batch_first. H heads of queries may share G heads of keys and values
/// (Ainslie et al. 2023; G = 1: Shazeer 2019).
///
///     ef::MultiHeadAttention<float> attention({.d_model = 12, .num_heads = 3}, rng);
///     auto y = attention.self(ctx, x, ef::AttentionMask::causal());            // (B, L, 12)
///     auto z = attention.cross(ctx, x, memory);                                // (B, L, 12)
///     auto [w, weights] = attention.with_weights(ctx, x, memory, memory);      // (B, L, 12), (B, L, Lk)
///
/// It consists of InProjection, positions, an AttentionCall, and out_proj. Without a
/// layout every sequence has full length; the overloads with layouts take padded (B, L, D) or packed (rows,
/// D) inputs.
template <class T = float>
struct MultiHeadAttention {
  using value_type = T;  ///< element type, float or double

  InProjection<T> in_proj;                       ///< D, kdim and vdim features -> queries, keys, values
  Linear<T> out_proj;                            ///< H head_dim -> D
  detail::OptionalModule<Norm<T>> query_norm;    ///< of each head's queries, with query_key_norm
  detail::OptionalModule<Norm<T>> key_norm;      ///< of each head's keys, with query_key_norm
  detail::OptionalModule<detail::Shaw<T>> shaw;  ///< with ShawPositions
  MultiHeadAttentionOptions options;             ///< as given, with kdim and vdim filled in
  /// A rule of the caller's own that changes the scores, called by the kernel for each tile:
  /// `attention.score_rule = MyRule{}`. Softmax attention only. It is not saved with the model.
  ScoreRule score_rule{};

  /// Throws ValueError that names the invalid field.
  MultiHeadAttention(const MultiHeadAttentionOptions& given, RandomGenerator& rng)
      : in_proj(detail::validated(name, given), rng),
        out_proj({given.query_width(), given.d_model, given.bias}, rng),
        options(given) {
    if (options.kdim == 0) options.kdim = options.d_model;
    if (options.vdim == 0) options.vdim = options.d_model;
    const index_t head_dim = options.head_features();
    if (options.attention.query_key_norm) {
      const NormOptions of_head{.kind = *options.attention.query_key_norm,
                                .size = head_dim,
                                .eps = options.norm_eps,
                                .bias = false};
      query_norm.emplace(of_head);
      key_norm.emplace(of_head);
    }
    if (const auto* o = std::get_if<RotaryPositions>(&options.attention.positions))
      rotary_ = {o->dim != 0 ? o->dim : head_dim, o->base};
    if (std::holds_alternative<AlibiPositions>(options.attention.positions))
      slopes_ = detail::alibi_slopes(options.num_heads);
    if (const auto* o = std::get_if<ShawPositions>(&options.attention.positions))
      shaw.emplace(*o, head_dim, rng);
    name_parameters(*this);
  }

  /// Attention of a sequence to itself. x: (B, L, D), or (L, D) for one sequence. Returns x's shape. Throws
  /// ShapeError if x or the mask has the wrong shape, ValueError if kdim or vdim is not d_model.
  [[nodiscard]] Var<T> self(const Context<T>& ctx, const Var<T>& x, const AttentionMask& mask = {}) const {
    return self(ctx, x, detail::full_layout(name, x.shape()), mask);
  }
  /// The same for rows in the given layout, padded or packed. bias: (H, 2 R + 1), added to the scores by
  /// distance; see RelativeBias. weights, if not null, receives the weights of each head, (B, H, L, L);
  /// linear attention has none and throws ValueError.
  [[nodiscard]] Var<T> self(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                            const AttentionMask& mask, const Var<T>& bias = {},
                            Var<T>* weights = nullptr) const {
    require_one_width();
    check_input("input", x, layout, options.d_model);
    return finish(ctx, call(ctx, project_self(ctx, x, layout), layout, layout, mask, {}, bias), weights);
  }

  /// Attention of a sequence to another. x: (B, L, D), memory: (B, Lk, D), or (L, D) and (Lk, D) for one
  /// sequence. Returns x's shape. Throws ShapeError if shapes or the mask do not match.
  [[nodiscard]] Var<T> cross(const Context<T>& ctx, const Var<T>& x, const Var<T>& memory,
                             const AttentionMask& mask = {}) const {
    const auto [queries, keys] = full_layouts(x, memory);
    return cross(ctx, x, queries, memory, keys, mask);
  }
  /// The same for rows in the given layouts. key_sequence: for each sequence of queries the sequence of
  /// memory that it attends to; empty: the one with the same number. weights, if not null, receives the
  /// weights of each head, (B, H, L, Lk); linear attention has none and throws ValueError.
  [[nodiscard]] Var<T> cross(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& queries,
                             const Var<T>& memory, const SequenceLayout& keys, const AttentionMask& mask = {},
                             std::vector<std::int32_t> key_sequence = {}, Var<T>* weights = nullptr) const {
    check_sequences(queries, keys, key_sequence);
    check_input("query", x, queries, options.d_model);
    check_input("memory", memory, keys, options.kdim);
    detail::AttentionHeads<T> heads = project_cross(ctx, x, queries, memory, keys);
    return finish(ctx, call(ctx, std::move(heads), queries, keys, mask, std::move(key_sequence)), weights);
  }

  /// PyTorch's call, with separate inputs. query: (B, Lq, D), key: (B, Lk, kdim), value: (B, Lk, vdim), or
  /// one sequence each without B. Returns query's shape. Throws ShapeError if shapes or the mask do not
  /// match.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& query, const Var<T>& key,
                                  const Var<T>& value, const AttentionMask& mask = {}) const {
    const auto [queries, keys] = full_layouts(query, key);
    return (*this)(ctx, query, queries, key, value, keys, mask);
  }
  /// The same for rows in the given layouts, padded or packed. key_sequence and weights as in cross(), bias
  /// as in self().
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& query, const SequenceLayout& queries,
                                  const Var<T>& key, const Var<T>& value, const SequenceLayout& keys,
                                  const AttentionMask& mask, std::vector<std::int32_t> key_sequence = {},
                                  const Var<T>& bias = {}, Var<T>* weights = nullptr) const {
    check_sequences(queries, keys, key_sequence);
    check_input("query", query, queries, options.d_model);
    check_input("key", key, keys, options.kdim);
    check_input("value", value, keys, options.vdim);
    detail::AttentionHeads<T> heads = project_apart(ctx, query, queries, key, value, keys);
    return finish(ctx, call(ctx, std::move(heads), queries, keys, mask, std::move(key_sequence), bias),
                  weights);
  }

  /// PyTorch's call that also returns the weights; output and weights are differentiable. Only this call, and
  /// others with a pointer for weights, stores a matrix of Lq x Lk for each head. Throws as the call without
  /// weights, and ValueError for linear attention.
  [[nodiscard]] AttentionResult<T> with_weights(const Context<T>& ctx, const Var<T>& query, const Var<T>& key,
                                                const Var<T>& value, const AttentionMask& mask = {},
                                                HeadWeights heads = HeadWeights::averaged) const {
    const auto [queries, keys] = full_layouts(query, key);
    return with_weights(ctx, query, queries, key, value, keys, mask, heads);
  }
  /// The same for rows in the given layouts, padded or packed. key_sequence as in cross(), bias as in self().
  [[nodiscard]] AttentionResult<T> with_weights(const Context<T>& ctx, const Var<T>& query,
                                                const SequenceLayout& queries, const Var<T>& key,
                                                const Var<T>& value, const SequenceLayout& keys,
                                                const AttentionMask& mask,
                                                HeadWeights heads = HeadWeights::averaged,
                                                std::vector<std::int32_t> key_sequence = {},
                                                const Var<T>& bias = {}) const {
    AttentionResult<T> result;
    result.output =
        (*this)(ctx, query, queries, key, value, keys, mask, std::move(key_sequence), bias, &result.weights);
    if (heads == HeadWeights::averaged) result.weights = mean(result.weights, {1});
    return result;
  }

  /// Whether this is linear attention.
  bool linear_kind() const noexcept { return options.attention.kind == AttentionKind::linear; }

  /// The inputs of the attention op in self-attention: x (..., D) projected, normalised if the options say
  /// so, and rotated by the layout's positions if these are rotary. Throws ValueError if kdim or vdim is not
  /// d_model.
  [[nodiscard]] detail::AttentionHeads<T> project_self(const Context<T>& ctx, const Var<T>& x,
                                                       const SequenceLayout& layout) const {
    require_one_width();
    const Var<T> all = in_proj.all(ctx, x);
    const index_t q = options.query_width(), kv = options.key_width();
    if (!query_norm) {
      return detail::AttentionHeads<T>::side_by_side(
          turned(all, layout, options.num_heads + options.key_value_heads()), q);
    }
    return {turned(normalised(ctx, query_norm, slice(all, -1, 0, q)), layout, options.num_heads),
            turned(normalised(ctx, key_norm, slice(all, -1, q, q + kv)), layout, options.key_value_heads()),
            slice(all, -1, q + kv)};
  }
  /// Queries (..., H head_dim) of x (..., D), normalised if the options say so, not rotated.
  [[nodiscard]] Var<T> project_query(const Context<T>& ctx, const Var<T>& x) const {
    return normalised(ctx, query_norm, in_proj.query(ctx, x));
  }
  /// Keys and values (..., 2 G head_dim) of x, (..., kdim), the keys normalised if the options say so, not
  /// rotated. Decoding calls it once for each memory. Throws ShapeError unless kdim and vdim are x's width.
  [[nodiscard]] Var<T> project_key_value(const Context<T>& ctx, const Var<T>& x) const {
    if (!in_proj.fused())
      return concat({normalised(ctx, key_norm, in_proj.key(ctx, x)), in_proj.value(ctx, x)}, -1);
    const Var<T> both = in_proj.key_value(ctx, x);
    if (!key_norm) return both;
    const index_t width = options.key_width();
    return concat({normalised(ctx, key_norm, slice(both, -1, 0, width)), slice(both, -1, width)}, -1);
  }

  /// The call of this attention for projected heads, whose run() is the input of out_proj. key_sequence as in
  /// cross(), bias as in self(). Throws ValueError for a score_rule with linear attention.
  [[nodiscard]] AttentionCall<T> call(const Context<T>& ctx, detail::AttentionHeads<T> heads,
                                      const SequenceLayout& queries, const SequenceLayout& keys,
                                      const AttentionMask& mask = {},
                                      std::vector<std::int32_t> key_sequence = {},
                                      const Var<T>& bias = {}) const {
    if (linear_kind() && score_rule)
      throw ValueError(name, "linear attention has no scores for a score_rule");
    const index_t window = options.attention.window;
    AttentionCall<T> c{.kind = options.attention.kind,
                       .heads = std::move(heads),
                       .queries = queries,
                       .keys = keys,
                       .mask = window == 0 ? mask : mask & AttentionMask::window(window - 1, window - 1),
                       .op = {.heads = options.num_heads,
                              .scale = options.attention.scale,
                              .dropout = options.dropout,
                              .key_sequence = std::move(key_sequence),
                              .key_value_heads = options.attention.num_key_value_heads,
                              .slopes = slopes_,
                              .rule = score_rule},
                       .relative = {.bias = bias}};
    if (shaw) c.relative = {.bias = bias, .keys = ctx.use(shaw->keys), .values = ctx.use(shaw->values)};
    return c;
  }
  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("", self.in_proj);
    visit("out_proj", self.out_proj);
    visit("query_norm", self.query_norm);
    visit("key_norm", self.key_norm);
    visit("", self.shaw);
  }

 private:
  static constexpr const char* name = "multi_head_attention";

  Var<T> finish(const Context<T>& ctx, const AttentionCall<T>& c, Var<T>* weights) const {
    if (weights != nullptr) *weights = c.weights(ctx);
    return out_proj(ctx, c.run(ctx));
  }

  detail::AttentionHeads<T> project_cross(const Context<T>& ctx, const Var<T>& x,
                                          const SequenceLayout& queries, const Var<T>& memory,
                                          const SequenceLayout& keys) const {
    if (!in_proj.fused() || rotates()) return project_apart(ctx, x, queries, memory, memory, keys);
    const Var<T> q = project_query(ctx, x);
    return detail::AttentionHeads<T>::side_by_side(q, project_key_value(of_keys(ctx, keys), memory));
  }

  // Queries, keys and values in separate matrices.
  detail::AttentionHeads<T> project_apart(const Context<T>& ctx, const Var<T>& query,
                                          const SequenceLayout& queries, const Var<T>& key,
                                          const Var<T>& value, const SequenceLayout& keys) const {
    const Context<T> key_ctx = of_keys(ctx, keys);
    return {turned(project_query(ctx, query), queries, options.num_heads),
            turned(normalised(ctx, key_norm, in_proj.key(key_ctx, key)), keys, options.key_value_heads()),
            in_proj.value(key_ctx, value)};
  }

  // The context for projections of keys and values: the dropout masks of adapters follow their rows.
  static Context<T> of_keys(const Context<T>& ctx, const SequenceLayout& keys) {
    return ctx.drops() && ctx.rows() ? ctx.for_rows(keys) : ctx;
  }

  // Each head of x, (..., heads * head_dim), normalised if there is a norm.
  Var<T> normalised(const Context<T>& ctx, const detail::OptionalModule<Norm<T>>& norm,
                    const Var<T>& x) const {
    if (!norm) return x;
    const index_t head_dim = options.head_features();
    return reshape((*norm)(ctx, reshape(x, Shape{x.numel() / head_dim, head_dim})), x.shape());
  }

  bool rotates() const noexcept { return rotary_.dim() != 0; }

  // x, (..., heads * head_dim or more), with its first `heads` heads rotated if positions are rotary.
  Var<T> turned(const Var<T>& x, const SequenceLayout& layout, index_t heads) const {
    if (!rotates()) return x;
    const RotaryPairing pairing = std::get<RotaryPositions>(options.attention.positions).pairing;
    return rotary(x, layout, heads, options.head_features(), rotary_, pairing);
  }

  void require_one_width() const {
    if (!in_proj.fused()) {
      (void)in_proj.query_weight.shape();  // throws for an attention that was moved from
      throw ValueError(name, {"kdim is ", options.kdim, " and vdim ", options.vdim,
                              ", must both be d_model, which is ", options.d_model, ", for self-attention"});
    }
  }

  // The layouts of queries and keys that are given without.
  static std::pair<SequenceLayout, SequenceLayout> full_layouts(const Var<T>& query, const Var<T>& key) {
    std::pair layouts{detail::full_layout(name, query.shape()), detail::full_layout(name, key.shape())};
    if (layouts.first.batch() == layouts.second.batch()) return layouts;
    throw ShapeError(name,
                     {"query of shape ", query.shape(), " and key of shape ", key.shape(),
                      " must have the same batch size"},
                     {query.shape(), key.shape()});
  }

  static void check_sequences(const SequenceLayout& queries, const SequenceLayout& keys,
                              const std::vector<std::int32_t>& key_sequence) {
    if (!key_sequence.empty() || queries.batch() == keys.batch()) return;
    throw ShapeError(name, {"the layouts have ", queries.batch(), " sequences of queries and ", keys.batch(),
                            " of keys, must be equal numbers unless key_sequence is given"});
  }

  void check_input(const char* what, const Var<T>& x, const SequenceLayout& layout, index_t width) const {
    detail::check_rows(name, what, x.shape(), layout);
    if (x.dim(-1) == width) return;
    throw ShapeError(name,
                     {what, " of shape ", x.shape(), " must have ", width, " features, to match '",
                      (in_proj.fused() ? in_proj.weight : in_proj.query_weight).name(), "'"},
                     {x.shape()});
  }

  detail::kernels::RotaryTable<T> rotary_;  // of no features unless positions are rotary
  std::vector<double> slopes_;
};

EIGENFORMER_MODULE_INSTANCES(MultiHeadAttention)

}  // namespace eigenformer
