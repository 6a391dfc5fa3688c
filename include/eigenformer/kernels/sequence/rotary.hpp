#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

namespace eigenformer {

/// Which two features of a head are turned together.
enum class RotaryPairing {
  adjacent,  ///< 2 i and 2 i + 1: the paper, GPT-J
  halves,    ///< i and i + dim / 2: GPT-NeoX, LLaMA in transformers
};

namespace kernels {

/// The cosines and sines of rotary positions: pair i of dim / 2 turns by position * base^(-2 i / dim). Those
/// of the first positions are kept, others are computed when asked for. A copy is cheap and shares.
template <class T>
class RotaryTable {
 public:
  RotaryTable() = default;
  /// Throws ValueError unless dim is even and positive and base positive.
  RotaryTable(index_t dim, double base) : half_(dim / 2) {
    if (dim < 2 || dim % 2 != 0)
      throw ValueError("rotary", "dim is " + std::to_string(dim) + ", must be even and at least 2");
    if (!(base > 0 && std::isfinite(base)))
      throw ValueError("rotary", "base is " + std::to_string(base) + ", must be positive");
    auto data = std::make_shared<Data>();
    for (index_t i = 0; i < half_; ++i) {
      data->frequencies.push_back(std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(dim)));
    }
    data_ = data;
    data->rows.resize(static_cast<std::size_t>(kept * 2 * half_));
    for (index_t p = 0; p < kept; ++p) compute(p, data->rows.data() + p * 2 * half_);
  }

  /// Features that turn, in each head.
  index_t dim() const noexcept { return 2 * half_; }

  /// dim / 2 cosines, then as many sines, of a position; `scratch` has room for these.
  const T* row(index_t position, T* scratch) const {
    if (position < kept) return data_->rows.data() + position * 2 * half_;
    compute(position, scratch);
    return scratch;
  }

 private:
  static constexpr index_t kept = 512;
  struct Data {
    std::vector<double> frequencies;
    std::vector<T> rows;
  };

  void compute(index_t position, T* row) const {
    for (index_t i = 0; i < half_; ++i) {
      const double angle = static_cast<double>(position) * data_->frequencies[static_cast<std::size_t>(i)];
      row[i] = static_cast<T>(std::cos(angle));
      row[half_ + i] = static_cast<T>(std::sin(angle));
    }
  }

  index_t half_ = 0;
  std::shared_ptr<const Data> data_;
};

namespace detail {

/// Turns the pairs of each of `heads` heads of one row: y = x cos - x' sin, y' = x' cos + x sin, plus beta
/// times what y holds. table: half cosines, half sines, the latter times `direction`.
template <class T>
struct RotaryRow {
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, T* y, T beta, index_t heads, index_t head_dim,
                                            index_t half, const T* table, T direction, bool adjacent) {
    for (index_t h = 0; h < heads; ++h, x += head_dim, y += head_dim) {
      if (adjacent) {
        for (index_t i = 0; i < half; ++i) {
          const T c = table[i], s = direction * table[half + i];
          const T a = x[2 * i], b = x[2 * i + 1];
          put(y + 2 * i, beta, a * c - b * s);
          put(y + 2 * i + 1, beta, b * c + a * s);
        }
      } else {
        for (index_t i = 0; i < half; ++i) {
          const T c = table[i], s = direction * table[half + i];
          const T a = x[i], b = x[half + i];
          put(y + i, beta, a * c - b * s);
          put(y + half + i, beta, b * c + a * s);
        }
      }
      for (index_t j = 2 * half; j < head_dim; ++j) put(y + j, beta, x[j]);
    }
  }

 private:
  EIGENFORMER_ALWAYS_INLINE static void put(T* y, T beta, T value) {
    *y = beta == T(0) ? value : beta * *y + value;
  }
};

/// y (n) = x + beta y.
template <class T>
struct RotaryRest {
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, T* y, T beta, index_t n) {
    for (index_t j = 0; j < n; ++j) y[j] = beta == T(0) ? x[j] : beta * y[j] + x[j];
  }
};

}  // namespace detail

/// y (rows, columns) = beta y + x, with the first `heads` heads of each row turned by the row's position;
/// `positions` says it for each row. inverse: turned back, which is the backward. x and y may be the same
/// where beta is 0. Su et al. 2021, eq. 34.
template <class T, class Positions>
void rotary(const RotaryTable<T>& table, RotaryPairing pairing, bool inverse, const T* x, T* y, T beta,
            index_t rows, index_t columns, index_t heads, index_t head_dim, Positions&& positions) {
  const index_t turned = heads * head_dim;
  parallel_for(rows, std::max<index_t>(1, (index_t{1} << 14) / std::max<index_t>(1, columns)),
               [&](index_t begin, index_t end) {
                 std::vector<T> scratch(static_cast<std::size_t>(table.dim()));
                 for (index_t r = begin; r < end; ++r) {
                   const T* from = x + r * columns;
                   T* to = y + r * columns;
                   dispatch<detail::RotaryRow<T>>(from, to, beta, heads, head_dim, table.dim() / 2,
                                                  table.row(positions(r), scratch.data()),
                                                  inverse ? T(-1) : T(1), pairing == RotaryPairing::adjacent);
                   if (from != to || beta != T(0))
                     dispatch<detail::RotaryRest<T>>(from + turned, to + turned, beta, columns - turned);
                 }
               });
}

}  // namespace kernels
}  // namespace eigenformer
