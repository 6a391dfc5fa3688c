#pragma once

#include <optional>

#include "eigenformer/autograd/ops/elementwise/dropout.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/nn/stacks/transformer.hpp"

namespace eigenformer {

/// Options of a SequenceRegressor: the layers of Seq2SeqOptions, for real-valued sequences.
struct SequenceRegressorOptions {
  index_t source_features = 1;   ///< of a source row
  index_t target_features = 1;   ///< of a target row
  index_t output_features = 1;   ///< of an output row
  LayerOptions layer{};          ///< of both stacks
  bool final_norm = true;        ///< a norm after each stack, even with post-norm layers, as in PyTorch
  detail::ModelStack encoder{};  ///< num_layers of the encoder, and what overrides the two above
  detail::ModelStack decoder{};  ///< num_layers of the decoder, and what overrides the two above
  std::optional<InputPositions>
      positions{};            ///< unset: sinusoidal, or none if layer.attention.positions has some
  index_t max_length = 1024;  ///< rows of a sequence, if positions are learned: the size of their tables
  std::optional<double> embedding_dropout{};        ///< on input + position; unset: layer.dropout.rate
  bool causal = true;                               ///< a target row sees only itself and those before it
  Activation output_activation = Activation::none;  ///< sigmoid or tanh for values in a known range

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"source_features", "features per source row", Allowed::positive}, self.source_features);
    visit(OptionField{"target_features", "features per target row", Allowed::positive}, self.target_features);
    visit(OptionField{"output_features", "features per output row", Allowed::positive}, self.output_features);
    detail::visit_stacks(self, visit);
    detail::visit_inputs(self, visit);
    visit(
        OptionField{"causal", "causal mask in the decoder: a target row attends to itself and earlier ones"},
        self.causal);
    visit(OptionField{"output_activation", "activation of the output"}, self.output_activation);
  }

  /// Dropout rate of input + position.
  double embedding_rate() const noexcept { return embedding_dropout.value_or(layer.dropout.rate); }
  /// The positions that are added to the inputs.
  InputPositions input_positions() const { return eigenformer::detail::input_positions(positions, layer); }
  /// Options of the model's Transformer.
  TransformerOptions transformer() const { return {layer, final_norm, encoder, decoder}; }

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const;
};

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void SequenceRegressorOptions::validate(const char* op) const {
  validate_fields(op, *this);
  transformer().validate(op);
  detail::require_input_positions(op, input_positions(), layer.d_model);
}

#endif

/// A Transformer (Vaswani et al. 2017) with a Linear in place of each embedding and as output head: sequences
/// of real vectors in and out, for forecasting and similar tasks.
///
///     ef::SequenceRegressor<float> model(
///         {.source_features = 3, .layer = {.d_model = 12, .num_heads = 3}}, rng);
///     auto y = model(ctx, source, target);  // (B, S, 3) and (B, T, 1) -> (B, T, 1)
template <class T = float>
struct SequenceRegressor {
  using value_type = T;                      ///< element type, float or double
  using Options = SequenceRegressorOptions;  ///< what the model is constructed from
  /// The model type recorded in the options.json of a model folder.
  static constexpr const char* format = "eigenformer-sequence-regressor";

  Linear<T> source_input;                          ///< source_features -> D
  Linear<T> target_input;                          ///< target_features -> D
  detail::PositionalEncoding<T> source_positions;  ///< added to source rows
  detail::PositionalEncoding<T> target_positions;  ///< added to target rows
  Transformer<T> transformer;                      ///< encoder and decoder
  Linear<T> output;                                ///< D -> output_features
  SequenceRegressorOptions options;                ///< as given

  /// Throws ValueError that names the invalid field.
  SequenceRegressor(const SequenceRegressorOptions& given, RandomGenerator& rng)
      : source_input({detail::validated(name, given).source_features, given.layer.d_model}, rng),
        target_input({given.target_features, given.layer.d_model}, rng),
        source_positions(given, rng),
        target_positions(given, rng),
        transformer(given.transformer(), rng),
        output({given.layer.d_model, given.output_features}, rng),
        options(given) {
    name_parameters(*this);
  }

  /// source: (B, S, source_features), target: (B, T, target_features), or one sequence each without B.
  /// Returns (B, T, output_features). Throws ShapeError if shapes do not match.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& source, const Var<T>& target) const {
    return (*this)(ctx, source, detail::full_layout(name, source.shape()), target,
                   detail::full_layout(name, target.shape()));
  }

  /// The same for rows in the given layouts, padded or packed.
  [[nodiscard]] Var<T> operator()(const Context<T>& ctx, const Var<T>& source,
                                  const SequenceLayout& source_layout, const Var<T>& target,
                                  const SequenceLayout& target_layout) const {
    return decode(ctx, target, target_layout, {encode(ctx, source, source_layout), source_layout});
  }

  /// The encoder's output (..., D) for source rows (..., source_features).
  [[nodiscard]] Var<T> encode(const Context<T>& ctx, const Var<T>& source,
                              const SequenceLayout& layout) const {
    return transformer.encoder(ctx, embed(ctx, source_input, source_positions, source, layout), layout);
  }

  /// The output (..., output_features) for target rows (..., target_features) and the encoder's output.
  [[nodiscard]] Var<T> decode(const Context<T>& ctx, const Var<T>& target, const SequenceLayout& layout,
                              const Memory<T>& memory) const {
    const DecoderMasks masks{.target = options.causal ? AttentionMask::causal() : AttentionMask::none()};
    const Var<T> embedded = embed(ctx, target_input, target_positions, target, layout);
    const Var<T> decoded = transformer.decoder(ctx, embedded, layout, memory, masks);
    return linear(ctx, decoded, output.weight, output.bias, options.output_activation);
  }

  /// Calls visit(name, member) for each parameter, buffer and sub-module (see Module).
  static void fields(auto& self, auto&& visit) {
    visit("source_input", self.source_input);
    visit("target_input", self.target_input);
    visit("source_positions", self.source_positions);
    visit("target_positions", self.target_positions);
    visit("", self.transformer);
    visit("output", self.output);
  }

 private:
  static constexpr const char* name = "sequence_regressor";

  Var<T> embed(const Context<T>& ctx, const Linear<T>& input, const detail::PositionalEncoding<T>& positions,
               const Var<T>& x, const SequenceLayout& layout) const {
    detail::check_rows(name, "input", x.shape(), layout);
    return dropout(ctx.for_rows(layout), positions(ctx, input(ctx, x), layout), options.embedding_rate());
  }
};

EIGENFORMER_MODULE_INSTANCES(SequenceRegressor)

}  // namespace eigenformer
