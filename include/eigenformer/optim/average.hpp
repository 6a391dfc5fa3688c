#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/optim/optimizer.hpp"

namespace eigenformer {

/// The mean of several state dicts, tensor by tensor, in new tensors, summed in double in the given order;
/// tied parameters share the first one's tensor. Throws ValueError if there are no states, if their names,
/// shapes or ties differ, and for an entry that is tied to one that does not come before it.
template <class T>
[[nodiscard]] std::vector<StateEntry<T>> average_states(
    const std::vector<std::vector<StateEntry<T>>>& states) {
  if (states.empty()) throw ValueError("average", "there are no states to average, expected at least one");
  for (const auto& state : states) {
    if (state.size() == states[0].size()) continue;
    throw ValueError("average",
                     {"states differ: one has ", states[0].size(), " entries, another ", state.size()});
  }
  std::vector<StateEntry<T>> averaged;
  for (std::size_t e = 0; e < states[0].size(); ++e) {
    const StateEntry<T>& entry = states[0][e];
    for (const auto& state : states) {
      if (state[e].name != entry.name || state[e].value.shape() != entry.value.shape() ||
          state[e].alias_of != entry.alias_of) {
        throw ValueError("average",
                         {"states differ: '", entry.name, "' of shape ", entry.value.shape(),
                          " is not the entry at position ", e, " in all of them, with the same ties"});
      }
    }
    if (!entry.alias_of.empty()) {
      const auto shared = std::find_if(averaged.begin(), averaged.end(), [&](const StateEntry<T>& other) {
        return other.name == entry.alias_of;
      });
      if (shared == averaged.end()) {
        throw ValueError("average", {"'", entry.name, "' is tied to '", entry.alias_of,
                                     "', which does not come before it"});
      }
      averaged.push_back({entry.name, Tensor<T>(shared->value), entry.alias_of});
      continue;
    }
    Tensor<T> mean(entry.value.shape());
    T* out = mean.data();
    parallel_for(mean.numel(), 1 << 14, [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) {
        double sum = 0;
        for (const auto& state : states) sum += static_cast<double>(state[e].value.data()[i]);
        out[i] = static_cast<T>(sum / static_cast<double>(states.size()));
      }
    });
    averaged.push_back({entry.name, mean, {}});
  }
  return averaged;
}

/// Keeps copies of a model's last or best N state dicts and returns their mean (Vaswani et al. 2017, 6.1,
/// average the last 5 to 20).
///
///     ef::StateAverage<float> last(5);
///     last.add(ef::state_dict(model));                  // at each checkpoint; or add_best(..., loss)
///     ef::load_state_dict(model, last.average());
template <class T = float>
class StateAverage {
 public:
  /// Throws ValueError unless count is positive.
  explicit StateAverage(index_t count) : count_(count) {
    if (count < 1) throw ValueError("average", {"count is ", count, ", must be positive"});
  }

  /// Adds a copy of a state; beyond N states the oldest is dropped.
  void add(const std::vector<StateEntry<T>>& state) {
    push(state, 0);
    if (static_cast<index_t>(states_.size()) > count_) remove(0);
  }
  /// Adds a copy of a state if there are fewer than N or its cost is below the highest one, whose state is
  /// then dropped (the newest of equal ones). Costs of infinity or NaN are never taken. Returns whether the
  /// state was added. Do not mix with add(), whose states have cost 0.
  bool add_best(const std::vector<StateEntry<T>>& state, double cost) {
    if (!std::isfinite(cost)) return false;
    if (static_cast<index_t>(states_.size()) == count_) {
      std::size_t worst = 0;
      for (std::size_t k = 1; k < costs_.size(); ++k) {
        if (costs_[k] >= costs_[worst]) worst = k;
      }
      if (!(cost < costs_[worst])) return false;
      remove(worst);
    }
    push(state, cost);
    return true;
  }

  /// The kept states, oldest first.
  const std::deque<std::vector<StateEntry<T>>>& states() const noexcept { return states_; }
  /// The costs of the kept states; 0 for those of add().
  const std::deque<double>& costs() const noexcept { return costs_; }
  /// Number of kept states, at most N.
  index_t size() const noexcept { return static_cast<index_t>(states_.size()); }

  /// The mean of the kept states, in new tensors. Throws ValueError if there are none.
  [[nodiscard]] std::vector<StateEntry<T>> average() const {
    return average_states(std::vector<std::vector<StateEntry<T>>>(states_.begin(), states_.end()));
  }

 private:
  void push(const std::vector<StateEntry<T>>& state, double cost) {
    std::vector<StateEntry<T>> copy;
    copy.reserve(state.size());
    for (const auto& e : state)
      copy.push_back({e.name, e.alias_of.empty() ? e.value.clone() : e.value, e.alias_of});
    for (auto& e : copy) {
      if (e.alias_of.empty()) continue;
      for (const auto& other : copy) {
        if (other.name == e.alias_of) e.value = other.value;
      }
    }
    states_.push_back(std::move(copy));
    costs_.push_back(cost);
  }
  void remove(std::size_t k) {
    states_.erase(states_.begin() + static_cast<std::ptrdiff_t>(k));
    costs_.erase(costs_.begin() + static_cast<std::ptrdiff_t>(k));
  }

  index_t count_;
  std::deque<std::vector<StateEntry<T>>> states_;
  std::deque<double> costs_;
};

/// The exponential moving average of parameters over updates, which smooths out their noise (Polyak and
/// Juditsky 1992; exponential smoothing in Marian). It takes the memory of the parameters once more.
///
///     ef::ExponentialAverage<float> average(ef::parameters(model), 0.999);
///     optimizer.step(gradients, rate);
///     average.update();                      // after each step
///     average.exchange();                    // the model has the averages, until the next exchange()
///
/// average = d average + (1 - d) parameter, with d = min(decay, (1 + n) / (10 + n)) after n updates: the
/// first update copies the parameters, and early ones fade quickly, so the initial values have no weight.
template <class T = float>
class ExponentialAverage {
 public:
  /// Averages nothing before the first update(). Tied parameters are averaged once. Throws ValueError for a
  /// decay outside [0, 1).
  ExponentialAverage(const std::vector<ParameterHandle<T>>& parameters, double decay)
      : decay_(decay), parameters_(detail::distinct("ema", parameters)), averages_(parameters_.size()) {
    if (!(decay >= 0 && decay < 1)) throw ValueError("ema", {"decay is ", decay, ", must be in [0, 1)"});
  }

  /// Adds the current parameters to the average. A parameter that is frozen has no average until it is
  /// unfrozen. Throws ValueError while the averages are in the parameters (see exchange()).
  void update() {
    require_weights();
    const auto n = static_cast<double>(updates_++);
    // Computed so that the two weights add up to 1 exactly; otherwise the average would drift.
    const T kept = static_cast<T>(std::min(decay_, (1 + n) / (10 + n)));
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto& p = *parameters_[i];
      Tensor<T>& average = averages_[i];
      if (!average.defined()) {
        if (!p.frozen) average = p.value.clone();
        continue;
      }
      detail::kernels::axpby<T>(T(1) - kept, p.value.data(), kept, average.data(), average.numel());
    }
  }

  /// Number of updates so far.
  index_t updates() const noexcept { return updates_; }
  /// Swaps the averages with the parameters' values; a second call swaps them back. Parameters without an
  /// average do not change.
  void exchange() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!averages_[i].defined()) continue;
      T *a = averages_[i].data(), *p = parameters_[i]->value.data();
      parallel_for(averages_[i].numel(), 1 << 14,
                   [&](index_t begin, index_t end) { std::swap_ranges(a + begin, a + end, p + begin); });
      parameters_[i]->value.mark_changed();
    }
    exchanged_ = !exchanged_;
  }
  /// Whether exchange() has put the averages into the parameters.
  bool exchanged() const noexcept { return exchanged_; }
  /// The training values of parameter i, whether they are in the parameter or swapped out; i counts the
  /// constructor's parameters without repetitions. The tensor shares storage.
  const Tensor<T>& trained(std::size_t i) const {
    return exchanged_ && averages_[i].defined() ? averages_[i] : parameters_[i]->value;
  }

  /// The averages under the parameters' names; the tensors share storage. Throws ValueError if two parameters
  /// have the same name.
  std::vector<StateEntry<T>> state() const {
    detail::require_distinct_names("ema", parameters_);
    std::vector<StateEntry<T>> entries;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!averages_[i].defined()) continue;
      entries.push_back({parameters_[i]->name, exchanged_ ? parameters_[i]->value : averages_[i], {}});
    }
    return entries;
  }
  /// Loads what state() and updates() returned; the tensors are copied, and parameters without an entry have
  /// no average. Throws ValueError for a negative number of updates and while the averages are in the
  /// parameters (see exchange()), and ValueError that lists all unexpected and misshaped names; then nothing
  /// changes.
  void load(const std::vector<StateEntry<T>>& entries, index_t updates) {
    require_weights();
    if (updates < 0) throw ValueError("ema", {"updates is ", updates, ", must not be negative"});
    detail::require_distinct_names("ema", parameters_);
    std::vector<detail::StateSlot<T>> slots;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      slots.push_back({parameters_[i]->name, {"", parameters_[i]->value.shape()}, &averages_[i]});
    detail::load_slots("ema", slots, entries);
    updates_ = updates;
  }

 private:
  void require_weights() const {
    if (exchanged_)
      throw ValueError("ema",
                       "the parameters hold the averages now; call exchange() first to restore the weights");
  }

  double decay_;
  std::vector<ParameterHandle<T>> parameters_;
  std::vector<Tensor<T>> averages_;
  index_t updates_ = 0;
  bool exchanged_ = false;
};

}  // namespace eigenformer
