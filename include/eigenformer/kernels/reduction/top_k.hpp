#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail::kernels {

/// log(sum(exp(logits))) of each row, sums: (rows). logits: (rows, n), rows `ld` elements apart. A row with
/// NaN or +inf, or of nothing but -inf, gives NaN.
template <class T>
void log_sum_exp(const T* logits, index_t ld, index_t rows, index_t n, T* sums);

/// The k largest entries of each row, largest first, the lower id first among equals.
///
/// x: (rows, n), rows `ld` elements apart; values, ids: (rows, k); sums: (rows), receives log_sum_exp() in
/// the same pass, or nullptr. NaN is ignored. A row with fewer than k entries above -inf is filled up with
/// -inf and ids below k. Throws ValueError unless 1 <= k <= n.
template <class T>
void top_k(const T* x, index_t ld, index_t rows, index_t n, index_t k, T* values, std::int32_t* ids,
           T* sums = nullptr);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

// The k largest entries of a row, the logarithm of the sum of their exponentials, or both in one pass.
template <class T, int Bytes, bool Best, bool Sums>
struct TopKRow {
  using S = Simd<T, Bytes>;
  using V = typename S::V;
  using Math = SimdMath<T, Bytes>;
  static constexpr index_t lanes = S::lanes;
  static constexpr T none = -std::numeric_limits<T>::infinity();

  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, index_t n, index_t k, T* values, std::int32_t* ids,
                                            T* log_sum) {
    constexpr index_t chunk = 8 * lanes;
    V most[4];
    lane_maxima(x, n, most);
    int vectors = 4;
    T threshold = none;
    if constexpr (Best) {
      while (vectors > 1 && vectors / 2 * lanes >= 2 * k) fold(most, vectors);
      threshold = lower_bound(most, vectors, values, ids, k);
    }
    while (vectors > 1) fold(most, vectors);
    const T top = S::max(most[0]);
    // Two sums, so that the exponentials of two vectors are independent.
    V sum, other;
    S::set(sum, T(0));
    S::set(other, T(0));
    for (index_t j = 0; j < n; j += chunk) {
      const index_t there = std::min(chunk, n - j);
      V high;
      S::set(high, none);
      index_t i = 0;
      for (; i + 2 * lanes <= there; i += 2 * lanes) {
        V v = S::at(x + j + i).v, w = S::at(x + j + i + lanes).v;
        if constexpr (Best) {
          high = v > high ? v : high;
          high = w > high ? w : high;
        }
        if constexpr (Sums) {
          v -= top;
          w -= top;
          Math::exp_bounded(v);
          Math::exp_bounded(w);
          sum += v;
          other += w;
        }
      }
      for (; i < there; i += lanes) {
        V v;
        S::load(v, x + j + i, there - i, none);
        if constexpr (Best) high = v > high ? v : high;
        if constexpr (Sums) {
          v -= top;
          Math::exp_bounded(v);
          sum += v;
        }
      }
      if constexpr (Best) {
        if (reaches(high, threshold)) look(x, j, j + there, threshold, values, ids, k);
      }
    }
    if constexpr (Sums) {
      sum += other;
      *log_sum = top + std::log(S::sum(sum));
    }
  }

 private:
  // The maximum in each lane, as four vectors of n's vectors in turn; NaN is ignored.
  EIGENFORMER_ALWAYS_INLINE static void lane_maxima(const T* x, index_t n, V (&most)[4]) {
    for (int i = 0; i < 4; ++i) S::set(most[i], none);
    index_t j = 0;
    for (; j + 4 * lanes <= n; j += 4 * lanes) {
      for (int i = 0; i < 4; ++i) {
        const V v = S::at(x + j + i * lanes).v;
        most[i] = v > most[i] ? v : most[i];
      }
    }
    for (; j < n; j += lanes) {
      V v;
      S::load(v, x + j, n - j, none);
      most[0] = v > most[0] ? v : most[0];
    }
  }

  // Halves the number of vectors that hold the maxima.
  EIGENFORMER_ALWAYS_INLINE static void fold(V (&most)[4], int& vectors) {
    vectors /= 2;
    for (int i = 0; i < vectors; ++i) most[i] = most[i + vectors] > most[i] ? most[i + vectors] : most[i];
  }

  // The k-th largest of these maxima, which is not above that of all entries: only entries that reach it are
  // considered. Clears the list.
  EIGENFORMER_ALWAYS_INLINE static T lower_bound(const V (&most)[4], int vectors, T* values,
                                                 std::int32_t* ids, index_t k) {
    T threshold = none;
    clear(values, ids, k);
    if (k <= vectors * lanes) {
      alignas(64) T maxima[4 * lanes];
      for (int i = 0; i < vectors; ++i) S::at(maxima + i * lanes).v = most[i];
      for (index_t i = 0; i < vectors * lanes; ++i) {
        if (maxima[i] > values[k - 1]) insert(values, ids, k, maxima[i], 0);
      }
      threshold = values[k - 1];
      clear(values, ids, k);
    }
    return threshold;
  }

  // Inserts x into a sorted list before the smaller entries and after equal ones.
  EIGENFORMER_ALWAYS_INLINE static void insert(T* values, std::int32_t* ids, index_t k, T x,
                                               std::int32_t id) {
    index_t at = k - 1;
    for (; at > 0 && values[at - 1] < x; --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = x;
    ids[at] = id;
  }

  EIGENFORMER_ALWAYS_INLINE static void clear(T* values, std::int32_t* ids, index_t k) {
    for (index_t i = 0; i < k; ++i) {
      values[i] = none;
      ids[i] = static_cast<std::int32_t>(i);
    }
  }

  // Whether any lane is at least the threshold.
  EIGENFORMER_ALWAYS_INLINE static bool reaches(const V& v, T threshold) {
    // (GCC computes a mask that is not used at once lane by lane.)
    const V hits = v >= threshold ? T(1) - V{} : V{};
    std::uint64_t words[Bytes / 8], any = 0;
    std::memcpy(words, &hits, sizeof words);
    for (const std::uint64_t word : words) any |= word;
    return any != 0;
  }

  // Entries begin .. end that reach the threshold go into the list.
  EIGENFORMER_ALWAYS_INLINE static void look(const T* x, index_t begin, index_t end, T threshold, T* values,
                                             std::int32_t* ids, index_t k) {
    for (index_t j = begin; j < end; j += lanes) {
      V v;
      S::load(v, x + j, end - j, none);
      if (!reaches(v, threshold)) continue;
      for (index_t l = j; l < std::min(end, j + lanes); ++l) {
        if (x[l] >= threshold && x[l] > values[k - 1])
          insert(values, ids, k, x[l], static_cast<std::int32_t>(l));
      }
    }
  }
};

// TopKRow of rows begin .. end - 1; k 0 or sums nullptr for one of the results.
template <class T, bool Best, bool Sums>
struct TopKRows {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, index_t ld, index_t begin, index_t end, index_t n,
                                            index_t k, T* values, std::int32_t* ids, T* sums) {
    for (index_t r = begin; r < end; ++r)
      TopKRow<T, Bytes, Best, Sums>::run(x + r * ld, n, k, values + r * k, ids + r * k, shifted(sums, r));
  }
};

template <class T, bool Best, bool Sums>
void top_k_rows(const T* x, index_t ld, index_t rows, index_t n, index_t k, T* values, std::int32_t* ids,
                T* sums) {
  parallel_for(rows, (Sums ? 16384 : 65536) / std::max<index_t>(1, n), [&](index_t begin, index_t end) {
    dispatch<TopKRows<T, Best, Sums>>(x, ld, begin, end, n, k, values, ids, sums);
  });
}

}  // namespace detail

template <class T>
void log_sum_exp(const T* logits, index_t ld, index_t rows, index_t n, T* sums) {
  detail::top_k_rows<T, false, true>(logits, ld, rows, n, 0, nullptr, nullptr, sums);
}

template <class T>
void top_k(const T* x, index_t ld, index_t rows, index_t n, index_t k, T* values, std::int32_t* ids,
           T* sums) {
  if (k < 1 || k > n) throw ValueError("top_k", {"k is ", k, ", must be in 1 .. ", n});
  if (sums == nullptr) {
    detail::top_k_rows<T, true, false>(x, ld, rows, n, k, values, ids, nullptr);
  } else {
    detail::top_k_rows<T, true, true>(x, ld, rows, n, k, values, ids, sums);
  }
}

EIGENFORMER_KERNEL(log_sum_exp)
EIGENFORMER_KERNEL(top_k)

}  // namespace eigenformer::detail::kernels
#endif
