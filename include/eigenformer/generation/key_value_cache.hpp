#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/kernels/linear_attention.hpp"
#include "eigenformer/nn/attention.hpp"

namespace eigenformer {

/// The keys and values of sequences that grow, for each layer of a decoder; of linear attention a state of constant size.
///
/// They lie in one block a layer, in the order they were made; which of them belong to a sequence is a table of row
/// numbers, so that reorder() copies numbers and never a key. Sequences may have different lengths. A step is begin(),
/// attend() for each layer, and commit().
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

  /// A layer's causal self-attention for the new rows x: (rows, D). Returns (rows, D).
  Var<T> attend(const Context<T>& ctx, std::size_t layer, const MultiHeadAttention<T>& attention, const Var<T>& x) {
    const Var<T> qkv = attention.project_query_key_value(ctx, x);
    const index_t rows = qkv.dim(0), d = qkv.dim(1) / 3;
    if (attention.linear_kind()) return attend_linear(ctx, states_[layer], attention, qkv.value());
    Tensor<T>& cache = cache_[layer];
    if (!cache.defined() || rows_ + rows > cache.dim(0)) {
      Tensor<T> larger(Shape{std::max(rows_ + rows, 2 * rows_ + 8 * rows), 2 * d});
      if (cache.defined()) std::copy_n(cache.data(), rows_ * 2 * d, larger.data());
      cache = std::move(larger);
    }
    for (index_t r = 0; r < rows; ++r) {
      std::copy_n(qkv.value().data() + r * 3 * d + d, 2 * d, cache.data() + (rows_ + r) * 2 * d);
    }
    kernels::AttentionProblem<T> p;
    p.q = qkv.value().data();
    p.q_stride = 3 * d;
    p.k = cache.data();
    p.v = cache.data() + d;
    p.k_stride = p.v_stride = 2 * d;
    p.heads = attention.options.num_heads;
    p.head_dim = p.value_dim = d / p.heads;
    p.queries = &queries_;
    p.keys = &keys_;
    p.key_rows = table_.data();
    p.mask = &mask_;
    p.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(p.head_dim)));
    Tensor<T> out(Shape{rows, d});
    kernels::attention_forward<T>(p, out.data(), d, nullptr);
    return attention.out_proj(ctx, Var<T>(std::move(out)));
  }

  /// Ends a step: the new tokens belong to their sequences.
  void commit() {
    for (std::size_t i = 0; i < lengths_.size(); ++i) lengths_[i] += queries_.length(static_cast<index_t>(i));
    rows_ += queries_.rows();
  }

  /// Sequence i goes on from what was sequence parents[i]; their number may change. Throws IndexError for a parent that
  /// does not exist.
  void reorder(std::span<const std::int32_t> parents) {
    std::vector<index_t> table(parents.size() * static_cast<std::size_t>(capacity_));
    std::vector<index_t> lengths(parents.size());
    for (std::size_t i = 0; i < parents.size(); ++i) {
      if (parents[i] < 0 || parents[i] >= sequences()) {
        throw IndexError("key_value_cache", "parent " + std::to_string(parents[i]) + " does not exist, there are " +
                                                std::to_string(sequences()) + " sequences");
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
  // qkv: (rows, 3 D). The state goes on by these rows.
  Var<T> attend_linear(const Context<T>& ctx, Tensor<T>& state, const MultiHeadAttention<T>& attention,
                       const Tensor<T>& qkv) const {
    const index_t rows = qkv.dim(0), d = qkv.dim(1) / 3, heads = attention.options.num_heads;
    Tensor<T> features(Shape{rows, 2 * d});
    kernels::activation_tile<T>(Activation::elu_plus_one, qkv.data(), 3 * d, nullptr, nullptr, features.data(), 2 * d,
                                rows, 2 * d);
    kernels::AttentionProblem<T> p;
    p.q = features.data();
    p.k = features.data() + d;
    p.v = qkv.data() + 2 * d;
    p.q_stride = p.k_stride = 2 * d;
    p.v_stride = 3 * d;
    p.heads = heads;
    p.head_dim = p.value_dim = d / heads;
    p.queries = p.keys = &queries_;
    const index_t size = heads * kernels::linear_attention_state_size(p.head_dim, p.value_dim);
    if (!state.defined()) state = Tensor<T>::zeros(Shape{sequences(), size});
    Tensor<T> out(Shape{rows, d});
    kernels::linear_attention_causal<T>(p, state.data(), out.data(), d);
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

  std::vector<Tensor<T>> cache_;  // (rows, 2 D) keys and values so far, by layer; more rows than rows_ are spare
  std::vector<Tensor<T>> states_;  // (sequences, heads * state) of linear attention, by layer
  std::vector<index_t> lengths_;  // by sequence
  std::vector<index_t> table_;    // (sequences, capacity_): the row of each token of each sequence
  index_t capacity_ = 0;
  index_t rows_ = 0;
  SequenceLayout queries_, keys_;  // of the step under way
  AttentionMask mask_;
};

}  // namespace eigenformer
