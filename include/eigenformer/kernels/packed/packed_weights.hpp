#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "eigenformer/kernels/packed/gemm_packed.hpp"

namespace eigenformer::detail::kernels {

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

}  // namespace eigenformer::detail::kernels

namespace eigenformer {

/// The format of a model's weights, packed or in a file: float32, bf16 or int8.
using WeightFormat = detail::kernels::PackedMatrix::Format;

}  // namespace eigenformer
