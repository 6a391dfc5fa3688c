#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "eigenformer/optim/adafactor.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/optimizer_options.hpp"
#include "eigenformer/optim/sgd.hpp"

namespace eigenformer {

/// One of the library's optimizers, chosen at run time, as by OptimizerOptions.
///
///     ef::AnyOptimizer<float> optimizer(ef::Adafactor<float>(ef::parameters(model)));
///
/// An optimizer over some of a model's parameters steps, saves and loads only these, with the same results as
/// one over all parameters. Each of its groups must match one of them; see groups_of().
template <class T = float>
class AnyOptimizer {
 public:
  using value_type = T;  ///< element type, float or double

  /// Holds AdamW; with weight_decay 0 it is Adam.
  explicit AnyOptimizer(AdamW<T> optimizer) : optimizer_(std::move(optimizer)) {}
  /// Holds Adafactor.
  explicit AnyOptimizer(Adafactor<T> optimizer) : optimizer_(std::move(optimizer)) {}
  /// Holds Sgd.
  explicit AnyOptimizer(Sgd<T> optimizer) : optimizer_(std::move(optimizer)) {}

  /// Updates the parameters; throws as the step() of the held optimizer does.
  void step(const Gradients<T>& gradients, double learning_rate, double grad_scale = 1) {
    std::visit([&](auto& o) { o.step(gradients, learning_rate, grad_scale); }, optimizer_);
  }
  /// The state of the held optimizer, which shares its storage. Throws ValueError if two parameters have the
  /// same name.
  std::vector<StateEntry<T>> state() const {
    return std::visit([](const auto& o) { return o.state(); }, optimizer_);
  }
  /// Loads what state() returned for an optimizer of the same type; the tensors are copied. Throws ValueError
  /// that lists all names that do not match; then nothing changes.
  void load(const std::vector<StateEntry<T>>& entries) {
    std::visit([&](auto& o) { o.load(entries); }, optimizer_);
  }
  /// Replaces the parameter groups. Throws ValueError for an invalid group; then nothing changes.
  void set_groups(const ParameterGroups& groups) {
    std::visit([&](auto& o) { o.set_groups(groups); }, optimizer_);
  }

  /// The held optimizer; nullptr if it is not of type O.
  template <class O>
  const O* get_if() const noexcept {
    return std::get_if<O>(&optimizer_);
  }

 private:
  std::variant<AdamW<T>, Adafactor<T>, Sgd<T>> optimizer_;
};

}  // namespace eigenformer
