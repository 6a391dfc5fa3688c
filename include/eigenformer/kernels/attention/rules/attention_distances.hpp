#pragma once

#include <algorithm>
#include <cstdint>

#include "eigenformer/kernels/attention/attention_blocks.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

// Operations on a tile of scores that depend on the distance from query to key (position of the key minus
// that of the query). Row i, column j of a tile has the distance `distance` + j - i, where `distance` is that
// of its first element.

namespace eigenformer::detail::kernels::detail {

/// Where the three parts of a row of n columns end, whose first column has this distance: columns with
/// distances of -reach and below, those between, and those of reach and above.
struct DistanceParts {
  EIGENFORMER_ALWAYS_INLINE DistanceParts(index_t distance, index_t reach, index_t n)
      : near(std::clamp<index_t>(1 - reach - distance, 0, n)),
        far(std::clamp<index_t>(reach - distance, near, n)) {}
  index_t near;
  index_t far;
};

/// s (m, n) += bias[clamp(distance, -reach, reach) + reach], bias being a row's own, row_stride elements
/// after that of the row before.
template <class T>
struct AttentionDistanceBias {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(T* s, index_t m, index_t n, const T* bias, index_t row_stride,
                                            index_t reach, index_t distance) {
    for (index_t i = 0; i < m; ++i) {
      T* row = s + i * attention_width;
      const T* b = bias + i * row_stride;
      const DistanceParts parts(distance - i, reach, n);
      const T first = b[0], last = b[2 * reach];
      for (index_t j = 0; j < parts.near; ++j) row[j] += first;
      const T* between = b + reach + distance - i;
      for (index_t j = parts.near; j < parts.far; ++j) row[j] += between[j];
      for (index_t j = parts.far; j < n; ++j) row[j] += last;
    }
  }
};

/// The transpose of AttentionDistanceBias: each row of d (m, n) is added to its row of sums, by distance.
template <class T>
struct AttentionDistanceSums {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(const T* d, index_t m, index_t n, T* sums, index_t row_stride,
                                            index_t reach, index_t distance) {
    for (index_t i = 0; i < m; ++i) {
      const T* row = d + i * attention_width;
      T* s = sums + i * row_stride;
      const DistanceParts parts(distance - i, reach, n);
      if (parts.near > 0) s[0] += sum(row, 0, parts.near);
      T* between = s + reach + distance - i;
      for (index_t j = parts.near; j < parts.far; ++j) between[j] += row[j];
      if (parts.far < n) s[2 * reach] += sum(row, parts.far, n);
    }
  }

 private:
  // Lane l sums columns l, l + 16, ..., so that the sum does not depend on where a tile ends.
  EIGENFORMER_ALWAYS_INLINE static T sum(const T* row, index_t begin, index_t end) {
    T lanes[16] = {};
    index_t j = begin;
    for (; j < end && j % 16 != 0; ++j) lanes[j % 16] += row[j];
    for (; j + 16 <= end; j += 16) {
      for (index_t l = 0; l < 16; ++l) lanes[l] += row[j + l];
    }
    for (; j < end; ++j) lanes[j % 16] += row[j];
    for (index_t half = 8; half > 0; half /= 2) {
      for (index_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    return lanes[0];
  }
};

/// s (m, n) -= slope * |distance|.
template <class T>
struct AttentionSlope {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(T* s, index_t m, index_t n, T slope, index_t distance) {
    for (index_t i = 0; i < m; ++i) {
      T* row = s + i * attention_width;
      const auto first = static_cast<std::int32_t>(distance - i);
      for (std::int32_t j = 0; j < static_cast<std::int32_t>(n); ++j) {
        const std::int32_t d = first + j;
        row[j] -= slope * static_cast<T>(d < 0 ? -d : d);
      }
    }
  }
};

/// Rows of x (m, n), row_stride elements apart, times scale[i]; scale's rows are adjacent.
template <class T>
struct AttentionScaleRows {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(T* x, index_t m, index_t n, index_t row_stride, const T* scale) {
    for (index_t i = 0; i < m; ++i) {
      const T factor = scale[i];
      for (index_t j = 0; j < n; ++j) x[i * row_stride + j] *= factor;
    }
  }
};

}  // namespace eigenformer::detail::kernels::detail
