#pragma once

// Refuses targets and flags that the library does not support, before any other header is read.
#if defined(_WIN32)
#define EIGENFORMER_REFUSED
#error \
    "eigenformer: Windows, and with it MSVC, is not supported, because files and processes are handled by POSIX \
functions; compile with GCC or Clang on Linux, for example in WSL"
#elif !defined(__cplusplus) || __cplusplus < 202002L
#define EIGENFORMER_REFUSED
#error "eigenformer: C++20 is required; compile with -std=c++20 or newer, and GCC 11, Clang 14 or newer"
#elif !__has_include(<Eigen/Core>)
#define EIGENFORMER_REFUSED
#error \
    "eigenformer: Eigen was not found; install Eigen 3.4 or newer (Debian and Ubuntu: libeigen3-dev) and compile \
with -I and the folder that holds Eigen/Core, such as -I/usr/include/eigen3"
#elif !defined(__cpp_exceptions)
#define EIGENFORMER_REFUSED
#error \
    "eigenformer: exceptions are required, because errors are reported by them; compile without -fno-exceptions"
#elif !defined(__SIZEOF_POINTER__) || (__SIZEOF_POINTER__ < 8 && !defined(__EMSCRIPTEN__))
#define EIGENFORMER_REFUSED
#error \
    "eigenformer: a 64-bit target is required, because sizes and offsets of tensors and files have 64 bits; \
compile without -m32 and -mx32"
#elif !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#define EIGENFORMER_REFUSED
#error \
    "eigenformer: a little-endian target is required, because files of weights are read and written as they are \
in memory"
#endif

// exp() and rounding rely on the order of sums, masks on infinities, and NaN must be detected: with
// -ffast-math, softmax(1, 2, 3) was 0.077 0.308 0.615. (clang++ has no macro for -fassociative-math alone.)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0) || \
    defined(__ASSOCIATIVE_MATH__)
#define EIGENFORMER_REFUSED
#error \
    "eigenformer: results are wrong with -ffast-math, -Ofast, -ffinite-math-only and \
-funsafe-math-optimizations; compile files that include it without these (-fno-fast-math after -Ofast)"
#endif

#if defined(EIGENFORMER_REFUSED)
// A missing file ends the compilation: thousands of errors would follow, with the one above out of sight.
#include <eigenformer was refused: see the first error>
#endif

#include <cstdint>

/// `inline` in the header-only build; empty where a compiled target defines the function once.
#if defined(EIGENFORMER_COMPILED_BUILD)
#define EIGENFORMER_INLINE
#else
#define EIGENFORMER_INLINE inline
#endif

/// 1 where the definitions of large non-template functions are read: where only headers are used, and in
/// modules.cpp of eigenformer::compiled, which holds them. 0 in files that link that target: they neither
/// parse these definitions nor instantiate what is in them.
#if defined(EIGENFORMER_COMPILED_MODULES) || \
    !(defined(EIGENFORMER_COMPILED) || defined(EIGENFORMER_COMPILED_BUILD))
#define EIGENFORMER_DEFINITIONS 1
#else
#define EIGENFORMER_DEFINITIONS 0
#endif

/// Stands before declaration and definition of such a function: `inline` where only headers are used, empty
/// where one file of the program defines it.
#if EIGENFORMER_DEFINITIONS && !defined(EIGENFORMER_COMPILED_MODULES)
#define EIGENFORMER_FUNCTION inline
#else
#define EIGENFORMER_FUNCTION
#endif

/// One template instance that eigenformer::compiled holds, such as `struct Linear<float>`. It is declared
/// where that target is linked, defined in its modules.cpp, and absent in the header-only build.
#if defined(EIGENFORMER_COMPILED_MODULES)
#define EIGENFORMER_INSTANCE(...) template __VA_ARGS__;
#elif defined(EIGENFORMER_COMPILED)
#define EIGENFORMER_INSTANCE(...) extern template __VA_ARGS__;
#else
#define EIGENFORMER_INSTANCE(...)
#endif
/// EIGENFORMER_INSTANCE of a class template for float and double: EIGENFORMER_INSTANCES(struct Linear).
#define EIGENFORMER_INSTANCES(CLASS) \
  EIGENFORMER_INSTANCE(CLASS<float>) \
  EIGENFORMER_INSTANCE(CLASS<double>)

/// An instance of a kernel, such as `binary<BinaryOp::add, float>`, where EIGENFORMER_INSTANTIATE asks for
/// it.
#if defined(EIGENFORMER_INSTANTIATE)
#define EIGENFORMER_KERNEL_INSTANCE(...) template decltype(__VA_ARGS__) __VA_ARGS__;
#else
#define EIGENFORMER_KERNEL_INSTANCE(...)
#endif
/// EIGENFORMER_KERNEL_INSTANCE of a function template for float and double.
#define EIGENFORMER_KERNEL(FUNCTION)           \
  EIGENFORMER_KERNEL_INSTANCE(FUNCTION<float>) \
  EIGENFORMER_KERNEL_INSTANCE(FUNCTION<double>)

/// EIGENFORMER_DEFINITIONS for headers that eigenformer.hpp does not include, which need nlohmann-json or are
/// included by those that do: io.hpp, train/, search/text/. EIGENFORMER_COMPILED_IO says that
/// eigenformer::compiled holds their functions, too; cmake/io.cpp, which defines them, sets
/// EIGENFORMER_COMPILED_IO_BUILD.
#if defined(EIGENFORMER_COMPILED_IO_BUILD) || !defined(EIGENFORMER_COMPILED_IO)
#define EIGENFORMER_IO_DEFINITIONS 1
#else
#define EIGENFORMER_IO_DEFINITIONS 0
#endif

/// EIGENFORMER_FUNCTION for these headers.
#if defined(EIGENFORMER_COMPILED_IO_BUILD) || defined(EIGENFORMER_COMPILED_IO)
#define EIGENFORMER_IO_FUNCTION
#else
#define EIGENFORMER_IO_FUNCTION inline
#endif

/// EIGENFORMER_INSTANCE for these headers.
#if defined(EIGENFORMER_COMPILED_IO_BUILD)
#define EIGENFORMER_IO_INSTANCE(...) template __VA_ARGS__;
#elif defined(EIGENFORMER_COMPILED_IO)
#define EIGENFORMER_IO_INSTANCE(...) extern template __VA_ARGS__;
#else
#define EIGENFORMER_IO_INSTANCE(...)
#endif

/// For bodies of loops that are compiled once for each instruction set inside a function of that set.
#define EIGENFORMER_ALWAYS_INLINE inline __attribute__((always_inline))
/// The same for a lambda, between its parameters and its body.
#define EIGENFORMER_INLINE_LAMBDA __attribute__((always_inline))

/// For functions that an op calls a few times, never for each element: inlining them takes time to compile
/// and makes nothing faster.
#define EIGENFORMER_NOINLINE __attribute__((noinline))

/// 1 on x86 with 64 bits, else 0.
#if defined(__x86_64__) || defined(_M_X64)
#define EIGENFORMER_X86 1
#else
#define EIGENFORMER_X86 0
#endif

/// 1 on little-endian ARM with 64 bits, else 0.
#if defined(__aarch64__) && !defined(__AARCH64EB__)
#define EIGENFORMER_ARM64 1
#else
#define EIGENFORMER_ARM64 0
#endif

namespace eigenformer {

/// Sizes, strides and row numbers.
using index_t = std::int64_t;

namespace detail {

// Whether X is an instance of a class template, as is_instance<X, std::vector>.
template <class X, template <class...> class Template>
inline constexpr bool is_instance = false;
template <template <class...> class Template, class... Arguments>
inline constexpr bool is_instance<Template<Arguments...>, Template> = true;

}  // namespace detail

}  // namespace eigenformer
