#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/optim/optimizer_state.hpp"

namespace eigenformer {

/// The exponential moving average of parameters over updates, whose noise it leaves out (Polyak and Juditsky
/// 1992; exponential smoothing in Marian). One copy of the parameters in memory.
///
///     ef::ExponentialAverage<float> average(ef::parameters(model), 0.999);
///     optimizer.step(gradients, rate);
///     average.update();                      // after each step
///     average.exchange();                    // the model has the averages, until the next exchange()
///
/// average = d average + (1 - d) parameter, with d = min(decay, (1 + n) / (10 + n)) after n updates: the
/// first update takes the parameters as they are, and early ones fade soon, so that what training began with
/// has no part in it.
template <class T = float>
class ExponentialAverage {
 public:
  /// Throws ValueError for a decay outside [0, 1).
  ExponentialAverage(const std::vector<ParameterHandle<T>>& parameters, double decay)
      : decay_(decay), parameters_(detail::distinct("ema", parameters)), averages_(parameters_.size()) {
    if (!(decay >= 0 && decay < 1))
      throw ValueError("ema", "decay is " + std::to_string(decay) + ", must be in [0, 1)");
  }

  /// Takes the parameters as they are now into the average; those that are frozen stay out of it. Throws
  /// ValueError between two calls of exchange().
  void update() {
    if (exchanged_)
      throw ValueError("ema",
                       "the parameters hold the averages now; call exchange() first to restore the weights");
    const auto n = static_cast<double>(updates_++);
    // The two shares add up to 1 exactly, else the average would shrink or grow.
    const T kept = static_cast<T>(std::min(decay_, (1 + n) / (10 + n)));
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto& p = *parameters_[i];
      Tensor<T>& average = averages_[i];
      if (!average.defined()) {
        if (!p.frozen) average = p.value.clone();
        continue;
      }
      kernels::axpby<T>(T(1) - kept, p.value.data(), kept, average.data(), average.numel());
    }
  }

  /// How many updates the average is of.
  index_t updates() const noexcept { return updates_; }
  /// Swaps the averages with the parameters' values; before the first update() nothing happens.
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
  /// Whether the parameters hold the averages.
  bool exchanged() const noexcept { return exchanged_; }
  /// A parameter's values of training, wherever they are; i counts the parameters that were given, each once.
  const Tensor<T>& trained(std::size_t i) const {
    return exchanged_ && averages_[i].defined() ? averages_[i] : parameters_[i]->value;
  }

  /// The averages by the parameters' names; shares storage.
  std::vector<StateEntry<T>> state() const {
    detail::require_distinct_names("ema", parameters_);
    std::vector<StateEntry<T>> entries;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!averages_[i].defined()) continue;
      entries.push_back({parameters_[i]->name, exchanged_ ? parameters_[i]->value : averages_[i], {}});
    }
    return entries;
  }
  /// Takes over what state() and updates() gave. Throws ValueError that lists all unexpected and misshaped
  /// names, and then changes nothing.
  void load(const std::vector<StateEntry<T>>& entries, index_t updates) {
    if (updates < 0)
      throw ValueError("ema", "updates is " + std::to_string(updates) + ", must not be negative");
    detail::require_distinct_names("ema", parameters_);
    std::vector<detail::StateSlot<T>> slots;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      slots.push_back({parameters_[i]->name, &averages_[i], parameters_[i]->value.shape(), false});
    detail::load_slots("ema", slots, entries);
    updates_ = updates;
  }

 private:
  double decay_;
  std::vector<ParameterHandle<T>> parameters_;
  std::vector<Tensor<T>> averages_;
  index_t updates_ = 0;
  bool exchanged_ = false;
};

}  // namespace eigenformer
