#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "eigenformer/autograd/tape/gradients.hpp"
#include "eigenformer/optim/optimizer_state.hpp"
#include "eigenformer/train/distributed/communicator.hpp"
#include "eigenformer/train/options.hpp"

namespace eigenformer::detail {

/// A part of the gradients that is sent in one message: some entries, one after the other. Rank r reduces its
/// piece, elements [bounds[r], bounds[r + 1]).
struct Bucket {
  std::vector<std::size_t> entries;
  std::vector<std::size_t> offsets;  // of each entry, and the end
  std::vector<std::size_t> bounds;

  std::size_t size() const { return offsets.back(); }
};

/// Assigns each parameter to a rank: largest first, to the rank with the fewest elements so far. Frozen
/// parameters have no owner (-1).
template <class T>
std::vector<int> owners_of(const std::vector<ParameterHandle<T>>& parameters, int ranks) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return parameters[a]->value.numel() > parameters[b]->value.numel();
  });
  std::vector<index_t> load(static_cast<std::size_t>(ranks));
  std::vector<int> owners(parameters.size(), -1);
  for (const std::size_t i : order) {
    if (parameters[i]->frozen) continue;
    const auto least = std::min_element(load.begin(), load.end());
    owners[i] = static_cast<int>(least - load.begin());
    *least += parameters[i]->value.numel();
  }
  return owners;
}

/// The parameters that this rank's optimizer steps: its own with a sharded optimizer, else all.
template <class T>
std::vector<ParameterHandle<T>> parameters_of_rank(const std::vector<ParameterHandle<T>>& parameters,
                                                   const LoopOptions& options) {
  if (options.communicator == nullptr || !options.distributed.shard_optimizer) return parameters;
  const auto all = distinct("training", parameters);
  const std::vector<int> owners = owners_of(all, options.communicator->size());
  std::vector<ParameterHandle<T>> own;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (owners[i] == options.communicator->rank()) own.push_back(all[i]);
  }
  return own;
}

/// Splits the entries into buckets of about `most` elements, in the given order. Pieces are of equal size,
/// or, when entries have owners, each owner's entries.
template <class T>
std::vector<Bucket> make_buckets(const Gradients<T>& gradients, const std::vector<std::size_t>& order,
                                 std::size_t most, int ranks, const std::vector<int>& owners) {
  const auto elements = [&](std::size_t e) {
    return static_cast<std::size_t>(gradients.entries()[e].value.numel());
  };
  std::vector<Bucket> buckets;
  std::size_t held = 0;
  for (const std::size_t e : order) {
    if (gradients.entries()[e].parameter->frozen) continue;
    if (buckets.empty() || (held > 0 && held + elements(e) > most)) {
      buckets.emplace_back();
      held = 0;
    }
    buckets.back().entries.push_back(e);
    held += elements(e);
  }
  const auto n = static_cast<std::size_t>(ranks);
  for (Bucket& b : buckets) {
    if (!owners.empty()) {
      std::stable_sort(b.entries.begin(), b.entries.end(),
                       [&](std::size_t x, std::size_t y) { return owners[x] < owners[y]; });
    }
    b.offsets.push_back(0);
    for (const std::size_t e : b.entries) b.offsets.push_back(b.offsets.back() + elements(e));
    for (std::size_t r = 0; r <= n; ++r) {
      if (owners.empty()) {
        b.bounds.push_back(b.size() * r / n);
      } else {
        const auto first = std::find_if(b.entries.begin(), b.entries.end(),
                                        [&](std::size_t e) { return owners[e] >= static_cast<int>(r); });
        b.bounds.push_back(b.offsets[static_cast<std::size_t>(first - b.entries.begin())]);
      }
    }
  }
  return buckets;
}

/// Calls f(i, first, last) for each entry i of the bucket that overlaps [begin, end), with the overlap as
/// offsets into the bucket.
template <class F>
void for_entries(const Bucket& bucket, std::size_t begin, std::size_t end, F&& f) {
  for (std::size_t i = 0; i < bucket.entries.size(); ++i) {
    const std::size_t first = std::max(begin, bucket.offsets[i]);
    const std::size_t last = std::min(end, bucket.offsets[i + 1]);
    if (first < last) f(i, first, last);
  }
}

}  // namespace eigenformer::detail
