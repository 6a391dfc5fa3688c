#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/tape.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/layout.hpp"
#include "eigenformer/kernels/gemm/gemm.hpp"

namespace eigenformer {

namespace detail::kernels {

class PackedWeights;
class WeightCache;

}  // namespace detail::kernels

/// How a model runs: whether it records gradients and applies dropout, on which rows, in which precision. It
/// is the first argument of every module; modules have no train() or eval() state.
///
/// Copies share the counter of dropout sites, so that each dropout of one forward pass draws its own mask.
template <class T>
class Context {
 public:
  /// Without gradients, without dropout.
  static Context inference() { return Context(); }

  /// With gradients, without dropout. The tape must outlive the context.
  static Context checking(Tape<T>& tape) { return Context().with(&Context::tape_, &tape); }

  /// With gradients and dropout, whose masks are selected by one number drawn from `rng`. The tape must
  /// outlive the context.
  static Context training(Tape<T>& tape, RandomGenerator& rng) {
    return training(tape, detail::DropoutKey{rng.next_u64(), 0, 0});
  }

  /// With gradients and dropout, whose masks `key` selects: micro-batches of one step with the same key have
  /// the masks of one large batch.
  static Context training(Tape<T>& tape, const detail::DropoutKey& key) {
    return checking(tape).with(&Context::dropout_, std::make_shared<detail::DropoutKey>(key));
  }

  /// A parameter as an input of an op: recorded when this context records and the parameter is not frozen,
  /// else a constant; an undefined Var for an absent parameter.
  Var<T> use(const Parameter<T>& parameter) const {
    if (!parameter.defined()) return {};
    if (tape_ == nullptr || parameter.frozen()) return Var<T>(parameter.value());
    return tape_->parameter(parameter.handle());
  }

  /// Whether ops are recorded for a backward.
  bool records() const noexcept { return tape_ != nullptr; }
  /// Whether dropout is applied.
  bool drops() const noexcept { return dropout_ != nullptr; }
  /// The tape on which it records; null for inference().
  Tape<T>* tape() const noexcept { return tape_; }

  /// The key of the next dropout site; each call advances the counter. Throws ValueError unless drops().
  detail::DropoutKey next_dropout() const {
    if (dropout_ == nullptr)
      throw ValueError("dropout", "this context has no random numbers: use Context::training");
    detail::DropoutKey key = *dropout_;
    ++dropout_->site;
    return key;
  }

  /// A copy with its own counter of dropout sites, at the same number: it draws the masks that this context
  /// draws next, without advancing this one.
  Context repeated() const {
    if (dropout_ == nullptr) return *this;
    return with(&Context::dropout_, std::make_shared<detail::DropoutKey>(*dropout_));
  }

  /// A copy that records on another tape. Throws ValueError unless this context records.
  Context on(Tape<T>& tape) const {
    if (!records())
      throw ValueError(
          "context", "this context records nothing, so it has no tape to replace; expected one that records");
    return with(&Context::tape_, &tape);
  }

  /// A copy for rows laid out as `layout`. Dropout masks depend on its sequence numbers and positions, not on
  /// padding, packing or the other sequences of the batch.
  Context for_rows(const SequenceLayout& layout) const { return with(&Context::rows_, layout); }
  /// The layout of for_rows(), if there is one.
  const std::optional<SequenceLayout>& rows() const noexcept { return rows_; }

  /// A copy whose matrix products have this precision: with bf16, inputs are rounded to bfloat16 and summed
  /// in float. It affects only T = float.
  Context with_precision(GemmPrecision precision) const { return with(&Context::precision_, precision); }
  /// The precision of matrix products.
  GemmPrecision precision() const noexcept { return precision_; }

  /// A copy whose bf16 products round and pack a weight once per change instead of at each product; results
  /// are bit-identical. It detects changes by Tensor::mark_changed(); after any other change clear the cache.
  Context with_weight_cache(std::shared_ptr<detail::kernels::WeightCache> cache) const {
    return with(&Context::cache_, std::move(cache));
  }
  /// The cache of with_weight_cache(); null without one.
  const std::shared_ptr<detail::kernels::WeightCache>& weight_cache() const noexcept { return cache_; }

  /// A copy that multiplies with these packed weights wherever they contain a parameter; for inference.
  Context with_packed_weights(std::shared_ptr<const detail::kernels::PackedWeights> weights) const {
    return with(&Context::packed_, std::move(weights));
  }
  /// The weights of with_packed_weights(), owned by this context; null without them.
  const detail::kernels::PackedWeights* packed_weights() const noexcept { return packed_.get(); }

  /// A copy that uses these adapters in place of those attached to the model, so that several adapters can
  /// share one model. Null restores those of the model; an empty set runs the model without adapters.
  Context with_adapters(std::shared_ptr<const AdapterSet<T>> adapters) const {
    return with(&Context::adapters_, std::move(adapters));
  }
  /// The adapters of with_adapters(); null: those attached to the model.
  const std::shared_ptr<const AdapterSet<T>>& adapters() const noexcept { return adapters_; }
  /// The adapter of products with `weight`, owned by this context or the weight; null without one.
  const detail::WeightAdapter<T>* adapter_of(const Parameter<T>& weight) const {
    return adapters_ == nullptr ? weight.adapter().get() : adapters_->find(weight).get();
  }

 private:
  Context() = default;

  // A copy with another value of one member.
  template <class Member, class Value>
  Context with(Member Context::*member, Value&& value) const {
    Context c = *this;
    c.*member = std::forward<Value>(value);
    return c;
  }

  Tape<T>* tape_ = nullptr;
  std::shared_ptr<detail::DropoutKey> dropout_;
  std::optional<SequenceLayout> rows_;
  GemmPrecision precision_{};
  std::shared_ptr<const detail::kernels::PackedWeights> packed_;
  std::shared_ptr<detail::kernels::WeightCache> cache_;
  std::shared_ptr<const AdapterSet<T>> adapters_;
};

/// Runs function(ctx, inputs) as one op that keeps its inputs and no intermediate results: backward runs the
/// function again, records it and propagates through it (Chen et al. 2016). It costs one more forward pass of
/// the function. Results and gradients are bit-identical to those of the plain call: the second run draws the
/// same dropout masks, and its ops write gradients in the same order.
///
///     auto y = ef::checkpoint(ctx, [&](const auto& c, const auto& h) { return layer(c, h); }, x);
///
/// function: (const Context<T>&, std::span<const Var<T>>) -> Var<T> for a vector of inputs, or (const
/// Context<T>&, inputs...) -> Var<T>. Captured objects must outlive backward; capture modules by reference,
/// because a copy has its own parameters. It must depend only on its inputs and on parameters, and compute
/// the same both times. Throws ValueError when it reads a recorded Var that is not an input. Without a
/// recording context, and inside another checkpoint, it is a plain call.
template <class T, class F>
requires(std::invocable<const F&, const Context<T>&, std::span<const Var<T>>>)
    [[nodiscard]] Var<T> checkpoint(const Context<T>& ctx, F function, const std::vector<Var<T>>& inputs) {
  if (!ctx.records() || ctx.tape()->in_checkpoint()) return function(ctx, std::span<const Var<T>>(inputs));
  const Context<T> repeated = ctx.repeated();
  const auto run = [&] {
    std::vector<Var<T>> constants;
    for (const Var<T>& x : inputs) constants.push_back(x.detach());
    return Var<T>(function(ctx, std::span<const Var<T>>(constants)));
  };
  return ctx.tape()->record_checkpoint(inputs, run, [repeated, function, inputs](Tape<T>& tape) {
    return Var<T>(function(repeated.on(tape), std::span<const Var<T>>(inputs)));
  });
}

/// The same for inputs that are separate arguments, of the call and of the function, which gets them as Vars.
template <class T, class F, std::convertible_to<Var<T>>... X>
requires(sizeof...(X) > 0 &&
         std::invocable<const F&, const Context<T>&, const std::conditional_t<true, Var<T>, X>&...>)
    [[nodiscard]] Var<T> checkpoint(const Context<T>& ctx, F function, const X&... inputs) {
  return checkpoint(
      ctx,
      [function = std::move(function)](const Context<T>& c, std::span<const Var<T>> x) {
        return [&]<std::size_t... I>(std::index_sequence<I...>) { return Var<T>(function(c, x[I]...)); }
        (std::index_sequence_for<X...>{});
      },
      std::vector<Var<T>>{inputs...});
}

}  // namespace eigenformer
