#pragma once

#include <cmath>
#include <vector>

#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/optim/optimizer.hpp"
#include "eigenformer/optim/parameter_groups.hpp"

namespace eigenformer {

/// Options of Sgd; the defaults are PyTorch's.
struct SgdOptions {
  double momentum = 0;    ///< decay of the sum of gradients, in [0, 1); 0: no momentum, which needs no memory
  bool nesterov = false;  ///< Nesterov momentum; needs a momentum above 0
  double weight_decay = 0;   ///< adds this times the parameter to the gradient; not for norms and biases
  ParameterGroups groups{};  ///< parameters with rates or decay of their own

  /// Throws ValueError that names the invalid field.
  void validate() const;
};

/// Stochastic gradient descent with momentum (Sutskever et al. 2013), in PyTorch's form. It holds the
/// parameters' handles, so it may outlive the model.
///
///     ef::Sgd<float> optimizer(ef::parameters(model), {.momentum = 0.9});
///     optimizer.step(gradients, 0.1);
///
/// Norms and biases (rank below 2) do not decay unless a group says so; PyTorch's optimizers decay every
/// parameter that they are given.
template <class T = float>
class Sgd : public Optimizer<T> {
 public:
  /// Throws ValueError that names the invalid option, or a group that matches no parameter or only parameters
  /// of earlier groups. Tied parameters are stepped once.
  explicit Sgd(const std::vector<ParameterHandle<T>>& parameters, const SgdOptions& options = {})
      : options_(options), parameters_(detail::distinct("sgd", parameters)), momentum_(parameters_.size()) {
    options_.validate();
    set_groups(options.groups);
  }

  /// Updates every parameter that is not frozen and has a gradient. Gradients are first multiplied by
  /// grad_scale, the learning rate by that of the parameter's group. Throws ValueError if learning_rate or
  /// grad_scale is not finite or `gradients` has no entry for a parameter; then nothing changes.
  void step(const Gradients<T>& gradients, double learning_rate, double grad_scale = 1) override {
    detail::require_step("sgd", learning_rate, grad_scale);
    // Memory is allocated first, so that nothing has changed if it runs out.
    std::vector<Tensor<T>> new_momentum(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const bool steps = detail::gradient_of("sgd", gradients, *parameters_[i]) != nullptr;
      if (steps && options_.momentum > 0 && !momentum_[i].defined())
        new_momentum[i] = Tensor<T>(parameters_[i]->value.shape());
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& p = *parameters_[i];
      const T* g = detail::gradient_of("sgd", gradients, p);
      if (g == nullptr) continue;
      const bool first = new_momentum[i].defined();
      if (first) momentum_[i] = std::move(new_momentum[i]);
      detail::kernels::sgd_step<T>(p.value.data(), g, options_.momentum > 0 ? momentum_[i].data() : nullptr,
                                   p.value.numel(), learning_rate * rules_[i].rate, options_.momentum,
                                   options_.nesterov, rules_[i].weight_decay, first, grad_scale);
      p.value.mark_changed();
    }
  }

  /// The momentum of every parameter that was stepped, "p.momentum_buffer" for parameter `p`; empty without
  /// momentum. The tensors share storage with the optimizer. Throws ValueError if two parameters have the
  /// same name.
  std::vector<StateEntry<T>> state() const override {
    detail::require_distinct_names("sgd", parameters_);
    std::vector<StateEntry<T>> entries;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (momentum_[i].defined())
        entries.push_back({parameters_[i]->name + ".momentum_buffer", momentum_[i], {}});
    }
    return entries;
  }
  /// Loads what state() returned; the tensors are copied, and parameters without entries start afresh. Throws
  /// ValueError that lists all unexpected and misshaped names, or if two parameters have the same name; then
  /// nothing changes.
  void load(const std::vector<StateEntry<T>>& entries) override {
    detail::require_distinct_names("sgd", parameters_);
    std::vector<detail::StateSlot<T>> slots;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      slots.push_back(
          {parameters_[i]->name, ".momentum_buffer", &momentum_[i], parameters_[i]->value.shape()});
    }
    detail::load_slots("sgd", slots, entries);
  }

  /// Replaces the parameter groups. Throws ValueError as the constructor does; then nothing changes.
  void set_groups(const ParameterGroups& groups) {
    rules_ = detail::step_rules("sgd", parameters_, groups, options_.weight_decay);
    options_.groups = groups;
  }

  /// The options, with the current groups.
  const SgdOptions& options() const noexcept { return options_; }
  /// The parameters, each once, in the order given.
  const std::vector<ParameterHandle<T>>& parameters() const noexcept { return parameters_; }

 private:
  SgdOptions options_;
  std::vector<ParameterHandle<T>> parameters_;
  std::vector<Tensor<T>> momentum_;
  std::vector<detail::StepRule> rules_;
};

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {

EIGENFORMER_FUNCTION void SgdOptions::validate() const {
  if (!(momentum >= 0 && momentum < 1)) {
    throw ValueError("sgd", {"momentum is ", momentum, ", must be in [0, 1)"});
  }
  if (nesterov && momentum == 0) throw ValueError("sgd", "nesterov needs a momentum above 0");
  if (!(weight_decay >= 0 && std::isfinite(weight_decay))) {
    throw ValueError("sgd", {"weight_decay is ", weight_decay, ", must not be negative"});
  }
}

}  // namespace eigenformer

#endif
