#pragma once

#include <string>
#include <utility>

#include "eigenformer/autograd/ops/dropout.hpp"
#include "eigenformer/nn/positional.hpp"
#include "eigenformer/nn/transformer.hpp"

namespace eigenformer {

/// The same Transformer for real-valued sequences.
struct SequenceRegressorOptions {
  index_t source_features = 1;
  index_t target_features = 1;
  index_t output_features = 1;
  index_t d_model = defaults::d_model;
  index_t num_heads = defaults::num_heads;
  index_t num_encoder_layers = defaults::num_layers;
  index_t num_decoder_layers = defaults::num_layers;
  index_t dim_feedforward = defaults::dim_feedforward;
  double dropout = defaults::dropout;  ///< on embedding + position and everywhere in the layers
  Activation activation = Activation::relu;
  bool norm_first = false;
  bool causal = true;                               ///< a target row sees itself and those before it
  Activation output_activation = Activation::none;  ///< sigmoid or tanh for values in a known range
  SinusoidOptions sinusoid{};

  TransformerOptions transformer() const {
    return {.d_model = d_model,
            .num_heads = num_heads,
            .num_encoder_layers = num_encoder_layers,
            .num_decoder_layers = num_decoder_layers,
            .dim_feedforward = dim_feedforward,
            .dropout = dropout,
            .activation = activation,
            .norm_first = norm_first};
  }

  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    detail::require_positive(op, "source_features", source_features);
    detail::require_positive(op, "target_features", target_features);
    detail::require_positive(op, "output_features", output_features);
    transformer().validate(op);
    sinusoid.validate(op, d_model);
  }
};

/// A Transformer with a Linear in place of the embeddings and an output head: sequences of real vectors in
/// and out, for forecasting and the like.
///
///     ef::SequenceRegressor<float> model({.source_features = 3, .d_model = 12, .num_heads = 3}, rng);
///     auto y = model(ctx, source, target);  // (B, S, 3) and (B, T, 1) -> (B, T, 1)
template <class T = float>
struct SequenceRegressor {
  using value_type = T;

  Linear<T> source_input;
  Linear<T> target_input;
  SinusoidalPositionalEncoding<T> positions;
  Transformer<T> transformer;
  Linear<T> output;
  SequenceRegressorOptions options;

  /// Throws ValueError that names an impossible field.
  SequenceRegressor(const SequenceRegressorOptions& given, RandomGenerator& rng)
      : source_input({validated(given).source_features, given.d_model}, rng),
        target_input({given.target_features, given.d_model}, rng),
        positions(given.d_model, given.sinusoid),
        transformer(given.transformer(), rng),
        output({given.d_model, given.output_features}, rng),
        options(given) {
    name_parameters(*this);
  }

  /// source: (B, S, source_features), target: (B, T, target_features), or one sequence each without B.
  /// Returns (B, T, output_features). Throws ShapeError where shapes do not fit.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& source, const Var<T>& target) const {
    return (*this)(ctx, source, full_layout(name, source.shape()), target, full_layout(name, target.shape()));
  }

  /// The same for rows as the layouts say, padded or packed.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& source,
                                  const SequenceLayout& source_layout, const Var<T>& target,
                                  const SequenceLayout& target_layout) const {
    return decode(ctx, target, target_layout, {encode(ctx, source, source_layout), source_layout});
  }

  /// The encoder's output, (..., D).
  [[nodiscard]] Var<T> encode(const Context<T>& ctx, const Var<T>& source,
                              const SequenceLayout& layout) const {
    return transformer.encoder(ctx, embed(ctx, source_input, source, layout), layout);
  }

  /// The output for a target and the encoder's output, (..., output_features).
  [[nodiscard]] Var<T> decode(const Context<T>& ctx, const Var<T>& target, const SequenceLayout& layout,
                              const Memory<T>& memory) const {
    const DecoderMasks masks{.target = options.causal ? AttentionMask::causal() : AttentionMask::none()};
    const Var<T> decoded =
        transformer.decoder(ctx, embed(ctx, target_input, target, layout), layout, memory, masks);
    return linear(ctx, decoded, output.weight, output.bias, options.output_activation);
  }

  static void fields(auto& self, auto&& visit) {
    visit("source_input", self.source_input);
    visit("target_input", self.target_input);
    visit("", self.transformer);
    visit("output", self.output);
  }

 private:
  static constexpr const char* name = "sequence_regressor";

  Var<T> embed(const Context<T>& ctx, const Linear<T>& input, const Var<T>& x,
               const SequenceLayout& layout) const {
    check_rows(name, "input", x.shape(), layout);
    return dropout(ctx.for_rows(layout), positions(ctx, input(ctx, x), layout), options.dropout);
  }

  static const SequenceRegressorOptions& validated(const SequenceRegressorOptions& options) {
    options.validate(name);
    return options;
  }
};

static_assert(std::is_nothrow_move_constructible_v<SequenceRegressor<float>>);

EIGENFORMER_MODULE_INSTANCES(SequenceRegressor)

}  // namespace eigenformer
