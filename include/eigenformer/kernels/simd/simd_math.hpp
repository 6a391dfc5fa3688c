#pragma once

#include <limits>

#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

/// Elementary functions of vectors, in place, without branches. Relative error: some 1e-7 for float, 4e-16
/// for double (log near 1 and erf, tanh near 0 included). Limits are exact and NaN stays NaN. The
/// coefficients are interpolations at Chebyshev nodes, made in 60 digits for the ranges named.
template <class T, int Bytes>
struct SimdMath {
  using W = Simd<T, Bytes>;
  using V = typename W::V;
  using I = typename W::I;
  using U = typename W::U;

  /// x = e^x; overflow gives inf. Results below the smallest normal number are 0: subnormal ones would cost
  /// many CPUs a hundred cycles a vector, and masked scores are the usual operands down there.
  EIGENFORMER_ALWAYS_INLINE static void exp(V& x) {
    const T high = T(is_float ? 88.72283f : 709.782712893384);
    const V given = x;
    exp_bounded(x);
    x = given > high ? std::numeric_limits<T>::infinity() - V{} : x;
  }

  /// The same for x whose result cannot overflow, such as scores minus their maximum.
  EIGENFORMER_ALWAYS_INLINE static void exp_bounded(V& x) {
    const T low = T(is_float ? -87.3f : -708.3);
    V q;
    I n;
    reduced_expm1(x, q, n);
    // 2^n (1 + q), by adding n to the exponent: in range where the result is, and replaced elsewhere.
    const V one = T(1) + q;
    V y = reinterpret_cast<V>(reinterpret_cast<U>(one) + (reinterpret_cast<U>(n) << mantissa));
    y = x < low ? V{} : y;
    x = x == x ? y : x;
  }

  /// x = 2^x, as exp().
  EIGENFORMER_ALWAYS_INLINE static void exp2(V& x) {
    const T low = T(is_float ? -126 : -1022), high = T(is_float ? 128 : 1024);
    V y = x;
    exp2_normal(y);
    y = x < low ? V{} : y;
    y = x >= high ? std::numeric_limits<T>::infinity() - V{} : y;
    x = x == x ? y : x;
  }

  /// The same where the result is a normal number.
  EIGENFORMER_ALWAYS_INLINE static void exp2_normal(V& x) {
    const V magic = rounder - V{};
    const V shifted = x + magic;
    const U n = reinterpret_cast<U>(shifted) - reinterpret_cast<U>(magic);
    V q;
    expm1_near_0((x - (shifted - magic)) * ln2, q);
    const V one = T(1) + q;
    x = reinterpret_cast<V>(reinterpret_cast<U>(one) + (n << mantissa));
  }

  /// x = e^x - 1, as exp(), with its relative accuracy near 0.
  EIGENFORMER_ALWAYS_INLINE static void expm1(V& x) {
    const T low = T(is_float ? -30 : -60);
    V large = x, q;
    exp(large);
    x = x < low ? low - V{} : x;
    I n;
    reduced_expm1(x, q, n);
    const V scale = reinterpret_cast<V>((reinterpret_cast<U>(n) + bias) << mantissa);
    x = x > -low ? large : scale * q + (scale - T(1));
  }

  /// x = natural logarithm of x; log(0) is -inf, of negatives NaN. any false: of positive normal numbers
  /// alone.
  template <bool any = true>
  EIGENFORMER_ALWAYS_INLINE static void log(V& x) {
    V k, f, square, r;
    const V given = x;
    log_parts<any>(x, k, f, square, r);
    r = r + k * ln2_low;
    x = k * ln2_high - ((square - r) - f);
    if constexpr (any) log_limits(given, x);
  }

  /// x = logarithm of x to base 2, exact for powers of 2, with the limits of log().
  template <bool any = true>
  EIGENFORMER_ALWAYS_INLINE static void log2(V& x) {
    V k, f, square, r;
    const V given = x;
    log_parts<any>(x, k, f, square, r);
    x = k + (f - (square - r)) * T(1.4426950408889634);
    if constexpr (any) log_limits(given, x);
  }

  /// x = tanh(x), by e^(2|x|) - 1, so that small values keep their relative accuracy.
  EIGENFORMER_ALWAYS_INLINE static void tanh(V& x) {
    const I sign = reinterpret_cast<I>(x) & sign_bit;
    const T high = T(is_float ? 20 : 44);
    V y = reinterpret_cast<V>(reinterpret_cast<I>(x) ^ sign) * T(2);
    y = y > high ? high - V{} : y;
    V q;
    I n;
    reduced_expm1(y, q, n);
    const V scale = reinterpret_cast<V>((reinterpret_cast<U>(n) + bias) << mantissa);
    const V e = scale * q + (scale - T(1));
    y = e / (e + T(2));
    x = reinterpret_cast<V>(reinterpret_cast<I>(y) | sign);
  }

  /// x = 1 / (1 + e^-x).
  EIGENFORMER_ALWAYS_INLINE static void sigmoid(V& x) {
    x = -x;
    exp(x);
    x = T(1) / (T(1) + x);
  }

  /// x = the error function of x.
  EIGENFORMER_ALWAYS_INLINE static void erf(V& x) {
    V e;
    erf_and_exp(x, e);
  }

  /// e = e^(-x^2), then x = the error function of x: for the normal distribution and its density.
  EIGENFORMER_ALWAYS_INLINE static void erf_and_exp(V& x, V& e) {
    const T high = T(is_float ? 4 : 6);
    const I sign = reinterpret_cast<I>(x) & sign_bit;
    e = -(x * x);
    exp(e);
    V a = reinterpret_cast<V>(reinterpret_cast<I>(x) ^ sign);
    a = a > high ? high - V{} : a;
    const V w = a * a;
    V near;  // erf(a) / a for a in [0, 0.9]
    V tail;  // e^(a^2) erfc(a) for a in [0.9, high], a polynomial of 1 / (1 + a / 2) - 1/2
    const V t = T(1) / (T(1) + a * T(0.5)) - T(0.5);
    if constexpr (is_float) {
      poly(near, w, -0.0006102686747908592f, 0.005014484282582998f, -0.026780718937516212f,
           0.11282194405794144f, -0.3761252760887146f, 1.1283791065216064f);
      poly(tail, t, -0.2214379906654358f, 0.05738988518714905f, 0.6318618059158325f, 0.966658353805542f,
           0.8543712496757507f, 0.2553956210613251f);
    } else {
      poly(near, w, 1.0264742936451028e-08, -1.5547485573271175e-07, 1.637600569928181e-06,
           -1.4919948045407385e-05, 0.00012055088747916487, -0.0008548320279034282, 0.005223977509042423,
           -0.02686617063339135, 0.11283791670894319, -0.3761263890318252, 1.1283791670955126);
      poly(tail, t, 0.06326614087945462, -0.015565706759344376, -0.05769178422351226, 0.05666892406939436,
           0.028214812704455805, -0.08927692990178103, 0.01114947713243339, 0.12569310003579823,
           -0.05421715825049026, -0.22391877578676395, 0.059726278410012004, 0.631828648125521,
           0.9666327769699987, 0.8543716948279182, 0.2553956763105057);
    }
    const V y = a < T(0.9) ? a * near : T(1) - tail * e;
    x = reinterpret_cast<V>(reinterpret_cast<I>(y) | sign);
  }

  /// p = the polynomial of x with these coefficients.
  template <class... C>
  EIGENFORMER_ALWAYS_INLINE static void poly(V& p, const V& x, T highest, C... rest) {
    p = highest - V{};
    ((p = p * x + T(rest)), ...);
  }

 private:
  using Integer = typename W::Integer;
  using Unsigned = typename W::Unsigned;
  static constexpr bool is_float = sizeof(T) == 4;
  static constexpr int mantissa = std::numeric_limits<T>::digits - 1;
  static constexpr Unsigned bias = std::numeric_limits<T>::max_exponent - 1;
  static constexpr Integer sign_bit = std::numeric_limits<Integer>::min();
  static constexpr Integer root_half_bits = static_cast<Integer>(is_float ? 0x3f3504f3 : 0x3fe6a09e667f3bcd);
  // ln 2 in two parts; the first has trailing zeros, so that its product with an integer is exact.
  static constexpr T ln2_high = T(is_float ? 0.693359375 : 0x1.62e42p-1);
  static constexpr T ln2_low = T(is_float ? -0.00021219444170128554 : 0x1.fdf473de6af28p-22);
  // Adding it rounds to an integer, which is then in the low bits.
  static constexpr T rounder = T(1.5) * T(Integer{1} << mantissa);

  static constexpr T ln2 = T(0.69314718055994530942);

  /// log(x) = k ln 2 + f - (square - r), but for the limits. subnormal: x may be.
  template <bool subnormal>
  EIGENFORMER_ALWAYS_INLINE static void log_parts(V& x, V& k, V& f, V& square, V& r) {
    const T smallest = std::numeric_limits<T>::min();
    const T up = T(Integer{1} << (mantissa + 2));
    const V given = x;
    if constexpr (subnormal) x = given < smallest ? given * up : given;
    // x = 2^e * m, m in [sqrt(1/2), sqrt(2)).
    const I bits = reinterpret_cast<I>(x);
    const U shifted =
        reinterpret_cast<U>(bits) - static_cast<Unsigned>(root_half_bits) + ((bias + 1) << mantissa);
    const I e = reinterpret_cast<I>(shifted >> mantissa) - Integer{bias + 1};
    const V m = reinterpret_cast<V>(bits - (e << mantissa));
    to_floating(e, k);
    if constexpr (subnormal) k = given < smallest ? k - T(mantissa + 2) : k;
    // log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + R(s^2)) with s = f / (2 + f), R the tail of the series of 2
    // artanh(s).
    f = m - T(1);
    const V s = f / (T(2) + f), w = s * s;
    square = f * f * T(0.5);
    if constexpr (is_float) {
      poly(r, w, 0.29590317606925964f, 0.39988550543785095f, 0.6666668653488159f);
    } else {
      poly(r, w, 0.1463003136412286, 0.15330617306743305, 0.18182922513515942, 0.22222210674238516,
           0.28571428628810996, 0.3999999999989322, 0.666666666666667);
    }
    r = s * (square + w * r);
  }

  EIGENFORMER_ALWAYS_INLINE static void log_limits(const V& given, V& x) {
    const T infinity = std::numeric_limits<T>::infinity();
    x = given > T(0) ? x : (given == T(0) ? -infinity - V{} : std::numeric_limits<T>::quiet_NaN() - V{});
    x = given == infinity ? given : x;
  }

  /// Whole numbers of small magnitude to floating point.
  EIGENFORMER_ALWAYS_INLINE static void to_floating(const I& n, V& out) {
    const V magic = rounder - V{};
    out = reinterpret_cast<V>(n + reinterpret_cast<I>(magic)) - rounder;
  }

  /// e^x = 2^n (1 + q), |log(1 + q)| <= ln(2) / 2.
  EIGENFORMER_ALWAYS_INLINE static void reduced_expm1(const V& x, V& q, I& n) {
    const V magic = rounder - V{};
    const V shifted = x * T(1.4426950408889634) + magic;
    n = reinterpret_cast<I>(reinterpret_cast<U>(shifted) - reinterpret_cast<U>(magic));
    const V whole = shifted - magic;
    expm1_near_0((x - whole * ln2_high) - whole * ln2_low, q);
  }

  /// q = e^r - 1, |r| <= ln(2) / 2.
  EIGENFORMER_ALWAYS_INLINE static void expm1_near_0(const V& r, V& q) {
    if constexpr (is_float) {
      poly(q, r, 0.0013926250394433737f, 0.00836323294788599f, 0.04166655242443085f, 0.16666576266288757f,
           0.5f);
    } else {
      poly(q, r, 2.5100472505694996e-08, 2.7620201591031547e-07, 2.7557268276905696e-06,
           2.4801521057868204e-05, 0.00019841269863171557, 0.0013888888917367081, 0.008333333333330039,
           0.041666666666623824, 0.16666666666666669, 0.5000000000000001);
    }
    q = r + r * r * q;
  }
};

/// Reductions over one row of n elements, in the order of the lanes.
template <class T, int Bytes>
struct RowReduction {
  using W = Simd<T, Bytes>;
  using V = typename W::V;
  static constexpr T infinity = std::numeric_limits<T>::infinity();

  EIGENFORMER_ALWAYS_INLINE static T max(const T* x, index_t n) {
    V largest;
    W::set(largest, -infinity);
    for (index_t i = 0; i < n; i += W::lanes) {
      V v;
      W::load(v, x + i, n - i, -infinity);
      largest = v > largest ? v : largest;
    }
    return W::max(largest);
  }

  EIGENFORMER_ALWAYS_INLINE static T sum(const T* x, index_t n) {
    V total{};
    for (index_t i = 0; i < n; i += W::lanes) {
      V v;
      W::load(v, x + i, n - i);
      total += v;
    }
    return W::sum(total);
  }

  /// The sum of the products of x and y.
  EIGENFORMER_ALWAYS_INLINE static T dot(const T* x, const T* y, index_t n) {
    V total{};
    for (index_t i = 0; i < n; i += W::lanes) {
      V v, w;
      W::load(v, x + i, n - i);
      W::load(w, y + i, n - i);
      total += v * w;
    }
    return W::sum(total);
  }

  /// The sum of exp(x - shift); the terms go to `out` unless it is nullptr.
  EIGENFORMER_ALWAYS_INLINE static T sum_exp(const T* x, T shift, T* out, index_t n) {
    V total{};
    for (index_t i = 0; i < n; i += W::lanes) {
      V v;
      W::load(v, x + i, n - i, -infinity);
      v -= shift;
      SimdMath<T, Bytes>::exp_bounded(v);
      total += v;
      if (out != nullptr) W::store(out + i, n - i, v);
    }
    return W::sum(total);
  }
};

}  // namespace eigenformer::detail::kernels
