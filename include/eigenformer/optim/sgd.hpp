#pragma once

#include <vector>

#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/optim/optimizer.hpp"

namespace eigenformer {

/// Options of Sgd; the defaults are PyTorch's.
struct SgdOptions {
  double momentum = 0;    ///< decay of the sum of gradients, in [0, 1); 0: no momentum, which needs no memory
  bool nesterov = false;  ///< Nesterov momentum; needs a momentum above 0
  double weight_decay = 0;   ///< adds this times the parameter to the gradient; not for norms and biases
  ParameterGroups groups{};  ///< parameters with rates or decay of their own
};

/// Stochastic gradient descent with momentum (Sutskever et al. 2013), in PyTorch's form. It holds the
/// parameters' handles, so it may outlive the model. Frozen parameters and those without a gradient are not
/// stepped. The state is "p.momentum_buffer" of each parameter `p` that was stepped; empty without momentum.
///
///     ef::Sgd<float> optimizer(ef::parameters(model), {.momentum = 0.9});
///     optimizer.step(gradients, 0.1);
///
/// Norms and biases (rank below 2) do not decay unless a group says so; PyTorch's optimizers decay every
/// parameter that they are given.
template <class T = float>
class Sgd : public detail::ParameterOptimizer<T> {
 public:
  /// Throws ValueError that names the invalid option, or a group that matches no parameter or only parameters
  /// of earlier groups. Tied parameters are stepped once.
  explicit Sgd(const std::vector<ParameterHandle<T>>& parameters, const SgdOptions& options = {})
      : detail::ParameterOptimizer<T>("sgd", parameters), options_(options) {
    detail::require_allowed("sgd", "momentum", options.momentum, Allowed::rate);
    detail::require_allowed("sgd", "weight_decay", options.weight_decay, Allowed::not_negative);
    if (options.nesterov && options.momentum == 0)
      throw ValueError("sgd", "nesterov needs a momentum above 0");
    this->begin(options.groups, options.weight_decay);
  }

 private:
  std::vector<detail::StatePart> parts_of(const Shape& parameter) const override {
    if (options_.momentum == 0) return {};
    return {{".momentum_buffer", parameter}};
  }
  void step_parameter(std::size_t i, const T* gradient, double learning_rate, double grad_scale,
                      bool first) override {
    Tensor<T>& value = this->parameters_[i]->value;
    detail::kernels::sgd_step<T>(
        value.data(), gradient, options_.momentum > 0 ? this->states_[i][0].data() : nullptr, value.numel(),
        learning_rate, options_.momentum, options_.nesterov, this->rules_[i].weight_decay, first, grad_scale);
  }

  SgdOptions options_;
};

}  // namespace eigenformer
