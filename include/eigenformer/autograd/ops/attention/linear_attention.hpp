#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/attention/attention_saved.hpp"
#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/autograd/ops/elementwise/compare.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/runtime/profiler.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/mask.hpp"
#include "eigenformer/kernels/sequence/linear_attention.hpp"
#include "eigenformer/kernels/sequence/recurrence.hpp"

namespace eigenformer {

namespace detail {

/// Options of linear_attention().
struct LinearAttentionOp {
  index_t heads = 1;  ///< at least 1
  bool causal =
      false;  ///< each query attends to the keys up to its own position; both must have the same layout
  /// The sequence of keys to which each sequence of queries attends; empty: sequence b attends to sequence b.
  std::vector<std::int32_t> key_sequence{};
  /// (rows of keys): whether queries attend to each key; undefined: to all. Values of excluded keys, even
  /// NaN, have no effect.
  Tensor<bool> admitted{};
};

// The data that the backward of a linear attention needs: features and values, and the output.
template <class T>
struct LinearAttentionSaved {
  Tensor<T> q, k, v, out;
  SequenceLayout queries, keys;
  LinearAttentionOp op;

  // Throws ShapeError and ValueError for what does not fit.
  void check() const {
    const auto refuse = [](const char* what, const Tensor<T>& x, const std::string& rule) {
      throw ShapeError("linear_attention", {what, " of shape ", x.shape(), " must have ", rule}, {x.shape()});
    };
    if (op.heads < 1) {
      throw ValueError("linear_attention", {"heads is ", op.heads, ", must be positive"});
    }
    const auto rows = [&](const char* what, const Tensor<T>& x, const SequenceLayout& layout) {
      if (x.rank() < 2 || x.shape().rows() != layout.rows()) {
        refuse(what, x, "the " + std::to_string(layout.rows()) + " rows of its layout");
      }
      if (x.dim(-1) % op.heads != 0)
        refuse(what, x, "features for each of " + std::to_string(op.heads) + " heads");
    };
    rows("queries", q, queries);
    rows("keys", k, keys);
    rows("values", v, keys);
    if (q.dim(-1) != k.dim(-1))
      refuse("keys", k, "as many features as the queries, " + std::to_string(q.dim(-1)));
    if (op.causal && (queries != keys || !op.key_sequence.empty())) {
      throw ValueError(
          "linear_attention",
          "causal attention needs queries and keys of the same sequences: one layout, and no key_sequence");
    }
    if (op.key_sequence.empty() && queries.batch() != keys.batch()) {
      throw ShapeError("linear_attention", {queries.batch(), " sequences of queries and ", keys.batch(),
                                            " of keys, must be equal without a key_sequence"});
    }
    if (!op.key_sequence.empty() && static_cast<index_t>(op.key_sequence.size()) != queries.batch()) {
      throw ValueError("linear_attention", "key_sequence must have one entry for each sequence of queries");
    }
    if (op.admitted.defined() && op.admitted.shape() != Shape{keys.rows()}) {
      throw ShapeError("linear_attention",
                       {"admitted keys of shape ", op.admitted.shape(), " must be ", Shape{keys.rows()}.str(),
                        ", one for each row of keys"},
                       {op.admitted.shape()});
    }
    for (const std::int32_t b : op.key_sequence) {
      if (b >= 0 && b < keys.batch()) continue;
      throw ValueError("linear_attention",
                       {"key_sequence has ", b, ", but there are ", keys.batch(), " sequences of keys"});
    }
  }

  kernels::AttentionProblem<T> problem() const {
    kernels::AttentionProblem<T> p;
    p.q = q.data();
    p.q_stride = q.dim(-1);
    p.k = k.data();
    p.k_stride = k.dim(-1);
    p.v = v.data();
    p.v_stride = v.dim(-1);
    p.heads = op.heads;
    p.head_dim = q.dim(-1) / op.heads;
    p.value_dim = v.dim(-1) / op.heads;
    p.queries = &queries;
    p.keys = &keys;
    p.key_sequence = op.key_sequence.empty() ? nullptr : op.key_sequence.data();
    return p;
  }
};

/// LinearAttentionOp::admitted for a mask; undefined if the mask excludes no key. Since weights are not
/// computed, a mask may be causal and may depend on the key (AttentionMask::key_padding, of bools or of
/// floats 0 and -infinity). Throws ValueError for any other mask.
inline Tensor<bool> admitted_keys(const AttentionMask& mask, const SequenceLayout& keys) {
  bool other = mask.left() != AttentionMask::unlimited || mask.has_rules() ||
               (mask.right() != AttentionMask::unlimited && mask.right() != 0);
  for (const AttentionMask::Dense& dense : mask.dense_masks()) other = other || !dense.keyed;
  if (other) {
    throw ValueError("linear_attention",
                     "linear attention supports only the masks causal() and key_padding(); other windows, "
                     "prefixes, documents and dense masks need attention weights, which it never computes");
  }
  if (mask.dense_masks().empty()) return {};
  Tensor<bool> admitted = Tensor<bool>::full(Shape{keys.rows()}, true);
  for (const AttentionMask::Dense& dense : mask.dense_masks()) {
    for (index_t b = 0; b < keys.batch(); ++b) {
      const index_t start = b * AttentionMask::strides(dense).b + keys.leading(b);
      for (index_t j = 0; j < keys.length(b); ++j) {
        bool& here = admitted.data()[keys.offset(b) + j];
        if (dense.kind != AttentionMask::Kind::additive) {
          here = here && dense.flags.data()[start + j] == (dense.kind == AttentionMask::Kind::allow);
        } else if (const float x = dense.bias.data()[start + j];
                   x == -std::numeric_limits<float>::infinity()) {
          here = false;
        } else if (x != 0) {
          throw ValueError("linear_attention",
                           {"key padding is ", x,
                            ", must be 0 or -infinity: linear attention has no scores to add it to"});
        }
      }
    }
  }
  return admitted;
}

}  // namespace detail

/// Attention in which the weight of a query and a key is the product of their features f(x) = elu(x) + 1:
/// time and memory are linear in the length. Katharopoulos et al. 2020.
///
/// out = sum over keys of <f(q), f(k)> v / (sum of <f(q), f(k)> + 1e-6), for each head. q, k: (rows, H dh) or
/// (B, L, H dh), v: (rows, H dv), with rows as in the layouts. Returns q's shape with H dv features,
/// zeros for queries without keys. Throws ShapeError when shapes or layouts do not fit, ValueError for
/// invalid options.
template <class T>
[[nodiscard]] Var<T> linear_attention(const Var<T>& q, const Var<T>& k, const Var<T>& v,
                                      const SequenceLayout& queries, const SequenceLayout& keys,
                                      const detail::LinearAttentionOp& op = {}) {
  detail::require_defined("linear_attention", q, k, v);
  detail::require_defined_or_absent("linear_attention", op.admitted);
  detail::LinearAttentionSaved<T> saved{q.value(), k.value(), v.value(), Tensor<T>(), queries, keys, op};
  saved.check();
  const auto admitted = [&](const Var<T>& x, T other) {
    return op.admitted.defined() ? where(op.admitted.reshape(x.shape().with(-1, 1)), x, other) : x;
  };
  // The features of keys that are not admitted are exp(-infinity): zeros, which add nothing to either sum.
  const Var<T> query_features = elu_plus_one(q),
               key_features = elu_plus_one(admitted(k, -std::numeric_limits<T>::infinity())),
               values = admitted(v, T(0));
  const OpScope scope = detail::scope_of("linear_attention");
  saved.q = query_features.value();
  saved.k = key_features.value();
  saved.v = values.value();
  saved.out = Tensor<T>(q.shape().with(-1, v.dim(-1)));
  const detail::kernels::AttentionProblem<T> p = saved.problem();
  Tensor<T> state = Tensor<T>::zeros(
      Shape{keys.batch(), p.heads, detail::kernels::linear_attention_state_size(p.head_dim, p.value_dim)});
  if (!op.causal) detail::kernels::linear_attention_accumulate<T>(p, state.data());
  detail::kernels::linear_attention_forward<T>(p, op.causal, state.data(), saved.out.data(), v.dim(-1));
  if (detail::not_recorded(saved.out, query_features, key_features, values)) return saved.out;
  return record(
      "linear_attention", saved.out, {query_features, key_features, values},
      SavedTensors().add_if(q.recorded() || k.recorded(), v).add_if(q.recorded() || k.recorded(), saved.out),
      [saved](Backward<T>& b) {
        const detail::kernels::AttentionProblem<T> problem = saved.problem();
        const auto dq = b.grad(0), dk = b.grad(1), dv = b.grad(2);
        detail::kernels::linear_attention_backward<T>(problem, saved.op.causal, saved.out.data(),
                                                      b.dy().data(), saved.v.dim(-1),
                                                      {.dq = dq.data,
                                                       .dq_stride = problem.q_stride,
                                                       .dq_beta = dq.beta,
                                                       .dk = dk.data,
                                                       .dk_stride = problem.k_stride,
                                                       .dk_beta = dk.beta,
                                                       .dv = dv.data,
                                                       .dv_stride = problem.v_stride,
                                                       .dv_beta = dv.beta});
      });
}

/// The same for other operands.
template <class Q, class K, class V>
requires detail::Converted<Q, K, V>
[[nodiscard]] Var<element_t<Q>> linear_attention(const Q& q, const K& k, const V& v,
                                                 const SequenceLayout& queries, const SequenceLayout& keys,
                                                 const detail::LinearAttentionOp& op = {}) {
  return linear_attention<element_t<Q>>(q, k, v, queries, keys, op);
}

namespace detail {

// The features of columns, in a matrix of their own.
template <class T>
Tensor<T> linear_features(const AttentionInput<T>& x) {
  Tensor<T> y(x.of.shape().with(-1, x.width));
  kernels::activation_tile<T>(Activation::elu_plus_one, x.data(), x.stride(), y.data(), x.width,
                              y.shape().rows(), x.width);
  return y;
}

// Of equally wide queries, keys and values.
template <class T>
kernels::AttentionProblem<T> linear_problem(index_t width, index_t heads) {
  kernels::AttentionProblem<T> p;
  p.heads = heads;
  p.head_dim = p.value_dim = width / heads;
  p.q_stride = p.k_stride = width;
  return p;
}

template <class T>
Tensor<T> linear_state(index_t sequences, const kernels::AttentionProblem<T>& p) {
  return Tensor<T>::zeros(
      Shape{sequences, p.heads * kernels::linear_attention_state_size(p.head_dim, p.value_dim)});
}

/// The sums of linear attention over the keys of each sequence, (sequences, H * numbers), for
/// linear_attention_step(). k, v: columns with rows as in `keys`, equally wide. Nothing is recorded.
template <class T>
Tensor<T> linear_attention_state(const AttentionInput<T>& k, const AttentionInput<T>& v,
                                 const SequenceLayout& keys, index_t heads) {
  kernels::AttentionProblem<T> p = linear_problem<T>(k.width, heads);
  const Tensor<T> features = linear_features(k);
  p.k = features.data();
  p.v = v.data();
  p.v_stride = v.stride();
  p.keys = &keys;
  Tensor<T> state = linear_state(keys.batch(), p);
  kernels::linear_attention_accumulate<T>(p, state.data());
  return state;
}

/// Linear attention of new queries to what a state has summed up, for decoding. x.k and x.v, if they are
/// defined, are added to the sums, each row before its query reads them; an undefined state begins with
/// zeros. Otherwise the queries of sequence b read the sums of sequence key_sequence[b]. Queries, keys and
/// values have rows as in the layout and are equally wide. Returns (rows, width). Nothing is recorded.
template <class T>
Var<T> linear_attention_step(const AttentionHeads<T>& x, const SequenceLayout& layout, index_t heads,
                             const std::vector<std::int32_t>& key_sequence, Tensor<T>& state) {
  kernels::AttentionProblem<T> p = linear_problem<T>(x.q.width, heads);
  const Tensor<T> queries = linear_features(x.q);
  p.q = queries.data();
  p.queries = p.keys = &layout;
  Tensor<T> out(queries.shape());
  if (!x.k.of.defined()) {
    p.key_sequence = key_sequence.data();
    kernels::linear_attention_forward<T>(p, false, state.data(), out.data(), x.q.width);
    return Var<T>(std::move(out));
  }
  const Tensor<T> keys = linear_features(x.k);
  p.k = keys.data();
  p.v = x.v.data();
  p.v_stride = x.v.stride();
  if (!state.defined()) state = linear_state(layout.batch(), p);
  kernels::linear_attention_forward<T>(p, true, state.data(), out.data(), x.q.width);
  return Var<T>(std::move(out));
}

}  // namespace detail

/// c[t] = forget[t] * c[t - 1] + (1 - forget[t]) * input[t] along every sequence, for each feature, from c =
/// 0: the state of an SSRU (Kim et al. 2019). forget (in [0, 1]), input: (rows, D) or (B, L, D), with rows as
/// in the layout. Returns the same shape, zeros in rows of padding. Throws ShapeError when shapes do not fit.
template <class T>
[[nodiscard]] Var<T> recurrence(const Var<T>& forget, const Var<T>& input, const SequenceLayout& layout) {
  const OpScope scope = detail::scope_of("recurrence", forget, input);
  if (forget.rank() < 2 || forget.shape() != input.shape() || forget.shape().rows() != layout.rows()) {
    throw ShapeError("recurrence",
                     {"forget gates of shape ", forget.shape(), " and inputs of shape ", input.shape(),
                      " must have the same shape, of ", layout.rows(), " rows"},
                     {forget.shape(), input.shape()});
  }
  const index_t d = forget.dim(-1);
  const bool padded = layout.tokens() != layout.rows();
  Tensor<T> c = padded ? Tensor<T>::zeros(forget.shape()) : Tensor<T>(forget.shape());
  const Tensor<T> f = forget.value(), x = input.value();
  detail::kernels::recurrence_forward<T>(f.data(), x.data(), layout.offsets(), layout.lengths(), d, nullptr,
                                         c.data());
  // With g[t] = dc[t] + f[t + 1] g[t + 1]: df[t] = (c[t - 1] - x[t]) g[t], dx[t] = (1 - f[t]) g[t].
  return record("recurrence", c, {forget, input}, SavedTensors().add(forget).add(input).add(c),
                [f, x, c, layout, d, padded](Backward<T>& b) {
                  const detail::SeparateSlots<T> slots(b, 0, 2);
                  const auto &df = slots[0], &dx = slots[1];
                  for (const auto& slot : {df, dx}) {
                    if (slot && padded) slot.start_sum();
                  }
                  detail::kernels::recurrence_backward<T>(
                      f.data(), x.data(), c.data(), b.dy().data(), layout.offsets(), layout.lengths(), d,
                      {.forget = df.data, .forget_beta = df.beta, .input = dx.data, .input_beta = dx.beta});
                  slots.add_up();
                });
}

/// The same for other operands.
template <class F, class X>
requires detail::Converted<F, X>
[[nodiscard]] Var<element_t<F>> recurrence(const F& forget, const X& input, const SequenceLayout& layout) {
  return recurrence<element_t<F>>(forget, input, layout);
}

}  // namespace eigenformer
