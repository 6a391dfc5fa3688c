#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/attention/linear_attention.hpp"
#include "eigenformer/autograd/ops/shape/gather.hpp"
#include "eigenformer/nn/attention/attention.hpp"
#include "eigenformer/nn/attention/relative_bias.hpp"

namespace eigenformer {

/// What a decoder attends to: the encoder's output with its layout.
///
///     ef::Memory<float> memory(encoder(ctx, source, layout), layout);
///     auto y = decoder(ctx, target, memory);
template <class T>
struct Memory {
  Var<T> rows;            ///< (M, D), or (B, S, D)
  SequenceLayout layout;  ///< of rows
  /// For each target sequence the memory's sequence that it attends to; empty: the one with the same number.
  std::vector<std::int32_t> key_sequence{};

  /// Sequences of full length, (B, S, D), or one sequence, (S, D). Throws ShapeError for other ranks.
  explicit Memory(Var<T> encoded)
      : rows(std::move(encoded)), layout(detail::full_layout("memory", rows.shape())) {}
  /// Rows in the given layout; sequences: key_sequence. Nothing is checked before the memory is used.
  Memory(Var<T> encoded, SequenceLayout encoded_layout, std::vector<std::int32_t> sequences = {})
      : rows(std::move(encoded)), layout(std::move(encoded_layout)), key_sequence(std::move(sequences)) {}
};

/// The masks of a decoder. No mask means no restriction: nothing is causal unless the target mask is.
struct DecoderMasks {
  AttentionMask target{};  ///< of the self-attention
  AttentionMask memory{};  ///< of the attention to the encoder's output
};

/// The attention weights of a decoder, before dropout, one (B, H, Lq, Lk) for each layer.
template <class T>
struct DecoderMaps {
  std::vector<Var<T>> target;  ///< of the self-attentions; empty for layers without one
  std::vector<Var<T>> memory;  ///< of the attentions to the memory
};

/// How a layer reaches rows other than its own: in training they are whole sequences (SequencePass), in
/// decoding new tokens whose predecessors are cached (CachedPass). A layer written against this interface
/// both trains and decodes with a cache.
template <class T>
class LayerPass {
 public:
  virtual ~LayerPass() = default;

  /// The layout of the rows that the layers are given.
  virtual const SequenceLayout& layout() const noexcept = 0;

  /// Self-attention of the rows x, (rows, D), with the pass's mask. Returns (rows, D). Throws ShapeError if x
  /// does not match the layout, ValueError for an attention with RelativeBiasPositions in a stack without a
  /// relative bias.
  [[nodiscard]] virtual Var<T> self_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention,
                                              const Var<T>& x) = 0;

  /// Attention of the rows x, (rows, D), to memory number `memory`. Returns (rows, D). The attention's
  /// options should have no positions and no window: decoding with a cache throws ValueError for others. Its
  /// kdim and vdim are the width of the memory. Throws ValueError if the pass has no such memory.
  [[nodiscard]] virtual Var<T> memory_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention,
                                                const Var<T>& x, std::size_t memory = 0) = 0;

  /// Each row of x, (rows, D), preceded by the n - 1 rows before it in its sequence, with zeros before the
  /// beginning: (rows, n, D), the row itself last. The input of causal convolutions. Throws ValueError for n
  /// below 1.
  [[nodiscard]] virtual Var<T> window(const Context<T>& ctx, const Var<T>& x, index_t n) = 0;

  /// c[t] = forget[t] * c[t - 1] + (1 - forget[t]) * input[t] for each feature of the rows (rows, D), with c
  /// = 0 before the beginning; see recurrence(). The core of recurrent layers. Returns (rows, D).
  [[nodiscard]] virtual Var<T> recurrence(const Context<T>& ctx, const Var<T>& forget,
                                          const Var<T>& input) = 0;

  /// Sets the bias by distance for the self-attentions whose options have RelativeBiasPositions; nullptr:
  /// none. Called by Stack.
  virtual void use_bias(const Context<T>& ctx, const detail::RelativeBias<T>* bias) = 0;

  /// A copy of this pass on which a layer can run again during backward (checkpoint()), with other Vars in
  /// place of those of shared(); nullptr if layers can only run on the pass itself.
  virtual std::shared_ptr<LayerPass<T>> copy() const { return nullptr; }
  /// The recorded Vars that layers use through the pass, such as the rows of a memory.
  virtual std::vector<Var<T>*> shared() { return {}; }
  /// Takes over what a layer left in a copy of this pass. Returns false, and changes nothing, if the layer
  /// has to run on the pass itself.
  virtual bool follow(const LayerPass<T>& copy) {
    (void)copy;
    return true;
  }

 protected:
  LayerPass() = default;
  /// Copies are made through copy() only.
  LayerPass(const LayerPass&) = default;
  /// Copies are made through copy() only.
  LayerPass& operator=(const LayerPass&) = default;

  /// `bias` for an attention with RelativeBiasPositions, an undefined Var for others. Throws ValueError if
  /// the attention needs a bias that is undefined.
  static const Var<T>& bias_for(const MultiHeadAttention<T>& attention, const Var<T>& bias) {
    static const Var<T> none;
    if (!std::holds_alternative<RelativeBiasPositions>(attention.options.attention.positions)) return none;
    if (bias.defined()) return bias;
    throw ValueError(
        "self_attention",
        "the attention's options have RelativeBiasPositions, but its stack has no relative_bias");
  }
  /// Throws ValueError (`[op] ...`) for n below 1.
  static void require_window(const char* op, index_t n) {
    if (n < 1) throw ValueError(op, {"n is ", n, ", must be at least 1"});
  }
};

/// The pass over whole sequences, for training, encoders and forced decoding. Differentiable.
///
///     ef::SequencePass<float> pass(layout, ef::AttentionMask::causal(), {memory});
///     auto y = decoder(ctx, x, pass);
template <class T>
class SequencePass : public LayerPass<T> {
 public:
  /// mask: of the self-attentions, joined with the layout's padding; memory_mask: of the attentions to all
  /// memories. Throws ShapeError if a memory does not match its layout.
  explicit SequencePass(SequenceLayout layout, AttentionMask mask = {}, std::vector<Memory<T>> memories = {},
                        AttentionMask memory_mask = {})
      : layout_(std::move(layout)),
        mask_(std::move(mask)),
        memory_mask_(std::move(memory_mask)),
        memories_(std::move(memories)) {
    for (const Memory<T>& memory : memories_)
      detail::check_rows("attention", "memory", memory.rows.shape(), memory.layout);
  }

  /// From now on stores the weights of every attention in `maps`, emptied first, in the order of the calls:
  /// (B, H, Lq, Lk) each, differentiable. maps must outlive the pass; nullptr stops. Layers are then not
  /// checkpointed.
  void collect(DecoderMaps<T>* maps) {
    if (maps != nullptr) *maps = {};
    maps_ = maps;
  }

  const SequenceLayout& layout() const noexcept override { return layout_; }

  Var<T> self_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention,
                        const Var<T>& x) override {
    Var<T>* const weights = maps_ == nullptr ? nullptr : &maps_->target.emplace_back();
    return attention.self(ctx, x, layout_, mask_, this->bias_for(attention, bias_), weights);
  }
  Var<T> memory_attention(const Context<T>& ctx, const MultiHeadAttention<T>& attention, const Var<T>& x,
                          std::size_t memory = 0) override {
    Var<T>* const weights = maps_ == nullptr ? nullptr : &maps_->memory.emplace_back();
    return attend_memory(ctx, attention, x, memory, weights);
  }
  Var<T> window(const Context<T>& ctx, const Var<T>& x, index_t n) override;
  /// Throws ValueError for masks other than none() and causal(): a recurrence sees all earlier rows and no
  /// later ones.
  Var<T> recurrence(const Context<T>&, const Var<T>& forget, const Var<T>& input) override {
    if (!mask_.is_none() && !mask_.is_causal()) {
      throw ValueError("recurrence",
                       "a recurrent layer supports only the mask causal(); windows, prefixes, documents and "
                       "dense masks need attention");
    }
    return eigenformer::recurrence(forget, input, layout_);
  }
  void use_bias(const Context<T>& ctx, const detail::RelativeBias<T>* bias) override {
    bias_ = bias == nullptr ? Var<T>() : (*bias)(ctx);
  }
  /// nullptr while weights are collected, because a copy would not record them.
  std::shared_ptr<LayerPass<T>> copy() const override {
    return maps_ == nullptr ? std::make_shared<SequencePass>(*this) : nullptr;
  }
  std::vector<Var<T>*> shared() override {
    std::vector<Var<T>*> vars;
    for (Memory<T>& memory : memories_) vars.push_back(&memory.rows);
    if (bias_.defined()) vars.push_back(&bias_);
    return vars;
  }

 protected:
  /// memory_attention() that stores the attention's weights in `weights`, unless that is null.
  Var<T> attend_memory(const Context<T>& ctx, const MultiHeadAttention<T>& attention, const Var<T>& x,
                       std::size_t memory, Var<T>* weights) const {
    if (memory >= memories_.size()) {
      throw ValueError("memory_attention",
                       {"memory ", memory, " does not exist: the pass has ", memories_.size()});
    }
    const Memory<T>& m = memories_[memory];
    return attention.cross(ctx, x, layout_, m.rows, m.layout, memory_mask_, m.key_sequence, weights);
  }

 private:
  SequenceLayout layout_;
  AttentionMask mask_, memory_mask_;
  std::vector<Memory<T>> memories_;
  Var<T> bias_;
  DecoderMaps<T>* maps_ = nullptr;
};

template <class T>
Var<T> SequencePass<T>::window(const Context<T>&, const Var<T>& x, index_t n) {
  this->require_window("window", n);
  detail::check_rows("window", "input", x.shape(), layout_);
  const index_t rows = x.shape().rows(), d = x.dim(-1);
  // Index `rows` is a row of zeros, for rows before a sequence and for padding.
  Tensor<std::int32_t> ids = Tensor<std::int32_t>::full(Shape{rows * n}, static_cast<std::int32_t>(rows));
  for (index_t b = 0; b < layout_.batch(); ++b) {
    const index_t first = layout_.offset(b);
    for (index_t t = 0; t < layout_.length(b); ++t) {
      for (index_t j = 0; j < n && j <= t; ++j) {
        ids.data()[(first + t) * n + (n - 1 - j)] = static_cast<std::int32_t>(first + t - j);
      }
    }
  }
  const Var<T> flat = reshape(x, Shape{rows, d});
  const Var<T> padded = concat({flat, Var<T>(Tensor<T>::zeros(Shape{1, d}))}, 0);
  return reshape(index_select(padded, ids), Shape{rows, n, d});
}

EIGENFORMER_INSTANCES(class SequencePass)

namespace detail {

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

}  // namespace detail

}  // namespace eigenformer
