#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

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
