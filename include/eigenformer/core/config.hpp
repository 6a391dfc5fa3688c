#pragma once

#include <cstdint>

/// `inline` in the header-only build; nothing when a compiled target defines the function once.
#if defined(EIGENFORMER_COMPILED_BUILD)
#define EIGENFORMER_INLINE
#else
#define EIGENFORMER_INLINE inline
#endif

#define EIGENFORMER_ALWAYS_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__) || defined(_M_X64)
#define EIGENFORMER_X86 1
#else
#define EIGENFORMER_X86 0
#endif

namespace eigenformer {

/// Sizes, strides and row numbers.
using index_t = std::int64_t;

}  // namespace eigenformer
