#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/packed/gemm_packed.hpp"

namespace eigenformer {

namespace detail::kernels {

/// Packed weights by parameter id and first row, which a Context passes to linear layers in place of the
/// parameters' values. Do not change it once it is shared; then any number of threads may use it.
class PackedWeights {
 public:
  /// Adds `w`, the rows [first_row, first_row + w.n()) of the parameter.
  void add(std::uint64_t parameter_id, index_t first_row, PackedMatrix w) {
    bytes_ += w.bytes();
    matrices_[{parameter_id, first_row}] = std::move(w);
  }

  /// The packed rows [first_row, first_row + count) of a parameter; null unless they were added as one
  /// matrix.
  const PackedMatrix* find(std::uint64_t parameter_id, index_t first_row, index_t count) const noexcept {
    const auto at = matrices_.find({parameter_id, first_row});
    return at == matrices_.end() || at->second.n() != count ? nullptr : &at->second;
  }

  /// Whether it has any rows of this parameter.
  bool contains(std::uint64_t parameter_id) const noexcept {
    const auto at = matrices_.lower_bound({parameter_id, 0});
    return at != matrices_.end() && at->first.first == parameter_id;
  }

  /// The number of matrices.
  std::size_t size() const noexcept { return matrices_.size(); }
  /// The memory of all matrices, in bytes.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::map<std::pair<std::uint64_t, index_t>, PackedMatrix> matrices_;
  std::size_t bytes_ = 0;
};

}  // namespace detail::kernels

/// The format of a model's weights, packed or in a file: float32, bf16 or int8.
using WeightFormat = detail::kernels::PackedMatrix::Format;

namespace detail::kernels {

/// Packed weights for training in bf16: rounded and packed at the first product after a change, not at each
/// one.
///
/// It detects changes by the tensors' versions (Tensor::mark_changed). It stores each weight twice in
/// bfloat16, for x W^T and for x W: as much memory as the weights in float32. Thread-safe.
class WeightCache {
 public:
  /// Rows [first, first + count) of weight (rows, k), packed for x W^T or, if `transposed`, for x W. Products
  /// are bit-identical to gemm() with GemmPrecision::bf16. Throws ShapeError for a rank other than 2,
  /// IndexError for rows that do not exist.
  PackedMatrix get(const Tensor<float>& weight, index_t first, index_t count, bool transposed) {
    if (weight.rank() != 2)
      throw ShapeError("weight_cache", {"weight ", weight.shape(), " must be a matrix"}, {weight.shape()});
    if (first < 0 || count < 0 || count > weight.dim(0) - first) {
      throw IndexError("weight_cache", {count, " rows starting at row ", first,
                                        " are outside a weight of shape ", weight.shape()});
    }
    const index_t k = weight.dim(1);
    const float* rows = weight.data() + first * k;
    const Key key{rows, count, k, transposed};
    StorageWatch watch = weight.watch();
    {
      const std::lock_guard lock(mutex_);
      const auto at = entries_.find(key);
      if (at != entries_.end() && at->second.watch.same_storage(watch) && !at->second.watch.changed())
        return at->second.packed;
    }
    // Packing waits for other threads, which may call get() too, so it holds no lock; at worst two threads
    // pack.
    PackedMatrix packed =
        PackedMatrix::pack_to_round(rows, transposed ? k : count, transposed ? count : k, transposed);
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return entry.second.watch.storage() == nullptr; });
    entries_[key] = {std::move(watch), packed};
    return packed;
  }

  /// Removes all matrices, so that the next products pack again.
  void clear() {
    const std::lock_guard lock(mutex_);
    entries_.clear();
  }

  /// The number of stored matrices.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  // First element, rows, columns, transposed: reshaped weights share memory.
  using Key = std::tuple<const float*, index_t, index_t, bool>;
  struct Entry {
    StorageWatch watch;
    PackedMatrix packed;
  };

  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace detail::kernels

}  // namespace eigenformer
