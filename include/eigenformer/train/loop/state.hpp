#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "eigenformer/io/safetensors/checkpoint.hpp"

namespace eigenformer::detail {

// The counters of a training.
struct TrainingProgress {
  index_t step = 0;             // updates
  index_t epoch = 0;            // complete passes over the corpus
  index_t batch = 0;            // of the epoch under way
  index_t validated_step = -1;  // after which the last validation was
  index_t bad_updates = 0;      // skipped in a row
  index_t expected_steps = 0;   // estimated for a time limit; 0: not yet
  index_t decay_step = -1;      // after which the learning rate began to decay; -1: it has not
  index_t decay_steps = 0;      // updates of the training that decays; 0: it follows the clock or a request
};

inline nlohmann::json to_json(const TrainingProgress& p) {
  nlohmann::json json = {{"step", p.step},
                         {"epoch", p.epoch},
                         {"batch", p.batch},
                         {"validated_step", p.validated_step},
                         {"bad_updates", p.bad_updates}};
  if (p.expected_steps > 0) json["expected_steps"] = p.expected_steps;
  if (p.decay_step >= 0) {
    json["decay_step"] = p.decay_step;
    json["decay_steps"] = p.decay_steps;
  }
  return json;
}

// Looks up the parts of a training state. All functions throw ValueError for a part that is missing or wrong.
template <class T>
class StateReader {
 public:
  explicit StateReader(const TrainingState<T>& state) : state_(state) {
    for (const auto& [name, tensor] : state.tensors) tensors_[name] = &tensor;
  }

  bool has(const char* key) const { return state_.values.contains(key); }

  template <class U>
  U value(const char* key) const {
    if (!has(key)) throw ValueError("training", std::string("the training state has no '") + key + "'");
    const nlohmann::json& found = state_.values.at(key);
    // nlohmann-json would convert 1e300 to an integer, which is undefined.
    constexpr bool counts = std::integral<U> && !std::same_as<U, bool>;
    try {
      if (!counts || found.is_number_integer()) return found.template get<U>();
    } catch (const nlohmann::json::exception&) {
    }
    throw ValueError(
        "training",
        std::string("'") + key + "' of the training state has another type than expected: " + found.dump());
  }

  template <class U>
  void require_equal(const char* key, const U& now) const {
    if (value<U>(key) == now) return;
    throw ValueError("training", std::string("the training state was made with ") + key + " " +
                                     state_.values.at(key).dump() + ", cannot resume with " +
                                     nlohmann::json(now).dump());
  }

  // All tensors whose names begin with `prefix`, without it.
  std::vector<StateEntry<T>> tensors(const std::string& prefix) const {
    std::vector<StateEntry<T>> found;
    for (auto at = tensors_.lower_bound(prefix); at != tensors_.end() && at->first.rfind(prefix, 0) == 0;
         ++at) {
      found.push_back({at->first.substr(prefix.size()), *at->second, {}});
    }
    return found;
  }

  // One for each parameter, in their order.
  std::vector<StateEntry<T>> tensors(const std::string& prefix,
                                     const std::vector<ParameterHandle<T>>& parameters) const {
    std::vector<StateEntry<T>> found;
    for (const auto& p : parameters) {
      const auto at = tensors_.find(prefix + p->name);
      if (at == tensors_.end())
        throw ValueError("training", "the training state has no '" + prefix + p->name + "'");
      if (at->second->shape() != p->value.shape()) {
        throw ValueError("training", "'" + prefix + p->name + "' of the training state has shape " +
                                         at->second->shape().str() + ", must be " + p->value.shape().str());
      }
      found.push_back({p->name, *at->second, {}});
    }
    return found;
  }

 private:
  const TrainingState<T>& state_;
  std::map<std::string, const Tensor<T>*> tensors_;
};

template <class T>
TrainingProgress progress_from(const StateReader<T>& reader) {
  TrainingProgress p;
  p.step = reader.template value<index_t>("step");
  p.epoch = reader.template value<index_t>("epoch");
  p.batch = reader.template value<index_t>("batch");
  p.validated_step = reader.template value<index_t>("validated_step");
  p.bad_updates = reader.template value<index_t>("bad_updates");
  if (reader.has("expected_steps")) p.expected_steps = reader.template value<index_t>("expected_steps");
  if (reader.has("decay_step")) {
    p.decay_step = reader.template value<index_t>("decay_step");
    p.decay_steps = reader.template value<index_t>("decay_steps");
  }
  if (p.step < 0 || p.epoch < 0 || p.batch < 0 || p.bad_updates < 0 || p.expected_steps < 0)
    throw ValueError("training", "a counter of the training state is negative, must be 0 or above");
  return p;
}

}  // namespace eigenformer::detail
