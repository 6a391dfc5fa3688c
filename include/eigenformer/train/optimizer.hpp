#pragma once

#include <vector>

#include "eigenformer/optim/any_optimizer.hpp"
#include "eigenformer/train/options.hpp"

namespace eigenformer {

/// Creates the optimizer that the options name, for these parameters. For a subset of a model's parameters
/// set options.groups to groups_of() of that subset. Throws ValueError for invalid options, and for a group
/// that matches none of the parameters.
template <class T>
[[nodiscard]] AnyOptimizer<T> make_optimizer(const std::vector<ParameterHandle<T>>& parameters,
                                             const TrainingOptions& options) {
  options.optimizer.validate();
  switch (options.optimizer.kind) {
    case OptimizerKind::adafactor:
      return AnyOptimizer<T>(Adafactor<T>(parameters, {.weight_decay = options.weight_decay,
                                                       .scale_parameter = options.optimizer.scale_parameter,
                                                       .relative_step = options.optimizer.relative_step,
                                                       .groups = options.groups}));
    case OptimizerKind::sgd:
      return AnyOptimizer<T>(Sgd<T>(parameters, {.momentum = options.optimizer.momentum,
                                                 .weight_decay = options.weight_decay,
                                                 .groups = options.groups}));
    case OptimizerKind::adam:
      break;
  }
  return AnyOptimizer<T>(
      AdamW<T>(parameters, {.beta1 = options.beta1,
                            .beta2 = options.beta2,
                            .eps = options.adam_eps,
                            .weight_decay = options.weight_decay,
                            .groups = options.groups,
                            .state = options.optimizer.state}));  // without decay it is Adam
}

}  // namespace eigenformer
