#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// How a teacher's probabilities of each target token teach a model: word-level distillation (Hinton et al.
/// 2015; Kim and Rush 2016, section 3.1).
struct DistillationOptions {
  double weight = 0.5;     ///< w: the loss is (1 - w) that of the words and w that of the teacher
  double temperature = 1;  ///< divides the logits of both; the teacher's part is multiplied by its square

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
