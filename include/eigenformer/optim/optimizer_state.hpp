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

namespace eigenformer::detail {

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

// The gradient of a parameter; nullptr if the parameter is frozen or has no gradient.
template <class T>
const T* gradient_of(const char* op, const Gradients<T>& gradients, const detail::ParameterState<T>& p) {
  if (p.frozen) return nullptr;
  const auto* entry = gradients.find(p.id);
  if (entry == nullptr) {
    throw ValueError(op, "there is no gradient of parameter '" + p.name + "' of shape " +
                             p.value.shape().str() + "; construct the gradients with it, or freeze it");
  }
  return entry->written ? entry->value.data() : nullptr;
}

inline void require_step(const char* op, double learning_rate, double grad_scale) {
  if (!std::isfinite(learning_rate) || !std::isfinite(grad_scale)) {
    throw ValueError(op, "learning rate is " + std::to_string(learning_rate) + " and gradient scale " +
                             std::to_string(grad_scale) + ", both must be finite");
  }
}

// A tensor of an optimizer's state and its name in a state dict.
template <class T>
struct StateSlot {
  std::string name;
  Tensor<T>* tensor;
  Shape shape;
  bool required;  // whether a missing one is an error
};

template <class T>
void require_distinct_names(const char* op, const std::vector<ParameterHandle<T>>& parameters) {
  std::unordered_set<std::string> names;
  for (const auto& p : parameters) {
    if (!names.insert(p->name).second) {
      throw ValueError(
          op, "two parameters are named '" + p->name + "': call name_parameters on the model that has them");
    }
  }
}

// Copies entries into slots, or throws ValueError that lists every problem and copies nothing.
template <class T>
void load_slots(const char* op, const std::vector<StateSlot<T>>& slots,
                const std::vector<StateEntry<T>>& entries) {
  std::map<std::string, const Tensor<T>*> given;
  for (const auto& e : entries) given[e.name] = &e.value;
  std::string missing, misshaped, unexpected;
  const auto list = [](std::string& text, const std::string& item) {
    text += (text.empty() ? "" : ", ") + item;
  };
  std::vector<std::pair<Tensor<T>*, const Tensor<T>*>> copies;
  for (const auto& slot : slots) {
    const auto at = given.find(slot.name);
    if (at == given.end()) {
      if (slot.required) list(missing, slot.name);
      copies.emplace_back(slot.tensor, nullptr);
      continue;
    }
    if (at->second->shape() != slot.shape) {
      list(misshaped, slot.name + " is " + at->second->shape().str() + ", must be " + slot.shape.str());
    }
    copies.emplace_back(slot.tensor, at->second);
    given.erase(at);
  }
  for (const auto& [name, tensor] : given) list(unexpected, name);
  std::string problems;
  if (!missing.empty()) problems += "missing: " + missing + ". ";
  if (!unexpected.empty()) problems += "unexpected: " + unexpected + ". ";
  if (!misshaped.empty()) problems += "wrong shape: " + misshaped + ". ";
  if (!problems.empty()) throw ValueError(op, problems.substr(0, problems.size() - 1));
  for (auto& [target, source] : copies) *target = source == nullptr ? Tensor<T>() : source->clone();
}

}  // namespace eigenformer::detail
