#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/optim/adafactor.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/optimizer_options.hpp"
#include "eigenformer/optim/sgd.hpp"

namespace eigenformer {

/// One of the library's optimizers, chosen at run time: what OptimizerOptions stand for.
///
///     ef::AnyOptimizer<float> optimizer(ef::Adafactor<float>(ef::parameters(model)));
///
/// An optimizer over a part of a model's parameters steps, saves and loads these alone, and steps them as one
/// over all parameters does; its groups must each hold one of them.
template <class T = float>
class AnyOptimizer {
 public:
  using value_type = T;  ///< element type, float or double

  explicit AnyOptimizer(AdamW<T> optimizer) : optimizer_(std::move(optimizer)) {}
  explicit AnyOptimizer(Adafactor<T> optimizer) : optimizer_(std::move(optimizer)) {}
  explicit AnyOptimizer(Sgd<T> optimizer) : optimizer_(std::move(optimizer)) {}

  /// As the optimizer that it holds.
  void step(const Gradients<T>& gradients, double learning_rate, double grad_scale = 1) {
    std::visit([&](auto& o) { o.step(gradients, learning_rate, grad_scale); }, optimizer_);
  }
  std::vector<StateEntry<T>> state() const {
    return std::visit([](const auto& o) { return o.state(); }, optimizer_);
  }
  void load(const std::vector<StateEntry<T>>& entries) {
    std::visit([&](auto& o) { o.load(entries); }, optimizer_);
  }
  void set_groups(const ParameterGroups& groups) {
    std::visit([&](auto& o) { o.set_groups(groups); }, optimizer_);
  }

  /// The optimizer itself; nullptr if it is of another type.
  template <class O>
  const O* get_if() const noexcept {
    return std::get_if<O>(&optimizer_);
  }

 private:
  std::variant<AdamW<T>, Adafactor<T>, Sgd<T>> optimizer_;
};

}  // namespace eigenformer
