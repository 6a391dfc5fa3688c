#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/autograd/tape/operand.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/core/tensor/mask.hpp"
#include "eigenformer/kernels/attention/attention.hpp"
#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"

namespace eigenformer::detail {

/// Options of attention().
struct AttentionOp {
  index_t heads = 1;   ///< heads of queries, at least 1
  double scale = 0;    ///< factor of Q K^T; 0: 1 / sqrt(head dimension)
  double dropout = 0;  ///< rate of dropout of the weights, in training contexts
  /// The sequence of keys to which each sequence of queries attends (for example several beams share one
  /// source sentence); empty: sequence b attends to sequence b.
  std::vector<std::int32_t> key_sequence = {};
  /// Heads of keys and values, each for heads / key_value_heads consecutive heads of queries; 0: as many as
  /// heads.
  index_t key_value_heads = 0;
  /// One slope for each head: slope * |distance| is subtracted from the score of a query and a key (ALiBi,
  /// Press et al. 2022); empty: none.
  std::vector<double> slopes = {};
  /// The row of k and v that holds each row of the keys' layout (for beams that are re-ordered without
  /// copying); nullptr: the row of the same number. For inference; must outlive the call.
  const index_t* key_rows = nullptr;
  /// Changes the scores after scaling and after the terms by distance are added, before masks. The tape keeps
  /// a reference to it. Empty: none.
  ScoreRule rule = {};
};

/// Learned terms by distance, the key's position minus the query's, clamped to [-R, R]. Row or column c of 2R
/// + 1 belongs to distance c - R. Undefined Vars are ignored.
template <class T>
struct RelativePositions {
  Var<T> bias{};    ///< (H, 2R + 1), added to the scores (Raffel et al. 2020); not together with keys
  Var<T> keys{};    ///< (2R + 1, dk), added to the keys (Shaw et al. 2018, eq. 4)
  Var<T> values{};  ///< (2R + 1, dv), added to the values (Shaw et al. 2018, eq. 3)
};

/// Queries, keys or values, as an attention reads them: columns of a matrix, so that they may be parts of one
/// projection. A Var converts to all of its columns.
template <class T>
struct AttentionInput {
  Var<T> of;           ///< (..., columns)
  index_t column = 0;  ///< the first
  index_t width = 0;   ///< number of columns

  /// Undefined.
  AttentionInput() = default;
  /// All columns of x.
  AttentionInput(const Var<T>& x)  // NOLINT(google-explicit-constructor): a Var is one
      : of(x), width(x.defined() ? x.shape().cols() : 0) {}
  /// `count` columns of x, from `first` on.
  AttentionInput(const Var<T>& x, index_t first, index_t count) : of(x), column(first), width(count) {}

  /// The first column's element of row 0.
  const T* data() const { return of.value().data() + column; }
  /// Elements between rows.
  index_t stride() const { return of.shape().cols(); }
  /// The columns in a matrix of their own: (..., width).
  Var<T> alone() const { return width == stride() ? of : slice(of, -1, column, column + width); }
  /// The same columns as a constant, which a backward may keep.
  AttentionInput detach() const { return {of.detach(), column, width}; }
};

/// The inputs of an attention.
template <class T>
struct AttentionHeads {
  AttentionInput<T> q;  ///< queries (..., H dk)
  AttentionInput<T> k;  ///< keys (..., G dk)
  AttentionInput<T> v;  ///< values (..., G dv)

  /// Queries, keys and values side by side in qkv, (..., query_width + 2 w).
  static AttentionHeads side_by_side(const Var<T>& qkv, index_t query_width) {
    const index_t w = (qkv.shape().cols() - query_width) / 2;
    return {{qkv, 0, query_width}, {qkv, query_width, w}, {qkv, query_width + w, w}};
  }
  /// Queries in q, keys and values side by side in kv, (..., 2 w).
  static AttentionHeads side_by_side(const AttentionInput<T>& q, const Var<T>& kv) {
    const index_t w = kv.shape().cols() / 2;
    return {q, {kv, 0, w}, {kv, w, w}};
  }
};

// The slots of the gradients of RelativePositions.
template <class T>
struct RelativeSlots {
  GradientSlot<T> bias, keys, values;
};

// The data that the backward of an attention needs; small compared with the L x L weights, which are not
// stored.
template <class T>
struct AttentionSaved {
  AttentionInput<T> q, k, v;  // constants
  SequenceLayout queries, keys;
  AttentionMask mask;
  AttentionOp op;
  index_t head_dim = 0, value_dim = 0;
  DropoutKey dropout_key;
  Tensor<T> out, log_sum_exp;
  Tensor<T> slopes, bias, relative_keys, relative_values;
  index_t reach = 0;           // R of the last three
  Tensor<T> relative_scores;   // (rows, H, 2R + 1): queries times relative_keys
  Tensor<T> relative_weights;  // (rows, H, 2R + 1): each query's weights summed by distance

  AttentionSaved(const char* name, const Context<T>& ctx, const AttentionHeads<T>& heads,
                 const SequenceLayout& query_layout, const SequenceLayout& key_layout, const AttentionMask& m,
                 const AttentionOp& options, const RelativePositions<T>& relative)
      : q(heads.q.detach()),
        k(heads.k.detach()),
        v(heads.v.detach()),
        queries(query_layout),
        keys(key_layout),
        mask(m),
        op(options) {
    check_options(name);
    require_rows(name, "query", q, queries, op.heads);
    require_rows(name, "key", k, keys, op.key_value_heads);
    require_rows(name, "value", v, keys, op.key_value_heads);
    head_dim = q.width / op.heads;
    value_dim = v.width / op.key_value_heads;
    if (k.width / op.key_value_heads != head_dim) {
      throw ShapeError(name,
                       {"query of width ", q.width, " and key of width ", k.width, " must agree", in_heads()},
                       {q.of.shape(), k.of.shape()});
    }
    if (!op.key_sequence.empty() && static_cast<index_t>(op.key_sequence.size()) != queries.batch()) {
      throw ShapeError(name, {"key_sequence has ", op.key_sequence.size(), " entries, must have ",
                              queries.batch(), ", one for each sequence of queries"});
    }
    take_positions(name, relative);
    if (!ctx.drops()) op.dropout = 0;
    if (op.dropout > 0) dropout_key = ctx.next_dropout();
  }

  T scale() const {
    return static_cast<T>(op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<double>(head_dim)));
  }
  index_t entries() const { return 2 * reach + 1; }
  index_t out_width() const { return op.heads * value_dim; }

  kernels::AttentionProblem<T> problem() const {
    kernels::AttentionProblem<T> p;
    p.q = q.data();
    p.q_stride = q.stride();
    p.k = k.data();
    p.k_stride = k.stride();
    p.v = v.data();
    p.v_stride = v.stride();
    p.heads = op.heads;
    p.key_value_heads = op.key_value_heads;
    p.head_dim = head_dim;
    p.value_dim = value_dim;
    p.queries = &queries;
    p.keys = &keys;
    p.key_sequence = op.key_sequence.empty() ? nullptr : op.key_sequence.data();
    p.key_rows = op.key_rows;
    p.mask = &mask;
    if (slopes.defined()) p.distances.slopes = slopes.data();
    if (bias.defined() || relative_scores.defined()) {
      p.distances.bias = bias.defined() ? bias.data() : relative_scores.data();
      p.distances.reach = reach;
      p.distances.head_stride = entries();
      p.distances.row_stride = bias.defined() ? 0 : op.heads * entries();
    }
    p.rule = &op.rule;
    p.scale = scale();
    p.dropout_rate = op.dropout;
    p.dropout_key = dropout_key;
    return p;
  }

  // The result has the queries' shape: (B, Lq, ...) stays (B, Lq, ...). keep: the softmax's log_sum_exp, for
  // what reads the weights again.
  void forward(bool keep) {
    if (keep) log_sum_exp = Tensor<T>(Shape{op.heads, queries.rows()});
    out = Tensor<T>(q.of.shape().with(-1, out_width()));
    kernels::AttentionDistanceWeights<T> sums;
    if (relative_keys.defined()) score_relative_keys();
    if (relative_values.defined()) {
      relative_weights = Tensor<T>(Shape{queries.rows(), op.heads, entries()});
      sums = {relative_weights.data(), nullptr, reach};
    }
    kernels::attention_forward<T>(problem(), out.data(), out_width(), log_sum_exp.data(), sums);
    if (relative_values.defined()) {
      kernels::gemm<T>(false, false, queries.rows() * op.heads, value_dim, entries(), T(1),
                       relative_weights.data(), entries(), relative_values.data(), value_dim, T(1),
                       out.data(), value_dim);
    }
  }

  // The tensors that the backward reads if gradients of queries, of anything that scores depend on, and of
  // values are needed. It refers to members of this object.
  SavedTensors reads(bool of_queries, bool scores, bool values) const {
    SavedTensors tensors;
    if (!scores && !values) return tensors;
    tensors.add(q.of).add(bias).add_if(of_queries, relative_keys);
    if (k.of.value().data() != q.of.value().data()) tensors.add(k.of);
    if (v.of.value().data() != k.of.value().data()) tensors.add_if(scores, v.of);
    tensors.add_if(scores, out).add_if(scores, relative_values);
    for (const AttentionMask::Dense& dense : mask.dense_masks()) tensors.add(dense.flags).add(dense.bias);
    return tensors;
  }

  // The gradients of the learned terms by distance; `run` computes the others.
  //   a^K: scores S_ic = scale <q_i, a_c>, so dq_i += scale sum_c dS_ic a_c and da_c = scale sum_i dS_ic q_i;
  //   a^V: out_i = ... + sum_c W_ic a_c, so dW_ic = <dout_i, a_c> and da_c = sum_i W_ic dout_i.
  template <class Run>
  void backward_relative(const RelativeSlots<T>& slots, const Tensor<T>* dout,
                         kernels::AttentionGradients<T> gradients, Run&& run) const {
    const index_t rows = queries.rows(), h = op.heads, e = entries();
    Tensor<T> dscores, dweights;
    kernels::AttentionDistanceWeights<T> sums;
    const GradientSlot<T>& dkeys = slots.keys;
    if (bias.defined()) {
      gradients.dbias = slots.bias.data;
      gradients.dbias_beta = slots.bias.beta;
    } else if (relative_keys.defined()) {
      dscores = Tensor<T>(Shape{rows, h, e});
      gradients.dbias = dscores.data();
    }
    if (relative_values.defined() && dout != nullptr) {
      dweights = Tensor<T>(Shape{rows, h, e});
      kernels::gemm<T>(false, true, rows * h, e, value_dim, T(1), dout->data(), value_dim,
                       relative_values.data(), value_dim, T(0), dweights.data(), e);
      sums = {nullptr, dweights.data(), reach};
      if (const auto& dvalues = slots.values) {
        kernels::gemm<T>(true, false, e, value_dim, rows * h, T(1), relative_weights.data(), e, dout->data(),
                         value_dim, dvalues.beta, dvalues.data, value_dim);
      }
    }
    run(gradients, sums);
    if (!dscores.defined()) return;
    const Tensor<T> clean = dkeys ? queries_without_padding() : Tensor<T>();
    for (index_t i = 0; i < h; ++i) {
      const T* ds = dscores.data() + i * e;
      if (gradients.dq != nullptr) {
        kernels::gemm<T>(false, false, rows, head_dim, e, scale(), ds, h * e, relative_keys.data(), head_dim,
                         T(1), gradients.dq + i * head_dim, gradients.dq_stride);
      }
      if (dkeys) {
        kernels::gemm<T>(true, false, e, head_dim, rows, scale(), ds, h * e, clean.data() + i * head_dim,
                         h * head_dim, i == 0 ? dkeys.beta : T(1), dkeys.data, head_dim);
      }
    }
  }

  void backward(const Tensor<T>& dout, const RelativeSlots<T>& slots,
                const kernels::AttentionGradients<T>& gradients) const {
    const auto run = [&](const kernels::AttentionGradients<T>& wanted,
                         const kernels::AttentionDistanceWeights<T>& sums) {
      kernels::attention_backward<T>(problem(), out.data(), out_width(), dout.data(), out_width(),
                                     log_sum_exp.data(), wanted, sums);
    };
    backward_relative(slots, &dout, gradients, run);
  }

  void score_relative_keys() {
    const index_t e = entries();
    relative_scores = Tensor<T>(Shape{queries.rows(), op.heads, e});
    for (index_t h = 0; h < op.heads; ++h) {
      kernels::gemm<T>(false, true, queries.rows(), e, head_dim, scale(), q.data() + h * head_dim, q.stride(),
                       relative_keys.data(), head_dim, T(0), relative_scores.data() + h * e, op.heads * e);
    }
  }

 private:
  void check_options(const char* name) {
    if (op.heads < 1) throw ValueError(name, {"heads is ", op.heads, ", must be at least 1"});
    if (op.key_value_heads == 0) op.key_value_heads = op.heads;
    if (op.key_value_heads < 1 || op.heads % op.key_value_heads != 0) {
      throw ValueError(name, {"heads is ", op.heads, ", must be divisible by key_value_heads, which is ",
                              op.key_value_heads});
    }
    if (!std::isfinite(op.scale)) {
      throw ValueError(name, {"scale is ", op.scale, ", must be finite; 0 is 1 / sqrt(head width)"});
    }
    if (!(op.dropout >= 0 && op.dropout < 1)) {
      throw ValueError(name, {"dropout rate is ", op.dropout, ", must be in [0, 1)"});
    }
    if (!op.slopes.empty() && static_cast<index_t>(op.slopes.size()) != op.heads) {
      throw ValueError(name, {op.slopes.size(), " slopes given, must be ", op.heads, ", one for each head"});
    }
  }

  std::string in_heads() const {
    if (op.heads == op.key_value_heads) return "";
    return " in " + std::to_string(op.heads) + " and " + std::to_string(op.key_value_heads) + " heads";
  }

  void require_rows(const char* name, const char* what, const AttentionInput<T>& in,
                    const SequenceLayout& layout, index_t heads) const {
    const Shape& shape = in.of.shape();
    const bool elsewhere = op.key_rows != nullptr && &layout == &keys;
    if (shape.rank() < 2 || (shape.rows() != layout.rows() && !elsewhere)) {
      throw ShapeError(name,
                       {what, " of shape ", shape, " must have the ", layout.rows(), " rows of its layout"},
                       {shape});
    }
    if (in.column < 0 || in.column + in.width > in.stride()) {
      throw ShapeError(
          name, {what, " in columns ", in.column, " to ", in.column + in.width, " must be inside ", shape},
          {shape});
    }
    if (in.width < 1 || in.width % heads != 0) {
      throw ShapeError(name, {what, " of width ", in.width, " must divide into ", heads, " heads"}, {shape});
    }
  }

  void take_positions(const char* name, const RelativePositions<T>& relative) {
    if (!op.slopes.empty()) {
      slopes = Tensor<T>(Shape{op.heads});
      for (index_t h = 0; h < op.heads; ++h)
        slopes.data()[h] = static_cast<T>(op.slopes[static_cast<std::size_t>(h)]);
    }
    if (relative.bias.defined() && relative.keys.defined())
      throw ValueError(name, "both a relative bias and relative keys are given, expected only one of them");
    index_t count = 0;
    const auto take = [&](const char* what, const Var<T>& x, index_t axis, index_t other, Tensor<T>& to) {
      require_defined_or_absent(name, x);
      if (!x.defined()) return;
      if (count == 0 && x.rank() == 2) count = x.dim(axis);
      if (x.rank() != 2 || x.dim(1 - axis) != other || x.dim(axis) != count || count % 2 == 0 || count < 3) {
        const std::string distances = "2 R + 1 distances for R of 1 or more";
        throw ShapeError(name,
                         {what, " by distance of shape ", x.shape(), " must be ",
                          (axis == 1 ? "(" + std::to_string(other) + " heads, " + distances + ")"
                                     : "(" + distances + ", " + std::to_string(other) + ")")},
                         {x.shape()});
      }
      to = x.value();
    };
    take("bias", relative.bias, 1, op.heads, bias);
    take("keys", relative.keys, 0, head_dim, relative_keys);
    take("values", relative.values, 0, value_dim, relative_values);
    reach = count / 2;
  }

  // A copy of the queries with zeros in rows of padding, which may be NaN: 0 * NaN must not reach the
  // gradients.
  Tensor<T> queries_without_padding() const {
    const index_t rows = queries.rows(), width = q.width;
    Tensor<T> clean = Tensor<T>::zeros(Shape{rows, width});
    for (index_t b = 0; b < queries.batch(); ++b) {
      for (index_t r = queries.offset(b); r < queries.offset(b) + queries.length(b); ++r)
        std::copy_n(q.data() + r * q.stride(), width, clean.data() + r * width);
    }
    return clean;
  }
};

}  // namespace eigenformer::detail
