#pragma once

#include "eigenformer/core/base/random.hpp"

namespace eigenformer::detail::kernels {

/// Writes n numbers uniform in [low, high) to `out` and advances the generator, as
/// RandomGenerator::fill_uniform() does, with the same bits.
void random_uniform(RandomGenerator& rng, float* out, index_t n, double low, double high);

/// Writes n normal numbers to `out` as RandomGenerator::fill_normal() does. The logarithm and cosine are not
/// the C library's: of 40 million numbers, one is rounded to another float.
void random_normal(RandomGenerator& rng, float* out, index_t n, double mean, double standard_deviation);

/// The same for other types, one number after the other.
template <class T>
void random_uniform(RandomGenerator& rng, T* out, index_t n, double low, double high) {
  rng.fill_uniform(out, n, low, high);
}
template <class T>
void random_normal(RandomGenerator& rng, T* out, index_t n, double mean, double standard_deviation) {
  rng.fill_normal(out, n, mean, standard_deviation);
}

}  // namespace eigenformer::detail::kernels

#ifndef EIGENFORMER_COMPILED
#include <algorithm>
#include <cstdint>
#include <limits>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/kernels/elementwise/dropout.hpp"
#include "eigenformer/kernels/simd/pack.hpp"

namespace eigenformer::detail::kernels {

namespace detail {

// What 64 counters of Philox give.
struct RandomChunk {
  static constexpr index_t counters = 64;
  alignas(64) double even[counters + 8] = {};  // the first number of RandomGenerator::uniform() from each
  alignas(64) double odd[counters] = {};       // the second one
  alignas(64) double normal[counters];         // one for each two numbers

  // Fills the numbers of `count` counters from `first` on, and those of the rest of a vector.
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(RandomChunk* chunk, std::uint64_t seed, std::uint64_t first,
                                            index_t count, bool with_normal, bool begins_odd) {
    using Philox = PhiloxBlock<Bytes>;
    using V = typename Philox::V;
    using P = Pack<double, Bytes>;
    const auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
    V lane;
    Philox::count_by(1, lane);
    for (index_t i = 0; i < count; i += 2 * Philox::lanes) {
      V x0 = lane + (first + static_cast<std::uint64_t>(i)), x1 = x0 >> 32, x2 = V{}, x3 = V{};
      V y0 = x0 + static_cast<std::uint64_t>(Philox::lanes), y1 = y0 >> 32, y2 = V{}, y3 = V{};
      Philox::ten_rounds(key0, key1, x0, x1, x2, x3, y0, y1, y2, y3);
      store<Bytes>(x0, x1, chunk->even + i);
      store<Bytes>(x2, x3, chunk->odd + i);
      store<Bytes>(y0, y1, chunk->even + i + Philox::lanes);
      store<Bytes>(y2, y3, chunk->odd + i + Philox::lanes);
    }
    if (!with_normal) return;
    // sqrt(-2 log(1 - u)) cos(2 pi v): Box and Muller 1958.
    const double* u = begins_odd ? chunk->odd : chunk->even;
    const double* v = begins_odd ? chunk->even + 1 : chunk->odd;
    for (index_t i = 0; i < count; i += P::W::lanes) {
      P a, b;
      __builtin_memcpy(&a.v, u + i, Bytes);
      __builtin_memcpy(&b.v, v + i, Bytes);
      a = 1 - a;
      P::Math::template log<false>(a.v);
      a = sqrt(a * -2) * cos_turns(b);
      __builtin_memcpy(chunk->normal + i, &a.v, Bytes);
    }
  }

 private:
  // The upper 53 bits of high * 2^32 + low, times 2^-53. Each half becomes the mantissa of a double: exact,
  // as is their sum.
  template <int Bytes, class V>
  EIGENFORMER_ALWAYS_INLINE static void store(const V& high, const V& low, double* out) {
    using D = typename Simd<double, Bytes>::V;
    const std::uint64_t two52 = 0x4330000000000000u;
    const D upper = reinterpret_cast<D>((high & 0xffffffffu) | two52) - 0x1p52;
    const D lower = reinterpret_cast<D>(((low & 0xffffffffu) >> 11) | two52) - 0x1p52;
    const D number = upper * 0x1p-32 + lower * 0x1p-53;
    __builtin_memcpy(out, &number, Bytes);
  }

  // cos(2 pi v), v in [0, 1): v = quarter / 4 + r, |r| <= 1/8, and the series of sine and cosine up to pi/4.
  template <class P>
  EIGENFORMER_ALWAYS_INLINE static P cos_turns(const P& v) {
    const P quarter = round(v * 4), r = (v - quarter * 0.25) * 6.283185307179586, w = r * r;
    P s, c;
    P::Math::poly(s.v, w.v, -7.647163731819816e-13, 1.6059043836821613e-10, -2.505210838544172e-08,
                  2.7557319223985893e-06, -0.0001984126984126984, 0.008333333333333333, -0.16666666666666666);
    P::Math::poly(c.v, w.v, 4.779477332387385e-14, -1.1470745597729725e-11, 2.08767569878681e-09,
                  -2.755731922398589e-07, 2.48015873015873e-05, -0.001388888888888889, 0.041666666666666664);
    s = r + r * w * s;
    c = 1 - (w * 0.5 - w * w * c);
    const P y = select((quarter == 1) | (quarter == 3), s, c);
    return select((quarter == 1) | (quarter == 2), -y, y);
  }
};

// Writes n numbers low + scale * x, below `high`, to `out`, x being in [0, 1) or normal. Returns false, and
// writes nothing, if the stream stands in the middle of a number, or ends before.
EIGENFORMER_INLINE bool draw(RandomGenerator& rng, float* out, index_t n, bool normal, double low,
                             double scale, double high) {
  RandomGenerator::State state = rng.state();
  const index_t numbers = normal ? 2 : 1;  // in [0, 1), for each x
  const auto words = static_cast<std::uint64_t>(2 * n * numbers);
  if (state.position % 2 != 0 || state.position > std::numeric_limits<std::uint64_t>::max() / 2 - words) {
    return false;
  }
  parallel_for(n, 1 << 12, [&](index_t begin, index_t end) {
    RandomChunk chunk;
    for (index_t i = begin; i < end;) {
      const std::uint64_t number = state.position / 2 + static_cast<std::uint64_t>(i * numbers);
      const auto odd = static_cast<index_t>(number % 2);
      const index_t count = std::min(end - i, (3 - numbers) * RandomChunk::counters - odd);
      dispatch<RandomChunk>(&chunk, state.seed, number / 2, (count * numbers + odd + 1) / 2, normal,
                            odd != 0);
      for (index_t k = 0; k < count; ++k) {
        const index_t at = k + odd;
        const double x = normal ? chunk.normal[k] : (at % 2 == 0 ? chunk.even : chunk.odd)[at / 2];
        out[i + k] = RandomGenerator::rounded_below<float>(low + scale * x, high);
      }
      i += count;
    }
  });
  state.position += words;
  rng.set_state(state);
  return true;
}

}  // namespace detail

EIGENFORMER_INLINE void random_uniform(RandomGenerator& rng, float* out, index_t n, double low, double high) {
  if (rng.is_idle() || detail::draw(rng, out, n, false, low, high - low, high)) return;
  rng.fill_uniform(out, n, low, high);
}

EIGENFORMER_INLINE void random_normal(RandomGenerator& rng, float* out, index_t n, double mean,
                                      double standard_deviation) {
  const double unlimited = std::numeric_limits<double>::infinity();
  if (rng.is_idle() || detail::draw(rng, out, n, true, mean, standard_deviation, unlimited)) return;
  rng.fill_normal(out, n, mean, standard_deviation);
}

}  // namespace eigenformer::detail::kernels
#endif
