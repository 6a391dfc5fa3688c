#pragma once

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/module/optional_module.hpp"
#include "eigenformer/nn/stacks/pass.hpp"

namespace eigenformer {

/// A layer of a Stack: a module that is constructed from its Options and a generator, and called with rows
/// and their pass: x (rows, D), returns the same shape. If its Options derive from LayerOptions, the stack
/// takes its final norm, stochastic depth and relative bias from them.
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

// Options from which a stack takes more than the layers: see Layer.
template <class Options>
concept DerivedLayerOptions = std::derived_from<Options, LayerOptions>;

inline NormOptions norm_options(const LayerOptions& o) {
  return {.kind = o.norm.kind,
          .size = o.d_model,
          .eps = o.norm.eps,
          .formula = o.norm.formula,
          .scalar_gain = o.norm.scalar_gain,
          .bias = o.bias};
}

// The norm of a layer with these options, if it has it.
template <class T>
OptionalModule<Norm<T>> optional_norm(bool present, const LayerOptions& o) {
  if (!present) return {};
  return Norm<T>(norm_options(o));
}

// The same stack of layers L, whose Options are made of LayerOptions.
template <class L>
StackOptions<typename L::Options> options_for(const StackOptions<LayerOptions>& stack) {
  static_assert(std::constructible_from<typename L::Options, const LayerOptions&>,
                "a layer whose Options cannot be constructed from LayerOptions needs stacks that the "
                "caller constructs: Transformer(Stack<Layer>(...), Stack<Layer>(...))");
  return {stack.num_layers, stack.final_norm, typename L::Options(stack.layer)};
}

// The same stack, in whose relative bias keys after the query have buckets of their own, unless it says so
// itself.
inline StackOptions<LayerOptions> with_directions(StackOptions<LayerOptions> stack, bool bidirectional) {
  if (auto* bias = std::get_if<RelativeBiasPositions>(&stack.layer.attention.positions)) {
    bias->bidirectional = bias->bidirectional.value_or(bidirectional);
  }
  return stack;
}

// Draws the layers one after the other, so that they start different.
template <class L>
std::vector<L> make_layers(const char* op, const StackOptions<typename L::Options>& options,
                           RandomGenerator& rng) {
  options.validate(op);
  std::vector<L> layers;
  layers.reserve(static_cast<std::size_t>(options.num_layers));
  typename L::Options layer = options.layer;
  for (index_t i = 0; i < options.num_layers; ++i) {
    if constexpr (DerivedLayerOptions<typename L::Options>) {
      // Linear decay: deeper layers are skipped more often. Huang et al. 2016, eq. 4.
      layer.layer_drop =
          options.layer.layer_drop * static_cast<double>(i + 1) / static_cast<double>(options.num_layers);
    }
    layers.emplace_back(layer, rng);
  }
  return layers;
}

}  // namespace detail

/// N layers of one kind, each with its own random start, and an optional final norm.
///
///     ef::Stack<ef::EncoderLayer<float>> encoder(
///         {.num_layers = 2, .layer = {.d_model = 12, .num_heads = 3}}, rng);
///     auto memory = encoder(ctx, x, ef::AttentionMask::key_padding(padding));  // (B, L, 12)
template <class L>
struct Stack {
  using value_type = typename L::value_type;          ///< element type, float or double
  using T = value_type;                               ///< short for value_type
  using Options = StackOptions<typename L::Options>;  ///< what the stack is constructed from

  std::vector<L> layers;                 ///< in the order of their application
  detail::OptionalModule<Norm<T>> norm;  ///< after the last layer, with final_norm
  detail::OptionalModule<detail::RelativeBias<T>>
      relative_bias;  ///< with RelativeBiasPositions; one for all layers

  /// Throws ValueError that names the invalid field.
  Stack(const Options& options, RandomGenerator& rng) : layers(detail::make_layers<L>(name(), options, rng)) {
    if constexpr (detail::DerivedLayerOptions<typename L::Options>) {
      const LayerOptions& layer = options.layer;
      if (options.final_norm) norm.emplace(detail::norm_options(layer));
      if (const auto* o = std::get_if<RelativeBiasPositions>(&layer.attention.positions)) {
        // Decoders see no keys after the query.
        const bool both = !(requires { L::is_decoder; });
        relative_bias.emplace(*o, layer.num_heads, both, rng);
      }
    } else if (options.final_norm) {
      norm.emplace(NormOptions{.size = layers.front().d_model()});
    }
    finish();
  }

  /// A stack of given layers, without a relative bias. Throws ValueError if there are none or the widths of
  /// layers and norm differ.
  explicit Stack(std::vector<L> given, detail::OptionalModule<Norm<T>> final_norm = {})
      : layers(std::move(given)), norm(std::move(final_norm)) {
    finish();
  }

  /// x: (B, L, D) or (rows, D), in the pass's layout. Returns the same shape. The one path for encoders and
  /// decoders, training and cached decoding. Throws ShapeError if x does not match the layout, ValueError if
  /// the stack was moved from.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, LayerPass<T>& pass) const {
    require_layers();
    detail::check_rows(name(), "input", x.shape(), pass.layout());
    const Context<T> c = ctx.for_rows(pass.layout());
    pass.use_bias(ctx, relative_bias ? &*relative_bias : nullptr);
    Var<T> h = x.rank() == 2 ? x : reshape(x, Shape{x.shape().rows(), x.shape().cols()});
    for (const L& layer : layers) h = run(layer, c, h, pass);
    if (norm) h = (*norm)(ctx, h);
    return x.rank() == 2 ? h : reshape(h, x.shape());
  }

  /// Runs the stack without a memory. x: (B, L, D), or (L, D) for one sequence. Returns the same shape.
  /// Throws ShapeError if x or the mask has the wrong shape.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x,
                                  const AttentionMask& mask = {}) const {
    return (*this)(ctx, x, detail::full_layout(name(), x.shape()), mask);
  }
  /// The same for rows in the given layout. maps, if not null, receives each layer's attention weights (B, H,
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

  /// Runs the stack with a memory. x: (B, T, D), or (T, D) for one sequence. Returns the same shape. Throws
  /// ShapeError if shapes or masks do not match.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const Memory<T>& memory,
                                  const DecoderMasks& masks = {}) const {
    return (*this)(ctx, x, detail::full_layout(name(), x.shape()), memory, masks);
  }
  /// The same for rows in the given layout. maps, if not null, receives the attention weights of every layer;
  /// see DecoderMaps.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& x, const SequenceLayout& layout,
                                  const Memory<T>& memory, const DecoderMasks& masks = {},
                                  DecoderMaps<T>* maps = nullptr) const {
    SequencePass<T> pass(layout, masks.target, {memory}, masks.memory);
    pass.collect(maps);
    return (*this)(ctx, x, pass);
  }

  /// Features of a row, those of layer 0. Throws ValueError if the stack was moved from.
  index_t d_model() const {
    require_layers();
    return layers.front().d_model();
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("layers", self.layers);
    visit("norm", self.norm);
    visit("relative_bias", self.relative_bias);
  }

 private:
  static const char* name() {
    if constexpr (requires { L::stack_name; }) return L::stack_name;
    return "stack";
  }

  void require_layers() const {
    if (layers.empty())
      throw ValueError(name(),
                       "there are no layers, expected at least one; the stack may have been moved from");
  }

  // Runs one layer; as a checkpoint, on a new copy of the pass each time, if the tape checkpoints layers.
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

  // Given layers may differ, but not in width.
  void finish() {
    static_assert(Layer<L>,
                  "a layer of a Stack needs value_type, Options, fields, a constructor (const Options&, "
                  "RandomGenerator&), operator()(ctx, x, LayerPass&) const and d_model() const");
    const index_t d = d_model();
    for (std::size_t i = 1; i < layers.size(); ++i) {
      if (layers[i].d_model() != d) {
        throw ValueError(name(), {"layer ", i, " has d_model ", layers[i].d_model(),
                                  ", must be that of layer 0, which is ", d});
      }
    }
    if (norm && norm->options.size != d) {
      throw ValueError(name(), {"norm has size ", norm->options.size, ", must be d_model, which is ", d});
    }
    name_parameters(*this);
  }
};

}  // namespace eigenformer

/// EIGENFORMER_MODULE_INSTANCES for a Stack of a layer. Used in namespace eigenformer.
#define EIGENFORMER_STACK_INSTANCES(LAYER)                \
  EIGENFORMER_MODULE_INSTANCE(Stack<LAYER<float>>, float) \
  EIGENFORMER_MODULE_INSTANCE(Stack<LAYER<double>>, double)
