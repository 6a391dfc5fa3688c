#pragma once

#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// Which optimizer updates the parameters.
enum class OptimizerKind {
  adam,       ///< AdamW
  adafactor,  ///< Adafactor
  sgd         ///< Sgd
};
EIGENFORMER_ENUM_NAMES(OptimizerKind, "adam", "adafactor", "sgd")

/// Number format of an optimizer's moments.
enum class StatePrecision {
  float32,  ///< the parameters' own type
  bf16,     ///< bfloat16, rounded stochastically: half the memory
};
EIGENFORMER_ENUM_NAMES(StatePrecision, "float32", "bf16")

/// The optimizer of a training. Learning rates and weight decay are options of the training.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;        ///< which optimizer
  StatePrecision state = StatePrecision::float32;  ///< of Adam's moments; bf16 is an error for the others
  double momentum = 0;                             ///< SGD only, in [0, 1)
  /// Adafactor only: steps are multiplied by the root mean square of the parameter (Shazeer and Stern 2018,
  /// section 8); the learning rate is then relative, such as 0.01.
  bool scale_parameter = false;
  /// Adafactor only: steps are multiplied by min(0.01, 1 / sqrt(step)), the paper's schedule.
  bool relative_step = false;

  /// Calls visit(OptionField, member) for each field (see OptionField).
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"optimizer", "optimizer: adam (AdamW if weight_decay is above 0), adafactor or sgd"},
          self.kind);
    visit(
        OptionField{
            "optimizer_state",
            "precision of Adam's moments: float32, or bfloat16 with stochastic rounding in half the memory"},
        self.state);
    visit(OptionField{"momentum", "momentum of SGD", Allowed::rate}, self.momentum);
    visit(
        OptionField{
            "adafactor_scale_parameter",
            "scale Adafactor's steps by the size of the parameter; learning rates are then about 0.01"},
        self.scale_parameter);
    visit(OptionField{"adafactor_relative_step",
                      "Adafactor's own schedule: multiply steps by min(0.01, 1 / sqrt(update))"},
          self.relative_step);
  }

  /// Throws ValueError that names an invalid field, or one that the chosen optimizer does not have.
  void validate() const;
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION void OptimizerOptions::validate() const {
  validate_fields("optimizer", *this);
  const auto require = [&](bool unset, const char* field, OptimizerKind owner) {
    if (unset || kind == owner) return;
    throw ValueError("optimizer",
                     {field, " is an option of ", word_of(owner), ", and the optimizer is ", word_of(kind)});
  };
  require(state == StatePrecision::float32, "optimizer_state = bf16", OptimizerKind::adam);
  require(momentum == 0, "momentum", OptimizerKind::sgd);
  require(!scale_parameter, "adafactor_scale_parameter", OptimizerKind::adafactor);
  require(!relative_step, "adafactor_relative_step", OptimizerKind::adafactor);
}

}  // namespace eigenformer

#endif
