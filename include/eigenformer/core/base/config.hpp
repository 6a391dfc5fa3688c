#pragma once

// What the library cannot be compiled for is refused here, before any other header is read.
#if defined(_WIN32)
#error \
    "eigenformer: Windows, and with it MSVC, is not supported, because files and processes are handled by POSIX \
functions; compile with GCC or Clang on Linux, for example in WSL"
#elif !defined(__cplusplus) || __cplusplus < 202002L
#error "eigenformer: C++20 is required; compile with -std=c++20 or newer, and GCC 11, Clang 14 or newer"
#elif !defined(__cpp_exceptions)
#error \
    "eigenformer: exceptions are required, because errors are reported by them; compile without -fno-exceptions"
#elif !defined(__SIZEOF_POINTER__) || __SIZEOF_POINTER__ < 8
#error \
    "eigenformer: a 64-bit target is required, because sizes and offsets of tensors and files have 64 bits; \
compile without -m32 and -mx32"
#elif !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error \
    "eigenformer: a little-endian target is required, because files of weights are read and written as they are \
in memory"
#endif

// exp() and rounding rely on the order of sums, masks on infinities, and NaN must be seen: with -ffast-math,
// softmax(1, 2, 3) was 0.077 0.308 0.615. (clang++ does not tell -fassociative-math alone.)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0) || \
    defined(__ASSOCIATIVE_MATH__)
#error \
    "eigenformer: results are wrong with -ffast-math, -Ofast, -ffinite-math-only and \
-funsafe-math-optimizations; compile files that include it without these (-fno-fast-math after -Ofast)"
#endif

#include <cstdint>

/// `inline` in the header-only build; nothing when a compiled target defines the function once.
#if defined(EIGENFORMER_COMPILED_BUILD)
#define EIGENFORMER_INLINE
#else
#define EIGENFORMER_INLINE inline
#endif

/// Instances of templates that eigenformer::compiled holds: EIGENFORMER_INSTANCES(struct Linear) those of a
/// class for float and double, EIGENFORMER_INSTANCE any one. Declared where that target is linked, defined in
/// its modules.cpp, nothing in the header-only build.
#if defined(EIGENFORMER_COMPILED_MODULES)
#define EIGENFORMER_INSTANCE(...) template __VA_ARGS__;
#elif defined(EIGENFORMER_COMPILED)
#define EIGENFORMER_INSTANCE(...) extern template __VA_ARGS__;
#else
#define EIGENFORMER_INSTANCE(...)
#endif
#define EIGENFORMER_INSTANCES(CLASS) \
  EIGENFORMER_INSTANCE(CLASS<float>) \
  EIGENFORMER_INSTANCE(CLASS<double>)

#define EIGENFORMER_ALWAYS_INLINE inline __attribute__((always_inline))

/// On what an op calls a few times and never an element: copies of it in every caller take time to compile,
/// and give none back.
#define EIGENFORMER_NOINLINE __attribute__((noinline))

#if defined(__x86_64__) || defined(_M_X64)
#define EIGENFORMER_X86 1
#else
#define EIGENFORMER_X86 0
#endif

#if defined(__aarch64__) && !defined(__AARCH64EB__)
#define EIGENFORMER_ARM64 1
#else
#define EIGENFORMER_ARM64 0
#endif

namespace eigenformer {

/// Sizes, strides and row numbers.
using index_t = std::int64_t;

}  // namespace eigenformer
