#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/runtime/scratch.hpp"
#include "eigenformer/kernels/gemm/gemm_amx.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

// Register tiles of one or two rows. They read B without packing, which would cost more than the product for
// so few rows, and several of its panels at a time, so that sums are independent. The chain of multiply-adds
// of an element is that of GemmMicro, so results are bit-identical.

namespace eigenformer::detail::kernels::detail {

/// The location of B for a tile: its first element, how far its rows or, transposed, columns are apart, and
/// its panels of GemmMicro's columns; a tile of transposed columns needs no panels. Memory `ahead` of what is
/// read is brought into the caches on the way.
template <class T>
struct InPlaceOperand {
  const T* data;
  index_t ld;
  index_t panel;
  index_t ahead;
};

/// C (Rows, columns) = [C +] alpha * A B [+ bias] as MicroFunction, for whole tiles. a: (steps, Rows).
template <class T>
using InPlaceFunction = void (*)(index_t steps, const T* a, const InPlaceOperand<T>* b, T* c, index_t ldc,
                                 T alpha, bool accumulate, const T* bias);

/// B's steps of k are rows of panels, which are parts of B's own rows or packed.
template <class T, int Bytes, int Rows>
struct GemmAdjacentInPlace {
  using Micro = GemmMicro<T, Bytes, Rows>;
  using W = Simd<T, Bytes>;
  using V = typename Micro::V;
  static constexpr int pairs = 4 / Rows;
  static constexpr index_t columns = pairs * Micro::columns;

  EIGENFORMER_ALWAYS_INLINE static void run(index_t steps, const T* a, const InPlaceOperand<T>* operand, T* c,
                                            index_t ldc, T alpha, bool accumulate, const T* bias) {
    panels(steps, a, *operand, c, ldc, alpha, accumulate, bias, std::make_integer_sequence<int, pairs>{});
  }

 private:
  template <int... P>
  EIGENFORMER_ALWAYS_INLINE static void panels(index_t steps, const T* a, const InPlaceOperand<T>& operand,
                                               T* c, index_t ldc, T alpha, bool accumulate, const T* bias,
                                               std::integer_sequence<int, P...>) {
    const T* b = operand.data;
    const index_t panel = operand.panel;
    V x[pairs][Rows], y[pairs][Rows];
    (Micro::clear(x[P], y[P], typename Micro::RowSequence{}), ...);
    for (index_t p = 0; p < steps; ++p) {
      V b0[pairs], b1[pairs];
      ((b0[P] = W::at(b + P * panel).v, b1[P] = W::at(b + P * panel + Micro::lanes).v), ...);
      (Micro::step(x[P], y[P], a, b0[P], b1[P], typename Micro::RowSequence{}), ...);
      (__builtin_prefetch(b + operand.ahead + P * panel), ...);
      a += Rows;
      b += operand.ld;
    }
    (finish(x[P], y[P], c + P * Micro::columns, ldc, alpha, accumulate, shifted(bias, P * Micro::columns)),
     ...);
  }

  EIGENFORMER_ALWAYS_INLINE static void finish(V (&x)[Rows], V (&y)[Rows], T* c, index_t ldc, T alpha,
                                               bool accumulate, const T* bias) {
    typename Micro::Output out;
    out.begin(c, ldc, accumulate, bias, Rows, Micro::columns);
    out.end(x, y, alpha, accumulate);
  }
};

/// B's steps of k are side by side: squares of lanes x lanes elements are transposed in registers and added
/// to the sums.
template <class T, int Bytes, int Rows>
struct GemmTransposedInPlace {
  using Micro = GemmMicro<T, Bytes, Rows>;
  using Pack = PackTransposed<T, Bytes>;
  using V = typename Micro::V;
  using RowSequence = typename Micro::RowSequence;
  static constexpr int lanes = Micro::lanes;
  static constexpr index_t columns = Micro::columns;

  EIGENFORMER_ALWAYS_INLINE static void run(index_t steps, const T* a, const InPlaceOperand<T>* operand, T* c,
                                            index_t ldc, T alpha, bool accumulate, const T* bias) {
    const T* const b = operand->data;
    const index_t ldb = operand->ld;
    V x[Rows], y[Rows];
    Micro::clear(x, y, RowSequence{});
    index_t p = 0;
    for (; p + lanes <= steps; p += lanes) {
      V v[lanes];
      square(v, b + p, ldb);
      add(x, a + p * Rows, v, std::make_integer_sequence<int, lanes>{}, RowSequence{});
      square(v, b + lanes * ldb + p, ldb);
      add(y, a + p * Rows, v, std::make_integer_sequence<int, lanes>{}, RowSequence{});
    }
    for (; p < steps; ++p) {
      T column[columns];
      for (index_t j = 0; j < columns; ++j) column[j] = b[j * ldb + p];
      const V b0 = Micro::W::at(column).v, b1 = Micro::W::at(column + lanes).v;
      Micro::step(x, y, a + p * Rows, b0, b1, RowSequence{});
    }
    typename Micro::Output out;
    out.begin(c, ldc, accumulate, bias, Rows, columns);
    out.end(x, y, alpha, accumulate);
  }

 private:
  EIGENFORMER_ALWAYS_INLINE static void square(V (&v)[lanes], const T* b, index_t ldb) {
    Pack::load(v, b, ldb, lanes, std::make_integer_sequence<int, lanes>{});
    Pack::transpose(v);
  }

  template <int... S, int... R>
  EIGENFORMER_ALWAYS_INLINE static void add(V (&x)[Rows], const T* a, const V (&v)[lanes],
                                            std::integer_sequence<int, S...>,
                                            std::integer_sequence<int, R...> rows) {
    (add_step(x, a + S * Rows, v[S], rows), ...);
  }
  template <int... R>
  EIGENFORMER_ALWAYS_INLINE static void add_step(V (&x)[Rows], const T* a, const V& v,
                                                 std::integer_sequence<int, R...>) {
    ((x[R] += a[R] * v), ...);
  }
};

/// The tiles of one layout of B, by number of rows.
template <class T>
struct InPlaceTiles {
  static constexpr index_t rows = 2;  ///< the most rows of a tile

  std::array<InPlaceFunction<T>, rows> function{};  ///< for one row, for two
  std::array<index_t, rows> columns{};              ///< of each tile

  bool available(index_t m) const noexcept { return m <= rows && function[0] != nullptr; }

  template <template <class, int, int> class Tile, int Bytes, int... Rows>
  static constexpr InPlaceTiles of() {
    return {{body_for<Tile<T, Bytes, Rows>, Bytes>()...}, {Tile<T, Bytes, Rows>::columns...}};
  }
};

}  // namespace eigenformer::detail::kernels::detail

#if EIGENFORMER_ARM64
#include <arm_neon.h>

// The tiles of float products for ARM with 64 bits. They are tested under an emulator; their speed on a CPU
// was not measured.

namespace eigenformer::detail::kernels::detail {

/// A tile of Rows x 8 floats: the elements of A, four to a register, multiply by element (fmla). 12 rows take
/// 24 of the 32 registers for sums, 3 for A and 2 for B. The tile's tails and end, and the order of every
/// sum, are those of gemm_micro.hpp. Tiles of all heights are these, so that all round alike.
template <int Rows>
struct GemmMicroNeon {
  static_assert(Rows % 4 != 3);
  using Float = GemmMicro<float, 16, Rows>;
  using V = typename Float::V;
  using RowSequence = typename Float::RowSequence;

  // (Intrinsics that are macros, as these are in clang, do not work in a fold expression.)
  template <int Lane>
  static EIGENFORMER_ALWAYS_INLINE void add(V& sum, float32x4_t b, float32x4_t a) {
    sum = (V)vfmaq_laneq_f32((float32x4_t)sum, b, a, Lane);
  }
  template <int... R>
  static EIGENFORMER_ALWAYS_INLINE void step(V (&x)[Rows], V (&y)[Rows], const float* a, const float* b,
                                             std::integer_sequence<int, R...>) {
    float32x4_t four[(Rows + 3) / 4];
    for (int i = 0; i < Rows / 4; ++i) four[i] = vld1q_f32(a + 4 * i);
    if constexpr (Rows % 4 == 1) four[Rows / 4] = vld1q_dup_f32(a + Rows - 1);
    if constexpr (Rows % 4 == 2)
      four[Rows / 4] = vcombine_f32(vld1_f32(a + Rows - 2), vld1_f32(a + Rows - 2));
    const float32x4_t b0 = vld1q_f32(b), b1 = vld1q_f32(b + 4);
    ((add<R % 4>(x[R], b0, four[R / 4]), add<R % 4>(y[R], b1, four[R / 4])), ...);
  }

  static void run(index_t steps, const float* a, const float* b, const float* next, index_t stride, float* c,
                  index_t ldc, float alpha, bool accumulate, const float* bias, index_t rows, index_t cols) {
    typename Float::Output out;
    out.begin(c, ldc, accumulate, bias, rows, cols);
    V x[Rows], y[Rows];
    Float::clear(x, y, RowSequence{});
    for (index_t p = 0; p < steps; ++p) {
      step(x, y, a, b, RowSequence{});
      __builtin_prefetch(next, 0, 2);
      a += Rows;
      b += Float::columns;
      next += stride;
    }
    out.end(x, y, alpha, accumulate);
  }
};

}  // namespace eigenformer::detail::kernels::detail
#endif

#if EIGENFORMER_X86
#include <immintrin.h>

#define EIGENFORMER_TARGET_AVX512_BF16 \
  __attribute__((target("avx,avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

// The bfloat16 product of avx512_bf16 (vdpbf16ps): a 32-bit lane holds two steps of k, both are multiplied
// and added to a float sum in one instruction. The tile, its tails and its end are those of gemm_micro.hpp.

namespace eigenformer::detail::kernels::detail {

/// Two consecutive elements of k as bfloat16, the first in the lower half. Packed operands are stored as
/// floats of these bits. (The attribute lets both types access the same memory.)
using Bf16Pair = std::uint32_t __attribute__((may_alias));

// Bodies below are compiled for AVX-512 with bfloat16 only, so their helpers carry that target themselves.
template <int Rows>
struct GemmMicroBf16 {
  using Float = GemmMicro<float, 64, Rows>;
  using V = typename Float::V;
  using RowSequence = typename Float::RowSequence;

  template <int... R>
  EIGENFORMER_TARGET_AVX512_BF16 static EIGENFORMER_ALWAYS_INLINE void step(
      V (&x)[Rows], V (&y)[Rows], const Bf16Pair* a, const Bf16Pair* b, std::integer_sequence<int, R...>) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
    ((x[R] = _mm512_dpbf16_ps(x[R], (__m512bh)_mm512_set1_epi32(static_cast<int>(a[R])), (__m512bh)b0),
      y[R] = _mm512_dpbf16_ps(y[R], (__m512bh)_mm512_set1_epi32(static_cast<int>(a[R])), (__m512bh)b1)),
     ...);
  }

  EIGENFORMER_TARGET_AVX512_BF16 static void run(index_t steps, const float* pairs_a, const float* pairs_b,
                                                 const float* next, index_t stride, float* c, index_t ldc,
                                                 float alpha, bool accumulate, const float* bias,
                                                 index_t rows, index_t cols) {
    const auto* a = reinterpret_cast<const Bf16Pair*>(pairs_a);
    const auto* b = reinterpret_cast<const Bf16Pair*>(pairs_b);
    typename Float::Output out;
    out.begin(c, ldc, accumulate, bias, rows, cols);
    V x[Rows], y[Rows];
    Float::clear(x, y, RowSequence{});
    for (index_t p = 0; p < steps; ++p) {
      step(x, y, a, b, RowSequence{});
      __builtin_prefetch(next, 0, 2);
      a += Rows;
      b += Float::columns;
      next += stride;
    }
    out.end(x, y, alpha, accumulate);
  }
};

struct PackBf16 {
  /// The mask of the first n of 16 lanes; n may be outside 0 .. 16.
  static __mmask16 first_lanes(index_t n) {
    return static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
  }

  /// Steps side by side in the source: 16 rows of 16 pairs are rounded and transposed in registers. Writes up
  /// to 15 pairs behind the panel, as PackTransposed does.
  EIGENFORMER_TARGET_AVX512_BF16 static void transposed(index_t k, index_t rows, index_t width,
                                                        const float* src, index_t ld, float* dst) {
    using Pack = PackTransposed<float, 64>;
    for (index_t p = 0; p < k; p += 32) {
      const index_t left = k - p;
      const __mmask16 low = first_lanes(left), high = first_lanes(left - 16);
      for (index_t i = (width - 1) / 16 * 16; i >= 0; i -= 16) {
        Pack::V v[16];
        for (index_t r = 0; r < 16; ++r) {
          const float* s = src + (i + r) * ld + p;
          __m512i pairs = _mm512_setzero_si512();
          if (i + r < rows) {
            // Each row is a separate stream, and there are more of them than the hardware tracks.
            __builtin_prefetch(s + 64);
            __builtin_prefetch(s + 80);
            pairs = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, high != 0 ? s + 16 : s),
                                                 _mm512_maskz_loadu_ps(low, s));
          }
          v[r] = _mm512_castsi512_ps(pairs);
        }
        Pack::transpose(v);
        const index_t steps = left >= 32 ? 16 : (left + 1) / 2;
        for (index_t r = 0; r < steps; ++r) _mm512_storeu_ps(dst + (p / 2 + r) * width + i, v[r]);
      }
    }
  }

  /// Rows side by side in the source: two steps are rounded and interleaved.
  EIGENFORMER_TARGET_AVX512_BF16 static void adjacent(index_t k, index_t rows, index_t width,
                                                      const float* src, index_t ld, float* dst) {
    alignas(64) std::uint16_t order[32];
    for (std::uint16_t i = 0; i < 32; ++i) order[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 16);
    const __m512i interleave = _mm512_load_si512(order);
    constexpr index_t ahead = 16;
    for (index_t p = 0; p < k; p += 2) {
      const float* s = src + p * ld;
      float* d = dst + p / 2 * width;
      const bool both = p + 1 < k;
      for (index_t i = 0; i < width; i += 16) {
        const index_t left = rows - i, room = width - i;
        const __mmask16 mask = first_lanes(left), keep = first_lanes(room);
        __builtin_prefetch(s + ahead * ld + i);
        __builtin_prefetch(s + (ahead + 1) * ld + i);
        const float* at = left > 0 ? s + i : s;
        const __m512 first = _mm512_maskz_loadu_ps(mask, at);
        const __m512 second = both ? _mm512_maskz_loadu_ps(mask, at + ld) : _mm512_setzero_ps();
        const __m512i pairs =
            _mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(second, first));
        _mm512_mask_storeu_epi32(d + i, keep, pairs);
      }
    }
  }
};

}  // namespace eigenformer::detail::kernels::detail
#endif

namespace eigenformer::detail::kernels::detail {

/// Rows of the largest register tile, and of the largest tile.
inline constexpr index_t gemm_max_rows = 14, gemm_table_rows = 2 * amx_rows;

/// Tiles by number of rows.
template <class Function, index_t most>
struct TileTable {
  index_t rows = 0;  ///< of the largest tile
  /// By number of rows wanted: the rows of the smallest tile that has them, and that tile.
  std::array<index_t, most + 1> tile_rows{};
  std::array<Function, most + 1> micro{};

  /// Enters a tile; tiles come in rising order of their rows.
  void add(index_t tile, Function function) {
    for (index_t r = rows + 1; r <= tile; ++r) {
      tile_rows[static_cast<std::size_t>(r)] = tile;
      micro[static_cast<std::size_t>(r)] = function;
    }
    rows = tile;
  }
  /// Enters Tile<Rows>, by rising Rows.
  template <template <int> class Tile, int... Rows>
  void add() {
    (add(Rows, &Tile<Rows>::run), ...);
  }
};

/// The compiled pieces of a product of T for one set of features.
///
/// A table of the functions that dispatch() would call: the features determine the tile's rows and columns,
/// which the packing and the loops around the tiles need, and packed weights keep the set that they were
/// packed for when isa() changes.
template <class T>
struct GemmKernels : TileTable<MicroFunction<T>, gemm_table_rows> {
  index_t columns;  ///< of every tile
  index_t step;     ///< elements of k in a packed step
  bool rounded;     ///< whether the inputs are rounded to bfloat16 once they are packed
  /// How panels are packed: B's, and A's, if it has no functions of its own.
  PackFunction<T> pack_transposed;
  PackFunction<T> pack_adjacent;
  InPlaceTiles<T> in_place_transposed;  ///< none where the inputs are rounded
  InPlaceTiles<T> in_place_adjacent;
  PackFunction<T> pack_rows_transposed;
  PackFunction<T> pack_rows_adjacent;
  /// The size of a panel of A is a multiple of this many steps; 0 and 1: any number.
  index_t row_steps;
  /// Called on a thread before and after its tiles; may be null.
  void (*begin)();
  void (*end)();

  /// Packed steps of k elements.
  index_t steps_of(index_t k) const { return (k + step - 1) / step; }
  /// Room for this many steps in a panel of A.
  index_t steps_of_rows(index_t steps) const {
    return row_steps > 1 ? (steps + row_steps - 1) / row_steps * row_steps : steps;
  }
};

/// The pieces with vectors of Bytes and tiles of Rows; with `rounded`, inputs become bfloat16 while packing.
template <class T, int Bytes, int... Rows>
const GemmKernels<T>& gemm_tiles(bool rounded) {
  constexpr auto make = [](bool with_rounding) {
    GemmKernels<T> result{};
    result.columns = 2 * Simd<T, Bytes>::lanes;
    result.step = 1;
    result.rounded = with_rounding;
    (result.add(Rows, body_for<GemmMicro<T, Bytes, Rows>, Bytes>()), ...);
    result.pack_transposed = body_for<PackTransposed<T, Bytes>, Bytes>();
    result.pack_adjacent = body_for<PackAdjacent<T, Bytes>, Bytes>();
    if (!with_rounding) {
      result.in_place_transposed = InPlaceTiles<T>::template of<GemmTransposedInPlace, Bytes, 1, 2>();
      result.in_place_adjacent = InPlaceTiles<T>::template of<GemmAdjacentInPlace, Bytes, 1, 2>();
    }
    return result;
  };
  static const GemmKernels<T> as_they_are = make(false), to_bf16 = make(true);
  return rounded ? to_bf16 : as_they_are;
}

#if EIGENFORMER_ARM64
/// The tiles of neon: 12 x 8 floats.
inline const GemmKernels<float>& gemm_tiles_neon(bool rounded) {
  constexpr auto make = [](bool with_rounding) {
    GemmKernels<float> result = gemm_tiles<float, 16>(with_rounding);  // how it packs
    result.add<GemmMicroNeon, 1, 2, 4, 8, 12>();
    return result;
  };
  static const GemmKernels<float> as_they_are = make(false), to_bf16 = make(true);
  return rounded ? to_bf16 : as_they_are;
}
#endif

/// The pieces for a set of features: 14 x 32 floats fill the 32 registers of AVX-512, 6 x 16 the 16 of AVX2.
/// double has only the baseline's, as in dispatch().
template <class T>
const GemmKernels<T>& gemm_kernels([[maybe_unused]] Isa isa, bool rounded = false) {
  constexpr Isa given = std::is_same_v<T, float> ? given_isa : Isa{};
#if EIGENFORMER_X86
  if constexpr (given.has(IsaFeature::avx512)) {
    return gemm_tiles<T, 64, 1, 2, 4, 6, 8, 10, 12, 14>(rounded);
  } else if constexpr (std::is_same_v<T, float>) {
    if (isa.has(IsaFeature::avx512)) return gemm_tiles<T, 64, 1, 2, 4, 6, 8, 10, 12, 14>(rounded);
    if (given.has(IsaFeature::avx2) || isa.has(IsaFeature::avx2))
      return gemm_tiles<T, 32, 1, 2, 4, 6>(rounded);
  }
#elif EIGENFORMER_ARM64
  if constexpr (std::is_same_v<T, float>) {
    if (isa.has(IsaFeature::neon)) return gemm_tiles_neon(rounded);
  }
#endif
  if constexpr (!given.has(IsaFeature::avx2)) return gemm_tiles<T, 16, 1, 2, 4, 6>(rounded);
}

#if EIGENFORMER_X86
/// The tiles of avx512_bf16.
inline const GemmKernels<float>& gemm_kernels_bf16() {
  static const GemmKernels<float> kernels = [] {
    GemmKernels<float> result{};
    result.columns = 32;
    result.step = 2;
    result.add<GemmMicroBf16, 1, 2, 4, 6, 8, 10, 12, 14>();
    result.pack_transposed = &PackBf16::transposed;
    result.pack_adjacent = &PackBf16::adjacent;
    return result;
  }();
  return kernels;
}

/// The tiles of amx_bf16, and how B is packed for avx512_bf16, whose panels they read.
template <class Tiles>
GemmKernels<float> gemm_kernels_amx(PackFunction<float> pack_transposed, PackFunction<float> pack_adjacent) {
  static_assert(amx_smallest_rows > 13 && amx_smallest_rows <= amx_rows);
  constexpr int bytes = Tiles::vector_bytes;
  GemmKernels<float> result{};
  result.columns = amx_columns;
  result.step = 2;
  result.add<GemmMicroAmxOrder, 1, 2, 4, 8, 12, amx_smallest_rows - 1>();
  result.add(amx_rows, body_for<GemmMicroAmx<Tiles, 1>, bytes>());
  result.add(2 * amx_rows, body_for<GemmMicroAmx<Tiles, 2>, bytes>());
  result.pack_transposed = pack_transposed;
  result.pack_adjacent = pack_adjacent;
  result.pack_rows_transposed = body_for<PackAmxTransposed, bytes>();
  result.pack_rows_adjacent = body_for<PackAmxAdjacent<bytes>, bytes>();
  result.row_steps = amx_steps;
  result.begin = &TileSession<Tiles>::begin;
  result.end = &TileSession<Tiles>::end;
  return result;
}
#endif

/// The pieces for a precision (of float products; double ignores it) and a set of features.
template <class T>
const GemmKernels<T>& gemm_kernels_for(GemmPrecision precision, Isa isa) {
  if constexpr (std::is_same_v<T, float>) {
    if (precision == GemmPrecision::bf16) {
#if EIGENFORMER_X86
      if (isa.has(IsaFeature::amx_bf16)) {
        static const GemmKernels<float> tiles =
            gemm_kernels_amx<HardwareTiles>(&PackBf16::transposed, &PackBf16::adjacent);
        return tiles;
      }
      if (isa.has(IsaFeature::avx512_bf16)) return gemm_kernels_bf16();
#endif
      return gemm_kernels<float>(isa, true);
    }
  }
  return gemm_kernels<T>(isa);
}

/// A thread's memory for packed operands; `Operand` tells operand A (0), B (1), quantised inputs (2),
/// and groups of rows (3) and sums (4) of Eigen's products apart.
template <int Operand>
using GemmScratch =
    eigenformer::detail::ThreadLease<eigenformer::detail::Scratch, std::integral_constant<int, Operand>>;

/// How k is cut: blocks of equal size (the last may be smaller), by k alone, which fixes the order of every
/// sum.
struct DepthBlocks {
  index_t count;
  index_t size;

  explicit DepthBlocks(index_t k, index_t limit) {
    count = (k + limit - 1) / limit;
    size = count == 0 ? 0 : ((k + count - 1) / count + 15) / 16 * 16;
    count = count == 0 ? 0 : (k + size - 1) / size;
  }
};

}  // namespace eigenformer::detail::kernels::detail
