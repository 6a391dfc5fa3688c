#pragma once

#include <cstdint>
#include <string>

#include "eigenformer/core/base/dropout_key.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/kernels/simd/simd_vector.hpp"

namespace eigenformer::detail::kernels {

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

/// The 64 multipliers (0 or plan.scale) of elements 64 * block .. 64 * block + 63 of the mask named (c0, c1,
/// c2), as dropout_mask_row defines them; for use inside the loops of other kernels. out: 64 elements.
template <int Bytes, class T>
EIGENFORMER_ALWAYS_INLINE void dropout_scale_block(const DropoutPlan<T>& plan, std::uint32_t c0,
                                                   std::uint32_t c1, std::uint32_t c2, index_t block,
                                                   T* out) {
  alignas(64) std::uint32_t words[64];
  PhiloxBlock<Bytes>::run(plan.key0, plan.key1, c0, c1, c2, static_cast<std::uint32_t>(16 * block), words);
  if constexpr (sizeof(T) == 4) {
    using W = Simd<T, Bytes>;
    typename W::V scale;
    W::set(scale, plan.scale);
    for (index_t j = 0; j < 64; j += W::lanes) {
      typename W::U word;
      __builtin_memcpy(&word, words + j, Bytes);
      const typename W::I keep = reinterpret_cast<typename W::I>(word >= plan.threshold);
      W::at(out + j).v = reinterpret_cast<typename W::V>(keep & reinterpret_cast<typename W::I>(scale));
    }
  } else {
    for (index_t j = 0; j < 64; ++j) out[j] = words[j] >= plan.threshold ? plan.scale : T(0);
  }
}

}  // namespace eigenformer::detail::kernels
