#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "eigenformer/core/error.hpp"
#include "eigenformer/core/runtime.hpp"
#include "eigenformer/kernels/simd_math.hpp"
#include "eigenformer/kernels/simd_vector.hpp"
#include "eigenformer/kernels/top_k.hpp"

namespace eigenformer::kernels {

namespace detail {

template <class T>
struct TopKBody {
  // Puts x before the smaller ones of a sorted list; an equal one that came first stays before it.
  EIGENFORMER_ALWAYS_INLINE static void insert(T* values, std::int32_t* ids, index_t k, T x, std::int32_t id) {
    index_t at = k - 1;
    for (; at > 0 && values[at - 1] < x; --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = x;
    ids[at] = id;
  }

  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* logits, index_t ld, index_t begin, index_t end, index_t n,
                                            index_t k, T* all_values, std::int32_t* all_ids) {
    using S = Simd<T, Bytes>;
    using V = typename S::V;
    using Math = SimdMath<T, Bytes>;
    constexpr T none = -std::numeric_limits<T>::infinity();
    for (index_t r = begin; r < end; ++r) {
      const T* x = logits + r * ld;
      T* values = all_values + r * k;
      std::int32_t* ids = all_ids + r * k;
      for (index_t i = 0; i < k; ++i) {
        values[i] = none;
        ids[i] = static_cast<std::int32_t>(i);
      }
      // Most vectors hold nothing above the k-th value so far: one comparison each passes them over.
      V largest;
      S::set(largest, none);
      for (index_t j = 0; j < n; j += S::lanes) {
        V v;
        S::load(v, x + j, n - j, none);
        largest = v > largest ? v : largest;
        const T threshold = values[k - 1];
        if (!(S::max(v) > threshold)) continue;
        for (index_t l = j; l < n && l < j + S::lanes; ++l) {
          if (x[l] > values[k - 1]) insert(values, ids, k, x[l], static_cast<std::int32_t>(l));
        }
      }
      const T top = S::max(largest);
      V sum;
      S::set(sum, T(0));
      for (index_t j = 0; j < n; j += S::lanes) {
        V v;
        S::load(v, x + j, n - j, none);
        v -= top;
        Math::exp(v);
        sum += v;
      }
      const T log_sum = top + std::log(S::sum(sum));
      for (index_t i = 0; i < k; ++i) values[i] -= log_sum;
    }
  }
};

}  // namespace detail

template <class T>
void log_softmax_top_k(const T* logits, index_t ld, index_t rows, index_t n, index_t k, T* values, std::int32_t* ids) {
  if (k < 1 || k > n) {
    throw ValueError("top_k", "k is " + std::to_string(k) + ", must be in 1 .. " + std::to_string(n));
  }
  parallel_for(rows, std::max<index_t>(1, 16384 / n), [&](index_t begin, index_t end) {
    dispatch_wide<detail::TopKBody<T>>(logits, ld, begin, end, n, k, values, ids);
  });
}

#ifdef EIGENFORMER_INSTANTIATE
template void log_softmax_top_k(const float*, index_t, index_t, index_t, index_t, float*, std::int32_t*);
template void log_softmax_top_k(const double*, index_t, index_t, index_t, index_t, double*, std::int32_t*);
#endif

}  // namespace eigenformer::kernels
