#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/gradients.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/options/field.hpp"
#include "eigenformer/optim/parameter_groups.hpp"

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

/// What a TrainingLoop steps, saves and loads: Adam, AdamW, Adafactor, Sgd, or a type of the caller's own.
/// Gradients may be of more parameters than the optimizer has.
template <class T = float>
class Optimizer {
 public:
  using value_type = T;  ///< element type, float or double

  virtual ~Optimizer() = default;
  /// Updates the parameters by their gradients times grad_scale. Throws ValueError for numbers that are not
  /// finite and for gradients that are missing or of another shape.
  virtual void step(const Gradients<T>& gradients, double learning_rate, double grad_scale = 1) = 0;
  /// All that a resumed training needs; tensors share the optimizer's storage. Throws ValueError if two
  /// parameters have the same name.
  virtual std::vector<StateEntry<T>> state() const = 0;
  /// Loads what state() returned for an optimizer of the same type; the tensors are copied. Throws ValueError
  /// that lists all names that do not match; then nothing changes.
  virtual void load(const std::vector<StateEntry<T>>& entries) = 0;
};

namespace detail {

// The parameters of an optimizer without repetitions; tied parameters have one handle.
template <class T>
std::vector<ParameterHandle<T>> distinct(const char* op, const std::vector<ParameterHandle<T>>& parameters) {
  std::vector<ParameterHandle<T>> kept;
  std::unordered_set<std::uint64_t> ids;
  for (const auto& p : parameters) {
    if (p == nullptr) throw ValueError(op, "a parameter is null, expected one that exists");
    if (ids.insert(p->id).second) kept.push_back(p);
  }
  return kept;
}

// A tensor that an optimizer keeps for a parameter, named `parameter` + `name` in a state dict.
struct StatePart {
  const char* name;
  Shape shape;
  bool counts = false;  // a scalar that counts steps
};

// Where a part of a state is.
template <class T>
struct StateSlot {
  std::string parameter;
  StatePart part;
  Tensor<T>* tensor;
};

template <class T>
void require_distinct_names(const char* op, const std::vector<ParameterHandle<T>>& parameters) {
  std::unordered_set<std::string> names;
  for (const auto& p : parameters) {
    if (!names.insert(p->name).second) {
      throw ValueError(
          op, {"two parameters are named '", p->name, "': call name_parameters on the model that has them"});
    }
  }
}

// Copies entries into slots, or throws ValueError that lists every problem and copies nothing. Of a parameter
// all parts must be given, or none.
template <class T>
void load_slots(const char* op, const std::vector<StateSlot<T>>& slots,
                const std::vector<StateEntry<T>>& entries) {
  std::map<std::string, const Tensor<T>*> given;
  for (const auto& e : entries) given[e.name] = &e.value;
  std::unordered_set<std::string> stepped;  // the parameters that have a part among them
  for (const auto& slot : slots) {
    if (given.count(slot.parameter + slot.part.name) > 0) stepped.insert(slot.parameter);
  }
  std::string missing, misshaped, unexpected, invalid;
  struct Copy {
    Tensor<T>* target;
    Tensor<T> memory;         // undefined: the slot becomes empty
    const Tensor<T>* source;  // null: the slot becomes empty
  };
  std::vector<Copy> copies;
  for (const auto& slot : slots) {
    const std::string name = slot.parameter + slot.part.name;
    const Shape& shape = slot.part.shape;
    const auto at = given.find(name);
    if (at == given.end()) {
      if (stepped.count(slot.parameter) > 0) append_listed(missing, name);
      copies.push_back({slot.tensor, {}, nullptr});
      continue;
    }
    if (at->second->shape() != shape) {
      append_listed(misshaped, name + " is " + at->second->shape().str() + ", must be " + shape.str());
    } else if (const T n = slot.part.counts ? at->second->item() : T(0);
               !(n >= 0 && n == std::floor(n) && n < T(1e15))) {
      append_listed(invalid, join({name, " is ", n, ", must be a number of steps"}));
    }
    // A slot that has memory keeps it. The memory of others is allocated before the first slot changes,
    // because it may run out.
    const bool fits = slot.tensor->defined() && slot.tensor->shape() == shape;
    copies.push_back({slot.tensor, fits ? *slot.tensor : Tensor<T>(shape), at->second});
    given.erase(at);
  }
  for (const auto& [name, tensor] : given) append_listed(unexpected, name);
  std::string problems;
  if (!missing.empty()) problems += "missing: " + missing + ". ";
  if (!unexpected.empty()) problems += "unexpected: " + unexpected + ". ";
  if (!misshaped.empty()) problems += "wrong shape: " + misshaped + ". ";
  if (!invalid.empty()) problems += "wrong value: " + invalid + ". ";
  if (!problems.empty()) throw ValueError(op, problems.substr(0, problems.size() - 1));
  for (Copy& c : copies) {
    const bool other = c.source != nullptr && c.source->numel() > 0 && c.source->data() != c.memory.data();
    if (other) c.memory.copy_from(*c.source);
    *c.target = std::move(c.memory);
  }
}

/// What Adam, Adafactor and Sgd share: parameters with a rule each, and a state that begins with the first
/// step of each. Constructors of derived classes call begin().
template <class T>
class ParameterOptimizer : public Optimizer<T> {
 public:
  void step(const Gradients<T>& gradients, double learning_rate, double grad_scale = 1) override;
  std::vector<StateEntry<T>> state() const override;
  void load(const std::vector<StateEntry<T>>& entries) override;

 protected:
  // op: begins error messages.
  ParameterOptimizer(const char* op, const std::vector<ParameterHandle<T>>& parameters)
      : parameters_(distinct(op, parameters)), states_(parameters_.size()), op_(op) {}

  void begin(const ParameterGroups& groups, double weight_decay);

  // The state of a parameter of this shape. The last part exists from the first step on.
  virtual std::vector<StatePart> parts_of(const Shape& parameter) const = 0;
  // Takes the memory that a step of parameter i needs beside its state. Called before any parameter changes.
  virtual void prepare(std::size_t /*i*/) {}
  // Steps parameter i. first: its state is new, and zero.
  virtual void step_parameter(std::size_t i, const T* gradient, double learning_rate, double grad_scale,
                              bool first) = 0;

  std::vector<ParameterHandle<T>> parameters_;
  std::vector<StepRule> rules_;                 // of each parameter
  std::vector<std::vector<Tensor<T>>> states_;  // of each parameter, in the order of its parts

 private:
  const T* gradient_of(const ParameterState<T>& p, const Gradients<T>& gradients) const;
  void take_memory(std::size_t i);

  const char* op_;
};

template <class T>
void ParameterOptimizer<T>::begin(const ParameterGroups& groups, double weight_decay) {
  rules_ = step_rules(op_, parameters_, groups, weight_decay);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    states_[i].resize(parts_of(parameters_[i]->value.shape()).size());
    if (!parameters_[i]->frozen) take_memory(i);
  }
}

// For all parts but the last: before the first step, so that lasting memory does not fragment that of a step.
template <class T>
void ParameterOptimizer<T>::take_memory(std::size_t i) {
  const std::vector<StatePart> parts = parts_of(parameters_[i]->value.shape());
  for (std::size_t k = 0; k + 1 < parts.size(); ++k) {
    if (!states_[i][k].defined()) states_[i][k] = Tensor<T>(parts[k].shape);
  }
}

// Null if the parameter is frozen or has no gradient.
template <class T>
const T* ParameterOptimizer<T>::gradient_of(const ParameterState<T>& p, const Gradients<T>& gradients) const {
  if (p.frozen) return nullptr;
  const auto* entry = gradients.find(p.id);
  if (entry == nullptr) {
    throw ValueError(op_, {"there is no gradient of parameter '", p.name, "' of shape ", p.value.shape(),
                           "; construct the gradients with it, or freeze it"});
  }
  if (entry->value.shape() != p.value.shape()) {
    throw ValueError(
        op_, {"the gradient of parameter '", p.name, "' has shape ", entry->value.shape(), ", must have ",
              p.value.shape(), "; make the optimizer anew when a parameter was assigned another shape"});
  }
  return entry->written ? entry->value.data() : nullptr;
}

template <class T>
void ParameterOptimizer<T>::step(const Gradients<T>& gradients, double learning_rate, double grad_scale) {
  if (!std::isfinite(learning_rate) || !std::isfinite(grad_scale)) {
    throw ValueError(op_, {"learning rate is ", learning_rate, " and gradient scale ", grad_scale,
                           ", both must be finite"});
  }
  // Memory is allocated first, so that nothing has changed if it runs out.
  std::vector<Tensor<T>> last(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (gradient_of(*parameters_[i], gradients) == nullptr) continue;
    prepare(i);
    if (states_[i].empty() || states_[i].back().defined()) continue;
    take_memory(i);
    last[i] = Tensor<T>(parts_of(parameters_[i]->value.shape()).back().shape);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const T* gradient = gradient_of(*parameters_[i], gradients);
    if (gradient == nullptr) continue;
    const bool first = last[i].defined();
    if (first) {
      states_[i].back() = std::move(last[i]);
      for (Tensor<T>& tensor : states_[i]) tensor.fill(T(0));
    }
    step_parameter(i, gradient, learning_rate * rules_[i].rate, grad_scale, first);
    parameters_[i]->value.mark_changed();
  }
}

template <class T>
std::vector<StateEntry<T>> ParameterOptimizer<T>::state() const {
  require_distinct_names(op_, parameters_);
  std::vector<StateEntry<T>> entries;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (states_[i].empty() || !states_[i].back().defined()) continue;
    const std::vector<StatePart> parts = parts_of(parameters_[i]->value.shape());
    for (std::size_t k = 0; k < parts.size(); ++k)
      entries.push_back({parameters_[i]->name + parts[k].name, states_[i][k], {}});
  }
  return entries;
}

template <class T>
void ParameterOptimizer<T>::load(const std::vector<StateEntry<T>>& entries) {
  require_distinct_names(op_, parameters_);
  std::vector<StateSlot<T>> slots;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto tensor = states_[i].begin();
    for (const StatePart& part : parts_of(parameters_[i]->value.shape()))
      slots.push_back({parameters_[i]->name, part, &*tensor++});
  }
  load_slots(op_, slots, entries);
}

EIGENFORMER_INSTANCES(class ParameterOptimizer)

}  // namespace detail

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
