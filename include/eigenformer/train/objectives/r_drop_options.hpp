#pragma once

#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/models/seq2seq_options.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

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
  void require_dropout(const Seq2SeqOptions& model) const {
    const auto drops = [](const LayerOptions& layer) {
      return layer.attention_dropout() > 0 || layer.feed_forward_dropout() > 0 ||
             layer.residual_dropout() > 0 || layer.layer_drop > 0;
    };
    if (weight == 0 || model.embedding_rate() > 0 || drops(model.encoder.layer.value_or(model.layer)) ||
        drops(model.decoder.layer.value_or(model.layer)))
      return;
    throw ValueError("r_drop",
                     "r_drop is " + detail::number_text(weight) +
                         " and the model has no dropout, so two passes through it never differ: give it a "
                         "dropout rate, or set r_drop = 0");
  }
};

}  // namespace eigenformer
