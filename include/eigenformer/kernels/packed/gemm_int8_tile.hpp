#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

// Products of int8 weights and inputs quantised to 8 bits. Inputs are stored as q + 128 (unsigned, which is
// what vpdpbusd multiplies), so a sum is sum(q w) + 128 sum(w); the second part is known per output and
// subtracted. The integers are exact in 32 bits, so every path gives the same sums.

namespace eigenformer::detail::kernels::detail {

/// Four consecutive elements of k, 8 bits each, the first in the lowest byte.
using Int8Four = std::uint32_t;

inline constexpr index_t int8_columns = 32;

/// The output side of an int8 tile: c = [c +] (sum - offset) * scale * row_scale [+ bias].
struct Int8Output {
  const std::int32_t* offset;  ///< per column
  const float* scale;          ///< per column
  const float* row_scale;      ///< per row
  float* c;
  index_t ldc;
  const float* bias;  ///< per column or nullptr
  index_t rows, cols;
  bool accumulate;
};

/// Finishes a tile from its sums, 32 a row.
EIGENFORMER_ALWAYS_INLINE void finish_int8(const std::int32_t* sums, bool with_offset,
                                           const Int8Output& out) {
  for (index_t r = 0; r < out.rows; ++r) {
    float value[int8_columns];
    const std::int32_t* sum = sums + r * int8_columns;
    for (index_t j = 0; j < int8_columns; ++j) {
      value[j] =
          static_cast<float>(sum[j] - (with_offset ? out.offset[j] : 0)) * out.scale[j] * out.row_scale[r];
    }
    // Keeps the products above from being fused with the sums below in some tiles and not in others.
    __asm__ volatile("" : : "r"(value) : "memory");
    float* c = out.c + r * out.ldc;
    for (index_t j = 0; j < out.cols; ++j) {
      float x = value[j];
      if (out.accumulate) x += c[j];
      c[j] = out.bias != nullptr ? x + out.bias[j] : x;
    }
  }
}

/// a: (steps, tile rows), b: (steps, 32).
using Int8Function = void (*)(index_t steps, const Int8Four* a, const Int8Four* b, const Int8Output* out);

}  // namespace eigenformer::detail::kernels::detail
