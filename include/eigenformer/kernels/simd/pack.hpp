#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "eigenformer/kernels/simd/simd_math.hpp"

namespace eigenformer::detail::kernels {

/// A vector as a number: operators, comparisons and functions of all its elements at once, so that a formula
/// is written once for float and double and for all instruction sets. In double, where speed does not matter,
/// most functions are those of the standard library. Formulas take it as `const auto&`: g++ notes that
/// passing vectors by value changed once.
template <class T, int Bytes>
struct Pack {
  using W = Simd<T, Bytes>;
  using Math = SimdMath<T, Bytes>;
  using V = typename W::V;
  using I = typename W::I;
  static constexpr bool is_double = sizeof(T) == 8;
  static constexpr bool mask_registers = EIGENFORMER_VECTOR_ASM && Bytes == 64;

  /// Where something holds. Bits in a mask register, or all bits of the elements of a vector: g++ 12 takes
  /// vectors of masks apart where it has mask registers.
  struct Mask {
    using Bits = std::conditional_t<mask_registers, std::uint16_t, I>;
    Bits bits;
    EIGENFORMER_ALWAYS_INLINE friend Mask operator&(const Mask& a, const Mask& b) {
      return {static_cast<Bits>(a.bits & b.bits)};
    }
    EIGENFORMER_ALWAYS_INLINE friend Mask operator|(const Mask& a, const Mask& b) {
      return {static_cast<Bits>(a.bits | b.bits)};
    }
    EIGENFORMER_ALWAYS_INLINE friend Mask operator^(const Mask& a, const Mask& b) {
      return {static_cast<Bits>(a.bits ^ b.bits)};
    }
    EIGENFORMER_ALWAYS_INLINE friend Mask operator~(const Mask& a) {
      Mask m = a;
      if constexpr (mask_registers) {
        m.bits ^= static_cast<std::uint16_t>((1u << W::lanes) - 1);
      } else {
        m.bits = ~m.bits;
      }
      return m;
    }
  };

  V v;

  Pack() = default;
  // The addition keeps g++ from writing the elements one by one; -0 becomes 0.
  EIGENFORMER_ALWAYS_INLINE Pack(T s) { v = V{} + s; }
  EIGENFORMER_ALWAYS_INLINE static Pack of(const V& v) {
    Pack p;
    p.v = v;
    return p;
  }
  static constexpr T infinity = std::numeric_limits<T>::infinity();
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN();

  EIGENFORMER_ALWAYS_INLINE friend Pack operator-(const Pack& a) { return of(-a.v); }
  EIGENFORMER_ALWAYS_INLINE friend Pack operator+(const Pack& a, const Pack& b) { return of(a.v + b.v); }
  EIGENFORMER_ALWAYS_INLINE friend Pack operator-(const Pack& a, const Pack& b) { return of(a.v - b.v); }
  EIGENFORMER_ALWAYS_INLINE friend Pack operator*(const Pack& a, const Pack& b) { return of(a.v * b.v); }
  EIGENFORMER_ALWAYS_INLINE friend Pack operator/(const Pack& a, const Pack& b) { return of(a.v / b.v); }
  EIGENFORMER_ALWAYS_INLINE friend Mask operator<(const Pack& a, const Pack& b) {
    return compare<Predicate::less>(a, b);
  }
  EIGENFORMER_ALWAYS_INLINE friend Mask operator<=(const Pack& a, const Pack& b) {
    return compare<Predicate::less_equal>(a, b);
  }
  EIGENFORMER_ALWAYS_INLINE friend Mask operator>(const Pack& a, const Pack& b) {
    return compare<Predicate::greater>(a, b);
  }
  EIGENFORMER_ALWAYS_INLINE friend Mask operator>=(const Pack& a, const Pack& b) {
    return compare<Predicate::greater_equal>(a, b);
  }
  EIGENFORMER_ALWAYS_INLINE friend Mask operator==(const Pack& a, const Pack& b) {
    return compare<Predicate::equal>(a, b);
  }
  EIGENFORMER_ALWAYS_INLINE friend Mask operator!=(const Pack& a, const Pack& b) {
    return compare<Predicate::not_equal>(a, b);
  }

  /// a where the mask holds, else b; both are computed.
  EIGENFORMER_ALWAYS_INLINE friend Pack select(const Mask& m, const Pack& a, const Pack& b) {
    Pack y;
#if EIGENFORMER_VECTOR_ASM
    if constexpr (mask_registers && is_double) {
      __asm__("vblendmpd %2, %1, %0%{%3%}" : "=v"(y.v) : "v"(b.v), "v"(a.v), "Yk"(m.bits));
      return y;
    } else if constexpr (mask_registers) {
      __asm__("vblendmps %2, %1, %0%{%3%}" : "=v"(y.v) : "v"(b.v), "v"(a.v), "Yk"(m.bits));
      return y;
    }
#endif
    if constexpr (!mask_registers) y.v = m.bits != 0 ? a.v : b.v;
    return y;
  }
  EIGENFORMER_ALWAYS_INLINE friend Mask isnan(const Pack& a) { return a != a; }
  EIGENFORMER_ALWAYS_INLINE friend Mask isfinite(const Pack& a) { return abs(a) < infinity; }
  EIGENFORMER_ALWAYS_INLINE friend Pack abs(const Pack& a) {
    return of(reinterpret_cast<V>(reinterpret_cast<I>(a.v) & ~sign_bit));
  }
  /// The magnitude of a with the sign of b.
  EIGENFORMER_ALWAYS_INLINE friend Pack copysign(const Pack& a, const Pack& b) {
    return of(
        reinterpret_cast<V>((reinterpret_cast<I>(a.v) & ~sign_bit) | (reinterpret_cast<I>(b.v) & sign_bit)));
  }
  EIGENFORMER_ALWAYS_INLINE friend Mask signbit(const Pack& a) {
    Mask m;
#if EIGENFORMER_VECTOR_ASM
    if constexpr (mask_registers && is_double) {
      __asm__("vpmovq2m %1, %0" : "=Yk"(m.bits) : "v"(a.v));
      return m;
    } else if constexpr (mask_registers) {
      __asm__("vpmovd2m %1, %0" : "=Yk"(m.bits) : "v"(a.v));
      return m;
    }
#endif
    if constexpr (!mask_registers) m.bits = reinterpret_cast<I>(a.v) < 0;
    return m;
  }

  EIGENFORMER_ALWAYS_INLINE friend Pack round(const Pack& a) {
    Pack y = a;
    if (W::template round<0>(y.v)) return y;
    return select(abs(a) < whole, copysign((abs(a) + whole) - whole, a), a);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack floor(const Pack& a) {
    Pack y = a;
    if (W::template round<1>(y.v)) return y;
    y = trunc(a);
    return select(y > a, y - 1, y);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack ceil(const Pack& a) {
    Pack y = a;
    if (W::template round<2>(y.v)) return y;
    y = trunc(a);
    return select(y < a, y + 1, y);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack trunc(const Pack& a) {
    Pack y = a;
    if (W::template round<3>(y.v)) return y;
    const Mask small = abs(a) < whole;  // beyond, there is no fraction
    y = of(__builtin_convertvector(__builtin_convertvector(select(small, a, 0).v, I), V));
    return select(small, copysign(y, a), a);
  }

  EIGENFORMER_ALWAYS_INLINE friend Pack sqrt(const Pack& a) { return changed<W::sqrt>(a); }
  EIGENFORMER_ALWAYS_INLINE friend Pack exp(const Pack& a) { return changed<Math::exp>(a); }
  EIGENFORMER_ALWAYS_INLINE friend Pack log(const Pack& a) { return changed<Math::template log<true>>(a); }

  EIGENFORMER_ALWAYS_INLINE friend Pack exp2(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::exp2(x); });
    return changed<Math::exp2>(a);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack expm1(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::expm1(x); });
    return changed<Math::expm1>(a);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack log2(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::log2(x); });
    return changed<Math::template log2<true>>(a);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack log10(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::log10(x); });
    return log2(a) * T(0.30102999566398119521);
  }
  // Kahan: the logarithm of the rounded sum, and what the rounding lost.
  EIGENFORMER_ALWAYS_INLINE friend Pack log1p(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::log1p(x); });
    const Pack u = a + 1, lost = (a - (u - 1)) / u;
    return log(u) + select((u == 0) | (u == infinity), 0, lost);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack erfc(const Pack& a) {
    return each(a, [](T x) { return std::erfc(x); });
  }

  EIGENFORMER_ALWAYS_INLINE friend Pack sin(const Pack& a) {
    if (is_double || far(a)) return each(a, [](T x) { return std::sin(x); });
    Pack s, c;
    const Pack quarter = sin_cos(a, s, c), y = select(is_odd(quarter), c, s);
    return select(quarter >= 2, -y, y);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack cos(const Pack& a) {
    if (is_double || far(a)) return each(a, [](T x) { return std::cos(x); });
    Pack s, c;
    const Pack quarter = sin_cos(a, s, c), y = select(is_odd(quarter), s, c);
    return select((quarter == 1) | (quarter == 2), -y, y);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack tan(const Pack& a) {
    if (is_double || far(a)) return each(a, [](T x) { return std::tan(x); });
    Pack s, c;
    const Mask odd = is_odd(sin_cos(a, s, c));
    return select(odd, -c, s) / select(odd, s, c);
  }

  EIGENFORMER_ALWAYS_INLINE friend Pack asin(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::asin(x); });
    const Mask large = abs(a) > T(0.5);
    const Pack y = asin_of_half(a);
    return copysign(select(large, half_pi - 2 * y, y), a);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack acos(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::acos(x); });
    const Mask large = abs(a) > T(0.5);
    const Pack y = asin_of_half(a);
    return select(large, select(a < 0, 2 * half_pi - 2 * y, 2 * y), half_pi - copysign(y, a));
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack atan(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::atan(x); });
    const Mask large = abs(a) > 1;
    const Pack y = atan_below_1(select(large, 1 / abs(a), abs(a)));
    return copysign(select(large, half_pi - y, y), a);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack atan2(const Pack& a, const Pack& b) {
    if constexpr (is_double) return each(a, b, [](T y, T x) { return std::atan2(y, x); });
    const Pack y = abs(a), x = abs(b);
    const Mask steep = y > x;
    Pack ratio = select(steep, x, y) / select(steep, y, x);
    ratio = select((x == 0) & (y == 0), 0, ratio);
    ratio = select((x == infinity) & (y == infinity), 1, ratio);
    Pack angle = atan_below_1(ratio);
    angle = select(steep, half_pi - angle, angle);
    angle = select(signbit(b), 2 * half_pi - angle, angle);
    return select(isnan(a) | isnan(b), nan, copysign(angle, a));
  }

  EIGENFORMER_ALWAYS_INLINE friend Pack sinh(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::sinh(x); });
    const Pack e = expm1(abs(a)), half = exp(abs(a) * T(0.5));
    return copysign(select(abs(a) > 20, half * T(0.5) * half, (e + e / (e + 1)) * T(0.5)), a);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack cosh(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::cosh(x); });
    const Pack e = exp(abs(a)), half = exp(abs(a) * T(0.5));
    return select(abs(a) > 20, half * T(0.5) * half, (e + 1 / e) * T(0.5));
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack tanh(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::tanh(x); });
    return changed<Math::tanh>(a);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack asinh(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::asinh(x); });
    const Pack x = abs(a), square = x * x;
    return copysign(select(x > square_limit, log(x) + ln2, log1p(x + square / (1 + sqrt(square + 1)))), a);
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack acosh(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::acosh(x); });
    const Pack x = a - 1;
    return select(a > square_limit, log(a) + ln2, log1p(x + sqrt(x * (x + 2 * select(x < 0, nan, 1)))));
  }
  EIGENFORMER_ALWAYS_INLINE friend Pack atanh(const Pack& a) {
    if constexpr (is_double) return each(a, [](T x) { return std::atanh(x); });
    const Pack x = abs(a);
    return copysign(log1p(2 * x / (1 - x)) * T(0.5), a);
  }

  /// a to the power b, in double: the logarithm's error would grow with the result.
  EIGENFORMER_ALWAYS_INLINE friend Pack pow(const Pack& a, const Pack& b) {
    if constexpr (is_double) {
      return each(a, b, [](T x, T y) { return std::pow(x, y); });
    } else {
      return in_double(a, b,
                       [](const auto& x, const auto& y) EIGENFORMER_INLINE_LAMBDA { return power(x, y); });
    }
  }
  /// a modulo b, with the sign of b.
  EIGENFORMER_ALWAYS_INLINE friend Pack floor_mod(const Pack& a, const Pack& b) {
    const auto exactly = [](T x, T y) {
      const T r = std::fmod(x, y);
      return r != 0 && (r < 0) != (y < 0) ? r + y : r;
    };
    if constexpr (is_double) return each(a, b, exactly);
    // Beyond, a product of quotient and divisor is rounded even in double.
    constexpr T most = T(1 << 28);
    if (any(~((abs(a) < most * abs(b)) & (abs(b) < infinity)) & (b == b) & (a == a)))
      return each(a, b, exactly);
    return in_double(a, b, [](const auto& x, const auto& y) EIGENFORMER_INLINE_LAMBDA {
      // The remainder with the sign of x; the quotient may be rounded to the next whole number.
      const auto toward = copysign(y, x);
      auto r = x - trunc(x / y) * y;
      r = select((r != 0) & (signbit(r) ^ signbit(x)), r + toward, r);
      r = select(abs(r) >= abs(y), r - toward, r);
      return select((r != 0) & (signbit(r) ^ signbit(y)), r + y, r);
    });
  }

  /// a, changed in place.
  template <void change(V&)>
  EIGENFORMER_ALWAYS_INLINE static Pack changed(const Pack& a) {
    Pack y = a;
    change(y.v);
    return y;
  }
  /// f for each element.
  template <class F>
  EIGENFORMER_ALWAYS_INLINE static Pack each(const Pack& a, F f) {
    Pack y;
    for (index_t l = 0; l < W::lanes; ++l) y.v[l] = f(a.v[l]);
    return y;
  }
  template <class F>
  EIGENFORMER_ALWAYS_INLINE static Pack each(const Pack& a, const Pack& b, F f) {
    Pack y;
    for (index_t l = 0; l < W::lanes; ++l) y.v[l] = f(a.v[l], b.v[l]);
    return y;
  }
  EIGENFORMER_ALWAYS_INLINE friend bool any(const Mask& m) {
    if constexpr (mask_registers) {
      return m.bits != 0;
    } else {
      return W::max(m.bits != 0 ? T(1) - V{} : V{}) > T(0);
    }
  }

 private:
  // By their codes in AVX-512's instructions.
  enum class Predicate {
    equal = 0x00,
    not_equal = 0x04,
    less = 0x11,
    less_equal = 0x12,
    greater_equal = 0x1d,
    greater = 0x1e
  };

  template <Predicate p>
  EIGENFORMER_ALWAYS_INLINE static Mask compare(const Pack& a, const Pack& b) {
    Mask m;
#if EIGENFORMER_VECTOR_ASM
    if constexpr (mask_registers && is_double) {
      __asm__("vcmppd %3, %2, %1, %0" : "=Yk"(m.bits) : "v"(a.v), "v"(b.v), "i"(static_cast<int>(p)));
      return m;
    } else if constexpr (mask_registers) {
      __asm__("vcmpps %3, %2, %1, %0" : "=Yk"(m.bits) : "v"(a.v), "v"(b.v), "i"(static_cast<int>(p)));
      return m;
    }
#endif
    if constexpr (!mask_registers) {
      if constexpr (p == Predicate::equal) m.bits = a.v == b.v;
      if constexpr (p == Predicate::not_equal) m.bits = a.v != b.v;
      if constexpr (p == Predicate::less) m.bits = a.v < b.v;
      if constexpr (p == Predicate::less_equal) m.bits = a.v <= b.v;
      if constexpr (p == Predicate::greater) m.bits = a.v > b.v;
      if constexpr (p == Predicate::greater_equal) m.bits = a.v >= b.v;
    }
    return m;
  }

  static constexpr typename W::Integer sign_bit = std::numeric_limits<typename W::Integer>::min();
  static constexpr T whole = 1 / std::numeric_limits<T>::epsilon(), half_pi = T(1.57079632679489661923),
                     ln2 = T(0.69314718055994530942), square_limit = T(1e9);

  /// f(a, b) of doubles, rounded to float.
  template <class F>
  EIGENFORMER_ALWAYS_INLINE static Pack in_double(const Pack& a, const Pack& b, F f) {
    using Double = Pack<double, Bytes>;
    typedef float Half __attribute__((vector_size(Bytes / 2)));
    Pack y;
    for (int part = 0; part < 2; ++part) {
      Half x, z;
      __builtin_memcpy(&x, reinterpret_cast<const char*>(&a.v) + part * (Bytes / 2), Bytes / 2);
      __builtin_memcpy(&z, reinterpret_cast<const char*>(&b.v) + part * (Bytes / 2), Bytes / 2);
      const Double r = f(Double::of(__builtin_convertvector(x, typename Double::V)),
                         Double::of(__builtin_convertvector(z, typename Double::V)));
      x = __builtin_convertvector(r.v, Half);
      __builtin_memcpy(reinterpret_cast<char*>(&y.v) + part * (Bytes / 2), &x, Bytes / 2);
    }
    return y;
  }
  template <class Double>
  EIGENFORMER_ALWAYS_INLINE static Double power(const Double& x, const Double& y) {
    const Double size = abs(x);
    Double usual = size;
    Double::Math::template log2<false>(usual.v);
    // Far beyond what a float holds, and a normal number.
    usual.v = y.v * usual.v;
    usual.v = usual.v > 1000.0 ? 1000.0 - typename Double::V{} : usual.v;
    usual.v = usual.v < -1000.0 ? -1000.0 - typename Double::V{} : usual.v;
    Double::Math::exp2_normal(usual.v);
    const auto special = ~((size > 0) & (size < Double::infinity) & (abs(y) < Double::infinity));
    if (!any(special | signbit(x))) return usual;
    Double r = select(special, exp(y * log(size)), usual);
    r = select((size == 1) & (y == y), 1, r);
    const auto is_whole = trunc(y) == y;
    const Double half = y * 0.5;
    r = select(signbit(x) & is_whole & (trunc(half) != half), -r, r);
    r = select((x < 0) & ~is_whole & (size < Double::infinity), Double::nan, r);
    return select((y == 0) | (x == 1), 1, r);
  }

  EIGENFORMER_ALWAYS_INLINE static Mask is_odd(const Pack& quarter) {
    return (quarter == 1) | (quarter == 3);
  }

  /// Whether an element is too large for sin_cos(), or not finite.
  EIGENFORMER_ALWAYS_INLINE static bool far(const Pack& a) { return any(~(abs(a) < 3000)); }

  /// a = n pi / 2 + r with r up to pi / 4; s and c are the sine and the cosine of r. Cody and Waite 1980,
  /// with pi / 2 in three parts, of which two have 11 bits, so that their products with n are exact.
  EIGENFORMER_ALWAYS_INLINE static Pack sin_cos(const Pack& a, Pack& s, Pack& c) {
    const Pack n = round(a * T(0.63661977236758134308));
    const Pack r = ((a - n * 1.5703125f) - n * 0.0004837512969970703125f) - n * 7.549790126404332e-08f;
    const V z = r.v * r.v;
    V p;
    Math::poly(p, z, T(-0.00019587890710681677f), T(0.008332747966051102f), T(-0.166666641831398f));
    s.v = r.v + r.v * z * p;
    Math::poly(p, z, T(2.454794230288826e-05f), T(-0.001388830249197781f), T(0.0416666641831398f));
    c.v = T(1) - (z * T(0.5) - z * z * p);
    return n - 4 * floor(n * T(0.25));
  }
  /// asin(|a|) up to 0.5, beyond asin(sqrt((1 - |a|) / 2)).
  EIGENFORMER_ALWAYS_INLINE static Pack asin_of_half(const Pack& a) {
    const Mask large = abs(a) > T(0.5);
    const Pack z = select(large, (1 - abs(a)) * T(0.5), a * a), x = select(large, sqrt(z), abs(a));
    V p;
    Math::poly(p, z.v, T(0.03808502480387688f), T(0.026554541662335396f), T(0.045001380145549774f),
               T(0.07498855143785477f), T(0.16666673123836517f));
    return x + x * z * of(p);
  }
  /// atan(a) for a in [0, 1]: beyond tan(pi / 8) pi / 4 + atan((a - 1) / (a + 1)).
  EIGENFORMER_ALWAYS_INLINE static Pack atan_below_1(const Pack& a) {
    const Mask large = a > T(0.41421356237309504880);
    const Pack x = select(large, (a - 1) / (a + 1), a), z = x * x;
    V p;
    Math::poly(p, z.v, T(0.08520492166280746f), T(-0.14024142920970917f), T(0.19991238415241241f),
               T(-0.3333328664302826f));
    return select(large, half_pi * T(0.5), 0) + (x + x * z * of(p));
  }
};

}  // namespace eigenformer::detail::kernels
