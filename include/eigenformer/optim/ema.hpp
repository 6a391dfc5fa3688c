#pragma once

#include <algorithm>
#include <vector>

#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/optim/optimizer_state.hpp"

namespace eigenformer {

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
      slots.push_back({parameters_[i]->name, "", &averages_[i], parameters_[i]->value.shape()});
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
