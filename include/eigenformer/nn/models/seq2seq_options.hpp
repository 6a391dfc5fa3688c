#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "eigenformer/core/base/special_ids.hpp"
#include "eigenformer/nn/attention/added_positions.hpp"
#include "eigenformer/nn/options/layer.hpp"

namespace eigenformer {

/// Which matrices of a Seq2SeqTransformer are one.
enum class Tying {
  none,
  target,  ///< target embedding and output projection (Press and Wolf 2017)
  all,     ///< source embedding too; both languages have one vocabulary (Vaswani et al. 2017, 3.4)
};
template <>
struct EnumNames<Tying> {
  static constexpr std::array names = {"none", "target", "all"};
};

namespace detail {

// The fields that models of two stacks have in common: `o` has layer, final_norm, encoder and decoder.
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

// The fields of inputs: `o` has positions, max_length and embedding_dropout.
void visit_inputs(auto& o, auto&& visit) {
  visit(OptionField{"embedding_dropout",
                    "dropout rate of the sum of embedding and position; not given: dropout", Allowed::rate},
        o.embedding_dropout);
  visit(OptionField{"positions",
                    "position encoding added to the embeddings; in files and flags a value of "
                    "attention_positions works, too, and is then the only encoding; not given: sinusoidal, "
                    "or none if attention_positions is set"},
        o.positions);
  visit(OptionField{"max_length", "maximum sequence length in tokens; number of learned positions",
                    Allowed::positive},
        o.max_length);
}

// And of tokens: `o` has embedding_norm, scale_embedding and padding_index.
void visit_tokens(auto& o, auto&& visit) {
  visit_inputs(o, visit);
  visit(OptionField{"embedding_norm", "norm of the sum of embedding and position"}, o.embedding_norm);
  visit(OptionField{"scale_embedding", "multiply embeddings by sqrt(d_model)"}, o.scale_embedding);
  visit(OptionField{"padding_index", "id of the padding token; -1: none"}, o.padding_index);
}

// What positions that are added to a model's inputs need. Throws ValueError that names a field.
inline void require_input_positions(const char* op, const InputPositions& positions, index_t d_model) {
  std::visit([op](const auto& chosen) { validate_fields(op, chosen); }, positions);
  if (const auto* o = std::get_if<SinusoidalPositions>(&positions)) o->validate(op, d_model);
}

inline void require_padding(const char* op, const char* field, index_t id, index_t vocab_size) {
  if (id >= -1 && id < vocab_size) return;
  throw ValueError(op, std::string(field) + " is " + std::to_string(id) +
                           ", must be -1 or below the vocabulary's size, which is " +
                           std::to_string(vocab_size));
}

}  // namespace detail

/// Everything that fixes a Seq2SeqTransformer's shape and behaviour; the sizes' defaults are PyTorch's.
struct Seq2SeqOptions {
  index_t source_vocab_size = 0;  ///< must be given
  index_t target_vocab_size = 0;  ///< 0: source_vocab_size
  LayerOptions layer{};           ///< of both stacks
  bool final_norm = true;         ///< a norm after either stack, post-norm models too, as in PyTorch
  ModelStack encoder{};           ///< num_layers, and what differs from the two above
  ModelStack decoder{};
  std::optional<InputPositions> positions{};  ///< left out: sinusoidal, unless layer.positions has some
  index_t max_length = 1024;                  ///< tokens; the size of learned positions' table
  std::optional<double> embedding_dropout{};  ///< on embedding + position; left out: layer.dropout.rate
  bool embedding_norm = false;  ///< a norm of embedding + position, before its dropout (BART, BERT)
  bool scale_embedding = true;  ///< embeddings times sqrt(d_model)
  bool projection_bias = true;
  Tying tying = Tying::none;
  double logit_scale = 1;  ///< the decoder's output times this is projected; tied T5: d_model^-0.5
  bool causal = true;      ///< a target token sees itself and those before it
  /// Its embedding is zero, and trailing ones are padding where no layout is given; -1: none.
  index_t padding_index = SpecialIds::pad;
  /// Its embedding gets no gradient where it is read: PyTorch's padding_idx, of models whose decoder begins
  /// with the padding symbol; -1: padding_index.
  index_t constant_id = -1;

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

  index_t target_size() const noexcept {
    return target_vocab_size == 0 ? source_vocab_size : target_vocab_size;
  }
  double embedding_rate() const noexcept { return embedding_dropout.value_or(layer.dropout.rate); }
  InputPositions added_positions() const { return input_positions(positions, layer); }
  TransformerOptions transformer() const { return {layer, final_norm, encoder, decoder}; }

  /// Throws ValueError, as `op`, that names an impossible field.
  void validate(const char* op) const {
    validate_fields(op, *this);
    transformer().validate(op);
    if (tying == Tying::all && target_size() != source_vocab_size) {
      throw ValueError(op, "target_vocab_size is " + std::to_string(target_size()) +
                               ", must be source_vocab_size, which is " + std::to_string(source_vocab_size) +
                               ", to tie all embeddings");
    }
    detail::require_input_positions(op, added_positions(), layer.d_model);
    const index_t ids = std::min(source_vocab_size, target_size());
    detail::require_padding(op, "padding_index", padding_index, ids);
    detail::require_padding(op, "constant_id", constant_id, ids);
  }
};

}  // namespace eigenformer
