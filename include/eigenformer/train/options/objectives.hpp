#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// Options of guided alignment: word alignments of the training corpus train the cross-attention of a decoder
/// layer (Chen et al. 2016; Garg et al. 2019). The defaults are Marian's.
struct GuidedAlignmentOptions {
  double weight = 0.1;  ///< of the alignment loss, added to the words' loss; 0: off
  index_t layer = -1;   ///< decoder layer, from 0; negative values count from the end, -1 is the last
  index_t head = 0;     ///< head of that layer's cross-attention, from 0; -1: the mean of all heads

  /// Visits the fields with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(
        OptionField{"guided_alignment_weight", "weight of the guided alignment loss", Allowed::not_negative},
        self.weight);
    visit(OptionField{"guided_alignment_layer",
                      "decoder layer whose attention guided alignment trains; -1: the last"},
          self.layer);
    visit(OptionField{"guided_alignment_head", "attention head of that layer; -1: the mean of all heads"},
          self.head);
  }
};

/// Options of R-Drop (Liang et al. 2021): each batch passes through the model twice with different dropout,
/// and a KL divergence between the two predictions is added to the loss. An update takes twice the time and
/// twice the memory for activations.
struct RDropOptions {
  double weight = 0;  ///< alpha of the paper, which uses 5 for translation; 0: off

  /// Visits the fields with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(
        OptionField{
            "r_drop",
            "weight of R-Drop, which makes two passes with different dropout agree (usually 5); 0: off",
            Allowed::not_negative},
        self.weight);
  }

  /// Throws ValueError when weight is not 0 and the model has no dropout: two passes would not differ.
  void require_dropout(const Seq2SeqOptions& model) const;
};

/// Options of word-level knowledge distillation (Hinton et al. 2015; Kim and Rush 2016, section 3.1).
struct DistillationOptions {
  double weight = 0.5;     ///< w: the loss is (1 - w) times the words' plus w times the teacher's
  double temperature = 1;  ///< T: divides both models' logits; the teacher's term is multiplied by T^2

  /// Visits the fields with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"distillation_weight",
                      "weight of the teacher's probabilities in the loss; the target tokens have the rest",
                      Allowed::share},
          self.weight);
    visit(OptionField{"distillation_temperature",
                      "divide the logits of model and teacher by this before they are compared",
                      Allowed::positive},
          self.temperature);
  }
};

}  // namespace eigenformer

#if EIGENFORMER_IO_DEFINITIONS

namespace eigenformer {

EIGENFORMER_IO_FUNCTION void RDropOptions::require_dropout(const Seq2SeqOptions& model) const {
  const auto drops = [](const LayerOptions& layer) {
    return layer.attention_dropout() > 0 || layer.feed_forward_dropout() > 0 ||
           layer.residual_dropout() > 0 || layer.layer_drop > 0;
  };
  if (weight == 0 || model.embedding_rate() > 0 || drops(model.encoder.layer.value_or(model.layer)) ||
      drops(model.decoder.layer.value_or(model.layer)))
    return;
  throw ValueError("r_drop",
                   {"r_drop is ", detail::number_text(weight),
                    " and the model has no dropout, so two passes through it never differ: give it a "
                    "dropout rate, or set r_drop = 0"});
}

}  // namespace eigenformer

#endif
