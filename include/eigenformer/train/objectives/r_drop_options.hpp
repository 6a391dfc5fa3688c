#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// R-Drop (Liang et al. 2021): each batch goes through the model twice, with different dropout, and beside
/// the loss of the words the two passes' probabilities are to be alike. An update takes twice the time and
/// memory of activations.
struct RDropOptions {
  double weight = 0;  ///< alpha of the paper, which has 5 for translation; 0: off

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"r_drop",
                      "R-Drop's weight: two passes with different dropout are to agree (5 is usual); 0: off",
                      Allowed::not_negative},
          self.weight);
  }
};

}  // namespace eigenformer
