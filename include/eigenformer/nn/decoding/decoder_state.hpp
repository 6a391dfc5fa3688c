#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/nn/decoding/cached_pass.hpp"

namespace eigenformer {

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
  /// For each sequence, the memory's sequence that it attends to. Throws IndexError for a memory that does
  /// not exist.
  std::span<const std::int32_t> memory_sequences(std::size_t memory = 0) const {
    if (memory >= pass_.memories().size()) {
      throw IndexError("decoder_state", "memory " + std::to_string(memory) + " does not exist, there are " +
                                            std::to_string(pass_.memories().size()));
    }
    return pass_.memories()[memory].sequences();
  }

  /// From now on sequences that attend to the same sequence of a memory do so one by one. Otherwise adjacent
  /// ones are joined, which prepares its keys once, but the last bits of a sequence's rows then depend on how
  /// many others there are.
  void keep_apart() noexcept { pass_.keep_apart(); }

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
                       std::to_string(ids.numel()) + " ids and " + std::to_string(counts.size()) +
                           " counts that sum to " + std::to_string(rows) + ", expected " +
                           std::to_string(sequences()) +
                           " counts, one for each sequence, that sum to the number of ids",
                       {ids.shape()});
    }
    if (!run_) throw ValueError("decoder_state", "the state was moved from, expected the one it moved to");
    pass_.begin(counts, prefix, maps);
    Var<T> y = run_(ctx_, ids.reshape(Shape{rows}), pass_);
    pass_.commit();
    return y;
  }

  /// Appends the same number of tokens to every sequence: ids (sequences) or (sequences, n); returns
  /// (sequences n, D). prefix: of every sequence. Throws ShapeError for other shapes, otherwise as above.
  Var<T> step(const Tensor<std::int32_t>& ids, index_t prefix = 0, DecoderMaps<T>* maps = nullptr) {
    if ((ids.rank() != 1 && ids.rank() != 2) || ids.dim(0) != sequences()) {
      throw ShapeError("decoder_state",
                       "ids of shape " + ids.shape().str() + " must be (" + std::to_string(sequences()) +
                           ") or (" + std::to_string(sequences()) + ", n), a row for each sequence",
                       {ids.shape()});
    }
    const auto count = static_cast<std::size_t>(sequences());
    const std::vector<index_t> counts(count, ids.rank() == 1 ? 1 : ids.dim(1));
    return step(ids, counts, prefix == 0 ? std::vector<index_t>() : std::vector<index_t>(count, prefix),
                maps);
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
