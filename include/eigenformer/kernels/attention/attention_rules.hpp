#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "eigenformer/kernels/attention/attention_blocks.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

// The rules of a mask other than windows, on one tile of scores: prefixes and documents; and whether a dense
// mask excludes a whole tile.

namespace eigenformer::detail::kernels::detail {

/// How much of a tile a rule admits.
enum class TileCover { none, some, all };

/// A rectangle of scores: queries [first, first + m) and keys [key, key + n) of the sequences and the head.
struct AttentionRectangle : AttentionPlace {
  index_t first = 0;
  index_t m = 0;
  index_t key = 0;
  index_t n = 0;
};

/// Keys before `prefix` or up to the query; query and key are the positions of the rectangle's first.
inline TileCover prefix_cover(index_t prefix, index_t query, index_t m, index_t key, index_t n) {
  if (key >= prefix && key > query + m - 1) return TileCover::none;
  return key + n <= prefix || key + n - 1 <= query ? TileCover::all : TileCover::some;
}

/// Keys of the query's document. Ranges of numbers that do not overlap are not compared one by one.
inline TileCover documents_cover(const std::int32_t* queries, index_t m, const std::int32_t* keys,
                                 index_t n) {
  const auto [low, high] = std::minmax_element(queries, queries + m);
  const auto [key_low, key_high] = std::minmax_element(keys, keys + n);
  if (*key_high < *low || *key_low > *high) return TileCover::none;
  return *low == *high && *key_low == *low && *key_high == *low ? TileCover::all : TileCover::some;
}

/// Whether a dense mask admits any of m rows and n columns, which begin at element `start`. A row that is
/// broadcast (row_stride 0) is checked once; the first admitted element ends the search.
inline bool dense_admits(const AttentionMask::Dense& mask, index_t start, index_t row_stride, index_t m,
                         index_t n) {
  constexpr float forbidden = -std::numeric_limits<float>::infinity();
  for (index_t i = 0; i < (row_stride == 0 ? 1 : m); ++i, start += row_stride) {
    if (mask.kind == AttentionMask::Kind::additive) {
      const float* row = mask.bias.data() + start;
      int admitted = 0;  // counted instead of searched for, so that compilers vectorise the loop
      for (index_t j = 0; j < n; ++j) admitted |= static_cast<int>(row[j] != forbidden);
      if (admitted != 0) return true;
    } else {
      const int allowed = mask.kind == AttentionMask::Kind::allow ? 1 : 0;
      if (std::memchr(mask.flags.data() + start, allowed, static_cast<std::size_t>(n)) != nullptr)
        return true;
    }
  }
  return false;
}

/// Sets columns from `first` + i on to -inf in s (m, n), columns before `always` never.
template <class T>
struct AttentionPrefix {
  EIGENFORMER_ALWAYS_INLINE static void run(T* s, index_t m, index_t n, index_t first, index_t always) {
    for (index_t i = 0; i < m; ++i) {
      T* row = s + i * attention_width;
      for (index_t j = std::max<index_t>(0, std::max(first + i, always)); j < n; ++j)
        row[j] = -std::numeric_limits<T>::infinity();
    }
  }
};

/// Sets s (m, n) to -inf where the numbers of row and column differ.
template <class T>
struct AttentionSameNumber {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(T* s, index_t m, index_t n, const std::int32_t* rows,
                                            const std::int32_t* columns) {
    for (index_t i = 0; i < m; ++i) {
      T* row = s + i * attention_width;
      const std::int32_t number = rows[i];
      for (index_t j = 0; j < n; ++j)
        row[j] = columns[j] == number ? row[j] : -std::numeric_limits<T>::infinity();
    }
  }
};

/// Calls prefix(length, query, key) and documents(queries, keys) for each rule of p's mask, with the part of
/// it for the rectangle, until one returns false; returns whether none did.
template <class T, class Prefix, class Documents>
bool each_rule(const AttentionProblem<T>& p, const AttentionRectangle& r, Prefix&& prefix,
               Documents&& documents) {
  for (const auto& lengths : p.mask->prefixes()) {
    if (!prefix(lengths[static_cast<std::size_t>(r.b)], p.queries->positions()[r.b] + r.first,
                p.keys->positions()[r.kb] + r.key)) {
      return false;
    }
  }
  for (const AttentionMask::Documents& rule : p.mask->document_rules()) {
    if (!documents(rule.queries.data() + r.b * rule.queries.dim(1) + p.queries->leading(r.b) + r.first,
                   rule.keys.data() + r.kb * rule.keys.dim(1) + p.keys->leading(r.kb) + r.key)) {
      return false;
    }
  }
  return true;
}

/// Whether the rules may admit any score of a rectangle; it does not check each score.
template <class T>
bool rules_admit(const AttentionProblem<T>& p, const AttentionRectangle& r) {
  if (p.mask == nullptr || !p.mask->has_rules()) return true;
  return each_rule(
      p, r,
      [&](index_t length, index_t query, index_t key) {
        return prefix_cover(length, query, r.m, key, r.n) != TileCover::none;
      },
      [&](const std::int32_t* queries, const std::int32_t* keys) {
        return documents_cover(queries, r.m, keys, r.n) != TileCover::none;
      });
}

/// Sets the scores of a rectangle that the rules exclude to -inf; p's mask has rules.
template <class T>
void apply_rules(const AttentionProblem<T>& p, const AttentionRectangle& r, T* scores) {
  each_rule(
      p, r,
      [&](index_t length, index_t query, index_t key) {
        if (prefix_cover(length, query, r.m, key, r.n) == TileCover::some)
          dispatch<AttentionPrefix<T>>(scores, r.m, r.n, query - key + 1, length - key);
        return true;
      },
      [&](const std::int32_t* queries, const std::int32_t* keys) {
        if (documents_cover(queries, r.m, keys, r.n) == TileCover::some)
          dispatch<AttentionSameNumber<T>>(scores, r.m, r.n, queries, keys);
        return true;
      });
}

// Operations on a tile of scores that depend on the distance from query to key (position of the key minus
// that of the query). Row i, column j of a tile has the distance `distance` + j - i, where `distance` is that
// of its first element.

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
