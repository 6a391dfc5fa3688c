#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"

#if EIGENFORMER_X86 && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

// Intel's AMX: eight tiles of 16 rows of 64 bytes in each thread, and products of them. Loops over tiles are
// templates of a struct like HardwareTiles, so that tests run them on tiles in plain C++.

namespace eigenformer::detail::kernels::detail {

/// The products of tiles that the CPU has and that the operating system lets this process use.
struct AmxFeatures {
  bool int8 = false;  ///< tdpbusd
  bool bf16 = false;  ///< tdpbf16ps

  friend bool operator==(AmxFeatures, AmxFeatures) = default;
};

/// The features by the answers of a CPU and an operating system: EDX of cpuid's leaf 7; EAX of leaf 1Dh,
/// subleaf 0 (the highest palette); XCR0; and `permit`, which asks the operating system for the tiles'
/// registers and is called last, if all other conditions hold.
inline AmxFeatures amx_features(std::uint32_t leaf7_edx, std::uint32_t palettes, std::uint64_t xcr0,
                                bool (*permit)()) {
  const bool tiles = (leaf7_edx >> 24 & 1u) != 0;
  const AmxFeatures features{tiles && (leaf7_edx >> 25 & 1u) != 0, tiles && (leaf7_edx >> 22 & 1u) != 0};
  constexpr std::uint64_t saved = 3ull << 17;  // TILECFG and TILEDATA
  if ((!features.int8 && !features.bf16) || palettes < 1 || (xcr0 & saved) != saved || !permit()) return {};
  return features;
}

/// The features of this CPU and process. On Linux a process must ask for the tiles' registers; on other
/// systems the features are off. Call it only on CPUs with AVX, because it reads XCR0.
inline AmxFeatures detect_amx() {
#if EIGENFORMER_X86 && defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0, palettes = 0, unused = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return {};
  if (__get_cpuid_count(0x1d, 0, &palettes, &unused, &unused, &unused) == 0) palettes = 0;
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return amx_features(d, palettes, std::uint64_t{high} << 32 | low, [] {
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  });
#else
  return {};
#endif
}

inline constexpr index_t amx_rows = 16;
inline constexpr index_t amx_row_bytes = 64;  ///< of a row

/// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  std::uint8_t palette = 0;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};  ///< by tile; 0 from tile 8 on
  std::uint8_t rows[16] = {};        ///< by tile; 0 from tile 8 on
};
static_assert(sizeof(TileConfig) == 64);

/// All eight tiles in full size: the only configuration in use. Products that are smaller are filled with
/// zeros.
inline constexpr TileConfig full_tiles = [] {
  TileConfig config;
  config.palette = 1;
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = amx_row_bytes;
    config.rows[t] = amx_rows;
  }
  return config;
}();

#if EIGENFORMER_X86
/// The calling thread's tiles. (Assembly, because the compilers' intrinsics take only literal numbers, and
/// GCC 12 does not know which memory they read.)
struct HardwareTiles {
  /// Of the vectors in code around the tiles.
  static constexpr int vector_bytes = 64;

  static EIGENFORMER_ALWAYS_INLINE void configure(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  static EIGENFORMER_ALWAYS_INLINE void release() { __asm__ volatile("tilerelease" : : : "memory"); }

  template <int T>
  static EIGENFORMER_ALWAYS_INLINE void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(T) : "memory");
  }
  /// Rows `stride` bytes apart.
  template <int T>
  static EIGENFORMER_ALWAYS_INLINE void load(const void* from, index_t stride) {
    __asm__ volatile("{tileloadd (%0,%1,1), %%tmm%c2|tileloadd %%tmm%c2, [%0+%1*1]}"
                     :
                     : "r"(from), "r"(stride), "i"(T)
                     : "memory");
  }
  template <int T>
  static EIGENFORMER_ALWAYS_INLINE void store(void* to, index_t stride) {
    __asm__ volatile("{tilestored %%tmm%c2, (%0,%1,1)|tilestored [%0+%1*1], %%tmm%c2}"
                     :
                     : "r"(to), "r"(stride), "i"(T)
                     : "memory");
  }
  /// C += A B: 32-bit sums of products of four unsigned bytes of A with four signed ones of B.
  template <int C, int A, int B>
  static EIGENFORMER_ALWAYS_INLINE void dot_int8() {
    __asm__ volatile("{tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0|tdpbusd %%tmm%c0, %%tmm%c1, %%tmm%c2}"
                     :
                     : "i"(C), "i"(A), "i"(B)
                     : "memory");
  }
  /// C += A B: float sums of products of two bfloat16.
  template <int C, int A, int B>
  static EIGENFORMER_ALWAYS_INLINE void dot_bf16() {
    __asm__ volatile("{tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0|tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2}"
                     :
                     : "i"(C), "i"(A), "i"(B)
                     : "memory");
  }
};
#endif

/// The calling thread's tiles are configured while it lives, and released with the last one of the thread. A
/// task that multiplies by tiles has one, or calls begin() and end().
template <class Tiles>
class TileSession {
 public:
  TileSession() { begin(); }
  ~TileSession() { end(); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;

  static void begin() {
    if (sessions()++ == 0) Tiles::configure(full_tiles);
  }
  static void end() {
    if (--sessions() == 0) Tiles::release();
  }

 private:
  static int& sessions() {
    thread_local int count = 0;
    return count;
  }
};

/// Products use tiles from this number of rows on, and vectors below. Tiles are known to be slower at 1 to 8
/// rows; between 8 and 16 it was not measured.
inline constexpr index_t amx_smallest_rows = 16;

/// Columns and steps of k (32 bits each) of a panel's block that tiles take at once, and its bytes a step.
inline constexpr index_t amx_columns = 32;
inline constexpr index_t amx_steps = 16;
inline constexpr index_t amx_panel_bytes = 4 * amx_columns;

/// The last steps of a panel, when they fill no tile, above steps of zeros.
class TileTail {
 public:
  /// panel: (steps, amx_columns), 4 bytes each.
  EIGENFORMER_ALWAYS_INLINE TileTail(const void* panel, index_t steps) {
    const index_t left = steps % amx_steps;
    if (left == 0) return;
    typedef std::uint32_t Step __attribute__((may_alias));
    const auto* from = static_cast<const Step*>(panel) + (steps - left) * amx_columns;
    for (index_t i = 0; i < amx_steps * amx_columns; ++i) block_[i] = i < left * amx_columns ? from[i] : 0;
    data_ = block_;
  }
  TileTail(const TileTail&) = delete;
  TileTail& operator=(const TileTail&) = delete;

  /// (amx_steps, amx_columns); null if there is none.
  const void* data() const noexcept { return data_; }

 private:
  alignas(64) std::uint32_t block_[amx_steps * amx_columns];
  const void* data_ = nullptr;
};

/// The rows of an operand A in the layout of tiles.
struct TileRows {
  const void* data;
  index_t stride;  ///< bytes from a row to the next
  index_t block;   ///< bytes from a row's block of amx_steps to the next block
};

/// Tiles 0 and 1, and with Groups = 2 also 2 and 3, become the sums of 16 * Groups rows times 32 columns over
/// all steps of k, in their order, in blocks of amx_steps. b: the panel (steps, 32). A's rows must be
/// readable up to whole blocks; elements beyond `steps` are multiplied by zero.
template <class Tiles, class Dot, int Groups>
EIGENFORMER_ALWAYS_INLINE void tile_sums(index_t steps, const TileRows& rows, const void* b,
                                         const TileTail& tail) {
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  if constexpr (Groups == 2) {
    Tiles::template zero<2>();
    Tiles::template zero<3>();
  }
  const auto* a = static_cast<const char*>(rows.data);
  const auto* panel = static_cast<const char*>(b);
  const index_t whole = steps / amx_steps, blocks = whole + (tail.data() != nullptr ? 1 : 0);
  for (index_t block = 0; block < blocks; ++block) {
    if (block == whole) panel = static_cast<const char*>(tail.data());
    Tiles::template load<6>(panel, amx_panel_bytes);
    Tiles::template load<7>(panel + amx_row_bytes, amx_panel_bytes);
    Tiles::template load<4>(a, rows.stride);
    Dot::template run<Tiles, 0, 4, 6>();
    Dot::template run<Tiles, 1, 4, 7>();
    if constexpr (Groups == 2) {
      Tiles::template load<5>(a + amx_rows * rows.stride, rows.stride);
      Dot::template run<Tiles, 2, 5, 6>();
      Dot::template run<Tiles, 3, 5, 7>();
    }
    a += rows.block;
    panel += amx_steps * amx_panel_bytes;
  }
}

/// Writes what tile_sums() left in the tiles to sums (16 * Groups, 32), of 4 bytes each.
template <class Tiles, int Groups>
EIGENFORMER_ALWAYS_INLINE void store_tile_sums(void* sums) {
  auto* to = static_cast<char*>(sums);
  Tiles::template store<0>(to, amx_panel_bytes);
  Tiles::template store<1>(to + amx_row_bytes, amx_panel_bytes);
  if constexpr (Groups == 2) {
    to += amx_rows * amx_panel_bytes;
    Tiles::template store<2>(to, amx_panel_bytes);
    Tiles::template store<3>(to + amx_row_bytes, amx_panel_bytes);
  }
}

}  // namespace eigenformer::detail::kernels::detail
