#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/optim/optimizer_state.hpp"
#include "eigenformer/optim/parameter_groups.hpp"

namespace eigenformer {

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;   ///< added to the gradient, times the parameter; norms and biases do not decay
  ParameterGroups groups{};  ///< own rates and decay by name

  void validate() const {
    if (!(momentum >= 0 && momentum < 1)) {
      throw ValueError("sgd", "momentum is " + std::to_string(momentum) + ", must be in [0, 1)");
    }
    if (nesterov && momentum == 0) throw ValueError("sgd", "nesterov needs a momentum above 0");
    if (!(weight_decay >= 0 && std::isfinite(weight_decay))) {
      throw ValueError("sgd", "weight_decay is " + std::to_string(weight_decay) + ", must not be negative");
    }
  }
};

/// Stochastic gradient descent with momentum, in PyTorch's form. Holds the parameters' handles, each once.
///
///     ef::Sgd<float> optimizer(ef::parameters(model), {.momentum = 0.9});
///     optimizer.step(gradients, 0.1);
///
/// Weight decay leaves norms and biases alone unless a group says otherwise; PyTorch's decays all that it is
/// given.
template <class T = float>
class Sgd {
 public:
  using value_type = T;  ///< element type, float or double

  /// Throws ValueError that names the invalid option, or a group that holds no parameter.
  explicit Sgd(const std::vector<ParameterHandle<T>>& parameters, const SgdOptions& options = {})
      : options_(options), parameters_(detail::distinct("sgd", parameters)), momentum_(parameters_.size()) {
    options_.validate();
    set_groups(options.groups);
  }

  /// Steps every parameter that is not frozen and got a gradient, which is first multiplied by grad_scale;
  /// the learning rate is multiplied by that of the parameter's group. Throws ValueError for rates that are
  /// not finite, or when `gradients` lacks a parameter.
  void step(const Gradients<T>& gradients, double learning_rate, double grad_scale = 1) {
    detail::require_step("sgd", learning_rate, grad_scale);
    for (const auto& p : parameters_) (void)detail::gradient_of("sgd", gradients, *p);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& p = *parameters_[i];
      const T* g = detail::gradient_of("sgd", gradients, p);
      if (g == nullptr) continue;
      const bool first = options_.momentum > 0 && !momentum_[i].defined();
      if (first) momentum_[i] = Tensor<T>(p.value.shape());
      kernels::sgd_step<T>(p.value.data(), g, options_.momentum > 0 ? momentum_[i].data() : nullptr,
                           p.value.numel(), learning_rate * rules_[i].rate, options_.momentum,
                           options_.nesterov, rules_[i].weight_decay, first, grad_scale);
      p.value.mark_changed();
    }
  }

  /// The momentum of every parameter that was stepped, "<name>.momentum_buffer"; shares storage.
  std::vector<StateEntry<T>> state() const {
    detail::require_distinct_names("sgd", parameters_);
    std::vector<StateEntry<T>> entries;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (momentum_[i].defined())
        entries.push_back({parameters_[i]->name + ".momentum_buffer", momentum_[i], {}});
    }
    return entries;
  }
  /// Loads what state() returned; the tensors are copied. Throws ValueError that lists all unexpected and
  /// misshaped names, and then changes nothing.
  void load(const std::vector<StateEntry<T>>& entries) {
    detail::require_distinct_names("sgd", parameters_);
    std::vector<detail::StateSlot<T>> slots;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      slots.push_back(
          {parameters_[i]->name + ".momentum_buffer", &momentum_[i], parameters_[i]->value.shape(), false});
    }
    detail::load_slots("sgd", slots, entries);
  }

  /// Replaces the parameter groups. Throws ValueError for impossible ones, and then changes nothing.
  void set_groups(const ParameterGroups& groups) {
    rules_ = detail::step_rules("sgd", parameters_, groups, options_.weight_decay);
    options_.groups = groups;
  }

  const SgdOptions& options() const noexcept { return options_; }
  const std::vector<ParameterHandle<T>>& parameters() const noexcept { return parameters_; }

 private:
  SgdOptions options_;
  std::vector<ParameterHandle<T>> parameters_;
  std::vector<Tensor<T>> momentum_;
  std::vector<detail::StepRule> rules_;
};

}  // namespace eigenformer
