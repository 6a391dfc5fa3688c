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
#include "eigenformer/kernels/elementwise/dropout-inl.hpp"
#endif
