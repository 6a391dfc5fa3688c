#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/generation/decoding/key_value_cache.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"

namespace eigenformer {

/// Runs a decoder token by token: keys and values of earlier tokens are kept, those of the memory computed
/// once.
///
/// A *hypothesis* is a target sequence that grows. All hypotheses have the same length. Keys and values are
/// held as KeyValueCache says, so that reorder() copies numbers and never a key. The model must outlive it.
/// For inference contexts.
template <class T>
class IncrementalDecoder {
 public:
  /// One hypothesis for each sequence of memory, or as memory.key_sequence says. Throws ValueError for a
  /// context that records and ShapeError for memory that does not fit the model.
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
      const Tensor<T> both = layer.multihead_attn.project_key_value(ctx, memory.rows).value();
      memory_.push_back(layer.multihead_attn.linear_kind() ? linear_memory(layer.multihead_attn, both)
                                                           : both);
    }
    cache_ = KeyValueCache<T>(decoder.layers.size(), hypotheses(), attention_reach(decoder.layers));
  }

  index_t hypotheses() const noexcept { return static_cast<index_t>(sequence_.size()); }
  /// Tokens of each hypothesis so far.
  index_t length() const noexcept { return length_; }
  /// Numbers held for each token of a hypothesis, as long as it is within a window's reach: its keys and
  /// values in all layers.
  index_t cached_per_token() const noexcept {
    index_t sum = 0;
    for (const auto& layer : model_.transformer.decoder.layers) {
      if (!layer.self_attn.linear_kind()) sum += 2 * layer.self_attn.options.key_width();
    }
    return sum;
  }
  /// Bytes of the keys and values of all hypotheses; with windows their length does not matter.
  std::size_t cache_bytes() const noexcept { return cache_.bytes(); }
  /// The sequence of memory that each hypothesis looks at.
  std::span<const std::int32_t> sequences() const noexcept { return sequence_; }

  /// Appends tokens to every hypothesis and returns the decoder's output for them: ids (H) or (H, n), returns
  /// (H n, D). maps, when given, receives the attention weights of every layer, (H, heads, n, length()) and
  /// (H, heads, n, S). prefix: the first tokens of all hypotheses that see one another in both directions,
  /// which must come in the first step. Throws ShapeError for another number of hypotheses, IndexError for a
  /// token out of range, ValueError for a prefix that does not come in one step.
  Var<T> step(const Tensor<std::int32_t>& ids, DecoderMaps<T>* maps = nullptr, index_t prefix = 0) {
    const index_t count = hypotheses();
    if ((ids.rank() != 1 && ids.rank() != 2) || ids.dim(0) != count) {
      throw ShapeError("incremental_decoder",
                       "ids of shape " + ids.shape().str() + " must be (" + std::to_string(count) + ") or (" +
                           std::to_string(count) + ", n)",
                       {ids.shape()});
    }
    const index_t n = ids.rank() == 1 ? 1 : ids.dim(1);
    const auto each = [&](index_t x) { return std::vector<index_t>(static_cast<std::size_t>(count), x); };
    const SequenceLayout& queries =
        cache_.begin(each(n), prefix == 0 ? std::vector<index_t>() : each(prefix));
    // Hypotheses side by side that look at one sentence are one sequence of queries to its memory, whose keys
    // are then made ready once for all of them; their order does not matter there.
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

    Var<T> h = model_.embed_target(ctx_, ids.reshape(Shape{count * n}), queries);
    const auto& decoder = model_.transformer.decoder;
    if (maps != nullptr)
      *maps = {std::vector<Var<T>>(decoder.layers.size()), std::vector<Var<T>>(decoder.layers.size())};
    for (std::size_t i = 0; i < decoder.layers.size(); ++i) {
      const auto& layer = decoder.layers[i];
      h = layer.with_attention(
          ctx_, h,
          [&](const Context<T>& c, const Var<T>& x) {
            return cache_.attend(c, i, layer.self_attn, x, bias_,
                                 maps == nullptr ? nullptr : &maps->target[i]);
          },
          [&](const Context<T>& c, const Var<T>& x) {
            const auto& attention = layer.multihead_attn;
            const Var<T> q = attention.project_query(c, x), kv = memory_[i];
            if (attention.linear_kind()) {
              return attend_linear_memory(c, attention, q.value(), kv.value(), memory_queries,
                                          memory_sequence);
            }
            if (maps != nullptr) {
              maps->memory[i] =
                  attention_weights(c, q, slice(kv, -1, 0, attention.options.key_width()), queries,
                                    memory_layout_, {}, attention.attention_op(sequence_));
            }
            return attention.out_proj(c, cross_attention(c, q, kv, memory_queries, memory_layout_, {},
                                                         attention.attention_op(memory_sequence)));
          });
    }
    cache_.commit();
    length_ += n;
    return decoder.norm ? (*decoder.norm)(ctx_, h) : h;
  }

  /// Hypothesis i goes on from what was hypothesis parents[i]; their number may change. Throws IndexError for
  /// a parent that does not exist.
  void reorder(std::span<const std::int32_t> parents) {
    std::vector<std::int32_t> sequence(parents.size());
    for (std::size_t i = 0; i < parents.size(); ++i) {
      if (parents[i] < 0 || parents[i] >= hypotheses()) {
        throw IndexError("incremental_decoder", "parent " + std::to_string(parents[i]) +
                                                    " does not exist, there are " +
                                                    std::to_string(hypotheses()) + " hypotheses");
      }
      sequence[i] = sequence_[static_cast<std::size_t>(parents[i])];
    }
    cache_.reorder(parents);
    sequence_ = std::move(sequence);
  }

 private:
  // The problem that queries have with a memory of linear attention, as far as both sides know it.
  kernels::AttentionProblem<T> linear_problem(const MultiHeadAttention<T>& attention) const {
    kernels::AttentionProblem<T> p;
    p.heads = attention.options.num_heads;
    p.head_dim = p.value_dim = attention.options.head_features();
    p.q_stride = p.k_stride = attention.options.query_width();
    p.keys = &memory_layout_;
    return p;
  }

  // What linear attention needs of the memory, whose keys and values are given: (sequences, heads * state).
  Tensor<T> linear_memory(const MultiHeadAttention<T>& attention, const Tensor<T>& both) const {
    kernels::AttentionProblem<T> p = linear_problem(attention);
    const index_t rows = memory_layout_.rows(), width = p.k_stride;
    Tensor<T> features(Shape{rows, width});
    const T* const none = nullptr;
    kernels::activation_tile<T>(Activation::elu_plus_one, both.data(), 2 * width, none, nullptr,
                                features.data(), width, rows, width);
    p.k = features.data();
    p.v = both.data() + width;
    p.v_stride = 2 * width;
    Tensor<T> state = Tensor<T>::zeros(Shape{
        memory_layout_.batch(), p.heads * kernels::linear_attention_state_size(p.head_dim, p.value_dim)});
    kernels::linear_attention_accumulate<T>(p, state.data());
    return state;
  }

  Var<T> attend_linear_memory(const Context<T>& ctx, const MultiHeadAttention<T>& attention,
                              const Tensor<T>& q, const Tensor<T>& state, const SequenceLayout& queries,
                              const std::vector<std::int32_t>& key_sequence) const {
    kernels::AttentionProblem<T> p = linear_problem(attention);
    Tensor<T> features(q.shape()), out(q.shape());
    kernels::activation_forward<T>(Activation::elu_plus_one, q.data(), features.data(), q.numel());
    p.q = features.data();
    p.queries = &queries;
    p.key_sequence = key_sequence.data();
    kernels::linear_attention_apply<T>(p, state.data(), out.data(), p.q_stride);
    return attention.out_proj(ctx, Var<T>(std::move(out)));
  }

  const Seq2SeqTransformer<T>& model_;
  Context<T> ctx_;
  SequenceLayout memory_layout_;
  std::vector<std::int32_t> sequence_;  // of memory, by hypothesis
  Var<T> bias_;                         // of the self-attentions, by distance
  std::vector<Tensor<T>>
      memory_;  // by layer: (rows of memory, 2 G head_dim) keys and values, or linear_memory()
  KeyValueCache<T> cache_{0, 0};  // of the self-attentions
  index_t length_ = 0;
};

EIGENFORMER_INSTANCES(class IncrementalDecoder)

}  // namespace eigenformer
