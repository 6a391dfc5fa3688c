#pragma once

#include <array>
#include <string>

#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// The rule by which parameters are stepped.
enum class OptimizerKind { adam, adafactor, sgd };
template <>
struct EnumNames<OptimizerKind> {
  static constexpr std::array names = {"adam", "adafactor", "sgd"};
};

/// The numbers in which an optimizer keeps its moments.
enum class StatePrecision {
  float32,  ///< the type of the parameters
  bf16,     ///< bfloat16, rounded stochastically: half the memory
};
template <>
struct EnumNames<StatePrecision> {
  static constexpr std::array names = {"float32", "bf16"};
};

/// Which optimizer a training has. Its rates and its weight decay are options of the training.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  StatePrecision state = StatePrecision::float32;  ///< of Adam's moments
  double momentum = 0;                             ///< of SGD
  /// Adafactor's steps are multiplied by the root mean square of the parameter that they change (Shazeer and
  /// Stern 2018, section 8); the learning rate is then a share of the parameter, such as 0.01.
  bool scale_parameter = false;
  /// Adafactor's steps are multiplied by min(0.01, 1 / sqrt(update)), the paper's own schedule.
  bool relative_step = false;

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

  /// Throws ValueError that names an impossible field, and one that the optimizer does not have.
  void validate() const {
    validate_fields("optimizer", *this);
    const auto require = [&](bool unset, const char* field, OptimizerKind owner) {
      if (unset || kind == owner) return;
      throw ValueError("optimizer", std::string(field) + " is an option of " + word_of(owner) +
                                        ", and the optimizer is " + word_of(kind));
    };
    require(state == StatePrecision::float32, "optimizer_state = bf16", OptimizerKind::adam);
    require(momentum == 0, "momentum", OptimizerKind::sgd);
    require(!scale_parameter, "adafactor_scale_parameter", OptimizerKind::adafactor);
    require(!relative_step, "adafactor_relative_step", OptimizerKind::adafactor);
  }
};

}  // namespace eigenformer
