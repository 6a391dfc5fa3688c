#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "eigenformer/kernels/attention/attention_product.hpp"
#include "eigenformer/kernels/simd/simd_math.hpp"

// Operations on one tile of scores between the products: masks, a step of the softmax, and its gradient.

namespace eigenformer::detail::kernels::detail {

/// Upper bounds on scores that keep a range of columns: -inf, then 64 times +inf, then -inf. Comparing lane
/// numbers would be simpler, but in code that is inlined into another target GCC computes masks that are not
/// used at once lane by lane.
template <class T>
struct ScoreBand {
  using Values = std::array<T, 3 * attention_width>;
  static constexpr Values make() {
    Values v{};
    for (std::size_t i = 0; i < v.size(); ++i) {
      const bool inside = i / static_cast<std::size_t>(attention_width) == 1;
      v[i] = inside ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
    }
    return v;
  }
  static constexpr Values values = make();

  /// Bounds of columns 0, 1, ... that keep those from `column` (0 to 64) on, or those before it.
  static const T* from(index_t column) { return values.data() + attention_width - column; }
  static const T* before(index_t column) { return values.data() + 2 * attention_width - column; }
};

/// x = the lesser of x and the vector at `bounds`; where x is NaN, the bound.
template <class S, class T>
EIGENFORMER_ALWAYS_INLINE void bound_scores(typename S::V& x, const T* bounds) {
  const typename S::V bound = S::at(bounds).v;
  x = x < bound ? x : bound;
}

/// Sets columns outside [first, last) to -inf in s (m, n); both move right by one with each row.
template <class T>
struct AttentionLimit {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(T* s, index_t m, index_t n, index_t first, index_t last) {
    using S = Simd<T, Bytes>;
    for (index_t i = 0; i < m; ++i) {
      const T* low = ScoreBand<T>::from(std::clamp(first + i, index_t{0}, n));
      const T* high = ScoreBand<T>::before(std::clamp(last + i, index_t{0}, n));
      T* row = s + i * attention_width;
      for (index_t j = 0; j < n; j += S::lanes) {
        typename S::V x = S::at(row + j).v;
        bound_scores<S>(x, low + j);
        bound_scores<S>(x, high + j);
        S::at(row + j).v = x;
      }
    }
  }
};

/// The running softmax over one more tile of scores s (m, n): m and sum are each row's maximum and sum of
/// exponentials so far, updated; s becomes exp(s - maximum), zero up to a whole vector; correction is what
/// the earlier part shrinks by. Up to 3 rows after the m-th are handled too.
template <class T>
struct AttentionSoftmax {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(T* s, index_t m, index_t n, T* maximum, T* sum, T* correction) {
    index_t i = 0;
    for (; i + 1 < m; i += 4)
      rows<Bytes, 4>(s + i * attention_width, n, maximum + i, sum + i, correction + i);
    if (i < m) rows<Bytes, 1>(s + i * attention_width, n, maximum + i, sum + i, correction + i);
  }

 private:
  using Four = typename Transpose4<T>::S;

  template <int Bytes, int Rows>
  EIGENFORMER_ALWAYS_INLINE static void rows(T* s, index_t n, T* maximum, T* sum, T* correction) {
    using S = Simd<T, Bytes>;
    using V = typename S::V;
    const T lowest = -std::numeric_limits<T>::infinity();
    const V forbidden = lowest - V{};
    if (const index_t j = n / S::lanes * S::lanes; j < n) {
      for (int r = 0; r < Rows; ++r) {
        V x = S::at(s + r * attention_width + j).v;
        bound_scores<S>(x, ScoreBand<T>::before(n) + j);
        S::at(s + r * attention_width + j).v = x;
      }
    }
    alignas(64) T fold[Rows * S::lanes];
    for (int r = 0; r < Rows; ++r) {
      V x = forbidden;
      for (index_t j = 0; j < n; j += S::lanes) {
        const V y = S::at(s + r * attention_width + j).v;
        x = y > x ? y : x;
      }
      S::at(fold + r * S::lanes).v = x;
    }
    typename Four::V before = Four::at(maximum).v, now;
    reduce<Bytes, Rows, true>(fold, now);
    now = now > before ? now : before;
    Four::at(maximum).v = now;
    // While all keys are excluded the maximum is -inf; any finite number can replace it.
    const typename Four::V shift = now == lowest - typename Four::V{} ? typename Four::V{} : now;
    typename Four::V shrink = before - shift;
    SimdMath<T, 4 * static_cast<int>(sizeof(T))>::exp_bounded(shrink);
    shrink = now == before ? T(1) - typename Four::V{} : shrink;
    Four::at(correction).v = shrink;
    for (int r = 0; r < Rows; ++r) {
      V total{};
      const T subtract = shift[r];
      for (index_t j = 0; j < n; j += S::lanes) {
        V x = S::at(s + r * attention_width + j).v - subtract;
        SimdMath<T, Bytes>::exp_bounded(x);
        S::at(s + r * attention_width + j).v = x;
        total += x;
      }
      S::at(fold + r * S::lanes).v = total;
    }
    typename Four::V added;
    reduce<Bytes, Rows, false>(fold, added);
    Four::at(sum).v = Four::at(sum).v * shrink + added;
  }

  /// The sum or maximum of each row's lanes, by halves as Simd::sum does it.
  template <int Bytes, int Rows, bool Maximum>
  EIGENFORMER_ALWAYS_INLINE static void reduce(const T* fold, typename Four::V& out) {
    using S = Simd<T, Bytes>;
    if constexpr (Rows == 4 && S::lanes >= 4) {
      typename Four::V x[4];
      for (int r = 0; r < 4; ++r) {
        const T* p = fold + r * S::lanes;
        x[r] = Four::at(p).v;
        if constexpr (S::lanes > 4) {
          typename Four::V y = Four::at(p + 4).v;
          if constexpr (S::lanes == 16) {
            const typename Four::V z = Four::at(p + 8).v, w = Four::at(p + 12).v;
            join<Maximum>(x[r], z);
            join<Maximum>(y, w);
          }
          join<Maximum>(x[r], y);
        }
      }
      Transpose4<T>::run(x[0], x[1], x[2], x[3]);
      join<Maximum>(x[0], x[2]);
      join<Maximum>(x[1], x[3]);
      join<Maximum>(x[0], x[1]);
      out = x[0];
    } else {
      out = typename Four::V{};
      for (int r = 0; r < Rows; ++r) {
        const typename S::V x = S::at(fold + r * S::lanes).v;
        out[r] = Maximum ? S::max(x) : S::sum(x);
      }
    }
  }

  template <bool Maximum>
  EIGENFORMER_ALWAYS_INLINE static void join(typename Four::V& a, const typename Four::V& b) {
    a = Maximum ? (a > b ? a : b) : a + b;
  }
};

/// The backward of one tile. s: scores (m, n), becomes the weights P = exp(s - log_sum_exp), times dropout's
/// multipliers; d: dout V^T, becomes the scores' gradient P * (multipliers * d - delta), Dao et al. 2022,
/// algorithm 4. multipliers may be null. Columns up to a whole vector become zero. The gradient of a weight
/// of zero is zero for any d.
template <class T>
struct AttentionScoreGradient {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(T* s, T* d, const T* multipliers, index_t m, index_t n,
                                            const T* log_sum_exp, const T* delta) {
    using S = Simd<T, Bytes>;
    using V = typename S::V;
    for (index_t i = 0; i < m; ++i) {
      const T shift = log_sum_exp[i], mean = delta[i];
      for (index_t j = 0; j < n; j += S::lanes) {
        const index_t at = i * attention_width + j;
        V p = S::at(s + at).v;
        if (n - j < S::lanes) bound_scores<S>(p, ScoreBand<T>::before(n) + j);
        p -= shift;
        SimdMath<T, Bytes>::exp_bounded(p);
        V g = S::at(d + at).v;
        V kept = p;
        if (multipliers != nullptr) {
          const V z = S::at(multipliers + at).v;
          g *= z;
          kept *= z;
        }
        g = p * (g - mean);
        S::at(d + at).v = p == T(0) ? V{} : g;
        S::at(s + at).v = kept;
      }
    }
  }
};

/// out (m, n), rows `stride` apart, = exp(s - log_sum_exp).
template <class T>
struct AttentionWeights {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* s, index_t m, index_t n, const T* log_sum_exp, T* out,
                                            index_t stride) {
    using S = Simd<T, Bytes>;
    for (index_t i = 0; i < m; ++i) {
      for (index_t j = 0; j < n; j += S::lanes) {
        typename S::V x = S::at(s + i * attention_width + j).v - log_sum_exp[i];
        SimdMath<T, Bytes>::exp_bounded(x);
        S::store(out + i * stride + j, n - j, x);
      }
    }
  }
};

/// d (m, n) = w * (dw - delta), zero where w is, from rows `stride` apart; zero up to a whole vector.
template <class T>
struct AttentionWeightGradient {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* w, const T* dw, index_t stride, index_t m, index_t n,
                                            const T* delta, T* d) {
    using S = Simd<T, Bytes>;
    for (index_t i = 0; i < m; ++i) {
      for (index_t j = 0; j < n; j += S::lanes) {
        typename S::V x, y;
        S::load(x, w + i * stride + j, n - j);
        S::load(y, dw + i * stride + j, n - j);
        y = x * (y - delta[i]);
        S::at(d + i * attention_width + j).v = x == T(0) ? typename S::V{} : y;
      }
    }
  }
};

/// x (m, n) *= y, up to a whole vector.
template <class T>
struct AttentionMultiply {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(T* x, const T* y, index_t m, index_t n) {
    using S = Simd<T, Bytes>;
    for (index_t i = 0; i < m; ++i) {
      for (index_t j = i * attention_width; j < i * attention_width + n; j += S::lanes)
        S::at(x + j).v *= S::at(y + j).v;
    }
  }
};

/// Sets x (m, n) to zero where s is -inf.
template <class T>
struct AttentionClearForbidden {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(T* x, const T* s, index_t m, index_t n) {
    for (index_t i = 0; i < m; ++i) {
      for (index_t j = i * attention_width; j < i * attention_width + n; ++j)
        x[j] = s[j] == -std::numeric_limits<T>::infinity() ? T(0) : x[j];
    }
  }
};

/// Scores (m, n) where flags (rows `stride` apart) are not `allowed` become -inf.
template <class T>
struct AttentionFlags {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(T* s, index_t m, index_t n, const bool* flags, index_t stride,
                                            bool allowed) {
    for (index_t i = 0; i < m; ++i) {
      T* row = s + i * attention_width;
      const bool* f = flags + i * stride;
      for (index_t j = 0; j < n; ++j) row[j] = f[j] == allowed ? row[j] : -std::numeric_limits<T>::infinity();
    }
  }
};

/// Scores (m, n) += bias (rows `stride` apart); -inf where the bias is, even if the score is NaN.
template <class T>
struct AttentionBias {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(T* s, index_t m, index_t n, const float* bias, index_t stride) {
    constexpr float forbidden = -std::numeric_limits<float>::infinity();
    for (index_t i = 0; i < m; ++i) {
      T* row = s + i * attention_width;
      const float* f = bias + i * stride;
      for (index_t j = 0; j < n; ++j)
        row[j] = f[j] == forbidden ? static_cast<T>(forbidden) : row[j] + static_cast<T>(f[j]);
    }
  }
};

}  // namespace eigenformer::detail::kernels::detail
