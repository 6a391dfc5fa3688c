#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/checkpoint.hpp"
#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/module/optional_module.hpp"
#include "eigenformer/nn/stacks/pass.hpp"

namespace eigenformer {

/// A layer of a Stack: a module that is made of options and a generator, and called with rows and the pass
/// that they are in. x: (rows, D); returns the same shape. Options that convert to LayerOptions give the
/// stack its final norm, its stochastic depth and its relative bias.
template <class L>
concept Layer = Module<L> && requires {
  typename L::value_type;
  typename L::Options;
} && std::constructible_from<L, const typename L::Options&, RandomGenerator&> &&
    requires(const L& layer, const Context<typename L::value_type>& ctx, const Var<typename L::value_type>& x,
             LayerPass<typename L::value_type>& pass) {
  { layer(ctx, x, pass) } -> std::same_as<Var<typename L::value_type>>;
  { layer.d_model() } -> std::convertible_to<index_t>;
};

namespace detail {

inline NormOptions norm_options(const LayerOptions& o) {
  return {.kind = o.norm.kind,
          .size = o.d_model,
          .eps = o.norm.eps,
          .formula = o.norm.formula,
          .scalar_gain = o.norm.scalar_gain,
          .bias = o.bias};
}

template <class L>
const char* stack_name() {
  if constexpr (requires { L::stack_name; }) {
    return L::stack_name;
  } else {
    return "stack";
  }
}

// Layers drawn one after the other, so that no two start alike.
template <class L>
std::vector<L> make_layers(const char* op, const StackOptions<typename L::Options>& options,
                           RandomGenerator& rng) {
  options.validate(op);
  std::vector<L> layers;
  layers.reserve(static_cast<std::size_t>(options.num_layers));
  typename L::Options layer = options.layer;
  for (index_t i = 0; i < options.num_layers; ++i) {
    if constexpr (std::derived_from<typename L::Options, LayerOptions>) {
      // Linear decay: the deeper, the more dispensable. Huang et al. 2016, eq. 4.
      layer.layer_drop =
          options.layer.layer_drop * static_cast<double>(i + 1) / static_cast<double>(options.num_layers);
    }
    layers.emplace_back(layer, rng);
  }
  return layers;
}

}  // namespace detail

/// N layers of one kind, which start different, and an optional final norm.
///
///     ef::Stack<ef::EncoderLayer<float>> encoder({.num_layers = 2, .layer = {.d_model = 12, .num_heads =
///     3}}, rng); auto memory = encoder(ctx, x, ef::AttentionMask::key_padding(padding));  // (B, L, 12)
template <class L>
struct Stack {
  using value_type = typename L::value_type;
  using T = value_type;
  using Options = StackOptions<typename L::Options>;

  std::vector<L> layers;
  OptionalModule<Norm<T>> norm;
  OptionalModule<RelativeBias<T>> relative_bias;  ///< with RelativeBiasPositions; one for all layers

  /// Throws ValueError that names an impossible field.
  Stack(const Options& options, RandomGenerator& rng) : layers(detail::make_layers<L>(name(), options, rng)) {
    if constexpr (std::convertible_to<const typename L::Options&, const LayerOptions&>) {
      const LayerOptions& layer = options.layer;
      if (options.final_norm) norm.emplace(detail::norm_options(layer));
      if (const auto* o = std::get_if<RelativeBiasPositions>(&layer.positions)) {
        // Decoders see nothing after the query.
        const bool both = !(requires { L::is_decoder; });
        relative_bias.emplace(*o, layer.num_heads, both, rng);
      }
    } else if (options.final_norm) {
      norm.emplace(NormOptions{.size = layers.front().d_model()});
    }
    finish();
  }

  /// From given layers. Throws ValueError when there are none or their widths differ.
  explicit Stack(std::vector<L> given, OptionalModule<Norm<T>> final_norm = {})
      : layers(std::move(given)), norm(std::move(final_norm)) {
    finish();
  }

  /// x: (B, L, D) or (rows, D), as the pass's layout says. Returns the same shape. What decoders and
  /// encoders, training and cached decoding have in common.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, LayerPass<T>& pass) const {
    check_rows(name(), "input", x.shape(), pass.layout());
    const Context<T> c = ctx.for_rows(pass.layout());
    pass.use_bias(ctx, relative_bias ? &*relative_bias : nullptr);
    Var<T> h = x.rank() == 2 ? x : reshape(x, Shape{x.shape().rows(), x.shape().cols()});
    for (const L& layer : layers) h = run(layer, c, h, pass);
    if (norm) h = (*norm)(ctx, h);
    return x.rank() == 2 ? h : reshape(h, x.shape());
  }

  /// Without a memory. x: (B, L, D), or (L, D) of one sequence. Returns the same shape.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x,
                                  const AttentionMask& mask = {}) const {
    return (*this)(ctx, x, full_layout(name(), x.shape()), mask);
  }
  /// The same for rows as the layout says. maps, when given, receives each layer's attention weights (B, H,
  /// L, L).
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const AttentionMask& mask = {}, std::vector<Var<T>>* maps = nullptr) const {
    SequencePass<T> pass(layout, mask);
    DecoderMaps<T> collected;
    if (maps != nullptr) pass.collect(&collected);
    Var<T> y = (*this)(ctx, x, pass);
    if (maps != nullptr) *maps = std::move(collected.target);
    return y;
  }

  /// With a memory. x: (B, T, D), or (T, D) of one sequence. Returns the same shape.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const Memory<T>& memory,
                                  const DecoderMasks& masks = {}) const {
    return (*this)(ctx, x, full_layout(name(), x.shape()), memory, masks);
  }
  /// The same for rows as the layout says. maps, when given, receives the attention weights of every layer.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const Memory<T>& memory, const DecoderMasks& masks = {},
                                  DecoderMaps<T>* maps = nullptr) const {
    SequencePass<T> pass(layout, masks.target, {memory}, masks.memory);
    if (maps != nullptr) {
      *maps = {};
      pass.collect(maps);
    }
    return (*this)(ctx, x, pass);
  }

  index_t d_model() const { return layers.front().d_model(); }

  static void fields(auto& self, auto&& visit) {
    visit("layers", self.layers);
    visit("norm", self.norm);
    visit("relative_bias", self.relative_bias);
  }

 private:
  static const char* name() { return detail::stack_name<L>(); }

  // One layer: where the tape asks for it a checkpoint, which runs on a new copy of the pass each time.
  static Var<T> run(const L& layer, const Context<T>& ctx, const Var<T>& x, LayerPass<T>& pass) {
    const bool checkpoints = ctx.records() && ctx.tape()->checkpoints_layers();
    const std::shared_ptr<LayerPass<T>> copy = checkpoints ? pass.copy() : nullptr;
    if (copy == nullptr) return layer(ctx, x, pass);
    std::vector<Var<T>> inputs{x};
    for (const Var<T>* shared : copy->shared()) inputs.push_back(*shared);
    const Context<T> repeated = ctx.repeated();
    const auto ran = std::make_shared<std::shared_ptr<LayerPass<T>>>();
    const auto on_copy = [&layer, copy, ran](const Context<T>& c, std::span<const Var<T>> given) {
      *ran = copy->copy();
      const std::vector<Var<T>*> shared = (*ran)->shared();
      for (std::size_t i = 0; i < shared.size(); ++i) *shared[i] = given[i + 1];
      return layer(c, given[0], **ran);
    };
    const Var<T> y = checkpoint(ctx, on_copy, inputs);
    const bool followed = pass.follow(**ran);
    ran->reset();
    return followed ? y : layer(repeated, x, pass);
  }

  // Layers that were not made together must at least have one width.
  void finish() {
    static_assert(Layer<L>,
                  "a layer of a Stack needs value_type, Options, fields, a constructor (const Options&, "
                  "RandomGenerator&), operator()(ctx, x, LayerPass&) const and d_model() const");
    if (layers.empty()) throw ValueError(name(), "there are no layers, expected at least one");
    const index_t d = layers.front().d_model();
    for (std::size_t i = 1; i < layers.size(); ++i) {
      if (layers[i].d_model() != d) {
        throw ValueError(name(), "layer " + std::to_string(i) + " has d_model " +
                                     std::to_string(layers[i].d_model()) +
                                     ", must be that of layer 0, which is " + std::to_string(d));
      }
    }
    if (norm && norm->options.size != d) {
      throw ValueError(name(), "norm has size " + std::to_string(norm->options.size) +
                                   ", must be d_model, which is " + std::to_string(d));
    }
    name_parameters(*this);
  }
};

}  // namespace eigenformer

/// EIGENFORMER_MODULE_INSTANCES of the stack of a layer. Used in namespace eigenformer.
#define EIGENFORMER_STACK_INSTANCES(LAYER)                                                               \
  EIGENFORMER_INSTANCE(struct Stack<LAYER<float>>)                                                       \
  EIGENFORMER_INSTANCE(struct Stack<LAYER<double>>)                                                      \
  EIGENFORMER_INSTANCE(                                                                                  \
      void detail::visit_fields(const std::string&, Stack<LAYER<float>>&, detail::FieldVisitor<float>&)) \
  EIGENFORMER_INSTANCE(                                                                                  \
      void detail::visit_fields(const std::string&, Stack<LAYER<double>>&, detail::FieldVisitor<double>&))
