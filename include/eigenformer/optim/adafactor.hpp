#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "eigenformer/optim/adafactor_step.hpp"
#include "eigenformer/optim/optimizer_state.hpp"
#include "eigenformer/optim/parameter_groups.hpp"

namespace eigenformer {

struct AdafactorOptions {
  double eps1 = 1e-30;        ///< added to each squared gradient
  double eps2 = 1e-3;         ///< least size of a parameter, with scale_parameter
  double clip_threshold = 1;  ///< root mean square of an update at most
  double decay_rate = 0.8;    ///< the means forget at the rate 1 - step^-decay_rate
  double beta1 = 0;           ///< decay of the mean of updates; 0: no momentum, and no memory for it
  double weight_decay = 0;    ///< shrinks the parameter itself, times the step size; norms and biases do not
                              ///< decay
  bool scale_parameter = true;  ///< steps are multiplied by max(eps2, root mean square of the parameter)
  bool relative_step = false;   ///< steps are multiplied by min(0.01, 1 / sqrt(step)), the paper's schedule
  ParameterGroups groups{};     ///< own rates and decay by name

  /// Throws ValueError that names an impossible field.
  void validate() const {
    const auto require = [](bool valid, const char* field, double value, const char* rule) {
      if (valid && std::isfinite(value)) return;
      throw ValueError("adafactor",
                       std::string(field) + " is " + std::to_string(value) + ", must be " + rule);
    };
    require(eps1 >= 0, "eps1", eps1, "finite and not negative");
    require(eps2 >= 0, "eps2", eps2, "finite and not negative");
    require(clip_threshold > 0, "clip_threshold", clip_threshold, "finite and positive");
    require(decay_rate > 0, "decay_rate", decay_rate, "finite and positive");
    require(beta1 >= 0 && beta1 < 1, "beta1", beta1, "in [0, 1)");
    require(weight_decay >= 0, "weight_decay", weight_decay, "finite and not negative");
  }
};

/// Adafactor (Shazeer and Stern 2018, algorithms 4 and 5), with the numbers of transformers' Adafactor. In
/// place of the mean square of each element of a matrix it keeps those of its rows and of its columns, so its
/// state is hardly any memory. Vectors have a mean square for each element. Holds the parameters' handles,
/// each once.
///
///     ef::Adafactor<float> optimizer(ef::parameters(model), {.scale_parameter = false});
///     optimizer.step(gradients, learning_rate);
///
/// A tensor of rank above 2 is a list of matrices, its last two dimensions. Weight decay leaves norms and
/// biases alone unless a group says otherwise.
template <class T = float>
class Adafactor {
 public:
  using value_type = T;

  /// Throws ValueError that names an impossible option, or a group that holds no parameter.
  explicit Adafactor(const std::vector<ParameterHandle<T>>& parameters, const AdafactorOptions& options = {})
      : options_(options), parameters_(detail::distinct("adafactor", parameters)) {
    options_.validate();
    moments_.resize(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i]->frozen) take_memory(i);
    }
    set_groups(options.groups);
  }

  /// Steps every parameter that is not frozen and got a gradient, which is first multiplied by grad_scale;
  /// the learning rate is multiplied by that of the parameter's group. Each counts its own steps. Throws
  /// ValueError for rates that are not finite, or when `gradients` lacks a parameter.
  void step(const Gradients<T>& gradients, double learning_rate, double grad_scale = 1) {
    detail::require_step("adafactor", learning_rate, grad_scale);
    for (const auto& p : parameters_) (void)detail::gradient_of("adafactor", gradients, *p);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& p = *parameters_[i];
      const T* g = detail::gradient_of("adafactor", gradients, p);
      if (g == nullptr || p.value.numel() == 0) continue;
      Moments& m = moments_[i];
      if (!m.steps.defined()) {
        take_memory(i);
        for (Tensor<T>* t : {&m.rows, &m.columns, &m.all, &m.mean}) {
          if (t->defined()) t->fill(T(0));
        }
        m.steps = Tensor<T>::scalar(T(0));
      }
      *m.steps.data() += T(1);
      const auto count = static_cast<double>(m.steps.item());
      double rate = learning_rate * rules_[i].rate;
      if (options_.relative_step) rate *= std::min(0.01, 1 / std::sqrt(count));
      detail::AdafactorStep<T> step{p.value, g, grad_scale};
      if (options_.scale_parameter) rate *= std::max(options_.eps2, step.parameter_size());
      const double decay = 1 - std::pow(count, -options_.decay_rate);
      if (m.rows.defined()) {
        step.factored(m.rows.data(), m.columns.data(), decay, options_.eps1);
      } else {
        step.full(m.all.data(), decay, options_.eps1);
      }
      step.apply(m.mean.defined() ? m.mean.data() : nullptr, rate, options_.clip_threshold, options_.beta1,
                 rules_[i].weight_decay);
      p.value.mark_changed();
    }
  }

  /// What is kept of every parameter that was stepped, under transformers' names: "<name>.exp_avg_sq_row" and
  /// "<name>.exp_avg_sq_col" of matrices, "<name>.exp_avg_sq" of vectors, with momentum "<name>.exp_avg", and
  /// "<name>.step"; shares storage.
  std::vector<StateEntry<T>> state() const {
    detail::require_distinct_names("adafactor", parameters_);
    std::vector<StateEntry<T>> entries;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Moments& m = moments_[i];
      if (!m.steps.defined()) continue;
      for (const Part& part : parts) {
        const Tensor<T>& tensor = m.*part.member;
        if (tensor.defined()) entries.push_back({parameters_[i]->name + part.name, tensor, {}});
      }
    }
    return entries;
  }
  /// Takes over what state() gave. Throws ValueError that lists all missing, unexpected and misshaped names,
  /// and then changes nothing.
  void load(const std::vector<StateEntry<T>>& entries) {
    detail::require_distinct_names("adafactor", parameters_);
    std::unordered_set<std::string> given;
    for (const auto& e : entries) given.insert(e.name);
    std::vector<detail::StateSlot<T>> slots;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Shape shape = parameters_[i]->value.shape();
      const bool any = std::any_of(std::begin(parts), std::end(parts), [&](const Part& part) {
        return given.count(parameters_[i]->name + part.name) > 0;
      });
      for (const Part& part : parts) {
        if (const auto s = shape_of(part.member, shape))
          slots.push_back({parameters_[i]->name + part.name, &(moments_[i].*part.member), *s, any});
      }
    }
    detail::load_slots("adafactor", slots, entries);
  }

  /// Replaces the parameter groups. Throws ValueError for impossible ones, and then changes nothing.
  void set_groups(const ParameterGroups& groups) {
    rules_ = detail::step_rules("adafactor", parameters_, groups, options_.weight_decay);
    options_.groups = groups;
  }

  const AdafactorOptions& options() const noexcept { return options_; }

 private:
  struct Moments {
    Tensor<T> rows, columns;  // of a matrix: mean squares of each row and of each column
    Tensor<T> all;            // of a vector: mean square of each element
    Tensor<T> mean;           // with momentum
    Tensor<T> steps;  // a scalar, so that it is saved like the others; undefined before the first step
  };
  struct Part {
    const char* name;
    Tensor<T> Moments::*member;
  };
  static constexpr Part parts[] = {{".exp_avg_sq_row", &Moments::rows},
                                   {".exp_avg_sq_col", &Moments::columns},
                                   {".exp_avg_sq", &Moments::all},
                                   {".exp_avg", &Moments::mean},
                                   {".step", &Moments::steps}};

  // The shape of a part for a parameter; nothing where the parameter does not have it.
  std::optional<Shape> shape_of(Tensor<T> Moments::*member, const Shape& parameter) const {
    const bool matrix = parameter.rank() >= 2;
    if (member == &Moments::steps) return Shape{};
    if (member == &Moments::mean) return options_.beta1 > 0 ? std::optional(parameter) : std::nullopt;
    if (member == &Moments::all) return matrix ? std::nullopt : std::optional(parameter);
    if (!matrix) return std::nullopt;
    return parameter.without(member == &Moments::rows ? -1 : -2);
  }

  // Before the first step, so that what lasts does not lie between what a step leaves behind.
  void take_memory(std::size_t i) {
    for (const Part& part : parts) {
      Tensor<T>& tensor = moments_[i].*part.member;
      if (part.member == &Moments::steps || tensor.defined()) continue;
      if (const auto shape = shape_of(part.member, parameters_[i]->value.shape())) tensor = Tensor<T>(*shape);
    }
  }

  AdafactorOptions options_;
  std::vector<ParameterHandle<T>> parameters_;
  std::vector<Moments> moments_;
  std::vector<detail::StepRule> rules_;
};

}  // namespace eigenformer
