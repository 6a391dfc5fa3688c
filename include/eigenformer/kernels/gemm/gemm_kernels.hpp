#pragma once

#include <algorithm>
#include <array>
#include <type_traits>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/runtime/scratch.hpp"
#include "eigenformer/kernels/gemm/gemm_amx.hpp"
#include "eigenformer/kernels/gemm/gemm_bf16.hpp"
#include "eigenformer/kernels/gemm/gemm_in_place.hpp"
#include "eigenformer/kernels/gemm/gemm_micro.hpp"
#include "eigenformer/kernels/gemm/gemm_neon.hpp"
#include "eigenformer/kernels/gemm/gemm_types.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

namespace eigenformer::kernels::detail {

/// Rows of the largest register tile, and of the largest tile.
inline constexpr index_t gemm_max_rows = 14, gemm_table_rows = 2 * amx_rows;

/// The compiled pieces of a product of T for one set of features.
///
/// A table of the functions that dispatch() would call: the features determine the tile's rows and columns,
/// which the packing and the loops around the tiles need, and packed weights keep the set that they were
/// packed for when isa() changes.
template <class T>
struct GemmKernels {
  index_t rows;     ///< of the largest tile
  index_t columns;  ///< of every tile
  index_t step;     ///< elements of k in a packed step
  bool rounded;     ///< whether the inputs are rounded to bfloat16 once they are packed
  /// By number of rows wanted: the rows of the smallest tile that has them, and that tile.
  std::array<index_t, gemm_table_rows + 1> tile_rows;
  std::array<MicroFunction<T>, gemm_table_rows + 1> micro;
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

  /// Room for this many steps in a panel of A.
  index_t steps_of_rows(index_t steps) const {
    return row_steps > 1 ? (steps + row_steps - 1) / row_steps * row_steps : steps;
  }

  /// Enters a tile; tiles come in rising order of their rows.
  void add(index_t tile, MicroFunction<T> function) {
    for (index_t r = rows + 1; r <= tile; ++r) {
      tile_rows[static_cast<std::size_t>(r)] = tile;
      micro[static_cast<std::size_t>(r)] = function;
    }
    rows = tile;
  }
};

/// The pieces with vectors of Bytes and tiles of Rows; with `rounded`, inputs become bfloat16 while packing.
template <class T, int Bytes, int... Rows>
const GemmKernels<T>& gemm_tiles(bool rounded) {
  constexpr auto make = [](bool with_rounding) {
    GemmKernels<T> result{};
    result.columns = 2 * VectorOf<T, Bytes>::lanes;
    result.step = 1;
    result.rounded = with_rounding;
    (result.add(Rows, body_for<GemmMicro<T, Bytes, Rows>, Bytes, MicroFunction<T>>()), ...);
    result.pack_transposed = body_for<PackTransposed<T, Bytes>, Bytes, PackFunction<T>>();
    result.pack_adjacent = body_for<PackAdjacent<T, Bytes>, Bytes, PackFunction<T>>();
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
    result.add(1, &GemmMicroNeon<1>::run);
    result.add(2, &GemmMicroNeon<2>::run);
    result.add(4, &GemmMicroNeon<4>::run);
    result.add(8, &GemmMicroNeon<8>::run);
    result.add(12, &GemmMicroNeon<12>::run);
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
#if EIGENFORMER_X86
  if constexpr (std::is_same_v<T, float>) {
    if (isa.has(IsaFeature::avx512)) return gemm_tiles<T, 64, 1, 2, 4, 6, 8, 10, 12, 14>(rounded);
    if (isa.has(IsaFeature::avx2)) return gemm_tiles<T, 32, 1, 2, 4, 6>(rounded);
  }
#elif EIGENFORMER_ARM64
  if constexpr (std::is_same_v<T, float>) {
    if (isa.has(IsaFeature::neon)) return gemm_tiles_neon(rounded);
  }
#endif
  return gemm_tiles<T, 16, 1, 2, 4, 6>(rounded);
}

#if EIGENFORMER_X86
/// The tiles of avx512_bf16.
inline const GemmKernels<float>& gemm_kernels_bf16() {
  static const GemmKernels<float> kernels = [] {
    GemmKernels<float> result{};
    result.columns = 32;
    result.step = 2;
    result.add(1, &GemmMicroBf16<1>::run);
    result.add(2, &GemmMicroBf16<2>::run);
    result.add(4, &GemmMicroBf16<4>::run);
    result.add(6, &GemmMicroBf16<6>::run);
    result.add(8, &GemmMicroBf16<8>::run);
    result.add(10, &GemmMicroBf16<10>::run);
    result.add(12, &GemmMicroBf16<12>::run);
    result.add(14, &GemmMicroBf16<14>::run);
    result.pack_transposed = &PackBf16::transposed;
    result.pack_adjacent = &PackBf16::adjacent;
    return result;
  }();
  return kernels;
}
#endif

#if EIGENFORMER_X86
/// The tiles of amx_bf16, and how B is packed for avx512_bf16, whose panels they read.
template <class Tiles>
GemmKernels<float> gemm_kernels_amx(PackFunction<float> pack_transposed, PackFunction<float> pack_adjacent) {
  static_assert(amx_smallest_rows > 13 && amx_smallest_rows <= amx_rows);
  constexpr int bytes = Tiles::vector_bytes;
  GemmKernels<float> result{};
  result.columns = amx_columns;
  result.step = 2;
  result.add(1, &GemmMicroAmxOrder<1>::run);
  result.add(2, &GemmMicroAmxOrder<2>::run);
  result.add(4, &GemmMicroAmxOrder<4>::run);
  result.add(8, &GemmMicroAmxOrder<8>::run);
  result.add(12, &GemmMicroAmxOrder<12>::run);
  result.add(amx_smallest_rows - 1, &GemmMicroAmxOrder<amx_smallest_rows - 1>::run);
  result.add(amx_rows, body_for<GemmMicroAmx<Tiles, 1>, bytes, MicroFunction<float>>());
  result.add(2 * amx_rows, body_for<GemmMicroAmx<Tiles, 2>, bytes, MicroFunction<float>>());
  result.pack_transposed = pack_transposed;
  result.pack_adjacent = pack_adjacent;
  result.pack_rows_transposed = body_for<PackAmxTransposed, bytes, PackFunction<float>>();
  result.pack_rows_adjacent = body_for<PackAmxAdjacent<bytes>, bytes, PackFunction<float>>();
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

}  // namespace eigenformer::kernels::detail
