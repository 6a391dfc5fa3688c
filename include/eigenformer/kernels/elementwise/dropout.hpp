#pragma once

#include <cstdint>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

/// Dropout of rows, as an argument of kernels.
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

/// y = [base +] x * mask / (1 - rate), also for the backward, which computes the mask again. base (or
/// nullptr), x, y: (rows, n), rows `ld` elements apart; y may be base or x. Throws ValueError for a rate
/// outside [0, 1). Srivastava et al., JMLR 15, 2014.
template <class T>
void dropout_rows(const T* x, T* y, index_t rows, index_t n, index_t ld, const RowDropout& dropout,
                  const T* base = nullptr);

/// dropout_rows on a tile that starts at (first_row, first_column) of the whole; x, y point at the tile,
/// dropout.rows (or nullptr) at the whole's first row. Runs on the calling thread: for the epilogue of a
/// matrix product.
template <class T>
void dropout_tile(const T* x, T* y, index_t first_row, index_t rows, index_t first_column, index_t n,
                  index_t ld, const RowDropout& dropout);

/// The key of a row, for keys as in RowDropout.
EIGENFORMER_ALWAYS_INLINE RowKey row_key(const RowKey* keys, index_t row) {
  return keys != nullptr ? keys[row] : RowKey{0, static_cast<std::uint32_t>(row)};
}

/// Key and rate of a dropout in the form that loops use: an element is kept if its random word is at least
/// `threshold`, and then multiplied by `scale`.
template <class T>
struct DropoutPlan {
  /// Throws ValueError for a rate outside [0, 1).
  DropoutPlan(DropoutKey key, double rate) {
    if (!(rate >= 0 && rate < 1)) {
      throw ValueError("dropout", {"rate is ", rate, ", must be at least 0 and less than 1"});
    }
    const auto words = key.philox_key();
    key0 = words[0];
    key1 = words[1];
    const double bound = rate * 4294967296.0 + 0.5;
    threshold = bound >= 4294967295.0 ? 4294967295u : static_cast<std::uint32_t>(bound);
    scale = static_cast<T>(1.0 / (1.0 - rate));
  }

  /// Whether elements are dropped; false for a rate below 2^-33.
  bool active() const noexcept { return threshold != 0; }

  std::uint32_t key0 = 0,  ///< word 0 of the Philox key
      key1 = 0,            ///< word 1 of the Philox key
      threshold = 0;       ///< rate * 2^32, rounded
  T scale = 1;             ///< 1 / (1 - rate)
};

/// Philox4x32-10 on several counters at once.
template <int Bytes>
struct PhiloxBlock {
  static constexpr index_t lanes = Bytes / 8;                   ///< counters in one vector
  typedef std::uint64_t V __attribute__((vector_size(Bytes)));  ///< a vector of counters

  /// Writes the 64 random words of the 16 counters (c0, c1, c2, first .. first + 15) to `out`: word w of
  /// counter l is out[16 * w + l].
  EIGENFORMER_ALWAYS_INLINE static void run(std::uint32_t key0, std::uint32_t key1, std::uint32_t c0,
                                            std::uint32_t c1, std::uint32_t c2, std::uint32_t first,
                                            std::uint32_t* out) {
    // Lanes are 64 bits wide for the products and hold one counter each; their upper halves are not used.
    // Even counters are in one vector, odd ones in another, so that joining them is a shift.
    V step;
    count_by(2, step);
    for (std::uint32_t l = 0; l < 16; l += 2 * lanes) {
      V x0 = std::uint64_t{c0} - V{}, x1 = std::uint64_t{c1} - V{}, x2 = std::uint64_t{c2} - V{};
      V x3 = step + std::uint64_t{first + l};
      V y0 = x0, y1 = x1, y2 = x2, y3 = step + std::uint64_t{first + l + 1};
      ten_rounds(key0, key1, x0, x1, x2, x3, y0, y1, y2, y3);
      join(x0, y0, out + l);
      join(x1, y1, out + 16 + l);
      join(x2, y2, out + 32 + l);
      join(x3, y3, out + 48 + l);
    }
  }

  /// Replaces the words of two vectors of counters by their random words, each in the lower half of a lane.
  EIGENFORMER_ALWAYS_INLINE static void ten_rounds(std::uint32_t key0, std::uint32_t key1, V& x0, V& x1,
                                                   V& x2, V& x3, V& y0, V& y1, V& y2, V& y3) {
    for (int round = 0; round < 10; ++round) {
      const V v0 = std::uint64_t{key0} - V{}, v1 = std::uint64_t{key1} - V{};
      one_round(x0, x1, x2, x3, v0, v1);
      one_round(y0, y1, y2, y3, v0, v1);
      key0 += Philox4x32::weyl0;
      key1 += Philox4x32::weyl1;
    }
  }

  /// 0, by, 2 by, ... in the lanes.
  EIGENFORMER_ALWAYS_INLINE static void count_by(std::uint64_t by, V& out) {
    std::uint64_t steps[static_cast<std::size_t>(lanes)];
    for (std::uint64_t l = 0; l < lanes; ++l) steps[l] = by * l;
    __builtin_memcpy(&out, steps, Bytes);
  }

 private:
  /// The product of the lanes' low halves.
  EIGENFORMER_ALWAYS_INLINE static void multiply(const V& a, std::uint32_t b, V& product) {
    const V factor = std::uint64_t{b} - V{};
#if EIGENFORMER_X86 && !defined(__clang__)
    // clang finds this instruction by itself; GCC takes a 64-bit product, of several instructions, for the
    // code below.
    if constexpr (Bytes > 16) {
      __asm__("vpmuludq %2, %1, %0" : "=v"(product) : "v"(a), "v"(factor));
    } else {
      product =
          reinterpret_cast<V>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(factor)));
    }
#else
    product = (a & 0xffffffffu) * factor;
#endif
  }

  EIGENFORMER_ALWAYS_INLINE static void one_round(V& x0, V& x1, V& x2, V& x3, const V& k0, const V& k1) {
    V p0, p1;
    multiply(x0, Philox4x32::multiplier0, p0);
    multiply(x2, Philox4x32::multiplier1, p1);
    x0 = (p1 >> 32) ^ (x1 ^ k0);
    x1 = p1;
    x2 = (p0 >> 32) ^ (x3 ^ k1);
    x3 = p0;
  }

  EIGENFORMER_ALWAYS_INLINE static void join(const V& even, const V& odd, std::uint32_t* out) {
    const V joined = (even & 0xffffffffu) | (odd << 32);
    __builtin_memcpy(out, &joined, Bytes);
  }
};

/// out[j] = 0 or plan.scale, by random words; n: a multiple of 16.
template <int Bytes, class T>
EIGENFORMER_ALWAYS_INLINE void dropout_multipliers(const DropoutPlan<T>& plan, const std::uint32_t* words,
                                                   index_t n, T* out) {
  if constexpr (sizeof(T) == 4) {
    using W = Simd<T, Bytes>;
    for (index_t j = 0; j < n; j += W::lanes) {
      typename W::U word;
      __builtin_memcpy(&word, words + j, Bytes);
      W::at(out + j).v = word >= plan.threshold ? plan.scale - typename W::V{} : typename W::V{};
    }
  } else {
    for (index_t j = 0; j < n; ++j) out[j] = words[j] >= plan.threshold ? plan.scale : T(0);
  }
}

/// The 64 multipliers (0 or plan.scale) of elements 64 * block .. 64 * block + 63 of the mask named (c0, c1,
/// c2), as dropout_mask_row defines them; for use inside the loops of other kernels. out: 64 elements.
template <int Bytes, class T>
EIGENFORMER_ALWAYS_INLINE void dropout_scale_block(const DropoutPlan<T>& plan, std::uint32_t c0,
                                                   std::uint32_t c1, std::uint32_t c2, index_t block,
                                                   T* out) {
  alignas(64) std::uint32_t words[64];
  PhiloxBlock<Bytes>::run(plan.key0, plan.key1, c0, c1, c2, static_cast<std::uint32_t>(16 * block), words);
  dropout_multipliers<Bytes>(plan, words, 64, out);
}

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>

#include "eigenformer/core/runtime/runtime.hpp"

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
      const RowKey key = row_key(keys, first_row + r);
      for (index_t j = 0; j < n;) {
        const index_t column = first_column + j;
        const index_t skip = column % dropout_block;
        const index_t end = std::min(n, j + dropout_block - skip);
        if (plan.active()) {
          dropout_scale_block<Bytes>(plan, key.sequence, key.position, 0, column / dropout_block, multiplier);
        }
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
void dropout_rows(const T* x, T* y, index_t rows, index_t n, index_t ld, const RowDropout& dropout,
                  const T* base) {
  const DropoutPlan<T> plan(dropout.key, dropout.rate);
  parallel_for(rows, row_grain(n, simple_grain), [&](index_t begin, index_t end) {
    const index_t at = begin * ld;
    dispatch<detail::DropoutTile<T>>(shifted(base, at), x + at, y + at, dropout.rows, begin, end - begin, 0,
                                     n, ld, plan);
  });
}

template <class T>
void dropout_tile(const T* x, T* y, index_t first_row, index_t rows, index_t first_column, index_t n,
                  index_t ld, const RowDropout& dropout) {
  dispatch<detail::DropoutTile<T>>(nullptr, x, y, dropout.rows, first_row, rows, first_column, n, ld,
                                   DropoutPlan<T>(dropout.key, dropout.rate));
}

EIGENFORMER_KERNEL(dropout_mask_row)
EIGENFORMER_KERNEL(dropout_rows)
EIGENFORMER_KERNEL(dropout_tile)

}  // namespace eigenformer::detail::kernels
#endif
