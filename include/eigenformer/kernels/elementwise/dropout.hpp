#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/dropout_key.hpp"

namespace eigenformer::detail::kernels {

/// Dropout of rows, as an argument of fused kernels.
struct RowDropout {
  double rate = 0;  ///< in [0, 1); 0: no dropout
  DropoutKey key;   ///< selects the masks
  /// The key of each row; nullptr: sequence 0, and the row's number as position.
  const RowKey* rows = nullptr;
};

/// Elements that one block of counters serves: the unit of the mask's layout (see dropout_mask_row).
inline constexpr index_t dropout_block = 64;

/// Writes the multipliers of elements first .. first + n - 1 of the mask (c0, c1, c2) to out: 0, or 1 / (1 -
/// rate). Throws ValueError for a rate outside [0, 1).
///
/// It defines the masks: all vectorised kernels have the same bits, for every scalar type, instruction set
/// and compiler. Element j uses output word (j % 64) / 16 of Philox4x32-10 with counter (c0, c1, c2, 16 * (j
/// / 64) + j % 16) and is kept when that word is at least rate * 2^32. The mask of a row of activations is
/// (sequence, position, 0); attention has a layout of its own.
template <class T>
void dropout_mask_row(DropoutKey key, std::uint32_t c0, std::uint32_t c1, std::uint32_t c2, index_t first,
                      index_t n, double rate, T* out);

/// y = x * mask / (1 - rate). x, y: (rows, n), rows `ld` elements apart; y may be x; keys: (rows) or nullptr
/// (see RowDropout). Throws ValueError for a rate outside [0, 1). Srivastava et al., JMLR 15, 2014.
template <class T>
void dropout_rows(const T* x, T* y, const RowKey* keys, index_t rows, index_t n, index_t ld, double rate,
                  DropoutKey key);

/// dx = beta * dx + dy * mask / (1 - rate), with the mask of dropout_rows computed again. beta 0 does not
/// read dx, which may be dy. Throws as dropout_rows.
template <class T>
void dropout_backward(const T* dy, T* dx, T beta, const RowKey* keys, index_t rows, index_t n, index_t ld,
                      double rate, DropoutKey key);

/// y = x + r * mask / (1 - rate): the residual connection. Shapes as in dropout_rows; y may be x or r.
template <class T>
void dropout_add(const T* x, const T* r, T* y, const RowKey* keys, index_t rows, index_t n, index_t ld,
                 double rate, DropoutKey key);

/// dropout_rows on a tile that starts at (first_row, first_column) of the whole; x, y point at the tile, keys
/// (or nullptr) at the whole's first row. Runs on the calling thread: for the epilogue of a matrix product.
template <class T>
void dropout_tile(const T* x, T* y, const RowKey* keys, index_t first_row, index_t rows, index_t first_column,
                  index_t n, index_t ld, double rate, DropoutKey key);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/elementwise/dropout_mask.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// out = base + in * multiplier on a tile (base nullptr: 0). The key of row r is keys[first_row + r].
template <class T>
struct DropoutTile {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(const T* base, const T* in, T* out, const RowKey* keys,
                                            index_t first_row, index_t rows, index_t first_column, index_t n,
                                            index_t ld, DropoutPlan<T> plan) {
    using W = Simd<T, Bytes>;
    alignas(64) T multiplier[dropout_block];
    if (!plan.active()) {
      for (index_t j = 0; j < dropout_block; ++j) multiplier[j] = T(1);
    }
    for (index_t r = 0; r < rows; ++r) {
      const index_t row = first_row + r;
      const std::uint32_t c0 = keys == nullptr ? 0 : keys[row].sequence;
      const std::uint32_t c1 = keys == nullptr ? static_cast<std::uint32_t>(row) : keys[row].position;
      for (index_t j = 0; j < n;) {
        const index_t column = first_column + j;
        const index_t skip = column % dropout_block;
        const index_t end = std::min(n, j + dropout_block - skip);
        if (plan.active()) dropout_scale_block<Bytes>(plan, c0, c1, 0, column / dropout_block, multiplier);
        for (const T* m = multiplier + skip; j < end; j += W::lanes, m += W::lanes) {
          const index_t i = r * ld + j, count = end - j;
          typename W::V x, scale;
          W::load(x, in + i, count);
          W::load(scale, m, count);
          x *= scale;
          if (base != nullptr) {
            typename W::V b;
            W::load(b, base + i, count);
            x += b;
          }
          W::store(out + i, count, x);
        }
        j = end;
      }
    }
  }
};

template <class T>
void dropout_tiles(const T* base, const T* in, T* out, const RowKey* keys, index_t rows, index_t n,
                   index_t ld, double rate, DropoutKey key) {
  const DropoutPlan<T> plan(key, rate);
  parallel_for(rows, row_grain(n, simple_grain), [&](index_t begin, index_t end) {
    const index_t at = begin * ld;
    dispatch<DropoutTile<T>>(base == nullptr ? base : base + at, in + at, out + at, keys, begin, end - begin,
                             index_t{0}, n, ld, plan);
  });
}

}  // namespace detail

template <class T>
void dropout_mask_row(DropoutKey key, std::uint32_t c0, std::uint32_t c1, std::uint32_t c2, index_t first,
                      index_t n, double rate, T* out) {
  const DropoutPlan<T> plan(key, rate);
  for (index_t i = 0; i < n; ++i) {
    const index_t j = first + i;
    const auto counter = static_cast<std::uint32_t>(16 * (j / 64) + j % 16);
    const auto words = Philox4x32::generate({c0, c1, c2, counter}, {plan.key0, plan.key1});
    out[i] = words[static_cast<std::size_t>(j % 64 / 16)] >= plan.threshold ? plan.scale : T(0);
  }
}

template <class T>
void dropout_rows(const T* x, T* y, const RowKey* keys, index_t rows, index_t n, index_t ld, double rate,
                  DropoutKey key) {
  detail::dropout_tiles<T>(nullptr, x, y, keys, rows, n, ld, rate, key);
}

template <class T>
void dropout_backward(const T* dy, T* dx, T beta, const RowKey* keys, index_t rows, index_t n, index_t ld,
                      double rate, DropoutKey key) {
  detail::dropout_tiles<T>(beta == T(0) ? nullptr : dx, dy, dx, keys, rows, n, ld, rate, key);
}

template <class T>
void dropout_add(const T* x, const T* r, T* y, const RowKey* keys, index_t rows, index_t n, index_t ld,
                 double rate, DropoutKey key) {
  detail::dropout_tiles<T>(x, r, y, keys, rows, n, ld, rate, key);
}

template <class T>
void dropout_tile(const T* x, T* y, const RowKey* keys, index_t first_row, index_t rows, index_t first_column,
                  index_t n, index_t ld, double rate, DropoutKey key) {
  dispatch<detail::DropoutTile<T>>(static_cast<const T*>(nullptr), x, y, keys, first_row, rows, first_column,
                                   n, ld, DropoutPlan<T>(key, rate));
}

EIGENFORMER_KERNEL(dropout_mask_row)
EIGENFORMER_KERNEL(dropout_rows)
EIGENFORMER_KERNEL(dropout_backward)
EIGENFORMER_KERNEL(dropout_add)
EIGENFORMER_KERNEL(dropout_tile)

}  // namespace eigenformer::detail::kernels
#endif
