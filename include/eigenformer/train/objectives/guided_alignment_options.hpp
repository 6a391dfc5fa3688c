#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// How given alignments of the training corpus teach the attention of a decoder layer to the source (Chen et
/// al. 2016; Garg et al. 2019). The defaults are Marian's.
struct GuidedAlignmentOptions {
  double weight = 0.1;  ///< of the alignment loss beside that of the words; 0: none
  index_t layer = -1;   ///< of the decoder, from 0; below 0 from its end: -1 is the last
  index_t head = 0;     ///< of that layer's attention to the source, from 0; -1: the mean of all heads

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
