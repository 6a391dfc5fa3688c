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

/// A rectangle of scores: queries [first, first + m) of sequence b, keys [key, key + n) of sequence kb.
struct AttentionRectangle {
  index_t b = 0;
  index_t kb = 0;
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

}  // namespace eigenformer::detail::kernels::detail
