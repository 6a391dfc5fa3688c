#pragma once

#include <memory>
#include <utility>

#include "eigenformer/nn/stacks/pass.hpp"

namespace eigenformer::detail {

/// A pass over whole sequences that stores the weights of one attention to the memory, where
/// SequencePass::collect stores those of all: for extracting and training alignments. Differentiable.
///
///     ef::CrossAttentionPass<float> pass(layout, ef::AttentionMask::causal(), memory, 1);
///     auto decoded = model.run_decoder(ctx, target, pass);
///     auto weights = pass.weights();  // of layer 1
template <class T>
class CrossAttentionPass final : public SequencePass<T> {
 public:
  /// mask: of the self-attentions. layer: the attention to the memory whose weights are stored, counted from
  /// 0 in the order of the calls.
  CrossAttentionPass(SequenceLayout layout, AttentionMask mask, Memory<T> memory, index_t layer)
      : SequencePass<T>(std::move(layout), std::move(mask), {std::move(memory)}), layer_(layer) {}

  /// The weights (B, H, Lq, Lk), before dropout, zero outside the sequences; undefined before the call or if
  /// there are fewer layers.
  const Var<T>& weights() const noexcept { return weights_; }

  Var<T> memory_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention, const Var<T>& x,
                          std::size_t memory = 0) override {
    const bool stores = memory == 0 && calls_++ == layer_;
    return this->attend_memory(ctx, attention, x, memory, stores ? &weights_ : nullptr);
  }
  std::shared_ptr<LayerPass<T>> copy() const override {
    auto copy = std::make_shared<CrossAttentionPass>(*this);
    copy->weights_ = Var<T>();
    return copy;
  }
  /// False for the layer whose weights are stored: it runs on the pass itself, so that they are recorded.
  bool follow(const LayerPass<T>& copy) override {
    const index_t calls = static_cast<const CrossAttentionPass&>(copy).calls_;
    if (calls_ <= layer_ && calls > layer_) return false;
    calls_ = calls;
    return true;
  }

 private:
  index_t layer_, calls_ = 0;
  Var<T> weights_;
};

}  // namespace eigenformer::detail
