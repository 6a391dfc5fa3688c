#pragma once

#include <vector>

#include "eigenformer/train/step/updates.hpp"

namespace eigenformer::testing {

// Adds the gradients of the mean loss of batches to `gradients`, which must be zero.
template <class T, class Loss, class Batch>
detail::UpdateLoss accumulate_gradients(Loss& loss, const std::vector<Batch>& batches, Tape<T>& tape,
                                        const detail::DropoutKey& key, Gradients<T>& gradients) {
  const auto rate = [](index_t) { return 0.1; };
  detail::UpdatesOf<T, Loss&, const std::vector<Batch>&, decltype(rate)> updates(loss, batches, rate);
  updates.begin(1, 0, static_cast<index_t>(batches.size()));
  return detail::SequentialAccumulator<T>(tape).add(updates, {key}, gradients);
}

}  // namespace eigenformer::testing
