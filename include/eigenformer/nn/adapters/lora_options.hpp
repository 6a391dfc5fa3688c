#pragma once

#include <string>

#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// Options of LoRA (Hu et al. 2021): the weights W of chosen matrices stay fixed, and low-rank factors beside
/// them are trained: y = W x + (alpha / r) B A dropout(x), with A (r, in) and B (out, r).
struct LoraOptions {
  index_t rank = 0;    ///< r; 0: no adapter
  double alpha = 16;   ///< the scale of B A is alpha / r
  double dropout = 0;  ///< rate on the adapter's input, in training
  /// Which matrices get factors: names such as q_proj or decoder.layers.0.linear1, or patterns with '*' and
  /// '?', separated by commas. The rows of queries, keys and values of an attention are q_proj, k_proj and
  /// v_proj.
  std::string targets = "q_proj,v_proj";
  bool rank_stabilized = false;  ///< the scale is alpha / sqrt(r) (rsLoRA, Kalajdzievski 2023)

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"lora_rank",
                      "rank of the LoRA adapter to train instead of the whole model; 0: no adapter",
                      Allowed::not_negative},
          self.rank);
    visit(OptionField{"lora_alpha", "alpha of the LoRA adapter; its output is multiplied by alpha / rank",
                      Allowed::positive},
          self.alpha);
    visit(OptionField{"lora_dropout", "dropout rate of the adapter's input", Allowed::rate}, self.dropout);
    visit(OptionField{"lora_targets",
                      "weight matrices to adapt: comma-separated names such as q_proj or decoder.*.linear1"},
          self.targets);
    visit(OptionField{"lora_rank_stabilized", "multiply the adapter's output by alpha / sqrt(rank) (rsLoRA)"},
          self.rank_stabilized);
  }
};

}  // namespace eigenformer
