#pragma once

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "eigenformer/autograd/ops/elementwise/dropout.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// dropout() as a layer of a Sequential. It acts in training contexts only.
template <class T = float>
struct Dropout {
  using value_type = T;  ///< element type, float or double

  double rate = 0.5;  ///< the probability of each element to become 0

  /// Throws ValueError for a rate outside [0, 1).
  explicit Dropout(double p = 0.5) : rate(p) { detail::require_rate("dropout", "dropout rate", p); }

  /// x: any shape. Returns the same shape.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x) const {
    return dropout(ctx, x, rate);
  }

  /// It has no fields.
  static void fields(auto&, auto&&) {}
};

namespace detail {

// The element type of the first layer that has one; float if none has.
template <class... Layers>
struct LayersElement {
  using type = float;
};
template <class First, class... Rest>
struct LayersElement<First, Rest...> : LayersElement<Rest...> {};
template <class First, class... Rest>
requires requires { typename First::value_type; }
struct LayersElement<First, Rest...> {
  using type = typename First::value_type;
};

}  // namespace detail

/// Layers one after the other, whose parameters are named "0.weight", "1.bias", ... as in PyTorch: modules
/// called with a context and an input, and functions of the input alone.
///
///     ef::Sequential net(ef::Conv2d<float>({.in_channels = 1, .out_channels = 8, .kernel_size = 3}, rng),
///                        [](const auto& x) { return ef::relu(x); }, ef::Dropout<float>(0.1));
///     auto y = net(ctx, images);
template <class... Layers>
struct Sequential {
  using value_type = typename detail::LayersElement<Layers...>::type;  ///< of the first module

  std::tuple<Layers...> layers;  ///< in the order of their calls

  /// Takes the layers.
  explicit Sequential(Layers... given) : layers(std::move(given)...) { name_parameters(*this); }

  /// The last layer's result.
  [[nodiscard]] Var<value_type> operator()(const Context<value_type>& ctx, Var<value_type> x) const {
    const auto pass = [&](const auto& layer) {
      if constexpr (std::is_invocable_v<decltype(layer), const Context<value_type>&, Var<value_type>&>) {
        x = layer(ctx, x);
      } else {
        x = layer(x);
      }
    };
    std::apply([&](const auto&... layer) { (pass(layer), ...); }, layers);
    return x;
  }

  /// Calls visit(name, member) for each layer that is a module (see Module).
  static void fields(auto& self, auto&& visit) {
    std::size_t i = 0;
    const auto call = [&](auto& layer) {
      const std::string name = std::to_string(i++);
      if constexpr (Module<std::remove_cvref_t<decltype(layer)>>) visit(name, layer);
    };
    std::apply([&](auto&... layer) { (call(layer), ...); }, self.layers);
  }
};

EIGENFORMER_MODULE_INSTANCES(Dropout)

}  // namespace eigenformer
