#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/generation/decoding/key_value_cache.hpp"
#include "eigenformer/nn/models/language_model.hpp"

namespace eigenformer {

/// Runs a language model token by token, with the keys and values of earlier tokens kept. Sequences may begin
/// with prompts of different lengths. The model must outlive it. For inference contexts.
template <class T>
class LanguageModelDecoder {
 public:
  /// `sequences` texts of no token yet. Throws ValueError for a context that records.
  LanguageModelDecoder(const LanguageModel<T>& model, const Context<T>& ctx, index_t sequences)
      : model_(model),
        ctx_(ctx),
        cache_(model.decoder.layers.size(), sequences, attention_reach(model.decoder.layers)) {
    if (ctx.records()) throw ValueError("language_model_decoder", "decoding needs an inference context");
    if (model.decoder.relative_bias) bias_ = (*model.decoder.relative_bias)(ctx);
  }

  index_t sequences() const noexcept { return cache_.sequences(); }
  /// Tokens of each sequence so far.
  std::span<const index_t> lengths() const noexcept { return cache_.lengths(); }
  /// Bytes of the keys and values that are held; with windows the length of the texts does not matter.
  std::size_t cache_bytes() const noexcept { return cache_.bytes(); }

  /// Appends counts[i] tokens to sequence i and returns the last layer's output for them: ids (rows), those
  /// of the first sequence first; returns (rows, D). prefix: the first tokens of each sequence that see one
  /// another in both directions, as AttentionMask::prefix has it, all of which must come in this step; empty:
  /// none. Throws ShapeError where ids, counts and prefix do not fit, IndexError for an id outside the
  /// vocabulary, ValueError for a prefix that does not come in one step.
  Var<T> step(const Tensor<std::int32_t>& ids, std::span<const index_t> counts,
              const std::vector<index_t>& prefix = {}) {
    index_t rows = 0;
    for (const index_t n : counts) rows += n;
    if (static_cast<index_t>(counts.size()) != sequences() || ids.numel() != rows) {
      throw ShapeError("language_model_decoder",
                       std::to_string(ids.numel()) + " ids and " + std::to_string(counts.size()) +
                           " counts that sum to " + std::to_string(rows) + " must be for " +
                           std::to_string(sequences()) + " sequences",
                       {ids.shape()});
    }
    const SequenceLayout& layout = cache_.begin(counts, prefix);
    Var<T> h = model_.embed(ctx_, ids.reshape(Shape{rows}), layout);
    const auto& stack = model_.decoder;
    for (std::size_t i = 0; i < stack.layers.size(); ++i) {
      h = stack.layers[i].with_attention(ctx_, h, [&](const Context<T>& c, const Var<T>& x) {
        return cache_.attend(c, i, stack.layers[i].self_attn, x, bias_);
      });
    }
    cache_.commit();
    return stack.norm ? (*stack.norm)(ctx_, h) : h;
  }

  /// Appends one token to each sequence: ids (sequences); returns (sequences, D).
  Var<T> step(const Tensor<std::int32_t>& ids) {
    return step(ids, std::vector<index_t>(static_cast<std::size_t>(sequences()), 1));
  }

  /// Sequence i goes on from what was sequence parents[i]; their number may change. Throws IndexError for a
  /// parent that does not exist.
  void reorder(std::span<const std::int32_t> parents) { cache_.reorder(parents); }

 private:
  const LanguageModel<T>& model_;
  Context<T> ctx_;
  Var<T> bias_;  // of the self-attentions, by distance
  KeyValueCache<T> cache_;
};

EIGENFORMER_INSTANCES(class LanguageModelDecoder)

}  // namespace eigenformer
