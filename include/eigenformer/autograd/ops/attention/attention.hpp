#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/attention/attention_saved.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"

namespace eigenformer {

/// Multi-head scaled dot-product attention: softmax(scale Q K^T + mask) V for each sequence and head, without
/// storing the weights (Vaswani et al. 2017, eq. 1; Dao et al. 2022).
///
/// q: (Nq, H dk) or (B, Lq, H dk), with rows as in the layout `queries`; k: (Nk, G dk), v: (Nk, G dv), with
/// rows as in `keys`, for G = op.key_value_heads, or H if that is 0. Returns (Nq, H dv) or (B, Lq, H dv). The
/// terms by distance of `op` and `relative` are added to scores, keys and values. A query that may attend to
/// nothing has an output and gradients of zero. Throws ShapeError when widths, rows or the mask do not fit,
/// ValueError for invalid options.
template <class T>
[[nodiscard]] Var<T> attention(const Context<T>& ctx, const std::type_identity_t<Var<T>>& q,
                               const std::type_identity_t<Var<T>>& k, const std::type_identity_t<Var<T>>& v,
                               const SequenceLayout& queries, const SequenceLayout& keys,
                               const AttentionMask& mask, const AttentionOp& op,
                               const std::type_identity_t<RelativePositions<T>>& relative = {}) {
  const OpScope scope(Runtime::instance().profiler(), "attention");
  detail::require_defined("attention", q, k, v);
  detail::AttentionSaved<T> saved("attention", ctx, detail::whole_input(q), detail::whole_input(k),
                                  detail::whole_input(v), queries, keys, mask, op, relative);
  saved.forward();
  if (detail::not_recorded<T>(saved.out, q, k, v, relative.bias, relative.keys, relative.values))
    return Var<T>(std::move(saved.out));
  // With P the weights: dV = P^T dO, dS = P * (dO V^T - rowsum(dO * O)), dQ = scale dS K, dK = scale dS^T Q.
  return record("attention", saved.out, {q, k, v, relative.bias, relative.keys, relative.values},
                saved.reads(q.recorded(), q.recorded() || k.recorded() || detail::learns_scores(relative),
                            v.recorded()),
                [saved](Backward<T>& b) {
                  const SeparateSlots<T> d(b, 0, 6);
                  saved.backward(b.dy(), {d[3], d[4], d[5]},
                                 {.dq = d[0].data,
                                  .dq_stride = saved.q.stride(),
                                  .dq_beta = d[0].beta,
                                  .dk = d[1].data,
                                  .dk_stride = saved.k.stride(),
                                  .dk_beta = d[1].beta,
                                  .dv = d[2].data,
                                  .dv_stride = saved.v.stride(),
                                  .dv_beta = d[2].beta});
                  d.add_up();
                });
}

/// attention() with fused queries, keys and values. qkv: (..., (H + 2 G) dk), the heads of queries, then
/// those of keys and of values, G = op.key_value_heads or H. Returns (..., H dk). Throws as attention(), and
/// ShapeError when the width of qkv does not divide.
template <class T>
[[nodiscard]] Var<T> self_attention(const Context<T>& ctx, const std::type_identity_t<Var<T>>& qkv,
                                    const SequenceLayout& layout, const AttentionMask& mask,
                                    const AttentionOp& op,
                                    const std::type_identity_t<RelativePositions<T>>& relative = {}) {
  const OpScope scope(Runtime::instance().profiler(), "self_attention");
  detail::require_defined("self_attention", qkv);
  const index_t key_heads = op.key_value_heads == 0 ? op.heads : op.key_value_heads;
  const index_t heads = op.heads + 2 * key_heads, total = qkv.shape().cols();
  // Without groups, the check of attention() reports the heads into which a third cannot be divided.
  const index_t parts = key_heads == op.heads ? 3 : heads;
  if (parts < 1 || total % parts != 0) {
    throw ShapeError("self_attention",
                     "fused projection of shape " + qkv.shape().str() +
                         (parts == 3 ? " must have three times the model's width"
                                     : " must divide into " + std::to_string(heads) + " heads"),
                     {qkv.shape()});
  }
  const index_t width = parts == 3 ? total / 3 : total / heads * op.heads, side = (total - width) / 2;
  detail::AttentionSaved<T> saved("self_attention", ctx, {qkv.value(), 0, width}, {qkv.value(), width, side},
                                  {qkv.value(), width + side, side}, layout, layout, mask, op, relative);
  saved.forward();
  if (detail::not_recorded<T>(saved.out, qkv, relative.bias, relative.keys, relative.values))
    return Var<T>(std::move(saved.out));
  return record(
      "self_attention", saved.out, {qkv, relative.bias, relative.keys, relative.values},
      saved.reads(qkv.recorded(), qkv.recorded() || detail::learns_scores(relative), qkv.recorded()),
      [saved, width, side, total](Backward<T>& b) {
        // If the projection needs no gradient, the learned positions may still need theirs.
        const SeparateSlots<T> slots(b, 0, 4);
        const auto& d = slots[0];
        const auto part = [&](index_t column) { return d ? d.data + column : nullptr; };
        saved.backward(b.dy(), {slots[1], slots[2], slots[3]},
                       {.dq = part(0),
                        .dq_stride = total,
                        .dq_beta = d.beta,
                        .dk = part(width),
                        .dk_stride = total,
                        .dk_beta = d.beta,
                        .dv = part(width + side),
                        .dv_stride = total,
                        .dv_beta = d.beta});
        slots.add_up();
      });
}

/// attention() with fused keys and values. q: (..., H dk); kv: (..., 2 G dk), the heads of keys, then those
/// of values. Returns (..., H dk). Throws as attention(), and ShapeError for an odd width of kv.
template <class T>
[[nodiscard]] Var<T> cross_attention(const Context<T>& ctx, const std::type_identity_t<Var<T>>& q,
                                     const std::type_identity_t<Var<T>>& kv, const SequenceLayout& queries,
                                     const SequenceLayout& keys, const AttentionMask& mask,
                                     const AttentionOp& op,
                                     const std::type_identity_t<RelativePositions<T>>& relative = {}) {
  const OpScope scope(Runtime::instance().profiler(), "cross_attention");
  detail::require_defined("cross_attention", q, kv);
  const index_t width = kv.shape().cols() / 2;
  if (kv.shape().cols() != 2 * width) {
    throw ShapeError("cross_attention",
                     "fused projection of shape " + kv.shape().str() + " must have twice the model's width",
                     {kv.shape()});
  }
  detail::AttentionSaved<T> saved("cross_attention", ctx, detail::whole_input(q), {kv.value(), 0, width},
                                  {kv.value(), width, width}, queries, keys, mask, op, relative);
  saved.forward();
  if (detail::not_recorded<T>(saved.out, q, kv, relative.bias, relative.keys, relative.values))
    return Var<T>(std::move(saved.out));
  return record("cross_attention", saved.out, {q, kv, relative.bias, relative.keys, relative.values},
                saved.reads(q.recorded(), q.recorded() || kv.recorded() || detail::learns_scores(relative),
                            kv.recorded()),
                [saved, width](Backward<T>& b) {
                  const SeparateSlots<T> slots(b, 0, 5);
                  const auto &dq = slots[0], &d = slots[1];
                  const index_t stride = 2 * width;
                  saved.backward(b.dy(), {slots[2], slots[3], slots[4]},
                                 {.dq = dq.data,
                                  .dq_stride = saved.q.stride(),
                                  .dq_beta = dq.beta,
                                  .dk = d.data,
                                  .dk_stride = stride,
                                  .dk_beta = d.beta,
                                  .dv = d ? d.data + width : nullptr,
                                  .dv_stride = stride,
                                  .dv_beta = d.beta});
                  slots.add_up();
                });
}

/// The attention weights, before dropout: (B, H, Lq, Lk), zero outside the sequences. Differentiable; the
/// only attention op that stores Lq x Lk numbers. q: (..., H dk), k: (..., G dk). Throws as attention().
template <class T>
[[nodiscard]] Var<T> attention_weights(const Context<T>& ctx, const std::type_identity_t<Var<T>>& q,
                                       const std::type_identity_t<Var<T>>& k, const SequenceLayout& queries,
                                       const SequenceLayout& keys, const AttentionMask& mask, AttentionOp op,
                                       std::type_identity_t<RelativePositions<T>> relative = {}) {
  const OpScope scope(Runtime::instance().profiler(), "attention_weights");
  detail::require_defined("attention_weights", q, k);
  op.dropout = 0;
  relative.values = Var<T>();
  detail::AttentionSaved<T> saved("attention_weights", ctx, detail::whole_input(q), detail::whole_input(k),
                                  detail::whole_input(k), queries, keys, mask, op, relative);
  saved.forward();
  saved.out = Tensor<T>();
  Tensor<T> weights(Shape{queries.batch(), op.heads, queries.max_length(), keys.max_length()});
  kernels::attention_weights<T>(saved.problem(), saved.log_sum_exp.data(), weights.data());
  if (detail::not_recorded<T>(weights, q, k, relative.bias, relative.keys)) return Var<T>(std::move(weights));
  // dS = P * (dP - rowsum(dP * P)), dQ = scale dS K, dK = scale dS^T Q.
  return record("attention_weights", weights, {q, k, relative.bias, relative.keys},
                saved.reads(q.recorded(), true, false).add(weights), [saved, weights](Backward<T>& b) {
                  const SeparateSlots<T> d(b, 0, 4);
                  const kernels::AttentionGradients<T> gradients{.dq = d[0].data,
                                                                 .dq_stride = saved.q.stride(),
                                                                 .dq_beta = d[0].beta,
                                                                 .dk = d[1].data,
                                                                 .dk_stride = saved.k.stride(),
                                                                 .dk_beta = d[1].beta,
                                                                 .dv = nullptr,
                                                                 .dv_stride = 0,
                                                                 .dv_beta = T(0)};
                  const auto run = [&](const kernels::AttentionGradients<T>& wanted, const auto&) {
                    kernels::attention_weights_backward<T>(saved.problem(), weights.data(), b.dy().data(),
                                                           wanted);
                  };
                  saved.backward_relative({d[2], d[3], {}}, nullptr, gradients, run);
                  d.add_up();
                });
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
                     "query, key and value of shapes " + q.shape().str() + ", " + k.shape().str() + ", " +
                         v.shape().str() + " must all be (B, L, d) or all (B, H, L, d)",
                     {q.shape(), k.shape(), v.shape()});
  }
  const index_t heads = rank == 4 ? q.dim(1) : 1;
  const bool fits = k.dim(0) == q.dim(0) && v.dim(0) == q.dim(0) && k.dim(-2) == v.dim(-2) &&
                    k.dim(-1) == q.dim(-1) && (rank == 3 || (k.dim(1) == heads && v.dim(1) == heads));
  if (!fits) {
    throw ShapeError("attention",
                     "query, key and value of shapes " + q.shape().str() + ", " + k.shape().str() + ", " +
                         v.shape().str() +
                         " must agree in batch and heads, key and value in length, query and key in width",
                     {q.shape(), k.shape(), v.shape()});
  }
  const auto rows = [&](const Var<T>& x) {
    if (rank == 3) return x;
    return reshape(permute(x, {0, 2, 1, 3}), Shape{x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
  };
  const Var<T> y = attention(Context<T>::inference(), rows(q), rows(k), rows(v),
                             SequenceLayout::padded(q.dim(0), q.dim(-2)),
                             SequenceLayout::padded(k.dim(0), k.dim(-2)), mask, AttentionOp{.heads = heads});
  if (rank == 3) return y;
  return permute(reshape(y, Shape{q.dim(0), q.dim(2), heads, v.dim(3)}), {0, 2, 1, 3});
}

/// The same for other operands.
template <class Q, class K, class V>
requires detail::Converted<Q, K, V>
[[nodiscard]] Var<element_t<Q>> attention(const Q& q, const K& k, const V& v,
                                          const AttentionMask& mask = {}) {
  using T = element_t<Q>;
  return attention(detail::operand<T>(q), detail::operand<T>(k), detail::operand<T>(v), mask);
}

}  // namespace eigenformer
