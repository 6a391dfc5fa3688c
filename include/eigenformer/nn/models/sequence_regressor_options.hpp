#pragma once

#include <optional>

#include "eigenformer/nn/models/seq2seq_options.hpp"

namespace eigenformer {

/// Options of a SequenceRegressor: the layers of Seq2SeqOptions, for real-valued sequences.
struct SequenceRegressorOptions {
  index_t source_features = 1;  ///< of a source row
  index_t target_features = 1;  ///< of a target row
  index_t output_features = 1;  ///< of an output row
  LayerOptions layer{};         ///< of both stacks
  bool final_norm = true;       ///< a norm after each stack, even with post-norm layers, as in PyTorch
  ModelStack encoder{};         ///< num_layers of the encoder, and what overrides the two above
  ModelStack decoder{};         ///< num_layers of the decoder, and what overrides the two above
  std::optional<InputPositions> positions{};  ///< unset: sinusoidal, or none if layer.positions has some
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
  InputPositions added_positions() const { return input_positions(positions, layer); }
  /// Options of the model's Transformer.
  TransformerOptions transformer() const { return {layer, final_norm, encoder, decoder}; }

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const;
};

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void SequenceRegressorOptions::validate(const char* op) const {
  validate_fields(op, *this);
  transformer().validate(op);
  detail::require_input_positions(op, added_positions(), layer.d_model);
}

#endif

}  // namespace eigenformer
