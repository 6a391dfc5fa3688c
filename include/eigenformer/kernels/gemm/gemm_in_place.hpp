#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "eigenformer/core/base/config.hpp"
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
  using V = typename Micro::V;
  static constexpr int pairs = 4 / Rows;
  static constexpr index_t columns = pairs * Micro::columns;

  EIGENFORMER_ALWAYS_INLINE static void run(index_t steps, const T* a, const InPlaceOperand<T>* operand, T* c,
                                            index_t ldc, T alpha, bool accumulate, const T* bias) {
    run(steps, a, *operand, c, ldc, alpha, accumulate, bias, std::make_integer_sequence<int, pairs>{});
  }

 private:
  template <int... P>
  EIGENFORMER_ALWAYS_INLINE static void run(index_t steps, const T* a, const InPlaceOperand<T>& operand, T* c,
                                            index_t ldc, T alpha, bool accumulate, const T* bias,
                                            std::integer_sequence<int, P...>) {
    const T* b = operand.data;
    const index_t panel = operand.panel;
    V x[pairs][Rows], y[pairs][Rows];
    (Micro::clear(x[P], y[P], typename Micro::RowSequence{}), ...);
    for (index_t p = 0; p < steps; ++p) {
      V b0[pairs], b1[pairs];
      ((Micro::load(b0[P], b + P * panel), Micro::load(b1[P], b + P * panel + Micro::lanes)), ...);
      (Micro::step(x[P], y[P], a, b0[P], b1[P], typename Micro::RowSequence{}), ...);
      (__builtin_prefetch(b + operand.ahead + P * panel), ...);
      a += Rows;
      b += operand.ld;
    }
    (finish(x[P], y[P], c + P * Micro::columns, ldc, alpha, accumulate,
            bias == nullptr ? bias : bias + P * Micro::columns),
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
      V b0, b1;
      Micro::load(b0, column);
      Micro::load(b1, column + lanes);
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
    return {{body_for<Tile<T, Bytes, Rows>, Bytes, InPlaceFunction<T>>()...},
            {Tile<T, Bytes, Rows>::columns...}};
  }
};

}  // namespace eigenformer::detail::kernels::detail
