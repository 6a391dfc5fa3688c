#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/packed/gemm_packed.hpp"

namespace eigenformer::kernels {

/// Weights of a training in bf16: rounded and packed at their first product after a change, and not at each.
///
/// Changes are known by the tensors' versions (Tensor::mark_changed) and by clear(). Holds twice the weights
/// in bfloat16, for x W^T and for x W: the memory of one more copy of them. Threads may share it.
class WeightCache {
 public:
  /// Rows [first, first + count) of weight (rows, k) as what x W^T multiplies by, or, if `transposed`, as
  /// what x W does. Products have the bits of gemm() with GemmPrecision::bf16. Throws ShapeError for another
  /// rank than 2, IndexError for rows that are not there.
  PackedMatrix get(const Tensor<float>& weight, index_t first, index_t count, bool transposed) {
    if (weight.rank() != 2)
      throw ShapeError("weight_cache", "weight " + weight.shape().str() + " must be a matrix",
                       {weight.shape()});
    if (first < 0 || count < 0 || count > weight.dim(0) - first) {
      throw IndexError("weight_cache", std::to_string(count) + " rows starting at row " +
                                           std::to_string(first) + " are outside a weight of shape " +
                                           weight.shape().str());
    }
    const index_t k = weight.dim(1);
    const float* rows = weight.data() + first * k;
    const Key key{rows, count, transposed};
    StorageWatch watch = weight.watch();
    {
      const std::lock_guard lock(mutex_);
      const auto at = entries_.find(key);
      if (at != entries_.end() && at->second.watch.same_storage(watch) && !at->second.watch.changed())
        return at->second.packed;
    }
    // Packing waits for other threads, which may be here as well: without the lock, at worst twice.
    PackedMatrix packed =
        PackedMatrix::pack_to_round(rows, transposed ? k : count, transposed ? count : k, transposed);
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return entry.second.watch.storage() == nullptr; });
    entries_[key] = {std::move(watch), packed};
    return packed;
  }

  /// Forgets all: the next products pack again.
  void clear() {
    const std::lock_guard lock(mutex_);
    entries_.clear();
  }

  /// Matrices that are held.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  using Key = std::tuple<const float*, index_t, bool>;
  struct Entry {
    StorageWatch watch;
    PackedMatrix packed;
  };

  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace eigenformer::kernels
