#pragma once

#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/context.hpp"
#include "eigenformer/autograd/ops/shape.hpp"
#include "eigenformer/core/layout.hpp"
#include "eigenformer/core/mask.hpp"
#include "eigenformer/kernels/attention.hpp"
#include "eigenformer/kernels/elementwise.hpp"

namespace eigenformer {

/// How an attention op splits and scales its inputs.
struct AttentionOp {
  index_t heads = 1;
  double scale = 0;    ///< of the scores; 0: 1 / sqrt(head dimension)
  double dropout = 0;  ///< of the weights, in training contexts
  /// Which sequence of keys each sequence of queries looks at (several beams, one memory); empty: its own number.
  std::vector<std::int32_t> key_sequence = {};
};

namespace detail {

// Columns [column, column + width) of a (rows, ...) Var: q, k or v, alone or in a fused projection.
template <class T>
struct AttentionInput {
  Tensor<T> value;
  index_t column = 0;
  index_t width = 0;

  index_t stride() const { return value.shape().cols(); }
  const T* data() const { return value.data() + column; }
};

// Everything an attention needs again in its backward; small beside the L x L weights, which are never stored.
template <class T>
struct AttentionSaved {
  AttentionInput<T> q, k, v;
  SequenceLayout queries, keys;
  AttentionMask mask;
  AttentionOp op;
  double dropout_rate = 0;
  DropoutKey dropout_key;
  Tensor<T> out, log_sum_exp;

  AttentionSaved(const char* name, const Context<T>& ctx, AttentionInput<T> query, AttentionInput<T> key,
                 AttentionInput<T> value, const SequenceLayout& query_layout, const SequenceLayout& key_layout,
                 const AttentionMask& m, const AttentionOp& options)
      : q(std::move(query)), k(std::move(key)), v(std::move(value)), queries(query_layout), keys(key_layout), mask(m),
        op(options) {
    if (op.heads < 1) throw ValueError(name, "heads is " + std::to_string(op.heads) + ", must be at least 1");
    if (!(op.dropout >= 0 && op.dropout < 1)) {
      throw ValueError(name, "dropout rate is " + std::to_string(op.dropout) + ", must be in [0, 1)");
    }
    const auto require_rows = [&](const char* what, const AttentionInput<T>& in, const SequenceLayout& layout) {
      if (in.value.rank() < 2 || in.value.shape().rows() != layout.rows()) {
        throw ShapeError(name, std::string(what) + " of shape " + in.value.shape().str() + " must have the " +
                                   std::to_string(layout.rows()) + " rows of its layout", {in.value.shape()});
      }
      if (in.width < 1 || in.width % op.heads != 0) {
        throw ShapeError(name, std::string(what) + " of width " + std::to_string(in.width) +
                                   " must divide into " + std::to_string(op.heads) + " heads", {in.value.shape()});
      }
    };
    require_rows("query", q, queries);
    require_rows("key", k, keys);
    require_rows("value", v, keys);
    if (q.width != k.width) {
      throw ShapeError(name, "query of width " + std::to_string(q.width) + " and key of width " +
                                 std::to_string(k.width) + " must agree", {q.value.shape(), k.value.shape()});
    }
    if (!op.key_sequence.empty() && static_cast<index_t>(op.key_sequence.size()) != queries.batch()) {
      throw ShapeError(name, "key_sequence has " + std::to_string(op.key_sequence.size()) + " entries, must have " +
                                 std::to_string(queries.batch()) + ", one for each sequence of queries");
    }
    if (ctx.drops() && op.dropout > 0) {
      dropout_rate = op.dropout;
      dropout_key = ctx.next_dropout();
    }
    log_sum_exp = Tensor<T>(Shape{op.heads, queries.rows()});
  }


  kernels::AttentionProblem<T> problem() const {
    kernels::AttentionProblem<T> p;
    p.q = q.data();
    p.q_stride = q.stride();
    p.k = k.data();
    p.k_stride = k.stride();
    p.v = v.data();
    p.v_stride = v.stride();
    p.heads = op.heads;
    p.head_dim = q.width / op.heads;
    p.value_dim = v.width / op.heads;
    p.queries = &queries;
    p.keys = &keys;
    p.key_sequence = op.key_sequence.empty() ? nullptr : op.key_sequence.data();
    p.mask = &mask;
    p.scale = static_cast<T>(op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<double>(p.head_dim)));
    p.dropout_rate = static_cast<T>(dropout_rate);
    p.dropout_key = dropout_key;
    return p;
  }

  // The result has the queries' shape: (B, Lq, ...) stays (B, Lq, ...).
  void forward() {
    out = Tensor<T>(q.value.shape().with(-1, v.width));
    kernels::attention_forward<T>(problem(), out.data(), v.width, log_sum_exp.data());
  }

  void backward(const Tensor<T>& dout, const kernels::AttentionGradients<T>& gradients) const {
    kernels::attention_backward<T>(problem(), out.data(), v.width, dout.data(), v.width,
                                   log_sum_exp.data(), gradients);
  }
};

// The kernels write several gradients in one pass, so each needs memory of its own: when one Var is several inputs, the
// later slots get scratch, which add_up() adds to the place that was meant.
template <class T>
class SeparateSlots {
 public:
  SeparateSlots(std::initializer_list<GradientSlot<T>> slots) : wanted_(slots), slots_(slots) {
    for (std::size_t i = 1; i < slots_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (!wanted_[i] || wanted_[i].data != wanted_[j].data) continue;
        scratch_.emplace_back(slots_[i].shape);
        slots_[i].data = scratch_.back().data();
        slots_[i].beta = T(0);
        break;
      }
    }
  }
  const GradientSlot<T>& operator[](std::size_t i) const { return slots_[i]; }
  void add_up() const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].data == wanted_[i].data) continue;
      kernels::axpby<T>(T(1), slots_[i].data, T(1), wanted_[i].data, slots_[i].shape.numel());
    }
  }

 private:
  std::vector<GradientSlot<T>> wanted_, slots_;
  std::vector<Tensor<T>> scratch_;
};

template <class T>
AttentionInput<T> whole_input(const Var<T>& x) {
  return {x.value(), 0, x.shape().cols()};
}

}  // namespace detail

/// Multi-head scaled dot-product attention: softmax(scale Q K^T + mask) V for each sequence and head, without ever
/// holding the weights (Vaswani et al. 2017, eq. 1; Dao et al. 2022).
///
/// q: (Nq, H dk) or (B, Lq, H dk), its rows laid out as `queries` says; k: (Nk, H dk), v: (Nk, H dv) likewise with `keys`.
/// Returns (Nq, H dv) or (B, Lq, H dv). A query with nothing to attend to gives zeros and gets zero gradients.
/// Throws ShapeError when widths, rows or the mask do not fit.
template <class T>
[[nodiscard]] Var<T> attention(const Context<T>& ctx, const Var<T>& q, const Var<T>& k, const Var<T>& v,
                               const SequenceLayout& queries, const SequenceLayout& keys, const AttentionMask& mask,
                               const AttentionOp& op) {
  const OpScope scope(Runtime::instance().profiler(), "attention");
  detail::AttentionSaved<T> saved("attention", ctx, detail::whole_input(q), detail::whole_input(k),
                                  detail::whole_input(v), queries, keys, mask, op);
  saved.forward();
  // With P the weights: dV = P^T dO, dS = P * (dO V^T - rowsum(dO * O)), dQ = scale dS K, dK = scale dS^T Q.
  return record("attention", saved.out, {q, k, v}, [saved](Backward<T>& b) {
    const detail::SeparateSlots<T> d{b.grad(0), b.grad(1), b.grad(2)};
    saved.backward(b.dy(), {.dq = d[0].data, .dq_stride = saved.q.stride(), .dq_beta = d[0].beta,
                            .dk = d[1].data, .dk_stride = saved.k.stride(), .dk_beta = d[1].beta,
                            .dv = d[2].data, .dv_stride = saved.v.stride(), .dv_beta = d[2].beta});
    d.add_up();
  });
}

/// attention() of a fused projection with itself. qkv: (..., 3D), queries, keys and values side by side.
/// Returns (..., D).
template <class T>
[[nodiscard]] Var<T> self_attention(const Context<T>& ctx, const Var<T>& qkv, const SequenceLayout& layout,
                                    const AttentionMask& mask, const AttentionOp& op) {
  const OpScope scope(Runtime::instance().profiler(), "self_attention");
  const index_t width = qkv.shape().cols() / 3;
  if (qkv.shape().cols() != 3 * width) {
    throw ShapeError("self_attention", "fused projection of shape " + qkv.shape().str() +
                                           " must have three times the model's width", {qkv.shape()});
  }
  detail::AttentionSaved<T> saved("self_attention", ctx, {qkv.value(), 0, width}, {qkv.value(), width, width},
                                  {qkv.value(), 2 * width, width}, layout, layout, mask, op);
  saved.forward();
  return record("self_attention", saved.out, {qkv}, [saved, width](Backward<T>& b) {
    const auto d = b.grad(0);
    const index_t stride = 3 * width;
    saved.backward(b.dy(), {.dq = d.data, .dq_stride = stride, .dq_beta = d.beta,
                            .dk = d.data + width, .dk_stride = stride, .dk_beta = d.beta,
                            .dv = d.data + 2 * width, .dv_stride = stride, .dv_beta = d.beta});
  });
}

/// attention() with fused keys and values. q: (..., D); kv: (..., 2D), keys and values side by side. Returns (..., D).
template <class T>
[[nodiscard]] Var<T> cross_attention(const Context<T>& ctx, const Var<T>& q, const Var<T>& kv,
                                     const SequenceLayout& queries, const SequenceLayout& keys,
                                     const AttentionMask& mask, const AttentionOp& op) {
  const OpScope scope(Runtime::instance().profiler(), "cross_attention");
  const index_t width = kv.shape().cols() / 2;
  if (kv.shape().cols() != 2 * width) {
    throw ShapeError("cross_attention", "fused projection of shape " + kv.shape().str() +
                                            " must have twice the model's width", {kv.shape()});
  }
  detail::AttentionSaved<T> saved("cross_attention", ctx, detail::whole_input(q), {kv.value(), 0, width},
                                  {kv.value(), width, width}, queries, keys, mask, op);
  saved.forward();
  return record("cross_attention", saved.out, {q, kv}, [saved, width](Backward<T>& b) {
    const auto dq = b.grad(0), d = b.grad(1);
    const index_t stride = 2 * width;
    saved.backward(b.dy(), {.dq = dq.data, .dq_stride = saved.q.stride(), .dq_beta = dq.beta,
                            .dk = d.data, .dk_stride = stride, .dk_beta = d.beta,
                            .dv = d ? d.data + width : nullptr, .dv_stride = stride, .dv_beta = d.beta});
  });
}

/// The weights themselves, before dropout: (B, H, Lq, Lk), zero outside the sequences. Differentiable; this is the one
/// attention op that holds a matrix of Lq x Lk. q: (..., H dk), k: (..., H dk). Throws as attention does.
template <class T>
[[nodiscard]] Var<T> attention_weights(const Context<T>& ctx, const Var<T>& q, const Var<T>& k,
                                       const SequenceLayout& queries, const SequenceLayout& keys,
                                       const AttentionMask& mask, AttentionOp op) {
  const OpScope scope(Runtime::instance().profiler(), "attention_weights");
  op.dropout = 0;
  detail::AttentionSaved<T> saved("attention_weights", ctx, detail::whole_input(q), detail::whole_input(k),
                                  detail::whole_input(k), queries, keys, mask, op);
  saved.forward();
  saved.out = Tensor<T>();
  Tensor<T> weights(Shape{queries.batch(), op.heads, queries.max_length(), keys.max_length()});
  kernels::attention_weights<T>(saved.problem(), saved.log_sum_exp.data(), weights.data());
  // dS = P * (dP - rowsum(dP * P)), dQ = scale dS K, dK = scale dS^T Q.
  return record("attention_weights", weights, {q, k}, [saved, weights](Backward<T>& b) {
    const detail::SeparateSlots<T> d{b.grad(0), b.grad(1)};
    kernels::attention_weights_backward<T>(
        saved.problem(), weights.data(), b.dy().data(),
        {.dq = d[0].data, .dq_stride = saved.q.stride(), .dq_beta = d[0].beta, .dk = d[1].data,
         .dk_stride = saved.k.stride(), .dk_beta = d[1].beta, .dv = nullptr, .dv_stride = 0, .dv_beta = T(0)});
    d.add_up();
  });
}

/// Attention as a plain function. q: (B, H, Lq, dk) or (B, Lq, dk), k: (..., Lk, dk), v: (..., Lk, dv). Returns
/// (B, H, Lq, dv) or (B, Lq, dv). Throws ShapeError when ranks, batches, heads or widths differ.
template <class T>
[[nodiscard]] Var<T> attention(const Var<T>& q, const std::type_identity_t<Var<T>>& k,
                               const std::type_identity_t<Var<T>>& v, const AttentionMask& mask = {}) {
  const auto rank = q.rank();
  if ((rank != 3 && rank != 4) || k.rank() != rank || v.rank() != rank) {
    throw ShapeError("attention", "query, key and value of shapes " + q.shape().str() + ", " + k.shape().str() + ", " +
                                      v.shape().str() + " must all be (B, L, d) or all (B, H, L, d)",
                     {q.shape(), k.shape(), v.shape()});
  }
  const index_t heads = rank == 4 ? q.dim(1) : 1;
  const bool fits = k.dim(0) == q.dim(0) && v.dim(0) == q.dim(0) && k.dim(-2) == v.dim(-2) &&
                    k.dim(-1) == q.dim(-1) && (rank == 3 || (k.dim(1) == heads && v.dim(1) == heads));
  if (!fits) {
    throw ShapeError("attention", "batch, heads, keys or widths of shapes " + q.shape().str() + ", " + k.shape().str() +
                                      ", " + v.shape().str() + " differ", {q.shape(), k.shape(), v.shape()});
  }
  const auto rows = [&](const Var<T>& x) {
    if (rank == 3) return x;
    return reshape(permute(x, {0, 2, 1, 3}), Shape{x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
  };
  const Var<T> y = attention(Context<T>::inference(), rows(q), rows(k), rows(v),
                             SequenceLayout::padded(q.dim(0), q.dim(-2)), SequenceLayout::padded(k.dim(0), k.dim(-2)),
                             mask, AttentionOp{.heads = heads});
  if (rank == 3) return y;
  return permute(reshape(y, Shape{q.dim(0), q.dim(2), heads, v.dim(3)}), {0, 2, 1, 3});
}

}  // namespace eigenformer
