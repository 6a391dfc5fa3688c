#pragma once

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::kernels {

/// What happens to a product while its tiles are in the cache.
template <class T>
struct GemmEpilogue {
  /// (n), added to each row of the finished sum; nullptr for none.
  const T* bias = nullptr;
  /// Called for each finished tile (all of k summed, beta and bias applied): rows [row, row + rows) and
  /// columns [col, col + cols) of C, `c` at the tile's first element. Several threads at once, on disjoint
  /// tiles, which cover C exactly once.
  void (*apply)(const void* context, T* c, index_t ldc, index_t row, index_t rows, index_t col,
                index_t cols) = nullptr;
  /// Handed to `apply`.
  const void* context = nullptr;
};

/// What a float product multiplies: the inputs as they are, or rounded to bfloat16 (nearest even) with sums
/// in float.
enum class GemmPrecision { full, bf16 };

}  // namespace eigenformer::kernels
