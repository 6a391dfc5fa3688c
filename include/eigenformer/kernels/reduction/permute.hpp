#pragma once

#include <span>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer::detail::kernels {

/// The shape with dimension i taken from dimension order[i] (negative counts from the end). Throws ShapeError
/// unless order names every dimension once.
Shape permuted_shape(const Shape& shape, std::span<const index_t> order);

/// y = x with its dimensions in another order: y's dimension i is x's dimension order[i]. x: shape; y:
/// permuted_shape(shape, order), apart from x. beta 1 adds to y, 0 overwrites.
template <class T>
void permute(const T* x, const Shape& shape, std::span<const index_t> order, T* y, T beta);

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>
#include <array>
#include <string>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/view.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

/// `order` with its negative entries counted from the end. Throws ShapeError unless it names every dimension
/// once.
inline std::array<index_t, 6> checked_order(const Shape& shape, std::span<const index_t> order) {
  std::array<index_t, 6> result{};
  std::array<bool, 6> seen{};
  bool good = static_cast<index_t>(order.size()) == shape.rank();
  for (std::size_t i = 0; good && i < order.size(); ++i) {
    const index_t d = order[i] < 0 ? order[i] + shape.rank() : order[i];
    good = d >= 0 && d < shape.rank() && !seen[static_cast<std::size_t>(d)];
    if (!good) break;
    seen[static_cast<std::size_t>(d)] = true;
    result[i] = d;
  }
  if (!good) {
    std::string list;
    for (const index_t d : order) list += (list.empty() ? "" : ", ") + std::to_string(d);
    throw ShapeError(
        "permute",
        {"order (", list, ") must name each of the ", shape.rank(), " dimensions of ", shape, " once"},
        {shape});
  }
  return result;
}

/// The side of a tile that is transposed at once: memory is read and written in runs of 256 bytes.
template <class T>
inline constexpr index_t transpose_block = 256 / static_cast<index_t>(sizeof(T));

/// A tile of y[i * ld_y + j] = x[j * ld_x + i] for i < rows, j < cols, both at most transpose_block.
template <class T>
inline void transpose_tile(const T* x, index_t ld_x, T* y, index_t ld_y, index_t rows, index_t cols, T beta) {
  constexpr index_t block = transpose_block<T>, part = 16;
  T tile[block][block];
  for (index_t first = 0; first < cols; first += part) {
    for (index_t begin = 0; begin < rows; begin += part) {
      const index_t last = std::min(first + part, cols), end = std::min(begin + part, rows);
      for (index_t j = first; j < last; ++j) {
        for (index_t i = begin; i < end; ++i) tile[i][j] = x[j * ld_x + i];
      }
    }
  }
  for (index_t i = 0; i < rows; ++i) {
    for (index_t j = 0; j < cols; ++j) put(y[i * ld_y + j], tile[i][j], beta);
  }
}

}  // namespace detail

EIGENFORMER_INLINE Shape permuted_shape(const Shape& shape, std::span<const index_t> order) {
  const auto from = detail::checked_order(shape, order);
  std::array<index_t, 6> dims{};
  for (std::size_t i = 0; i < order.size(); ++i) dims[i] = shape[from[i]];
  return Shape(std::span<const index_t>(dims.data(), order.size()));
}

template <class T>
void permute(const T* x, const Shape& shape, std::span<const index_t> order, T* y, T beta) {
  const auto from = detail::checked_order(shape, order);
  if (shape.numel() == 0) return;
  // A loop over y in order; operand 0 is x, operand 1 is y.
  const Strides in = whole_view(shape).strides;
  StridedLoop<1> loop;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto d = static_cast<std::size_t>(from[i]);
    loop.push(shape[from[i]], {in[d]});
  }
  loop.finish();
  const index_t n = loop.inner_size(), step = loop.inner_stride(0), outer = loop.outer_size();
  int run = loop.rank - 1;  // the dimension along which x is contiguous
  while (run > 0 && loop.stride[0][static_cast<std::size_t>(run)] != 1) --run;
  if (run == loop.rank - 1 || n == 1) {
    parallel_each(outer, row_grain(n, simple_grain), [&](index_t round) {
      const T* row = x + loop.offsets(round)[0];
      T* to = y + round * n;
      if (beta == T(0)) {
        std::copy(row, row + n, to);
      } else {
        for (index_t i = 0; i < n; ++i) detail::put(to[i], row[i], beta);
      }
    });
    return;
  }
  // Otherwise tiles of that dimension and the innermost are transposed.
  const auto r = static_cast<std::size_t>(run);
  const index_t rows = loop.size[r];
  index_t ld_y = 1;
  for (int i = run + 1; i < loop.rank; ++i) ld_y *= loop.size[static_cast<std::size_t>(i)];
  constexpr index_t block = detail::transpose_block<T>;
  const index_t bands = (rows + block - 1) / block, others = outer / rows;
  parallel_each(others * bands, row_grain(n * block, simple_grain), [&](index_t task) {
    const index_t first = task % bands * block, high = std::min(block, rows - first);
    // The round of the outer dimensions without `run`, with `run` at its start.
    const index_t other = task / bands, below = ld_y / n;
    const index_t round = other / below * rows * below + other % below;
    const T* in_tile = x + loop.offsets(round)[0] + first;
    T* out_tile = y + round * n + first * ld_y;
    for (index_t j = 0; j < n; j += block)
      detail::transpose_tile(in_tile + j * step, step, out_tile + j, ld_y, high, std::min(block, n - j),
                             beta);
  });
}

EIGENFORMER_KERNEL(permute)

}  // namespace eigenformer::detail::kernels
#endif
