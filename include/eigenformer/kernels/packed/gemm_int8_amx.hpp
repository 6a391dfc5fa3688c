#pragma once

#include <algorithm>
#include <cstdint>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/packed/gemm_int8_tile.hpp"
#include "eigenformer/kernels/simd/amx.hpp"

// Int8 products by AMX. Tiles load panels as they are: a row is one step of k, four bytes of each of 16
// columns. They also load the inputs as they are, row by row as they were quantised.

namespace eigenformer::kernels::detail {

static_assert(int8_columns == amx_columns);

/// Fours of a row of quantised inputs that tiles read: whole blocks, and an odd number of them, since rows at
/// a distance of a large power of two share a set of the cache.
inline index_t int8_tile_stride(index_t steps) {
  return ((steps + amx_steps - 1) / amx_steps | 1) * amx_steps;
}

/// Rows of quantised inputs that tiles read for m.
inline index_t int8_tile_rows(index_t m) { return (m + amx_rows - 1) / amx_rows * amx_rows; }

struct TileDotInt8 {
  template <class Tiles, int C, int A, int B>
  static EIGENFORMER_ALWAYS_INLINE void run() {
    Tiles::template dot_int8<C, A, B>();
  }
};

/// All rows of `out` and one panel. x: inputs as q + 128, (int8_tile_rows(rows), stride), b: (steps, 32).
template <class Tiles>
struct Int8TilePanel {
  using Function = void (*)(index_t steps, const Int8Four* x, index_t stride, const Int8Four* b,
                            const Int8Output* out);

  template <int Groups>
  EIGENFORMER_ALWAYS_INLINE static void group(index_t steps, const Int8Four* x, index_t stride,
                                              const Int8Four* b, const TileTail& tail,
                                              const Int8Output& out) {
    alignas(64) std::int32_t sums[Groups * amx_rows * int8_columns];
    tile_sums<Tiles, TileDotInt8, Groups>(steps, {x, 4 * stride, amx_row_bytes}, b, tail);
    store_tile_sums<Tiles, Groups>(sums);
    finish_int8(sums, true, out);
  }

  EIGENFORMER_ALWAYS_INLINE static void run(index_t steps, const Int8Four* x, index_t stride,
                                            const Int8Four* b, const Int8Output* out) {
    const TileTail tail(b, steps);
    Int8Output part = *out;
    for (index_t i = 0; i < out->rows; i += 2 * amx_rows) {
      part.rows = std::min(2 * amx_rows, out->rows - i);
      part.c = out->c + i * out->ldc;
      part.row_scale = out->row_scale + i;
      if (part.rows > amx_rows) {
        group<2>(steps, x + i * stride, stride, b, tail, part);
      } else {
        group<1>(steps, x + i * stride, stride, b, tail, part);
      }
    }
  }
};

}  // namespace eigenformer::kernels::detail
