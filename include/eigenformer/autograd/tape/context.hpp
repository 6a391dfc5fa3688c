#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/base/dropout_key.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"

namespace eigenformer {

namespace kernels {
class PackedWeights;
class WeightCache;
}  // namespace kernels

/// How a model is run: the first argument of every module. There is no train() or eval() to forget.
///
/// A copy shares the count of dropout sites, so that every dropout of one forward pass has its own mask.
template <class T>
class Context {
 public:
  /// No graph, no dropout.
  static Context inference() { return Context(); }

  /// Gradients, no dropout. The tape must outlive the context.
  static Context checking(Tape<T>& tape) {
    Context c;
    c.tape_ = &tape;
    return c;
  }

  /// Gradients and dropout; the masks of this pass are drawn from `rng`.
  static Context training(Tape<T>& tape, RandomGenerator& rng) {
    return training(tape, DropoutKey{rng.next_u64(), 0, 0});
  }

  /// Gradients and dropout with chosen masks: micro-batches of one step share a key, so that they drop what
  /// one large batch would have dropped.
  static Context training(Tape<T>& tape, const DropoutKey& key) {
    Context c = checking(tape);
    c.dropout_ = std::make_shared<DropoutKey>(key);
    return c;
  }

  /// A parameter as an op's input: recorded when this context records and the parameter is not frozen.
  Var<T> use(const Parameter<T>& parameter) const {
    if (!parameter.defined()) return {};
    if (tape_ == nullptr || parameter.frozen()) return Var<T>(parameter.value());
    return tape_->parameter(parameter.handle());
  }

  bool records() const noexcept { return tape_ != nullptr; }
  bool drops() const noexcept { return dropout_ != nullptr; }
  Tape<T>* tape() const noexcept { return tape_; }

  /// The key of the next dropout site. Throws ValueError outside training.
  DropoutKey next_dropout() const {
    if (dropout_ == nullptr)
      throw ValueError("dropout", "this context has no random numbers: use Context::training");
    DropoutKey key = *dropout_;
    ++dropout_->site;
    return key;
  }

  /// This context with a count of dropout sites of its own: what is run with it draws the masks that this
  /// context draws next, and leaves this one's count alone.
  Context repeated() const {
    Context c = *this;
    if (dropout_ != nullptr) c.dropout_ = std::make_shared<DropoutKey>(*dropout_);
    return c;
  }

  /// This context, recording on another tape. Throws ValueError where it does not record.
  Context on(Tape<T>& tape) const {
    if (!records())
      throw ValueError(
          "context", "this context records nothing, so it has no tape to replace; expected one that records");
    Context c = *this;
    c.tape_ = &tape;
    return c;
  }

  /// This context for rows laid out like `layout`; dropout masks follow its sequences and positions, so that
  /// they do not depend on padding, packing or what else is in the batch.
  Context for_rows(const SequenceLayout& layout) const {
    Context c = *this;
    c.rows_ = layout;
    return c;
  }
  const std::optional<SequenceLayout>& rows() const noexcept { return rows_; }

  /// Matrix products with inputs rounded to bfloat16 and float sums (only for T = float).
  Context with_precision(kernels::GemmPrecision precision) const {
    Context c = *this;
    c.precision_ = precision;
    return c;
  }
  kernels::GemmPrecision precision() const noexcept { return precision_; }

  /// Products in bf16 with weights that are rounded and packed once a change, and not at each product: the
  /// same bits. Changes are those that are counted (Tensor::mark_changed); after any others, clear the cache.
  Context with_weight_cache(std::shared_ptr<kernels::WeightCache> cache) const {
    Context c = *this;
    c.cache_ = std::move(cache);
    return c;
  }
  const std::shared_ptr<kernels::WeightCache>& weight_cache() const noexcept { return cache_; }

  /// Products with these packed weights where they hold a parameter; for inference.
  Context with_packed_weights(std::shared_ptr<const kernels::PackedWeights> weights) const {
    Context c = *this;
    c.packed_ = std::move(weights);
    return c;
  }
  const kernels::PackedWeights* packed_weights() const noexcept { return packed_.get(); }

  /// Products with these adapters in place of those that are attached to the model, so that several adapters
  /// share one model; null: those of the model. An empty set gives the model without any.
  Context with_adapters(std::shared_ptr<const AdapterSet<T>> adapters) const {
    Context c = *this;
    c.adapters_ = std::move(adapters);
    return c;
  }
  const std::shared_ptr<const AdapterSet<T>>& adapters() const noexcept { return adapters_; }
  /// What is added to products with a weight; null: nothing.
  const WeightAdapter<T>* adapter_of(const Parameter<T>& weight) const {
    return adapters_ == nullptr ? weight.adapter().get() : adapters_->find(weight).get();
  }

 private:
  Context() = default;

  Tape<T>* tape_ = nullptr;
  std::shared_ptr<DropoutKey> dropout_;
  std::optional<SequenceLayout> rows_;
  kernels::GemmPrecision precision_{};
  std::shared_ptr<const kernels::PackedWeights> packed_;
  std::shared_ptr<kernels::WeightCache> cache_;
  std::shared_ptr<const AdapterSet<T>> adapters_;
};

}  // namespace eigenformer
