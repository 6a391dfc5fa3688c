#pragma once

#include "eigenformer/core/base/config.hpp"
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

}  // namespace eigenformer
