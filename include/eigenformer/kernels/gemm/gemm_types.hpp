#pragma once

#include "eigenformer/core/base/config.hpp"

namespace eigenformer {

/// The precision of the inputs of a float product; sums are in float.
enum class GemmPrecision {
  full,  ///< inputs as they are
  bf16   ///< inputs rounded to bfloat16, to nearest, ties to even
};

}  // namespace eigenformer

namespace eigenformer::detail::kernels {

/// Work on the tiles of a product while they are in the cache.
template <class T>
struct GemmEpilogue {
  /// (n), added to each row of the finished sum; nullptr for none.
  const T* bias = nullptr;
  /// Called for each finished tile (all of k summed, beta and bias applied): rows [row, row + rows) and
  /// columns [col, col + cols) of C, `c` at the tile's first element. Several threads at once, on disjoint
  /// tiles, which cover C exactly once.
  void (*apply)(const void* context, T* c, index_t ldc, index_t row, index_t rows, index_t col,
                index_t cols) = nullptr;
  /// The first argument of `apply`.
  const void* context = nullptr;
};

}  // namespace eigenformer::detail::kernels
