#pragma once

#include <algorithm>
#include <type_traits>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/gemm/gemm_backend.hpp"
#include "eigenformer/kernels/gemm/gemm_kernels.hpp"

namespace eigenformer::detail::kernels::detail {

/// The arguments of one product, for all its stages.
template <class T>
struct GemmProblem {
  bool transpose_a, transpose_b;
  index_t m, n, k;
  T alpha;
  const T* a;
  index_t lda;
  const T* b;
  index_t ldb;
  T beta;
  T* c;
  index_t ldc;
  GemmEpilogue<T> epilogue;
};

/// Operand B packed beforehand: panel after panel of `columns` columns, in each all `steps` of k, block after
/// block.
template <class T>
struct PackedOperand {
  const T* data = nullptr;
  index_t steps = 0;
};

/// C = beta * C of a product, for rows [i0, i1) and columns [j0, j1); beta = 0 writes without reading.
template <class Problem>
void scale_rows(const Problem& g, index_t i0, index_t i1, index_t j0, index_t j1) {
  using T = std::remove_reference_t<decltype(*g.c)>;
  for (index_t i = i0; i < i1; ++i) {
    T* row = g.c + i * g.ldc;
    if (g.beta == T(0)) {
      std::fill(row + j0, row + j1, T(0));
    } else {
      for (index_t j = j0; j < j1; ++j) row[j] *= g.beta;
    }
  }
}

/// Calls the epilogue for rows [i0, i0 + rows) at the end of the `count` columns from j0 on, and at every
/// 256th of them; the first `done` are finished.
template <class Problem>
void apply_epilogue(const Problem& g, index_t i0, index_t rows, index_t j0, index_t done, index_t count) {
  constexpr index_t columns = 256;
  if (g.epilogue.apply == nullptr || (done % columns != 0 && done != count)) return;
  const index_t from = (done - 1) / columns * columns;
  g.epilogue.apply(g.epilogue.context, g.c + i0 * g.ldc + j0 + from, g.ldc, i0, rows, j0 + from, done - from);
}

/// How k is cut for packed steps, the size of a T, of `step` elements each: a column panel of B fills about
/// 64 KiB.
template <class T>
DepthBlocks depth_blocks(index_t k, index_t step) {
  return DepthBlocks(k, 2048 / static_cast<index_t>(sizeof(T)) * step);
}

/// Packs `rows` columns of kc elements as a panel of `width`, from a source with these side by side
/// (adjacent) or one after the other.
template <class T>
void pack_panel(const GemmKernels<T>& kernels, bool adjacent, index_t kc, index_t rows, index_t width,
                const T* src, index_t ld, T* panel) {
  (adjacent ? kernels.pack_adjacent : kernels.pack_transposed)(kc, rows, width, src, ld, panel);
  if constexpr (std::is_same_v<T, float>) {
    if (kernels.rounded) dispatch<RoundToBf16>(panel, kc * width);
  }
}

/// The same of rows, as A's panels are.
template <class T>
void pack_row_panel(const GemmKernels<T>& kernels, bool adjacent, index_t kc, index_t rows, index_t width,
                    const T* src, index_t ld, T* panel) {
  const PackFunction<T> own = adjacent ? kernels.pack_rows_adjacent : kernels.pack_rows_transposed;
  if (own != nullptr) {
    own(kc, rows, width, src, ld, panel);
  } else {
    pack_panel(kernels, adjacent, kc, rows, width, src, ld, panel);
  }
}

/// Calls the functions that kernels need before and after their tiles.
template <class T>
class TileTask {
 public:
  explicit TileTask(const GemmKernels<T>& kernels) : kernels_(kernels) {
    if (kernels_.begin != nullptr) kernels_.begin();
  }
  ~TileTask() {
    if (kernels_.end != nullptr) kernels_.end();
  }
  TileTask(const TileTask&) = delete;
  TileTask& operator=(const TileTask&) = delete;

 private:
  const GemmKernels<T>& kernels_;
};

/// Packs rows [i0, i0 + rows) and steps [p0, p0 + kc) of op(A) as row panels, one behind the other.
template <class T>
void pack_rows(const GemmProblem<T>& g, const GemmKernels<T>& kernels, index_t i0, index_t rows, index_t p0,
               index_t kc, T* out) {
  const index_t steps = kernels.steps_of_rows(kernels.steps_of(kc));
  // A transposed matrix is read a few rows at a time for all panels, which touches far fewer pages at once.
  const index_t chunk = g.transpose_a ? 32 : kc;
  for (index_t p = 0; p < kc; p += chunk) {
    T* panel = out;
    for (index_t i = 0; i < rows; i += kernels.rows) {
      const index_t valid = std::min(kernels.rows, rows - i);
      const index_t width = kernels.tile_rows[static_cast<std::size_t>(valid)];
      if (g.transpose_a) {
        pack_row_panel(kernels, true, std::min(chunk, kc - p), valid, width, g.a + (p0 + p) * g.lda + i0 + i,
                       g.lda, panel + p / kernels.step * width);
      } else {
        pack_row_panel(kernels, false, kc, valid, width, g.a + (i0 + i) * g.lda + p0, g.lda, panel);
      }
      panel += width * steps;
    }
  }
}

/// Rows of a block of A, which has `bytes` in a row: as many as stay in the second-level cache beside what
/// the epilogue reads, in whole tiles, and of about equal size, so that all of B is not read again for a
/// small remainder.
inline index_t gemm_row_block(index_t rows, index_t tile, index_t bytes) {
  constexpr index_t cache = 280 * 1024;
  const index_t largest = std::clamp(cache / bytes, 10 * gemm_max_rows, 40 * gemm_max_rows);
  const index_t blocks = std::max<index_t>(1, (rows + largest - 1) / largest);
  return ((rows + blocks - 1) / blocks + tile - 1) / tile * tile;
}

/// What a tile brings into the second-level cache while it computes: a line from `data` on in each step,
/// `stride` elements further than the last.
template <class T>
struct Ahead {
  const T* data;
  index_t stride;
};

/// The part that the tile with `tiles` tiles below it reads ahead of B's next panel, which begins at column
/// j: of packed weights, which no cache holds, or of what will be packed. b: the present panel.
template <class T>
Ahead<T> next_panel(const GemmProblem<T>& g, const GemmKernels<T>& kernels, const PackedOperand<T>& packed,
                    index_t tiles, const T* b, index_t p0, index_t kc, index_t j) {
  const index_t half = kernels.columns / 2, steps = kernels.steps_of(kc);
  if (packed.data != nullptr) return {b + packed.steps * kernels.columns + tiles * steps * half, half};
  if (g.transpose_b) return {g.b + j * g.ldb + p0 + tiles * steps * half, half};
  const T* const from = g.b + (p0 + tiles % kernels.step) * g.ldb + j + tiles / kernels.step * half;
  return {from, kernels.step * g.ldb};
}

/// The elements of C in rows [i0, i1) and columns [j0, j1), on the calling thread.
///
/// A block of A is packed to stay in the second-level cache; B is packed by narrow column panels, each just
/// before its first use, and all row panels of the block of A use it while it is in the cache.
template <class T>
void gemm_range(const GemmProblem<T>& g, const GemmKernels<T>& kernels, const PackedOperand<T>& packed,
                index_t i0, index_t i1, index_t j0, index_t j1) {
  constexpr index_t column_block = 2048;
  constexpr index_t slack = 16;  // packing writes up to a register behind a panel
  const DepthBlocks depth = depth_blocks<T>(g.k, kernels.step);
  // Other factors of C are applied before the sum, so that tiles only ever add to C.
  if (g.beta != T(0) && g.beta != T(1)) scale_rows(g, i0, i1, j0, j1);

  const index_t columns = kernels.columns;
  const index_t steps_per_block = kernels.steps_of(depth.size);
  const index_t row_block =
      gemm_row_block(i1 - i0, kernels.rows, kernels.steps_of_rows(steps_per_block) * index_t{sizeof(T)});
  // With one block of rows a panel of B is used once and the next may take its place.
  const bool keep_b = i1 - i0 > row_block;
  const index_t rows_packed = std::min(row_block, i1 - i0) + kernels.rows;
  const index_t columns_packed = packed.data != nullptr ? 0
                                 : keep_b               ? std::min(column_block, j1 - j0) + columns
                                                        : columns;
  const GemmScratch<0> memory_a;
  const GemmScratch<1> memory_b;
  T* const packed_a =
      memory_a->template reserve<T>(rows_packed * kernels.steps_of_rows(steps_per_block) + slack);
  T* const packed_b = memory_b->template reserve<T>(columns_packed * steps_per_block + slack);

  const TileTask<T> task(kernels);
  for (index_t jc = j0; jc < j1; jc += column_block) {
    const index_t jn = std::min(column_block, j1 - jc);
    for (index_t block = 0; block < depth.count; ++block) {
      const index_t p0 = block * depth.size;
      const index_t kc = std::min(depth.size, g.k - p0);
      const index_t steps = kernels.steps_of(kc);
      const bool accumulate = block > 0 || g.beta != T(0);
      const bool last = block + 1 == depth.count;
      // The last tiles of a panel read the next one ahead, half a step of it in each of their steps.
      const index_t panel_parts = packed.data != nullptr         ? 2
                                  : g.transpose_b && g.ldb != kc ? 0
                                                                 : 2 * kernels.step;
      for (index_t ic = i0; ic < i1; ic += row_block) {
        const index_t in = std::min(row_block, i1 - ic);
        // A transposed matrix is read a few rows at a time for all panels, another one by the tiles that need
        // it first.
        if (g.transpose_a) pack_rows(g, kernels, ic, in, p0, kc, packed_a);
        for (index_t j = 0; j < jn; j += columns) {
          const index_t cols = std::min(columns, jn - j);
          const T* b;
          if (packed.data != nullptr) {
            b = packed.data + (jc + j) * packed.steps + block * steps_per_block * columns;
          } else {
            T* const panel = keep_b ? packed_b + j * steps : packed_b;
            b = panel;
            if (ic == i0) {
              pack_panel(kernels, !g.transpose_b, kc, cols, columns,
                         g.transpose_b ? g.b + (jc + j) * g.ldb + p0 : g.b + p0 * g.ldb + jc + j, g.ldb,
                         panel);
            }
          }
          const T* bias = last ? shifted(g.epilogue.bias, jc + j) : nullptr;
          const bool more = j + columns < jn && (packed.data != nullptr || ic == i0);
          T* a = packed_a;
          for (index_t i = 0; i < in; i += kernels.rows) {
            const index_t rows = std::min(kernels.rows, in - i);
            if (j == 0 && !g.transpose_a) pack_rows(g, kernels, ic + i, rows, p0, kc, a);
            Ahead<T> ahead{b, 0};
            if (const index_t tiles = (in - 1 - i) / kernels.rows; more && tiles < panel_parts) {
              ahead = next_panel(g, kernels, packed, tiles, b, p0, kc, jc + j + columns);
            } else if (j == 0 && tiles > 0 && !g.transpose_a && g.lda == kc) {
              ahead = {g.a + (ic + i + rows) * g.lda + p0, rows * kernels.step};
            }
            kernels.micro[static_cast<std::size_t>(rows)](steps, a, b, ahead.data, ahead.stride,
                                                          g.c + (ic + i) * g.ldc + jc + j, g.ldc, g.alpha,
                                                          accumulate, bias, rows, cols);
            a += kernels.tile_rows[static_cast<std::size_t>(rows)] * kernels.steps_of_rows(steps);
          }
          if (last) apply_epilogue(g, ic, in, jc, j + cols, jn);
        }
      }
    }
  }
}

/// The location of B for the tile of columns [j, j + columns) from step p0 on.
template <class T>
InPlaceOperand<T> in_place_operand(const GemmProblem<T>& g, const GemmKernels<T>& kernels,
                                   const PackedOperand<T>& packed, index_t p0, index_t j, index_t columns) {
  // Packed panels follow one another, and the next tile's are as far away as these are long.
  if (packed.data != nullptr) {
    return {packed.data + j * packed.steps + p0 * kernels.columns, kernels.columns,
            packed.steps * kernels.columns, packed.steps * columns};
  }
  if (g.transpose_b) return {g.b + j * g.ldb + p0, g.ldb, 0, 0};
  // The rows of a wide matrix lie on different pages, which the hardware does not prefetch.
  return {g.b + p0 * g.ldb + j, g.ldb, kernels.columns, 16 * g.ldb};
}

/// gemm_range() for as few rows as `tiles` have. Columns after the last whole tile are left to gemm_range().
template <class T>
void gemm_few_rows(const GemmProblem<T>& g, const GemmKernels<T>& kernels, const InPlaceTiles<T>& tiles,
                   const PackedOperand<T>& packed, index_t i0, index_t i1, index_t j0, index_t j1) {
  const auto tile = static_cast<std::size_t>(i1 - i0 - 1);
  const index_t rows = i1 - i0, columns = tiles.columns[tile], end = j1 - (j1 - j0) % columns;
  if (end > j0) {
    const DepthBlocks depth = depth_blocks<T>(g.k, 1);
    if (g.beta != T(0) && g.beta != T(1)) scale_rows(g, i0, i1, j0, end);
    const GemmScratch<0> memory;
    // One row of A is its own panel.
    const bool packs_a = rows > 1 || g.transpose_a;
    T* const panel = packs_a ? memory->template reserve<T>(gemm_max_rows * depth.size + 16) : nullptr;
    for (index_t block = 0; block < depth.count; ++block) {
      const index_t p0 = block * depth.size, kc = std::min(depth.size, g.k - p0);
      const bool accumulate = block > 0 || g.beta != T(0), last = block + 1 == depth.count;
      if (packs_a) pack_rows(g, kernels, i0, rows, p0, kc, panel);
      const T* const a = packs_a ? panel : g.a + i0 * g.lda + p0;
      for (index_t j = j0; j < end; j += columns) {
        const InPlaceOperand<T> b = in_place_operand(g, kernels, packed, p0, j, columns);
        tiles.function[tile](kc, a, &b, g.c + i0 * g.ldc + j, g.ldc, g.alpha, accumulate,
                             last ? shifted(g.epilogue.bias, j) : nullptr);
        if (last) apply_epilogue(g, i0, rows, j0, j + columns - j0, end - j0);
      }
    }
  }
  if (end < j1) gemm_range(g, kernels, packed, i0, i1, end, j1);
}

/// The epilogue of rows [i0, i0 + rows) and columns [j0, j0 + columns), whose sums are finished.
template <class T>
void finish_block(const GemmProblem<T>& g, index_t i0, index_t rows, index_t j0, index_t columns) {
  T* const c = g.c + i0 * g.ldc + j0;
  if (g.epilogue.bias != nullptr) {
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = 0; j < columns; ++j) c[i * g.ldc + j] += g.epilogue.bias[j0 + j];
    }
  }
  if (g.epilogue.apply != nullptr) g.epilogue.apply(g.epilogue.context, c, g.ldc, i0, rows, j0, columns);
}

/// k = 0: C = beta * C + bias.
template <class T>
void gemm_empty(const GemmProblem<T>& g) {
  scale_rows(g, 0, g.m, 0, g.n);
  finish_block(g, 0, g.m, 0, g.n);
}

/// Calls f(i0, i1, j0, j1) for ranges of C (m, n) in whole tiles, in parallel: the division over `threads`
/// that takes the least time, by multiply-adds and by the elements that each range packs.
template <class F>
void gemm_ranges(index_t m, index_t n, index_t threads, index_t tile_rows, index_t tile_columns, const F& f) {
  // Packing an element costs about as much as this many multiply-adds.
  constexpr double packing = 8.0;
  const index_t row_tiles = (m + tile_rows - 1) / tile_rows;
  const index_t column_tiles = (n + tile_columns - 1) / tile_columns;
  index_t down = 1, across = 1;  // ranges along rows and columns
  double least = 0.0;
  for (index_t r = 1; threads > 1 && r <= std::min(threads, row_tiles); ++r) {
    const index_t c = std::min(threads / r, column_tiles);
    const auto rows = static_cast<double>(std::min(m, (row_tiles + r - 1) / r * tile_rows));
    const auto columns = static_cast<double>((column_tiles + c - 1) / c * tile_columns);
    const double cost = rows * columns + packing * (rows + columns);
    if (least == 0.0 || cost < least) {
      least = cost;
      down = r;
      across = c;
    }
  }
  parallel_each(down * across, 1, [&](index_t part) {
    const auto row = [&](index_t i) { return std::min(m, row_tiles * i / down * tile_rows); };
    const auto column = [&](index_t j) { return std::min(n, column_tiles * j / across * tile_columns); };
    const index_t r = part / across, c = part % across;
    f(row(r), row(r + 1), column(c), column(c + 1));
  });
}

/// Threads that a product of this size may use here: one inside a parallel loop.
inline index_t gemm_threads(index_t m, index_t n, index_t k) {
  // Below this many multiply-adds, starting a task on another thread costs more than it saves.
  constexpr double smallest = 200000.0;
  if (static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) < smallest) return 1;
  return eigenformer::detail::inside_parallel() ? 1 : Runtime::instance().threads();
}

template <class T>
void gemm_run(const GemmProblem<T>& g, const GemmKernels<T>& kernels, const PackedOperand<T>& packed = {}) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0 || g.alpha == T(0)) {
    gemm_empty(g);
    return;
  }
  const bool transposed = packed.data == nullptr && g.transpose_b;
  const InPlaceTiles<T>& tiles = transposed ? kernels.in_place_transposed : kernels.in_place_adjacent;
  gemm_ranges(g.m, g.n, gemm_threads(g.m, g.n, g.k), kernels.rows, kernels.columns,
              [&](index_t i0, index_t i1, index_t j0, index_t j1) {
                if (tiles.available(i1 - i0)) {
                  gemm_few_rows(g, kernels, tiles, packed, i0, i1, j0, j1);
                } else {
                  gemm_range(g, kernels, packed, i0, i1, j0, j1);
                }
              });
}

}  // namespace eigenformer::detail::kernels::detail
