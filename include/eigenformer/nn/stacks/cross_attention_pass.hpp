#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "eigenformer/nn/stacks/pass.hpp"

namespace eigenformer::detail {

/// A pass over whole sequences that stores the weights of one attention to the memory, where
/// SequencePass::collect stores those of all: for extracting and training alignments. Differentiable.
///
///     ef::CrossAttentionPass<float> pass(layout, ef::AttentionMask::causal(), memory, 1);
///     auto decoded = model.run_decoder(ctx, target, pass);
///     auto weights = pass.weights();  // of layer 1
template <class T>
class CrossAttentionPass final : public LayerPass<T> {
 public:
  /// mask: of the self-attentions. layer: the attention to the memory whose weights are stored, counted from
  /// 0 in the order of the calls.
  CrossAttentionPass(SequenceLayout layout, AttentionMask mask, Memory<T> memory, index_t layer)
      : pass_(std::move(layout), std::move(mask), {memory}), memory_(std::move(memory)), layer_(layer) {}

  /// The weights (B, H, Lq, Lk), before dropout, zero outside the sequences; undefined before the call or if
  /// there are fewer layers.
  const Var<T>& weights() const noexcept { return weights_; }

  const SequenceLayout& layout() const noexcept override { return pass_.layout(); }
  Var<T> self_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention,
                        const Var<T>& x) override {
    return pass_.self_attention(ctx, attention, x);
  }
  Var<T> memory_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention, const Var<T>& x,
                          std::size_t memory = 0) override {
    if (memory != 0 || calls_++ != layer_) return pass_.memory_attention(ctx, attention, x, memory);
    return attention.cross(ctx, x, pass_.layout(), memory_.rows, memory_.layout, {}, memory_.key_sequence,
                           &weights_);
  }
  Var<T> window(const Context<T>& ctx, const Var<T>& x, index_t n) override {
    return pass_.window(ctx, x, n);
  }
  Var<T> recurrence(const Context<T>& ctx, const Var<T>& forget, const Var<T>& input) override {
    return pass_.recurrence(ctx, forget, input);
  }
  void use_bias(const Context<T>& ctx, const RelativeBias<T>* bias) override { pass_.use_bias(ctx, bias); }
  std::shared_ptr<LayerPass<T>> copy() const override {
    auto copy = std::make_shared<CrossAttentionPass>(*this);
    copy->weights_ = Var<T>();
    return copy;
  }
  std::vector<Var<T>*> shared() override {
    std::vector<Var<T>*> vars = pass_.shared();
    vars.push_back(&memory_.rows);
    return vars;
  }
  /// False for the layer whose weights are stored: it runs on the pass itself, so that they are recorded.
  bool follow(const LayerPass<T>& copy) override {
    const index_t calls = static_cast<const CrossAttentionPass&>(copy).calls_;
    if (calls_ <= layer_ && calls > layer_) return false;
    calls_ = calls;
    return true;
  }

 private:
  SequencePass<T> pass_;
  Memory<T> memory_;
  index_t layer_, calls_ = 0;
  Var<T> weights_;
};

}  // namespace eigenformer::detail
