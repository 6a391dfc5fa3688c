#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/attention/attention_saved.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/kernels/sequence/rotary.hpp"

namespace eigenformer {

/// Rotates the first table.dim() features of each of the first `heads` heads of a row by the row's position,
/// so that products of two rows depend on the distance of their positions; columns after these heads are
/// unchanged. Su et al. 2021.
///
/// x: (rows, n) or (B, L, n), with rows as in `layout`, n >= heads * head_dim; for example the queries and
/// keys of a fused projection. Returns x's shape. Throws ShapeError when shapes do not fit, ValueError unless
/// the table's dim is in 2 .. head_dim.
template <class T>
[[nodiscard]] Var<T> rotary(const std::type_identity_t<Var<T>>& x, const SequenceLayout& layout,
                            index_t heads, index_t head_dim, const detail::kernels::RotaryTable<T>& table,
                            RotaryPairing pairing = RotaryPairing::adjacent) {
  const OpScope scope = detail::scope_of("rotary", x);
  if (x.rank() < 2 || x.shape().rows() != layout.rows() || heads < 1 || x.shape().cols() < heads * head_dim) {
    throw ShapeError("rotary",
                     {"input of shape ", x.shape(), " must have the ", layout.rows(),
                      " rows of its layout and ", heads, " heads of ", head_dim},
                     {x.shape()});
  }
  if (table.dim() < 2 || table.dim() > head_dim) {
    throw ValueError("rotary", {"dim is ", table.dim(),
                                ", must be at least 2 and at most the head's, which is ", head_dim});
  }
  Tensor<T> y(x.shape());
  const auto keys = layout.row_keys();
  const auto position = [keys](index_t r) {
    return static_cast<index_t>((*keys)[static_cast<std::size_t>(r)].position);
  };
  const index_t rows = layout.rows(), columns = x.shape().cols();
  detail::kernels::rotary<T>(table, pairing, false, x.value().data(), y.data(), T(0), rows, columns, heads,
                             head_dim, position);
  if (detail::not_recorded(y, x)) return y;
  return detail::record_one("rotary", std::move(y), x, SavedTensors(),
                            [=](const auto& dx, const Tensor<T>& dy) {
                              detail::kernels::rotary<T>(table, pairing, true, dy.data(), dx.data, dx.beta,
                                                         rows, columns, heads, head_dim, position);
                            });
}

namespace detail {

// Where queries, keys and values are among an op's inputs: the matrices that they are columns of, each once.
struct AttentionParts {
  struct Part {
    std::size_t matrix = 0;  // the number of its input
    index_t column = 0;
    bool given = false;
  };

  std::size_t matrices = 0;
  std::array<index_t, 3> unread{};  // columns of each matrix that are in no part
  Part q, k, v;
};

// The inputs of an attention as the tape sees them: matrices, and the terms by distance.
template <class T>
struct AttentionSources {
  std::array<const Var<T>*, 6> inputs{};
  AttentionParts parts;

  AttentionSources(const AttentionHeads<T>& heads, const RelativePositions<T>& relative) {
    parts.q = add(heads.q);
    parts.k = add(heads.k);
    if (heads.v.of.defined()) parts.v = add(heads.v);
    inputs[parts.matrices] = &relative.bias;
    inputs[parts.matrices + 1] = &relative.keys;
    inputs[parts.matrices + 2] = &relative.values;
  }

  std::span<const Var<T>* const> all() const { return {inputs.data(), parts.matrices + 3}; }
  bool recorded() const {
    const auto every = all();
    return std::any_of(every.begin(), every.end(), [](const Var<T>* x) { return x->recorded(); });
  }

 private:
  // Parts that lie side by side in one matrix share its gradient. A matrix that is read twice, such as keys
  // that are the values too, is two inputs.
  AttentionParts::Part add(const AttentionInput<T>& x) {
    const Var<T>* last = parts.matrices == 0 ? nullptr : inputs[parts.matrices - 1];
    const bool follows = last != nullptr && x.column == end_ && last->node() == x.of.node() &&
                         last->tape() == x.of.tape() && last->value().data() == x.of.value().data();
    if (!follows) {
      parts.unread[parts.matrices] = x.stride();
      inputs[parts.matrices++] = &x.of;
    }
    end_ = x.column + x.width;
    parts.unread[parts.matrices - 1] -= x.width;
    return {parts.matrices - 1, x.column, true};
  }

  index_t end_ = 0;  // of the last part's columns
};

// Where the backward of an attention writes. Ends with add_up().
template <class T>
struct AttentionSlots {
  SeparateSlots<T> slots;
  kernels::AttentionGradients<T> gradients;
  RelativeSlots<T> relative;

  AttentionSlots(Backward<T>& b, const AttentionParts& parts, const AttentionSaved<T>& saved)
      : slots(b, 0, parts.matrices + 3) {
    std::array<GradientSlot<T>, 3> of;
    for (std::size_t i = 0; i < parts.matrices; ++i) {
      of[i] = slots[i];
      if (!of[i] || parts.unread[i] == 0) continue;
      of[i].start_sum();
      of[i].beta = T(1);
    }
    const auto set = [&](const AttentionParts::Part& part, index_t columns, T*& data, index_t& stride,
                         T& beta) {
      if (!part.given || !of[part.matrix]) return;
      data = of[part.matrix].data + part.column;
      stride = columns;
      beta = of[part.matrix].beta;
    };
    set(parts.q, saved.q.stride(), gradients.dq, gradients.dq_stride, gradients.dq_beta);
    set(parts.k, saved.k.stride(), gradients.dk, gradients.dk_stride, gradients.dk_beta);
    set(parts.v, saved.v.stride(), gradients.dv, gradients.dv_stride, gradients.dv_beta);
    const std::size_t n = parts.matrices;
    relative = {slots[n], slots[n + 1], slots[n + 2]};
  }
};

}  // namespace detail

/// Multi-head scaled dot-product attention: softmax(scale Q K^T + mask) V for each sequence and head, without
/// storing the weights (Vaswani et al. 2017, eq. 1; Dao et al. 2022).
///
/// heads.q: (Nq, H dk) or (B, Lq, H dk), with rows as in the layout `queries`; heads.k: (Nk, G dk), heads.v:
/// (Nk, G dv), with rows as in `keys`, for G = op.key_value_heads, or H if that is 0. Returns (Nq, H dv) or
/// (B, Lq, H dv). The terms by distance of `op` and `relative` are added to scores, keys and values. A query
/// that may attend to nothing has an output and gradients of zero. Throws ShapeError when widths, rows or the
/// mask do not fit, ValueError for invalid options.
template <class T>
[[nodiscard]] Var<T> attention(const Context<T>& ctx, const detail::AttentionHeads<T>& heads,
                               const SequenceLayout& queries, const SequenceLayout& keys,
                               const AttentionMask& mask, const detail::AttentionOp& op,
                               const std::type_identity_t<detail::RelativePositions<T>>& relative = {}) {
  detail::require_defined("attention", heads.q.of, heads.k.of, heads.v.of);
  const detail::AttentionSources<T> sources(heads, relative);
  const detail::AttentionParts parts = sources.parts;
  const char* name = parts.matrices == 1                ? "self_attention"
                     : parts.k.matrix == parts.v.matrix ? "cross_attention"
                                                        : "attention";
  const OpScope scope = detail::scope_of(name);
  detail::AttentionSaved<T> saved(name, ctx, heads, queries, keys, mask, op, relative);
  saved.forward(sources.recorded());
  if (!sources.recorded()) return record(name, std::move(saved.out), sources.all(), {}, [](Backward<T>&) {});
  const bool of_q = heads.q.of.recorded();
  const bool of_scores =
      of_q || heads.k.of.recorded() || relative.bias.recorded() || relative.keys.recorded();
  // With P the weights: dV = P^T dO, dS = P * (dO V^T - rowsum(dO * O)), dQ = scale dS K, dK = scale dS^T Q.
  return record(name, saved.out, sources.all(), saved.reads(of_q, of_scores, heads.v.of.recorded()),
                [saved, parts](Backward<T>& b) {
                  const detail::AttentionSlots<T> d(b, parts, saved);
                  saved.backward(b.dy(), d.relative, d.gradients);
                  d.slots.add_up();
                });
}

/// The same for queries, keys and values in matrices of their own.
template <class T>
[[nodiscard]] Var<T> attention(const Context<T>& ctx, const std::type_identity_t<Var<T>>& q,
                               const std::type_identity_t<Var<T>>& k, const std::type_identity_t<Var<T>>& v,
                               const SequenceLayout& queries, const SequenceLayout& keys,
                               const AttentionMask& mask, const detail::AttentionOp& op,
                               const std::type_identity_t<detail::RelativePositions<T>>& relative = {}) {
  return attention(ctx, detail::AttentionHeads<T>{q, k, v}, queries, keys, mask, op, relative);
}

/// attention() with fused queries, keys and values. qkv: (..., (H + 2 G) dk), the heads of queries, then
/// those of keys and of values, G = op.key_value_heads or H. Returns (..., H dk). Throws as attention(), and
/// ShapeError when the width of qkv does not divide.
template <class T>
[[nodiscard]] Var<T> self_attention(const Context<T>& ctx, const std::type_identity_t<Var<T>>& qkv,
                                    const SequenceLayout& layout, const AttentionMask& mask,
                                    const detail::AttentionOp& op,
                                    const std::type_identity_t<detail::RelativePositions<T>>& relative = {}) {
  detail::require_defined("self_attention", qkv);
  const index_t key_heads = op.key_value_heads == 0 ? op.heads : op.key_value_heads;
  const index_t heads = op.heads + 2 * key_heads, total = qkv.shape().cols();
  // Without groups, the check of attention() reports the heads into which a third cannot be divided.
  const index_t parts = key_heads == op.heads ? 3 : heads;
  if (parts < 1 || total % parts != 0) {
    throw ShapeError("self_attention",
                     {"fused projection of shape ", qkv.shape(),
                      (parts == 3 ? " must have three times the model's width"
                                  : " must divide into " + std::to_string(heads) + " heads")},
                     {qkv.shape()});
  }
  const index_t width = parts == 3 ? total / 3 : total / heads * op.heads;
  return attention(ctx, detail::AttentionHeads<T>::side_by_side(qkv, width), layout, layout, mask, op,
                   relative);
}

/// attention() with fused keys and values. q: (..., H dk); kv: (..., 2 G dk), the heads of keys, then those
/// of values. Returns (..., H dk). Throws as attention(), and ShapeError for an odd width of kv.
template <class T>
[[nodiscard]] Var<T> cross_attention(
    const Context<T>& ctx, const std::type_identity_t<Var<T>>& q, const std::type_identity_t<Var<T>>& kv,
    const SequenceLayout& queries, const SequenceLayout& keys, const AttentionMask& mask,
    const detail::AttentionOp& op, const std::type_identity_t<detail::RelativePositions<T>>& relative = {}) {
  detail::require_defined("cross_attention", q, kv);
  if (kv.shape().cols() % 2 != 0) {
    throw ShapeError("cross_attention",
                     {"fused projection of shape ", kv.shape(), " must have twice the model's width"},
                     {kv.shape()});
  }
  return attention(ctx, detail::AttentionHeads<T>::side_by_side(q, kv), queries, keys, mask, op, relative);
}

/// The attention weights, before dropout: (B, H, Lq, Lk), zero outside the sequences. Differentiable; the
/// only attention op that stores Lq x Lk numbers. heads.q: (..., H dk), heads.k: (..., G dk); heads.v is not
/// read. Throws as attention().
template <class T>
[[nodiscard]] Var<T> attention_weights(const Context<T>& ctx, detail::AttentionHeads<T> heads,
                                       const SequenceLayout& queries, const SequenceLayout& keys,
                                       const AttentionMask& mask, detail::AttentionOp op,
                                       std::type_identity_t<detail::RelativePositions<T>> relative = {}) {
  const OpScope scope = detail::scope_of("attention_weights", heads.q.of, heads.k.of);
  heads.v = {};
  op.dropout = 0;
  relative.values = Var<T>();
  const detail::AttentionSources<T> sources(heads, relative);
  detail::AttentionSaved<T> saved("attention_weights", ctx, {heads.q, heads.k, heads.k}, queries, keys, mask,
                                  op, relative);
  saved.forward(true);
  saved.out = Tensor<T>();
  Tensor<T> weights(Shape{queries.batch(), op.heads, queries.max_length(), keys.max_length()});
  detail::kernels::attention_weights<T>(saved.problem(), saved.log_sum_exp.data(), weights.data());
  if (!sources.recorded())
    return record("attention_weights", weights, sources.all(), {}, [](Backward<T>&) {});
  // dS = P * (dP - rowsum(dP * P)), dQ = scale dS K, dK = scale dS^T Q.
  return record("attention_weights", weights, sources.all(),
                saved.reads(heads.q.of.recorded(), true, false).add(weights),
                [saved, weights, parts = sources.parts](Backward<T>& b) {
                  const detail::AttentionSlots<T> d(b, parts, saved);
                  const auto run = [&](const detail::kernels::AttentionGradients<T>& wanted, const auto&) {
                    detail::kernels::attention_weights_backward<T>(saved.problem(), weights.data(),
                                                                   b.dy().data(), wanted);
                  };
                  saved.backward_relative(d.relative, nullptr, d.gradients, run);
                  d.slots.add_up();
                });
}

/// The same for queries and keys in matrices of their own.
template <class T>
[[nodiscard]] Var<T> attention_weights(
    const Context<T>& ctx, const std::type_identity_t<Var<T>>& q, const std::type_identity_t<Var<T>>& k,
    const SequenceLayout& queries, const SequenceLayout& keys, const AttentionMask& mask,
    const detail::AttentionOp& op, const std::type_identity_t<detail::RelativePositions<T>>& relative = {}) {
  return attention_weights(ctx, detail::AttentionHeads<T>{q, k, {}}, queries, keys, mask, op, relative);
}

/// Attention as a plain function. q: (B, H, Lq, dk) or (B, Lq, dk), k: (..., Lk, dk), v: (..., Lk, dv).
/// Returns (B, H, Lq, dv) or (B, Lq, dv). Throws ShapeError when ranks, batches, heads or widths differ.
template <class T>
[[nodiscard]] Var<T> attention(const Var<T>& q, const std::type_identity_t<Var<T>>& k,
                               const std::type_identity_t<Var<T>>& v, const AttentionMask& mask = {}) {
  detail::require_defined("attention", q, k, v);
  const auto rank = q.rank();
  if ((rank != 3 && rank != 4) || k.rank() != rank || v.rank() != rank) {
    throw ShapeError("attention",
                     {"query, key and value of shapes ", q.shape(), ", ", k.shape(), ", ", v.shape(),
                      " must all be (B, L, d) or all (B, H, L, d)"},
                     {q.shape(), k.shape(), v.shape()});
  }
  const index_t heads = rank == 4 ? q.dim(1) : 1;
  const bool fits = k.dim(0) == q.dim(0) && v.dim(0) == q.dim(0) && k.dim(-2) == v.dim(-2) &&
                    k.dim(-1) == q.dim(-1) && (rank == 3 || (k.dim(1) == heads && v.dim(1) == heads));
  if (!fits) {
    throw ShapeError("attention",
                     {"query, key and value of shapes ", q.shape(), ", ", k.shape(), ", ", v.shape(),
                      " must agree in batch and heads, key and value in length, query and key in width"},
                     {q.shape(), k.shape(), v.shape()});
  }
  const auto rows = [&](const Var<T>& x) {
    if (rank == 3) return x;
    return reshape(permute(x, {0, 2, 1, 3}), Shape{x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
  };
  const Var<T> y = attention(
      Context<T>::inference(), rows(q), rows(k), rows(v), SequenceLayout::padded(q.dim(0), q.dim(-2)),
      SequenceLayout::padded(k.dim(0), k.dim(-2)), mask, detail::AttentionOp{.heads = heads});
  if (rank == 3) return y;
  return permute(reshape(y, Shape{q.dim(0), q.dim(2), heads, v.dim(3)}), {0, 2, 1, 3});
}

/// The same for other operands.
template <class Q, class K, class V>
requires detail::Converted<Q, K, V>
[[nodiscard]] Var<element_t<Q>> attention(const Q& q, const K& k, const V& v,
                                          const AttentionMask& mask = {}) {
  return attention<element_t<Q>>(q, k, v, mask);
}

}  // namespace eigenformer
