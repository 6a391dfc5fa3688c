#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

#if EIGENFORMER_X86
#include <emmintrin.h>
#endif

// Whether instructions are given as assembly: clang refuses the constraints in a function without target.
#if EIGENFORMER_X86 && !defined(__clang__)
#define EIGENFORMER_VECTOR_ASM 1
#else
#define EIGENFORMER_VECTOR_ASM 0
#endif

namespace eigenformer::detail::kernels {

/// Vectors of Bytes bytes over T (GCC's vector extension: both compilers turn + - * / and comparisons into
/// the instructions of the function they end up in, at every optimisation level).
///
/// Functions take vectors by reference and are always inlined: passing them by value between functions
/// compiled for different instruction sets is an error in clang and a warning in GCC.
template <class T, int Bytes>
struct Simd {
  using Integer = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  using Unsigned = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  typedef T V __attribute__((vector_size(Bytes)));
  typedef Integer I __attribute__((vector_size(Bytes)));
  typedef Unsigned U __attribute__((vector_size(Bytes)));
  // (An aligned(...) attribute on a typedef is lost in clang's templates.)
  struct __attribute__((packed, may_alias)) Memory {
    V v;
  };
  static constexpr index_t lanes = Bytes / static_cast<int>(sizeof(T));

  /// The vector at p, which need not be aligned: `x = at(p).v`, `at(p).v = x`. (But g++ 12 takes p as aligned
  /// in `x += at(p).v` unless it points to const: write x = x + at(p).v.)
  EIGENFORMER_ALWAYS_INLINE static Memory& at(T* p) { return *reinterpret_cast<Memory*>(p); }
  EIGENFORMER_ALWAYS_INLINE static const Memory& at(const T* p) {
    return *reinterpret_cast<const Memory*>(p);
  }

  /// All lanes s.
  EIGENFORMER_ALWAYS_INLINE static void set(V& v, T s) { v = s - V{}; }

  /// v = the first min(lanes, count) elements at p, the remaining lanes `fill`.
  EIGENFORMER_ALWAYS_INLINE static void load(V& v, const T* p, index_t count, T fill = T(0)) {
    if (count >= lanes) {
      v = at(p).v;
      return;
    }
    set(v, fill);
#if EIGENFORMER_VECTOR_ASM
    if constexpr (Bytes == 64 && sizeof(T) == 4) {
      __asm__("vmovups %2, %0%{%1%}" : "+v"(v) : "Yk"(first_lanes(count)), "m"(elements(p)));
      return;
    }
    if constexpr (Bytes == 32 && sizeof(T) == 4) {
      I mask;
      for (index_t l = 0; l < lanes; ++l) mask[l] = static_cast<Integer>(l);
      mask = mask < static_cast<Integer>(count);
      V x;
      __asm__("vmaskmovps %2, %1, %0" : "=x"(x) : "x"(mask), "m"(elements(p)));
      v = mask ? x : v;
      return;
    }
#endif
    alignas(Bytes) T buffer[lanes];
    at(buffer).v = v;
    copy(buffer, p, count);
    v = at(buffer).v;
  }

  /// Stores the first min(lanes, count) lanes of v at p.
  EIGENFORMER_ALWAYS_INLINE static void store(T* p, index_t count, const V& v) {
    if (count >= lanes) {
      at(p).v = v;
      return;
    }
#if EIGENFORMER_VECTOR_ASM
    if constexpr (Bytes == 64 && sizeof(T) == 4) {
      __asm__("vmovups %2, %0%{%1%}" : "+m"(elements(p)) : "Yk"(first_lanes(count)), "v"(v));
      return;
    }
#endif
    alignas(Bytes) T buffer[lanes];
    at(buffer).v = v;
    copy(p, buffer, count);
  }

  /// store() of v + beta * what is at p; beta 0 does not read it.
  EIGENFORMER_ALWAYS_INLINE static void store_sum(T* p, index_t count, const V& v, T beta) {
    V sum = v;
    if (beta != T(0)) {
      V old;
      load(old, p, count);
      sum += beta * old;
    }
    store(p, count, sum);
  }

  /// The lanes combined into one by Op::combine(a, b): halves are combined until one is left.
  template <class Op>
  EIGENFORMER_ALWAYS_INLINE static T fold(const V& v) {
    if constexpr (lanes == 1) {
      return v[0];
    } else {
      // Not by memcpy from v: g++ would keep it in memory, also in the loop that computes it.
      using H = typename Half::V;
      const union {
        V all;
        H half[2];
      } parts = {v};
      H low = parts.half[0];
      Op::combine(low, parts.half[1]);
      return Half::template fold<Op>(low);
    }
  }

  /// Sum of the lanes.
  EIGENFORMER_ALWAYS_INLINE static T sum(const V& v) { return fold<Sum>(v); }

  /// Largest lane.
  EIGENFORMER_ALWAYS_INLINE static T max(const V& v) { return fold<Larger>(v); }

  /// Calls f(i, count) for the vectors of n elements: count is a constant, but for what is left at the end.
  template <class F>
  EIGENFORMER_ALWAYS_INLINE static void each(index_t n, const F& f) {
    index_t i = 0;
    for (; i + lanes <= n; i += lanes) f(i, std::integral_constant<index_t, lanes>());
    if (i < n) f(i, n - i);
  }

  /// Rounds x to whole numbers, to nearest even (0), down (1), up (2) or toward zero (3), and returns true;
  /// or does nothing where there is no instruction for it.
  template <int direction>
  EIGENFORMER_ALWAYS_INLINE static bool round([[maybe_unused]] V& x) {
#if EIGENFORMER_VECTOR_ASM
    constexpr int quietly = 8;  // raises no exception for inexact results
    if constexpr (Bytes == 64 && sizeof(T) == 4) {
      __asm__("vrndscaleps %2, %1, %0" : "=v"(x) : "v"(x), "i"(direction | quietly));
      return true;
    } else if constexpr (Bytes == 32 && sizeof(T) == 4) {
      __asm__("vroundps %2, %1, %0" : "=x"(x) : "x"(x), "i"(direction | quietly));
      return true;
    } else if constexpr (Bytes == 64) {
      __asm__("vrndscalepd %2, %1, %0" : "=v"(x) : "v"(x), "i"(direction | quietly));
      return true;
    } else if constexpr (Bytes == 32) {
      __asm__("vroundpd %2, %1, %0" : "=x"(x) : "x"(x), "i"(direction | quietly));
      return true;
    }
#endif
    return false;
  }

  /// x = square root of x, correctly rounded. (std::sqrt in a loop is not vectorised, because it may set
  /// errno.)
  EIGENFORMER_ALWAYS_INLINE static void sqrt(V& x) {
#if EIGENFORMER_X86
    if constexpr (Bytes == 16 && sizeof(T) == 4) {
      x = reinterpret_cast<V>(_mm_sqrt_ps(reinterpret_cast<__m128>(x)));
      return;
    } else if constexpr (Bytes == 16) {
      x = reinterpret_cast<V>(_mm_sqrt_pd(reinterpret_cast<__m128d>(x)));
      return;
    } else if constexpr (Bytes > 16) {
#if defined(__clang__)
      typename Half::V half[2];
      __builtin_memcpy(half, &x, Bytes);
      Half::sqrt(half[0]);
      Half::sqrt(half[1]);
      __builtin_memcpy(&x, half, Bytes);
#else
      // GCC would put the halves together through memory; clang refuses the constraint in a function without
      // target.
      if constexpr (sizeof(T) == 4) __asm__("vsqrtps %1, %0" : "=v"(x) : "v"(x));
      if constexpr (sizeof(T) == 8) __asm__("vsqrtpd %1, %0" : "=v"(x) : "v"(x));
#endif
      return;
    }
#endif
    for (index_t l = 0; l < lanes; ++l) x[l] = std::sqrt(x[l]);
  }

 private:
  struct Sum {
    template <class U>
    EIGENFORMER_ALWAYS_INLINE static void combine(U& a, const U& b) {
      a += b;
    }
  };
  struct Larger {
    template <class U>
    EIGENFORMER_ALWAYS_INLINE static void combine(U& a, const U& b) {
      a = a > b ? a : b;
    }
  };
  using Half = Simd<T, lanes == 1 ? Bytes : Bytes / 2>;

#if EIGENFORMER_VECTOR_ASM
  /// AVX-512's mask of the first `count` lanes, none when negative.
  EIGENFORMER_ALWAYS_INLINE static std::uint16_t first_lanes(index_t count) {
    return static_cast<std::uint16_t>((1u << (count > 0 ? count : 0)) - 1);
  }
  /// The memory that a masked move may use.
  template <class U>
  EIGENFORMER_ALWAYS_INLINE static auto& elements(U* p) {
    return *reinterpret_cast<U(*)[lanes]>(p);
  }
#endif

  /// Copies count < 2 * Chunk elements (none when negative), in runs of fixed length: a library call would
  /// have the loops around it save their registers.
  template <index_t Chunk = lanes / 2>
  EIGENFORMER_ALWAYS_INLINE static void copy(T* to, const T* from, index_t count) {
    if constexpr (Chunk > 0) {
      index_t copied = 0;
      if (count >= Chunk) {
        __builtin_memcpy(to, from, static_cast<std::size_t>(Chunk) * sizeof(T));
        copied = Chunk;
      }
      copy<Chunk / 2>(to + copied, from + copied, count - copied);
    }
  }
};

/// The least number of elements with a few operations each that is worth a task.
inline constexpr index_t simple_grain = 32768;

/// The least number of elements with an exponential or the like each that is worth a task.
inline constexpr index_t math_grain = 8192;

/// The least number of rows of n elements that is worth a task.
inline index_t row_grain(index_t n, index_t grain) { return n <= 0 ? grain : (grain + n - 1) / n; }

}  // namespace eigenformer::detail::kernels
