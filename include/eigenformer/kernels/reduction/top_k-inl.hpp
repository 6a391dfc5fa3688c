#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/reduction/top_k.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::kernels {

namespace detail {

// The maximum in each lane; NaN is passed over.
template <class T, int Bytes>
EIGENFORMER_ALWAYS_INLINE void lane_maximum(const T* x, index_t n, typename Simd<T, Bytes>::V& most) {
  using S = Simd<T, Bytes>;
  using V = typename S::V;
  V a[4];
  for (int i = 0; i < 4; ++i) S::set(a[i], -std::numeric_limits<T>::infinity());
  index_t j = 0;
  for (; j + 4 * S::lanes <= n; j += 4 * S::lanes) {
    for (int i = 0; i < 4; ++i) {
      const V v = S::at(x + j + i * S::lanes).v;
      a[i] = v > a[i] ? v : a[i];
    }
  }
  for (; j < n; j += S::lanes) {
    V v;
    S::load(v, x + j, n - j, -std::numeric_limits<T>::infinity());
    a[0] = v > a[0] ? v : a[0];
  }
  for (int half = 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a[i] = a[i + half] > a[i] ? a[i + half] : a[i];
  }
  most = a[0];
}

template <class T>
struct LogSumExpBody {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* logits, index_t ld, index_t begin, index_t end,
                                            index_t n, T* sums) {
    using S = Simd<T, Bytes>;
    using V = typename S::V;
    using Math = SimdMath<T, Bytes>;
    constexpr T none = -std::numeric_limits<T>::infinity();
    for (index_t r = begin; r < end; ++r) {
      const T* x = logits + r * ld;
      V largest;
      lane_maximum<T, Bytes>(x, n, largest);
      const T top = S::max(largest);
      // Two sums, so that one vector's exponentials need not wait for the other's.
      V sum, other;
      S::set(sum, T(0));
      S::set(other, T(0));
      index_t j = 0;
      for (; j + 2 * S::lanes <= n; j += 2 * S::lanes) {
        V v = S::at(x + j).v - top, w = S::at(x + j + S::lanes).v - top;
        Math::exp(v);
        Math::exp(w);
        sum += v;
        other += w;
      }
      for (; j < n; j += S::lanes) {
        V v;
        S::load(v, x + j, n - j, none);
        v -= top;
        Math::exp(v);
        sum += v;
      }
      sum += other;
      sums[r] = top + std::log(S::sum(sum));
    }
  }
};

template <class T>
struct TopKBody {
  // Puts x before the smaller ones of a sorted list; an equal one that came first stays before it.
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
      values[i] = -std::numeric_limits<T>::infinity();
      ids[i] = static_cast<std::int32_t>(i);
    }
  }

  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* all, index_t ld, index_t begin, index_t end, index_t n,
                                            index_t k, T* all_values, std::int32_t* all_ids) {
    using S = Simd<T, Bytes>;
    using V = typename S::V;
    constexpr T none = -std::numeric_limits<T>::infinity();
    constexpr index_t groups = 256;
    constexpr index_t unit = 8 * S::lanes;
    const index_t group = ((n + groups - 1) / groups + unit - 1) / unit * unit;
    for (index_t r = begin; r < end; ++r) {
      const T* x = all + r * ld;
      T* values = all_values + r * k;
      std::int32_t* ids = all_ids + r * k;
      // The k-th largest of the groups' maxima is not above the k-th value: only groups that reach it are
      // looked through.
      T maxima[groups];
      index_t count = 0;
      for (index_t j = 0; j < n; j += group, ++count) {
        V most;
        lane_maximum<T, Bytes>(x + j, std::min(group, n - j), most);
        maxima[count] = S::max(most);
      }
      T threshold = none;
      if (count >= k) {
        clear(values, ids, k);
        for (index_t g = 0; g < count; ++g) {
          if (maxima[g] > values[k - 1]) insert(values, ids, k, maxima[g], 0);
        }
        threshold = values[k - 1];
      }
      clear(values, ids, k);
      for (index_t g = 0; g < count; ++g) {
        if (!(maxima[g] >= threshold)) continue;
        for (index_t l = g * group; l < std::min(n, (g + 1) * group); ++l) {
          if (x[l] > values[k - 1]) insert(values, ids, k, x[l], static_cast<std::int32_t>(l));
        }
      }
    }
  }
};

}  // namespace detail

template <class T>
void log_sum_exp(const T* logits, index_t ld, index_t rows, index_t n, T* sums) {
  parallel_for(rows, std::max<index_t>(1, 16384 / std::max<index_t>(1, n)), [&](index_t begin, index_t end) {
    dispatch<detail::LogSumExpBody<T>>(logits, ld, begin, end, n, sums);
  });
}

template <class T>
void top_k(const T* x, index_t ld, index_t rows, index_t n, index_t k, T* values, std::int32_t* ids) {
  if (k < 1 || k > n) {
    throw ValueError("top_k", "k is " + std::to_string(k) + ", must be in 1 .. " + std::to_string(n));
  }
  parallel_for(rows, std::max<index_t>(1, 65536 / n), [&](index_t begin, index_t end) {
    dispatch<detail::TopKBody<T>>(x, ld, begin, end, n, k, values, ids);
  });
}

#ifdef EIGENFORMER_INSTANTIATE
template void log_sum_exp(const float*, index_t, index_t, index_t, float*);
template void log_sum_exp(const double*, index_t, index_t, index_t, double*);
template void top_k(const float*, index_t, index_t, index_t, index_t, float*, std::int32_t*);
template void top_k(const double*, index_t, index_t, index_t, index_t, double*, std::int32_t*);
#endif

}  // namespace eigenformer::kernels
