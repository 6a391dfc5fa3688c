#pragma once

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/context.hpp"

namespace eigenformer {

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
