#pragma once

#include <optional>

#include "eigenformer/nn/models/seq2seq_options.hpp"

namespace eigenformer {

/// Everything that fixes a SequenceRegressor's shape and behaviour: the layers of Seq2SeqOptions, for
/// real-valued sequences.
struct SequenceRegressorOptions {
  index_t source_features = 1;
  index_t target_features = 1;
  index_t output_features = 1;
  LayerOptions layer{};    ///< of both stacks
  bool final_norm = true;  ///< a norm after either stack, post-norm models too, as in PyTorch
  ModelStack encoder{};    ///< num_layers, and what differs from the two above
  ModelStack decoder{};
  std::optional<InputPositions> positions{};        ///< left out: sinusoidal, unless layer.positions has some
  index_t max_length = 1024;                        ///< rows; the size of learned positions' table
  std::optional<double> embedding_dropout{};        ///< on input + position; left out: layer.dropout.rate
  bool causal = true;                               ///< a target row sees itself and those before it
  Activation output_activation = Activation::none;  ///< sigmoid or tanh for values in a known range

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

  double embedding_rate() const noexcept { return embedding_dropout.value_or(layer.dropout.rate); }
  InputPositions added_positions() const { return input_positions(positions, layer); }
  TransformerOptions transformer() const { return {layer, final_norm, encoder, decoder}; }

  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    validate_fields(op, *this);
    transformer().validate(op);
    detail::require_input_positions(op, added_positions(), layer.d_model);
  }
};

}  // namespace eigenformer
