#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/kernels/linear_attention.hpp"
#include "eigenformer/nn/attention.hpp"

namespace eigenformer {

/// The keys and values of sequences that grow, for each layer of a decoder; of linear attention a state of
/// constant size.
///
/// They lie in one block a layer, in the order they were made; which of them belong to a sequence is a table
/// of row numbers, so that reorder() copies numbers and never a key. Sequences may have different lengths. A
/// step is begin(), attend() for each layer, and commit().
template <class T>
class KeyValueCache {
 public:
  KeyValueCache(std::size_t layers, index_t sequences)
      : cache_(layers), states_(layers), lengths_(static_cast<std::size_t>(sequences), 0) {}

  index_t sequences() const noexcept { return static_cast<index_t>(lengths_.size()); }
  /// Tokens of each sequence so far.
  std::span<const index_t> lengths() const noexcept { return lengths_; }

  /// Makes room for counts[i] more tokens of sequence i. Returns the layout of their rows, packed.
  const SequenceLayout& begin(std::span<const index_t> counts) {
    std::vector<index_t> total(lengths_);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += counts[i];
    grow(total.empty() ? 0 : *std::max_element(total.begin(), total.end()));
    index_t row = rows_;
    for (std::size_t i = 0; i < total.size(); ++i) {
      index_t* const to = table_.data() + static_cast<index_t>(i) * capacity_;
      for (index_t t = lengths_[i]; t < total[i]; ++t) to[t] = row++;
    }
    queries_ = SequenceLayout::packed(counts).with_first_position(lengths_);
    keys_ = SequenceLayout::cached(total, capacity_);
    // A single new token sees all there is.
    const bool single = std::all_of(counts.begin(), counts.end(), [](index_t n) { return n <= 1; });
    mask_ = single ? AttentionMask::none() : AttentionMask::causal();
    return queries_;
  }

  /// A layer's causal self-attention for the new rows x: (rows, D). bias: (heads, 2 R + 1), added to the
  /// scores by distance. weights, when given, receives the attention's weights (sequences, heads, n, longest
  /// sequence). Returns (rows, D).
  Var<T> attend(const Context<T>& ctx, std::size_t layer, const MultiHeadAttention<T>& attention,
                const Var<T>& x, const Var<T>& bias = {}, Var<T>* weights = nullptr) {
    const ProjectedHeads<T> p = attention.project_self(ctx, x, queries_);
    if (attention.linear_kind()) {
      if (weights != nullptr) throw ValueError("key_value_cache", "linear attention has no weights to show");
      return attend_linear(ctx, states_[layer], attention, p);
    }
    const index_t rows = x.shape().rows(), wide = attention.options.query_width(),
                  side = attention.options.key_width();
    Tensor<T>& cache = cache_[layer];
    if (!cache.defined() || rows_ + rows > cache.dim(0)) {
      Tensor<T> larger(Shape{std::max(rows_ + rows, 2 * rows_ + 8 * rows), 2 * side});
      if (cache.defined()) std::copy_n(cache.data(), rows_ * 2 * side, larger.data());
      cache = std::move(larger);
    }
    for (index_t r = 0; r < rows; ++r) {
      T* const to = cache.data() + (rows_ + r) * 2 * side;
      if (p.fused.defined()) {
        std::copy_n(p.fused.value().data() + r * (wide + 2 * side) + wide, 2 * side, to);
      } else {
        std::copy_n(p.k.value().data() + r * side, side, to);
        std::copy_n(p.v.value().data() + r * side, side, to + side);
      }
    }
    AttentionOp op = attention.attention_op();
    op.key_rows = table_.data();
    const Tensor<T>& q = p.fused.defined() ? p.fused.value() : p.q.value();
    detail::AttentionSaved<T> saved("key_value_cache", ctx, {q, 0, wide}, {cache, 0, side},
                                    {cache, side, side}, queries_, keys_, attention.windowed(mask_), op,
                                    attention.relative_positions(ctx, bias));
    saved.forward();
    if (weights != nullptr) {
      Tensor<T> w(Shape{queries_.batch(), op.heads, queries_.max_length(), keys_.max_length()});
      kernels::attention_weights<T>(saved.problem(), saved.log_sum_exp.data(), w.data());
      *weights = Var<T>(std::move(w));
    }
    return attention.out_proj(ctx, Var<T>(saved.out.reshape(Shape{rows, wide})));
  }

  /// Ends a step: the new tokens belong to their sequences.
  void commit() {
    for (std::size_t i = 0; i < lengths_.size(); ++i) lengths_[i] += queries_.length(static_cast<index_t>(i));
    rows_ += queries_.rows();
  }

  /// Sequence i goes on from what was sequence parents[i]; their number may change. Throws IndexError for a
  /// parent that does not exist.
  void reorder(std::span<const std::int32_t> parents) {
    std::vector<index_t> table(parents.size() * static_cast<std::size_t>(capacity_));
    std::vector<index_t> lengths(parents.size());
    for (std::size_t i = 0; i < parents.size(); ++i) {
      if (parents[i] < 0 || parents[i] >= sequences()) {
        throw IndexError("key_value_cache", "parent " + std::to_string(parents[i]) +
                                                " does not exist, there are " + std::to_string(sequences()) +
                                                " sequences");
      }
      const auto parent = static_cast<std::size_t>(parents[i]);
      lengths[i] = lengths_[parent];
      std::copy_n(table_.begin() + static_cast<index_t>(parent) * capacity_, lengths[i],
                  table.begin() + static_cast<index_t>(i) * capacity_);
    }
    for (Tensor<T>& state : states_) {
      if (!state.defined()) continue;
      Tensor<T> moved(state.shape().with(0, static_cast<index_t>(parents.size())));
      const index_t size = state.dim(1);
      for (std::size_t i = 0; i < parents.size(); ++i) {
        std::copy_n(state.data() + parents[i] * size, size, moved.data() + static_cast<index_t>(i) * size);
      }
      state = std::move(moved);
    }
    table_ = std::move(table);
    lengths_ = std::move(lengths);
  }

 private:
  // The state goes on by the new rows.
  Var<T> attend_linear(const Context<T>& ctx, Tensor<T>& state, const MultiHeadAttention<T>& attention,
                       const ProjectedHeads<T>& heads) const {
    const index_t rows = queries_.rows(), width = attention.options.query_width();
    // Queries, keys and values where they are: side by side, or in matrices of their own.
    const Tensor<T>& first = heads.fused.defined() ? heads.fused.value() : heads.q.value();
    const index_t stride = first.dim(-1);
    const T* const k = heads.fused.defined() ? first.data() + width : heads.k.value().data();
    const T* const v = heads.fused.defined() ? first.data() + 2 * width : heads.v.value().data();
    const T* const none = nullptr;
    Tensor<T> features(Shape{2, rows, width});
    T* const key_features = features.data() + rows * width;
    kernels::activation_tile<T>(Activation::elu_plus_one, first.data(), stride, none, nullptr,
                                features.data(), width, rows, width);
    kernels::activation_tile<T>(Activation::elu_plus_one, k, stride, none, nullptr, key_features, width, rows,
                                width);
    kernels::AttentionProblem<T> p;
    p.q = features.data();
    p.k = key_features;
    p.v = v;
    p.q_stride = p.k_stride = width;
    p.v_stride = stride;
    p.heads = attention.options.num_heads;
    p.head_dim = p.value_dim = width / p.heads;
    p.queries = p.keys = &queries_;
    const index_t size = p.heads * kernels::linear_attention_state_size(p.head_dim, p.value_dim);
    if (!state.defined()) state = Tensor<T>::zeros(Shape{sequences(), size});
    Tensor<T> out(Shape{rows, width});
    kernels::linear_attention_causal<T>(p, state.data(), out.data(), width);
    return attention.out_proj(ctx, Var<T>(std::move(out)));
  }

  void grow(index_t length) {
    if (length <= capacity_) return;
    const index_t wider = std::max<index_t>(length, std::max<index_t>(16, 2 * capacity_));
    std::vector<index_t> table(lengths_.size() * static_cast<std::size_t>(wider));
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      std::copy_n(table_.begin() + static_cast<index_t>(i) * capacity_, lengths_[i],
                  table.begin() + static_cast<index_t>(i) * wider);
    }
    table_ = std::move(table);
    capacity_ = wider;
  }

  std::vector<Tensor<T>>
      cache_;  // (rows, 2 D) keys and values so far, by layer; more rows than rows_ are spare
  std::vector<Tensor<T>> states_;  // (sequences, heads * state) of linear attention, by layer
  std::vector<index_t> lengths_;   // by sequence
  std::vector<index_t> table_;     // (sequences, capacity_): the row of each token of each sequence
  index_t capacity_ = 0;
  index_t rows_ = 0;
  SequenceLayout queries_, keys_;  // of the step under way
  AttentionMask mask_;
};

EIGENFORMER_INSTANCES(class KeyValueCache)

}  // namespace eigenformer
