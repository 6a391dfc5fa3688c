#pragma once

#include <algorithm>
#include <cstdint>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/kernels/gemm/gemm_driver.hpp"
#include "eigenformer/kernels/packed/gemm_int8.hpp"
#include "eigenformer/kernels/simd/amx.hpp"

// The loops around the tiles of int8 products, and these products by AMX. Tiles load panels as they are: a
// row is one step of k, four bytes of each of 16 columns. They also load the inputs as they are, row by row
// as they were quantised.

namespace eigenformer::detail::kernels::detail {

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

/// The arguments of one product of quantised inputs and int8 weights, for all its ranges.
struct Int8Problem {
  index_t m, n, steps;
  const Int8Four* x;       ///< inputs as q + 128: (m, stride)
  index_t stride;          ///< fours from a row to the next
  const float* row_scale;  ///< (m)
  const Int8Four* panels;
  const float* scale;       ///< per column, of whole panels
  const std::int32_t* sum;  ///< per column, of whole panels
  float beta;
  float* c;
  index_t ldc;
  GemmEpilogue<float> epilogue;

  /// The output of a tile.
  Int8Output output(index_t i, index_t rows, index_t j, index_t cols) const {
    return {sum + j, scale + j, row_scale + i, c + i * ldc + j, ldc, shifted(epilogue.bias, j),
            rows,    cols,      beta != 0.0f};
  }
};

/// Quantises rows of floats x (m, k) to x (m, stride) of an Int8Problem, on the caller's threads. step: of
/// all rows; 0: each row has its own.
inline void quantize_rows(index_t m, index_t k, const float* x, index_t ldx, float step, Int8Four* out,
                          index_t stride, float* row_scale) {
  parallel_each(m, 65536 / k, [&](index_t i) {
    dispatch<QuantizeRow>(k, x + i * ldx, step, reinterpret_cast<std::uint8_t*>(out + i * stride),
                          row_scale + i);
  });
}

/// Calls `begin(i, rows)` for each block of rows, then `panel(i, rows, j, cols)` for each of its panels and
/// the epilogue.
template <class Begin, class Panel>
void int8_blocks(const Int8Problem& g, index_t tile, index_t i0, index_t i1, index_t j0, index_t j1,
                 const Begin& begin, const Panel& panel) {
  if (g.beta != 0.0f && g.beta != 1.0f) scale_rows(g, i0, i1, j0, j1);
  const index_t row_block = gemm_row_block(i1 - i0, tile, g.steps * index_t{sizeof(Int8Four)});
  for (index_t ic = i0; ic < i1; ic += row_block) {
    const index_t in = std::min(row_block, i1 - ic);
    begin(ic, in);
    for (index_t j = j0; j < j1; j += int8_columns) {
      const index_t cols = std::min(int8_columns, j1 - j);
      panel(ic, in, j, cols);
      apply_epilogue(g, ic, in, j0, j + cols - j0, j1 - j0);
    }
  }
}

/// The elements of C in rows [i0, i1) and columns [j0, j1), on the calling thread, by vectors. `pack` lays
/// rows of floats, which fours of bytes move like, side by side.
inline void int8_range(const Int8Problem& g, const Int8Kernels& kernels, PackFunction<float> pack, index_t i0,
                       index_t i1, index_t j0, index_t j1) {
  const index_t block = gemm_row_block(i1 - i0, kernels.rows, g.steps * index_t{sizeof(Int8Four)});
  const index_t rows_packed = std::min(block, i1 - i0) + gemm_max_rows;
  const GemmScratch<0> memory;
  Int8Four* const packed = memory->reserve<Int8Four>(rows_packed * g.steps + 16);
  const auto each_tile = [&](index_t rows, const auto& f) {
    Int8Four* a = packed;
    for (index_t i = 0; i < rows; i += kernels.rows) {
      const index_t valid = std::min(kernels.rows, rows - i);
      const index_t width = kernels.tile_rows[static_cast<std::size_t>(valid)];
      f(i, valid, width, a);
      a += width * g.steps;
    }
  };
  int8_blocks(
      g, kernels.rows, i0, i1, j0, j1,
      [&](index_t ic, index_t in) {
        each_tile(in, [&](index_t i, index_t rows, index_t width, Int8Four* a) {
          pack(g.steps, rows, width, reinterpret_cast<const float*>(g.x + (ic + i) * g.stride), g.stride,
               reinterpret_cast<float*>(a));
        });
      },
      [&](index_t ic, index_t in, index_t j, index_t cols) {
        each_tile(in, [&](index_t i, index_t rows, index_t, const Int8Four* a) {
          const Int8Output out = g.output(ic + i, rows, j, cols);
          kernels.micro[static_cast<std::size_t>(rows)](g.steps, a, g.panels + j * g.steps, &out);
        });
      });
}

/// The same by AMX; i0 is a multiple of 32.
template <class Tiles>
void int8_range_by_tiles(const Int8Problem& g, index_t i0, index_t i1, index_t j0, index_t j1) {
  constexpr auto run = body_for<Int8TilePanel<Tiles>, Tiles::vector_bytes>();
  const TileSession<Tiles> session;
  int8_blocks(
      g, 2 * amx_rows, i0, i1, j0, j1, [](index_t, index_t) {},
      [&](index_t ic, index_t in, index_t j, index_t cols) {
        const Int8Output out = g.output(ic, in, j, cols);
        run(g.steps, g.x + ic * g.stride, g.stride, g.panels + j * g.steps, &out);
      });
}

}  // namespace eigenformer::detail::kernels::detail
