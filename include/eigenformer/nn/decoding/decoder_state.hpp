#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/nn/decoding/key_value_cache.hpp"
#include "eigenformer/nn/stacks/pass.hpp"

namespace eigenformer {

/// The pass of decoding: new tokens, whose predecessors and memories are cached. For inference contexts; used
/// by DecoderState. A step is begin(), the layers' calls and commit(); every step must make the same calls in
/// the same order.
template <class T>
class CachedPass final : public LayerPass<T> {
 public:
  /// `sequences` without tokens; each memory is for all of them. Throws ValueError unless
  /// memory.key_sequence, or if that is empty the memory's layout, has one sequence for each.
  CachedPass(index_t sequences, std::vector<Memory<T>> memories) : cache_(sequences) {
    for (Memory<T>& memory : memories) {
      if (memory.key_sequence.empty()) {
        memory.key_sequence.resize(static_cast<std::size_t>(memory.layout.batch()));
        std::iota(memory.key_sequence.begin(), memory.key_sequence.end(), 0);
      }
      if (static_cast<index_t>(memory.key_sequence.size()) != sequences) {
        throw ValueError("decoder_state", {"a memory is for ", memory.key_sequence.size(),
                                           " sequences, must be for ", sequences});
      }
      memories_.push_back({std::move(memory)});
    }
  }

  /// Begins a step of counts[i] new tokens of sequence i, whose layout is layout(). prefix as in
  /// KeyValueCache::begin. maps, if not null, receives the weights of every attention and must outlive the
  /// step. Throws as KeyValueCache::begin does.
  void begin(std::span<const index_t> counts, const std::vector<index_t>& prefix, DecoderMaps<T>* maps) {
    if (maps != nullptr) *maps = {};
    maps_ = maps;
    call_ = 0;
    cache_.begin(counts, prefix);
    if (first_) {  // what an earlier one that threw has left
      calls_.clear();
      for (CachedMemory& cached : memories_) cached.made.clear();
    }
  }
  /// Ends the step. Throws ValueError if the model made fewer calls than in the first step.
  void commit() {
    if (call_ != calls_.size()) refuse();
    cache_.commit();
    first_ = false;
  }
  /// Sequence i continues what was sequence parents[i]; their number may change. Throws IndexError for a
  /// parent that does not exist.
  void reorder(std::span<const std::int32_t> parents) {
    // Allocated first: nothing throws once the cache is re-ordered.
    std::vector<std::vector<std::int32_t>> sequences(memories_.size(),
                                                     std::vector<std::int32_t>(parents.size()));
    cache_.reorder(parents);
    for (std::size_t m = 0; m < memories_.size(); ++m) {
      std::vector<std::int32_t>& sequence = memories_[m].memory.key_sequence;
      for (std::size_t i = 0; i < parents.size(); ++i)
        sequences[m][i] = sequence[static_cast<std::size_t>(parents[i])];
      sequence = std::move(sequences[m]);
    }
  }
  /// The keys, values and states of the sequences.
  const detail::KeyValueCache<T>& cache() const noexcept { return cache_; }

  const SequenceLayout& layout() const noexcept override { return cache_.queries(); }

  Var<T> self_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention,
                        const Var<T>& x) override {
    const std::size_t slot = next({Call::of_self, attention.out_proj.weight.id()});
    return cache_.attend(ctx, slot, attention, x, this->bias_for(attention, bias_),
                         maps_ == nullptr ? nullptr : &maps_->target.emplace_back());
  }
  Var<T> memory_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention, const Var<T>& x,
                          std::size_t memory = 0) override;
  Var<T> window(const Context<T>&, const Var<T>& x, index_t n) override {
    this->require_window("window", n);
    return cache_.window(next({Call::of_window, static_cast<std::uint64_t>(n)}), x, n);
  }
  Var<T> recurrence(const Context<T>&, const Var<T>& forget, const Var<T>& input) override {
    return cache_.recurrence(next({Call::of_recurrence, 0}), forget, input);
  }
  void use_bias(const Context<T>& ctx, const detail::RelativeBias<T>* bias) override {
    const std::uint64_t id = bias == nullptr ? 0 : bias->weight.id();
    if (id == bias_id_) return;
    bias_ = bias == nullptr ? Var<T>() : (*bias)(ctx);
    bias_id_ = id;
  }

 private:
  // The calls of a step, in order. Caches are found by the number of the call, so every step must make the
  // same ones.
  struct Call {
    enum Kind { of_self, of_memory, of_window, of_recurrence } kind;
    std::uint64_t id;
    bool operator==(const Call&) const = default;
  };

  std::size_t next(const Call& call) {
    if (first_) {
      calls_.push_back(call);
    } else if (call_ >= calls_.size() || calls_[call_] != call) {
      refuse();
    }
    return call_++;
  }
  [[noreturn]] static void refuse() {
    throw ValueError("decoder_state",
                     "a step used other attentions, windows or recurrences than the first step; every step "
                     "must use the same ones in the same order");
  }

  struct CachedMemory {
    Memory<T> memory;
    // By slot, computed once: (rows, 2 G head_dim) keys and values, or the state of linear attention.
    std::vector<Tensor<T>> made{};
  };

  detail::KeyValueCache<T> cache_;
  std::vector<CachedMemory> memories_;
  Var<T> bias_;
  std::uint64_t bias_id_ = 0;
  DecoderMaps<T>* maps_ = nullptr;
  std::vector<Call> calls_;
  std::size_t call_ = 0;
  bool first_ = true;
};

template <class T>
Var<T> CachedPass<T>::memory_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention,
                                       const Var<T>& x, std::size_t memory) {
  if (memory >= memories_.size()) {
    throw ValueError("memory_attention",
                     {"memory ", memory, " does not exist: the pass has ", memories_.size()});
  }
  const AttentionOptions& o = attention.options.attention;
  if (!std::holds_alternative<NoPositions>(o.positions) || o.window != 0) {
    throw ValueError("memory_attention",
                     "the attention has positions or a window, which decoding with a cache does not support; "
                     "expected one with neither");
  }
  const std::size_t slot = next({Call::of_memory, attention.out_proj.weight.id()});
  auto& [from, made_by_slot] = memories_[memory];
  if (slot >= made_by_slot.size()) made_by_slot.resize(slot + 1);
  Tensor<T>& made = made_by_slot[slot];
  if (!made.defined()) {
    made = attention.project_key_value(ctx, from.rows).value();
    if (attention.linear_kind()) {
      const auto keys = detail::AttentionHeads<T>::side_by_side(Var<T>(), Var<T>(made));
      made = detail::linear_attention_state(keys.k, keys.v, from.layout, attention.options.num_heads);
    }
  }
  detail::AttentionHeads<T> heads{attention.project_query(ctx, x), {}, {}};
  if (!attention.linear_kind()) heads = detail::AttentionHeads<T>::side_by_side(heads.q, Var<T>(made));
  AttentionCall<T> call = attention.call(ctx, std::move(heads), layout(), from.layout, {}, from.key_sequence);
  if (attention.linear_kind()) call.state = &made;
  if (maps_ != nullptr) maps_->memory.push_back(call.weights(ctx));
  return attention.out_proj(ctx, call.run(ctx));
}

EIGENFORMER_INSTANCES(class CachedPass)

/// Sequences of tokens that grow step by step: the keys and values of earlier tokens are cached, those of the
/// memories computed once. `begin` of a model returns one; any model whose decoder works on a LayerPass can
/// have one.
///
/// run(ctx, ids, pass) is the decoder: ids (rows), in the layout of pass.layout(), to (rows, D). What it
/// refers to, such as the model, must outlive the state. reorder() copies row numbers, never keys (see
/// KeyValueCache).
///
/// A step that throws leaves the sequences unchanged, and so does reorder(). If a step cannot, because states
/// of linear attention, recurrences or windows had advanced or memory ran out while keys were moved, every
/// later step() and reorder() throws ValueError.
///
///     ef::DecoderState<float> state = model.begin(ctx, sources);
///     auto logits = model.logits(ctx, state.step(ids));  // ids (sequences) -> (sequences, V)
template <class T>
class DecoderState {
 public:
  /// The decoder: (context, ids, pass) -> (rows, D).
  using Run = std::function<Var<T>(const Context<T>&, const Tensor<std::int32_t>&, LayerPass<T>&)>;

  /// `sequences` without tokens; each memory is for all of them. Throws ValueError for a context that
  /// records, and for a memory with another number of sequences.
  DecoderState(const Context<T>& ctx, index_t sequences, std::vector<Memory<T>> memories, Run run)
      : ctx_(checked(ctx)), run_(std::move(run)), pass_(sequences, std::move(memories)) {}

  /// Number of sequences.
  index_t sequences() const noexcept { return pass_.cache().sequences(); }
  /// Number of tokens of each sequence so far.
  std::span<const index_t> lengths() const noexcept { return pass_.cache().lengths(); }
  /// Bytes of the cached keys, values and states; if every attention has a window, it is independent of the
  /// sequences' length. Memories are not included.
  std::size_t cache_bytes() const noexcept { return pass_.cache().bytes(); }

  /// Appends counts[i] tokens to sequence i and returns the decoder's output for them. ids: (rows), those of
  /// the first sequence first; returns (rows, D). prefix: the number of first tokens of each sequence that
  /// see one another in both directions, as in AttentionMask::prefix, all of which must come in this step;
  /// empty: none. maps, if not null, receives the attention weights of every layer, (sequences, heads, n,
  /// tokens so far) and (sequences, heads, n, S). Throws ShapeError if ids, counts and prefix do not match,
  /// IndexError for an id outside the vocabulary, ValueError for a prefix that does not come in one step, for
  /// ids without memory, and for a state that was moved from.
  Var<T> step(const Tensor<std::int32_t>& ids, std::span<const index_t> counts,
              const std::vector<index_t>& prefix = {}, DecoderMaps<T>* maps = nullptr) {
    index_t rows = 0;
    for (const index_t n : counts) rows += n;
    if (static_cast<index_t>(counts.size()) != sequences() || ids.numel() != rows) {
      throw ShapeError("decoder_state",
                       {ids.numel(), " ids and ", counts.size(), " counts that sum to ", rows, ", expected ",
                        sequences(), " counts, one for each sequence, that sum to the number of ids"},
                       {ids.shape()});
    }
    if (!run_) throw ValueError("decoder_state", "the state was moved from, expected the one it moved to");
    pass_.begin(counts, prefix, maps);
    Var<T> y = run_(ctx_, ids.reshape(Shape{rows}), pass_);
    pass_.commit();
    return y;
  }

  /// Appends the same number of tokens to every sequence: ids (sequences) or (sequences, n); returns
  /// (sequences n, D). Throws ShapeError for other shapes, otherwise as above.
  Var<T> step(const Tensor<std::int32_t>& ids, DecoderMaps<T>* maps = nullptr) {
    if ((ids.rank() != 1 && ids.rank() != 2) || ids.dim(0) != sequences()) {
      throw ShapeError("decoder_state",
                       {"ids of shape ", ids.shape(), " must be (", sequences(), ") or (", sequences(),
                        ", n), a row for each sequence"},
                       {ids.shape()});
    }
    const std::vector<index_t> counts(lengths().size(), ids.rank() == 1 ? 1 : ids.dim(1));
    return step(ids, counts, {}, maps);
  }

  /// Sequence i continues what was sequence parents[i]; their number may change. Throws IndexError for a
  /// parent that does not exist; then nothing changes.
  void reorder(std::span<const std::int32_t> parents) { pass_.reorder(parents); }

 private:
  static const Context<T>& checked(const Context<T>& ctx) {
    if (ctx.records())
      throw ValueError("decoder_state", "the context records a tape, must be an inference context");
    return ctx;
  }

  Context<T> ctx_;
  Run run_;
  CachedPass<T> pass_;
};

EIGENFORMER_INSTANCES(class DecoderState)

}  // namespace eigenformer
