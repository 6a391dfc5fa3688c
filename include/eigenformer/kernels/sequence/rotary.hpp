#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/simd/simd.hpp"

namespace eigenformer {

/// The two features of a head that are rotated together.
enum class RotaryPairing {
  adjacent,  ///< 2 i and 2 i + 1: the paper, GPT-J
  halves,    ///< i and i + dim / 2: GPT-NeoX, LLaMA in transformers
};

namespace detail::kernels {

/// The cosines and sines of rotary positions: pair i of dim / 2 is rotated by position * base^(-2 i / dim).
/// They are computed for 512 positions at a time, at the first use of one of these, and kept. Copies share
/// the memory, and so do tables of the same dim and base that a thread makes one after the other, as for the
/// layers of a model.
template <class T>
class RotaryTable {
 public:
  /// A table of no features: dim() is 0, and row() must not be called.
  RotaryTable() = default;
  /// A table for `dim` features of each head. Throws ValueError unless dim is even and positive and base is
  /// positive and finite.
  RotaryTable(index_t dim, double base) {
    if (dim < 2 || dim % 2 != 0)
      throw ValueError("rotary", {"dim is ", dim, ", must be even and at least 2"});
    if (!(base > 0 && std::isfinite(base)))
      throw ValueError("rotary", {"base is ", base, ", must be positive"});
    thread_local std::weak_ptr<Data> last;
    data_ = last.lock();
    if (data_ == nullptr || data_->dim != dim || data_->base != base)
      last = data_ = std::make_shared<Data>(dim, base);
  }

  /// The number of features of each head that are rotated.
  index_t dim() const noexcept { return data_ == nullptr ? 0 : data_->dim; }

  /// dim / 2 cosines and then as many sines of a position, which must not be negative. Those of positions
  /// from 1,048,576 on are not kept but written to `scratch`. Thread-safe.
  const T* row(index_t position, std::vector<T>& scratch) const {
    const index_t number = position / block;
    if (number >= blocks) {
      scratch.resize(static_cast<std::size_t>(data_->dim));
      data_->compute(position, scratch.data());
      return scratch.data();
    }
    const T* rows = data_->kept[static_cast<std::size_t>(number)].load(std::memory_order_acquire);
    if (rows == nullptr) rows = data_->make(number);
    return rows + position % block * data_->dim;
  }

 private:
  static constexpr index_t block = 512;    // positions computed together
  static constexpr index_t blocks = 2048;  // kept at most

  struct Data {
    index_t dim;
    double base;
    std::vector<double> frequencies;
    std::array<std::atomic<T*>, blocks> kept{};  // nullptr: not asked for yet

    Data(index_t d, double b) : dim(d), base(b) {
      for (index_t i = 0; i < dim / 2; ++i)
        frequencies.push_back(std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(dim)));
    }
    ~Data() {
      for (const auto& rows : kept) delete[] rows.load();
    }
    Data(const Data&) = delete;
    Data& operator=(const Data&) = delete;

    void compute(index_t position, T* row) const {
      const index_t half = dim / 2;
      for (index_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)];
        row[i] = static_cast<T>(std::cos(angle));
        row[half + i] = static_cast<T>(std::sin(angle));
      }
    }

    // Without a lock, which could stay locked in a forked child: of several threads that compute the same
    // block, the result of the first to finish is kept.
    const T* make(index_t number) {
      auto rows = std::make_unique<T[]>(static_cast<std::size_t>(block * dim));
      for (index_t p = 0; p < block; ++p) compute(number * block + p, rows.get() + p * dim);
      T* there = nullptr;
      const bool first = kept[static_cast<std::size_t>(number)].compare_exchange_strong(
          there, rows.get(), std::memory_order_acq_rel);
      return first ? rows.release() : there;
    }
  };

  std::shared_ptr<Data> data_;
};

namespace detail {

/// Rotates the pairs of each of `heads` heads of one row: y = beta y + x cos - x' sin, y' = beta y' + x' cos
/// + x sin. table: half cosines, half sines, the latter times `direction`. y = beta y + x for the other
/// features of the heads and the `rest` elements behind them.
template <class T>
struct RotaryRow {
  static constexpr bool plain_loops = true;
  EIGENFORMER_ALWAYS_INLINE static void run(const T* x, T* y, T beta, index_t heads, index_t head_dim,
                                            index_t half, const T* table, T direction, bool adjacent,
                                            index_t rest) {
    for (index_t h = 0; h < heads; ++h, x += head_dim, y += head_dim) {
      if (adjacent) {
        for (index_t i = 0; i < half; ++i) {
          const T c = table[i], s = direction * table[half + i];
          const T a = x[2 * i], b = x[2 * i + 1];
          put(y[2 * i], a * c - b * s, beta);
          put(y[2 * i + 1], b * c + a * s, beta);
        }
      } else {
        for (index_t i = 0; i < half; ++i) {
          const T c = table[i], s = direction * table[half + i];
          const T a = x[i], b = x[half + i];
          put(y[i], a * c - b * s, beta);
          put(y[half + i], b * c + a * s, beta);
        }
      }
      for (index_t j = 2 * half; j < head_dim; ++j) put(y[j], x[j], beta);
    }
    for (index_t j = 0; j < rest; ++j) put(y[j], x[j], beta);
  }
};

}  // namespace detail

/// y (rows, columns) = beta y + x, with the first `heads` heads of each row of x rotated by the row's
/// position, positions(row). `inverse` rotates in the opposite direction, as the backward needs it. x and y
/// may be the same if beta is 0. Su et al. 2021, eq. 34.
template <class T, class Positions>
void rotary(const RotaryTable<T>& table, RotaryPairing pairing, bool inverse, const T* x, T* y, T beta,
            index_t rows, index_t columns, index_t heads, index_t head_dim, Positions&& positions) {
  const index_t rest = x == y && beta == T(0) ? 0 : columns - heads * head_dim;
  parallel_for(rows, (1 << 14) / std::max<index_t>(1, columns), [&](index_t begin, index_t end) {
    std::vector<T> scratch;
    for (index_t r = begin; r < end; ++r) {
      dispatch<detail::RotaryRow<T>>(x + r * columns, y + r * columns, beta, heads, head_dim, table.dim() / 2,
                                     table.row(positions(r), scratch), inverse ? T(-1) : T(1),
                                     pairing == RotaryPairing::adjacent, rest);
    }
  });
}

}  // namespace detail::kernels
}  // namespace eigenformer
