#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/nn/seq2seq.hpp"

namespace eigenformer {

/// Runs a decoder token by token: keys and values of earlier tokens are kept, those of the memory computed once.
///
/// A *hypothesis* is a target sequence that grows. All hypotheses have the same length. Keys and values lie in one block
/// a layer, in the order they were made; which of them belong to a hypothesis is a table of row numbers, so that
/// reorder() copies numbers and never a key. The model must outlive it. For inference contexts.
template <class T>
class IncrementalDecoder {
 public:
  /// One hypothesis for each sequence of memory, or as memory.key_sequence says. Throws ValueError for a context that
  /// records and ShapeError for memory that does not fit the model.
  IncrementalDecoder(const Seq2SeqTransformer<T>& model, const Context<T>& ctx, const Memory<T>& memory)
      : model_(model), ctx_(ctx), memory_layout_(memory.layout), sequence_(memory.key_sequence) {
    if (ctx.records()) throw ValueError("incremental_decoder", "decoding needs an inference context");
    if (sequence_.empty()) {
      sequence_.resize(static_cast<std::size_t>(memory.layout.batch()));
      std::iota(sequence_.begin(), sequence_.end(), 0);
    }
    const auto& decoder = model.transformer.decoder;
    if (decoder.relative_bias) bias_ = (*decoder.relative_bias)(ctx);
    for (const auto& layer : decoder.layers) {
      memory_.push_back(layer.multihead_attn.project_key_value(ctx, memory.rows).value());
      cache_.emplace_back();
    }
  }

  index_t hypotheses() const noexcept { return static_cast<index_t>(sequence_.size()); }
  /// Tokens of each hypothesis so far.
  index_t length() const noexcept { return length_; }
  /// Numbers held for each token of a hypothesis: its keys and values in all layers.
  index_t cached_per_token() const noexcept {
    index_t sum = 0;
    for (const auto& layer : model_.transformer.decoder.layers) sum += 2 * layer.self_attn.options.key_width();
    return sum;
  }
  /// The sequence of memory that each hypothesis looks at.
  std::span<const std::int32_t> sequences() const noexcept { return sequence_; }

  /// Appends tokens to every hypothesis and returns the decoder's output for them: ids (H) or (H, n), returns
  /// (H n, D). maps, when given, receives the attention weights of every layer, (H, heads, n, length()) and
  /// (H, heads, n, S). Throws ShapeError for another number of hypotheses, IndexError for a token out of range.
  Var<T> step(const Tensor<std::int32_t>& ids, DecoderMaps<T>* maps = nullptr) {
    const index_t count = hypotheses();
    if ((ids.rank() != 1 && ids.rank() != 2) || ids.dim(0) != count) {
      throw ShapeError("incremental_decoder", "ids of shape " + ids.shape().str() + " must be (" +
                                                  std::to_string(count) + ") or (" + std::to_string(count) + ", n)",
                       {ids.shape()});
    }
    const index_t n = ids.rank() == 1 ? 1 : ids.dim(1);
    append_rows(n);
    const SequenceLayout queries =
        SequenceLayout::packed(std::vector<index_t>(static_cast<std::size_t>(count), n)).with_first_position(length_);
    const SequenceLayout keys = SequenceLayout::cached(
        std::vector<index_t>(static_cast<std::size_t>(count), length_ + n), capacity_);
    // Hypotheses side by side that look at one sentence are one sequence of queries to its memory, whose keys are then
    // made ready once for all of them; their order does not matter there.
    std::vector<index_t> memory_lengths;
    std::vector<std::int32_t> memory_sequence;
    for (const std::int32_t sequence : sequence_) {
      if (memory_sequence.empty() || memory_sequence.back() != sequence) {
        memory_sequence.push_back(sequence);
        memory_lengths.push_back(0);
      }
      memory_lengths.back() += n;
    }
    const SequenceLayout memory_queries = SequenceLayout::packed(memory_lengths);
    const AttentionMask causal = n == 1 ? AttentionMask::none() : AttentionMask::causal();

    Var<T> h = model_.embed_target(ctx_, ids.reshape(Shape{count * n}), queries);
    const auto& decoder = model_.transformer.decoder;
    if (maps != nullptr)
      *maps = {std::vector<Var<T>>(decoder.layers.size()), std::vector<Var<T>>(decoder.layers.size())};
    for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
      const auto& layer = decoder.layers[i];
      h = layer.with_attention(
          ctx_, h,
          [&](const Context<T>& c, const Var<T>& x) {
            return attend_self(c, layer.self_attn, cache_[i], x, queries, keys, causal,
                               maps == nullptr ? nullptr : &maps->target[i]);
          },
          [&](const Context<T>& c, const Var<T>& x) {
            const auto& attention = layer.multihead_attn;
            const Var<T> q = attention.project_query(c, x), kv = memory_[i];
            if (maps != nullptr) {
              maps->memory[i] = attention_weights(c, q, slice(kv, -1, 0, attention.options.key_width()), queries,
                                                  memory_layout_, {}, attention.attention_op(sequence_));
            }
            return attention.out_proj(c, cross_attention(c, q, kv, memory_queries, memory_layout_, {},
                                                         attention.attention_op(memory_sequence)));
          });
    }
    length_ += n;
    rows_ += count * n;
    return decoder.norm ? (*decoder.norm)(ctx_, h) : h;
  }

  /// Hypothesis i goes on from what was hypothesis parents[i]; their number may change. Throws IndexError for a parent
  /// that does not exist.
  void reorder(std::span<const std::int32_t> parents) {
    std::vector<index_t> table(parents.size() * static_cast<std::size_t>(capacity_));
    std::vector<std::int32_t> sequence(parents.size());
    for (std::size_t i = 0; i < parents.size(); ++i) {
      if (parents[i] < 0 || parents[i] >= hypotheses()) {
        throw IndexError("incremental_decoder", "parent " + std::to_string(parents[i]) + " does not exist, there are " +
                                                    std::to_string(hypotheses()) + " hypotheses");
      }
      const auto parent = static_cast<std::size_t>(parents[i]);
      std::copy_n(table_.begin() + static_cast<index_t>(parent) * capacity_, length_,
                  table.begin() + static_cast<index_t>(i) * capacity_);
      sequence[i] = sequence_[parent];
    }
    table_ = std::move(table);
    sequence_ = std::move(sequence);
  }

 private:
  // Row numbers for n more tokens of every hypothesis, in the order in which their keys will be written.
  void append_rows(index_t n) {
    const index_t count = hypotheses();
    if (length_ + n > capacity_) {
      const index_t wider = std::max<index_t>(length_ + n, std::max<index_t>(16, 2 * capacity_));
      std::vector<index_t> table(static_cast<std::size_t>(count * wider));
      for (index_t i = 0; i < count; ++i) {
        std::copy_n(table_.begin() + i * capacity_, length_, table.begin() + i * wider);
      }
      table_ = std::move(table);
      capacity_ = wider;
    }
    for (index_t i = 0; i < count; ++i) {
      for (index_t j = 0; j < n; ++j) table_[static_cast<std::size_t>(i * capacity_ + length_ + j)] = rows_ + i * n + j;
    }
  }

  Var<T> attend_self(const Context<T>& ctx, const MultiHeadAttention<T>& attention, Tensor<T>& cache, const Var<T>& x,
                     const SequenceLayout& queries, const SequenceLayout& keys, const AttentionMask& mask,
                     Var<T>* weights) {
    const ProjectedHeads<T> p = attention.project_self(ctx, x, queries);
    const index_t rows = x.shape().rows(), wide = attention.options.query_width(), side = attention.options.key_width();
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
    detail::AttentionSaved<T> saved("incremental_decoder", ctx, {q, 0, wide}, {cache, 0, side}, {cache, side, side},
                                    queries, keys, attention.windowed(mask), op,
                                    attention.relative_positions(ctx, bias_));
    saved.forward();
    if (weights != nullptr) {
      Tensor<T> w(Shape{queries.batch(), op.heads, queries.max_length(), keys.max_length()});
      kernels::attention_weights<T>(saved.problem(), saved.log_sum_exp.data(), w.data());
      *weights = Var<T>(std::move(w));
    }
    return attention.out_proj(ctx, Var<T>(saved.out.reshape(Shape{rows, wide})));
  }

  const Seq2SeqTransformer<T>& model_;
  Context<T> ctx_;
  SequenceLayout memory_layout_;
  std::vector<std::int32_t> sequence_;  // of memory, by hypothesis
  Var<T> bias_;                         // of the self-attentions, by distance
  std::vector<Tensor<T>> memory_;       // (rows of memory, 2 G head_dim) keys and values, by layer
  std::vector<Tensor<T>> cache_;        // (rows, 2 G head_dim) keys and values so far, by layer; rows beyond rows_ are spare
  std::vector<index_t> table_;          // (H, capacity_): the row of each token of each hypothesis
  index_t capacity_ = 0;
  index_t length_ = 0;
  index_t rows_ = 0;
};

}  // namespace eigenformer
