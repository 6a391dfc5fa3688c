#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "eigenformer/core/base/dropout_key.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "eigenformer/kernels/elementwise/adam.hpp"
#include "eigenformer/kernels/elementwise/dropout_mask.hpp"

namespace eigenformer::detail {

// Moments in bfloat16. Rounding to nearest would freeze them: with beta2 = 0.999 a step changes a mean square
// by at most a thousandth, less than half the distance between adjacent bfloat16 numbers. So they are rounded
// up or down at random, with probabilities that keep the mean exact (stochastic rounding; Gupta et al. 2015,
// and Zamirai et al. 2020 for bfloat16). The random bits are a function of the parameter's name, its step and
// the element, so results do not depend on threads, on the other parameters of the optimizer, or on a resume.

// Number of elements of T that hold n bfloat16 numbers.
template <class T>
index_t packed_elements(index_t n) {
  constexpr index_t per_element = sizeof(T) / sizeof(std::uint16_t);
  return (n + per_element - 1) / per_element;
}

// FNV-1a.
constexpr std::uint64_t hash_of_name(std::string_view name) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

inline float from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds x to one of its bfloat16 neighbours, by `random` in [0, 2^16): away from zero with the probability
// of x's distance from the one nearer to zero. Infinities keep their bits, and NaN stays NaN.
inline std::uint16_t round_stochastically(float x, std::uint32_t random) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7F800000u) == 0x7F800000u)
    return static_cast<std::uint16_t>(bits >> 16 | ((bits & 0xFFFFu) != 0 ? 1u : 0u));
  const std::uint32_t rounded = bits + random;
  // The largest numbers must not become infinite.
  return static_cast<std::uint16_t>(((rounded & 0x7F800000u) == 0x7F800000u ? bits : rounded) >> 16);
}

// kernels::adam_step with n moments in bfloat16 each. key: of the random bits.
template <class T>
void adam_step_bf16(T* p, const T* g, T* first, T* second, index_t n, double lr, double beta1, double beta2,
                    double eps, double weight_decay, bool decoupled, index_t step, double grad_scale,
                    const DropoutKey& key) {
  constexpr index_t block = 512, of_philox = 64;
  const auto words = key.philox_key();
  parallel_for((n + block - 1) / block, 64, [&](index_t begin, index_t end) {
    alignas(64) T m[block], v[block];
    alignas(64) std::uint32_t random[of_philox];
    std::uint16_t bits[2][block];
    for (index_t k = begin; k < end; ++k) {
      const index_t at = k * block, count = std::min(block, n - at);
      const auto bytes = static_cast<std::size_t>(count) * sizeof(std::uint16_t);
      char* const places[2] = {reinterpret_cast<char*>(first) + at * 2,
                               reinterpret_cast<char*>(second) + at * 2};
      for (int moment = 0; moment < 2; ++moment) std::memcpy(bits[moment], places[moment], bytes);
      for (index_t i = 0; i < count; ++i) {
        m[i] = static_cast<T>(from_bf16(bits[0][i]));
        v[i] = static_cast<T>(from_bf16(bits[1][i]));
      }
      kernels::adam_step<T>(p + at, g + at, m, v, count, lr, beta1, beta2, eps, weight_decay, decoupled, step,
                            grad_scale);
      for (index_t i = 0; i < count; ++i) {
        // Each word serves both moments of one element.
        if (i % of_philox == 0) {
          kernels::PhiloxBlock<16>::run(words[0], words[1], 0, static_cast<std::uint32_t>(at >> 32),
                                        static_cast<std::uint32_t>(at),
                                        static_cast<std::uint32_t>(i / of_philox * 16), random);
        }
        const std::uint32_t word = random[i % of_philox];
        bits[0][i] = round_stochastically(static_cast<float>(m[i]), word & 0xFFFFu);
        bits[1][i] = round_stochastically(static_cast<float>(v[i]), word >> 16);
      }
      for (int moment = 0; moment < 2; ++moment) std::memcpy(places[moment], bits[moment], bytes);
    }
  });
}

}  // namespace eigenformer::detail
