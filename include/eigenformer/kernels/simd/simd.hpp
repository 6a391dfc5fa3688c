#pragma once

#include <type_traits>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/simd/isa.hpp"

// GCC warns that passing vector types between functions of different targets changes the ABI; nothing here
// does.
#define EIGENFORMER_TARGET_AVX2 __attribute__((target("avx,avx2,fma,f16c")))
#define EIGENFORMER_TARGET_AVX512 \
  __attribute__((target("avx,avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")))

// For functions made of plain loops: inlines their calls, and has g++ vectorize loops of any length, which it
// does at -O3 but not at -O2.
#if defined(__GNUC__) && !defined(__clang__)
#define EIGENFORMER_PLAIN_LOOPS \
  __attribute__((flatten, optimize("tree-vectorize", "vect-cost-model=dynamic")))
#else
#define EIGENFORMER_PLAIN_LOOPS __attribute__((flatten))
#endif

namespace eigenformer::detail::kernels {

/// p + n, or null where p is: part of an operand that may be absent.
template <class T>
EIGENFORMER_ALWAYS_INLINE T* shifted(T* p, index_t n) {
  return p == nullptr ? p : p + n;
}

namespace detail {

/// A body whose loops the compiler vectorizes, and whose calls are inlined even if the called functions are
/// not marked EIGENFORMER_ALWAYS_INLINE.
template <class Body>
concept PlainLoops = Body::plain_loops;

template <class Body, int Bytes, class... Args>
EIGENFORMER_ALWAYS_INLINE void run_body(Args... args) {
  if constexpr (requires { Body::template run<Bytes>(args...); }) {
    Body::template run<Bytes>(args...);
  } else {
    Body::run(args...);
  }
}

template <class Body, class... Args>
void run_baseline(Args... args) {
  run_body<Body, 16>(args...);
}
template <PlainLoops Body, class... Args>
EIGENFORMER_PLAIN_LOOPS void run_baseline(Args... args) {
  run_body<Body, 16>(args...);
}

#if EIGENFORMER_X86
template <class Body, class... Args>
EIGENFORMER_TARGET_AVX2 void run_avx2(Args... args) {
  run_body<Body, 32>(args...);
}
template <PlainLoops Body, class... Args>
EIGENFORMER_TARGET_AVX2 EIGENFORMER_PLAIN_LOOPS void run_avx2(Args... args) {
  run_body<Body, 32>(args...);
}

template <class Body, class... Args>
EIGENFORMER_TARGET_AVX512 void run_avx512(Args... args) {
  run_body<Body, 64>(args...);
}
template <PlainLoops Body, class... Args>
EIGENFORMER_TARGET_AVX512 EIGENFORMER_PLAIN_LOOPS void run_avx512(Args... args) {
  run_body<Body, 64>(args...);
}
#endif

/// to = beta * to + value; beta 0 does not read it.
template <class T>
EIGENFORMER_ALWAYS_INLINE void put(T& to, T value, T beta) {
  to = beta == T(0) ? value : beta * to + value;
}

template <class Body>
struct RunOf {
  using Function = decltype(&Body::run);
};
template <class Body>
requires requires { &Body::template run<16>; }
struct RunOf<Body> {
  using Function = decltype(&Body::template run<16>);
};

/// The type of a pointer to Body::run.
template <class Body>
using RunFunction = typename RunOf<Body>::Function;

/// The function that dispatch() calls for the instruction set with vectors of `Bytes`: for tables, whose
/// users keep the instruction set that they chose.
template <class Body, int Bytes>
constexpr RunFunction<Body> body_for() {
#if EIGENFORMER_X86
  if constexpr (Bytes == 64) return &run_avx512<Body>;
  if constexpr (Bytes == 32) return &run_avx2<Body>;
#endif
  return &run_baseline<Body>;
}

/// Whether a loop works on double and not on float, by its pointers. Such loops are compiled for the baseline
/// alone: double is for gradient checks, and two more copies of every loop would double the compile time of
/// the kernels.
template <class... Args>
inline constexpr bool works_in_double =
    ((std::is_same_v<Args, double*> || std::is_same_v<Args, const double*>) || ...) &&
    !((std::is_same_v<Args, float*> || std::is_same_v<Args, const float*>) || ...);

template <class Body, class... Args>
EIGENFORMER_NOINLINE void run_for_isa(Args... args) {
  constexpr Isa given = works_in_double<Args...> ? Isa{} : given_isa;
#if EIGENFORMER_X86
  if constexpr (given.has(IsaFeature::avx512)) {
    return run_avx512<Body>(args...);
  } else if constexpr (!works_in_double<Args...>) {
    const Isa features = isa();
    if (features.has(IsaFeature::avx512)) return run_avx512<Body>(args...);
    if (given.has(IsaFeature::avx2) || features.has(IsaFeature::avx2)) return run_avx2<Body>(args...);
  }
#endif
  if constexpr (!given.has(IsaFeature::avx2)) run_baseline<Body>(args...);
}

}  // namespace detail

/// dispatch<Body>(args...) runs Body::run<Bytes>(args...), Bytes being the width of the vectors that the
/// features in use have (16, 32 or 64), or Body::run(args...) where that is no template, compiled for them.
/// `run` is a static member marked EIGENFORMER_ALWAYS_INLINE, so that each wrapper compiles its own copy; its
/// parameters are pointers and numbers. If Body::plain_loops exists and is true, the compiler vectorizes its
/// loops, and functions that `run` calls are inlined, too.
template <class Body>
inline constexpr detail::RunFunction<Body> dispatch = &detail::run_for_isa<Body>;

}  // namespace eigenformer::detail::kernels
