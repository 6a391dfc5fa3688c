#pragma once

#include <optional>

#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/nn/attention/positional_encoding.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Which embeddings and projections of a Seq2SeqTransformer share one matrix.
enum class Tying {
  none,    ///< three matrices
  target,  ///< target embedding and output projection (Press and Wolf 2017)
  all,     ///< source embedding too; both languages have one vocabulary (Vaswani et al. 2017, 3.4)
};
EIGENFORMER_ENUM_NAMES(Tying, "none", "target", "all")

namespace detail {

// The fields that models with two stacks share: `o` has layer, final_norm, encoder and decoder.
void visit_stacks(auto& o, auto&& visit) {
  LayerOptions::fields(o.layer, visit);
  visit(OptionField{"final_norm", "norm after the last layer of each stack"}, o.final_norm);
  visit(OptionField{"num_encoder_layers", "number of encoder layers", Allowed::positive},
        o.encoder.num_layers);
  visit(OptionField{"num_decoder_layers", "number of decoder layers", Allowed::positive},
        o.decoder.num_layers);
  visit(OptionGroup{"encoder", "values of the layer's fields and of final_norm for the encoder alone"},
        o.encoder);
  visit(OptionGroup{"decoder", "values of the layer's fields and of final_norm for the decoder alone"},
        o.decoder);
}

// The fields for inputs: `o` has positions, max_length and embedding_dropout.
void visit_inputs(auto& o, auto&& visit) {
  visit(OptionField{"embedding_dropout",
                    "dropout rate of the sum of embedding and position; not given: dropout", Allowed::rate},
        o.embedding_dropout);
  visit(OptionField{"positions",
                    "position encoding added to the embeddings; not given: sinusoidal, or none if "
                    "attention_positions is set. A value of attention_positions, such as rotary, is set "
                    "there, and nothing is added to the embeddings"},
        o.positions);
  visit(OptionField{"max_length", "maximum sequence length in tokens; number of learned positions",
                    Allowed::positive},
        o.max_length);
}

// The fields for inputs that are tokens: `o` also has embedding_norm, scale_embedding and padding_index.
void visit_tokens(auto& o, auto&& visit) {
  visit_inputs(o, visit);
  visit(OptionField{"embedding_norm", "norm of the sum of embedding and position"}, o.embedding_norm);
  visit(OptionField{"scale_embedding", "multiply embeddings by sqrt(d_model)"}, o.scale_embedding);
  visit(OptionField{"padding_index", "id of the padding token; -1: none"}, o.padding_index);
}

// Checks positions that are added to a model's inputs. Throws ValueError that names the invalid field.
inline void require_input_positions(const char* op, const InputPositions& positions, index_t d_model) {
  std::visit([op](const auto& chosen) { validate_fields(op, chosen); }, positions);
  if (const auto* o = std::get_if<SinusoidalPositions>(&positions)) o->validate(op, d_model);
}

inline void require_padding(const char* op, const char* field, index_t id, index_t vocab_size) {
  if (id >= -1 && id < vocab_size) return;
  throw ValueError(op,
                   {field, " is ", id, ", must be -1 or below the vocabulary's size, which is ", vocab_size});
}

}  // namespace detail

/// Options of a Seq2SeqTransformer: its shape and behaviour. The default sizes are PyTorch's.
struct Seq2SeqOptions {
  index_t source_vocab_size = 0;  ///< ids are below it; required
  index_t target_vocab_size = 0;  ///< 0: source_vocab_size
  LayerOptions layer{};           ///< of both stacks
  bool final_norm = true;         ///< a norm after each stack, even with post-norm layers, as in PyTorch
  detail::ModelStack encoder{};   ///< num_layers of the encoder, and what overrides the two above
  detail::ModelStack decoder{};   ///< num_layers of the decoder, and what overrides the two above
  std::optional<InputPositions>
      positions{};  ///< unset: sinusoidal, or none if layer.attention.positions has some
  /// Most tokens of a sequence; enforced only for learned positions, as their tables' size.
  index_t max_length = 1024;
  std::optional<double> embedding_dropout{};  ///< on embedding + position; unset: layer.dropout.rate
  bool embedding_norm = false;  ///< a norm of embedding + position, before its dropout (BART, BERT)
  bool scale_embedding = true;  ///< embeddings times sqrt(d_model)
  bool projection_bias = true;  ///< a bias of the output projection
  Tying tying = Tying::none;    ///< which matrices are shared
  double logit_scale = 1;  ///< factor of the decoder's output before the projection; tied T5: d_model^-0.5
  /// A target token sees only itself and those before it. Decoding token by token is always causal.
  bool causal = true;
  /// Id whose embedding starts at zero and gets no gradient from lookups; trailing ones are padding if no
  /// layout is given; -1: none.
  index_t padding_index = SpecialIds::pad;
  /// Id whose embedding gets no gradient from lookups, in place of padding_index: PyTorch's padding_idx, for
  /// models whose decoder begins with the padding symbol; -1: padding_index.
  index_t constant_id = -1;

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"source_vocab_size", "size of the source vocabulary", Allowed::positive},
          self.source_vocab_size);
    visit(OptionField{"target_vocab_size", "size of the target vocabulary; 0: source_vocab_size",
                      Allowed::not_negative},
          self.target_vocab_size);
    detail::visit_stacks(self, visit);
    detail::visit_tokens(self, visit);
    visit(OptionField{"projection_bias", "bias in the output projection"}, self.projection_bias);
    visit(
        OptionField{
            "tying",
            "shared matrices: target: target embedding and output projection; all: source embedding too"},
        self.tying);
    visit(OptionField{"logit_scale",
                      "factor that the decoder's output is multiplied by before the output projection",
                      Allowed::finite},
          self.logit_scale);
    visit(OptionField{"causal",
                      "causal mask in the decoder: a target token attends to itself and earlier ones"},
          self.causal);
    visit(OptionField{"constant_id", "id whose embedding gets no gradient as an input; -1: padding_index"},
          self.constant_id);
  }

  /// Size of the target vocabulary, with 0 resolved.
  index_t target_size() const noexcept {
    return target_vocab_size == 0 ? source_vocab_size : target_vocab_size;
  }
  /// Dropout rate of embedding + position.
  double embedding_rate() const noexcept { return embedding_dropout.value_or(layer.dropout.rate); }
  /// The positions that are added to the embeddings.
  InputPositions input_positions() const { return eigenformer::detail::input_positions(positions, layer); }
  /// Options of the model's Transformer.
  TransformerOptions transformer() const { return {layer, final_norm, encoder, decoder}; }

  /// Throws ValueError (`[op] ...`) that names the invalid field.
  void validate(const char* op) const;
};

#if EIGENFORMER_DEFINITIONS

EIGENFORMER_FUNCTION void Seq2SeqOptions::validate(const char* op) const {
  validate_fields(op, *this);
  transformer().validate(op);
  if (tying == Tying::all && target_size() != source_vocab_size) {
    throw ValueError(op, {"target_vocab_size is ", target_size(), ", must be source_vocab_size, which is ",
                          source_vocab_size, ", to tie all embeddings"});
  }
  detail::require_input_positions(op, input_positions(), layer.d_model);
  const index_t ids = std::min(source_vocab_size, target_size());
  detail::require_padding(op, "padding_index", padding_index, ids);
  detail::require_padding(op, "constant_id", constant_id, ids);
}

#endif

}  // namespace eigenformer
