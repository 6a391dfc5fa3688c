#pragma once

#include <bit>
#include <cstdint>

namespace eigenformer {

/// A 16-bit storage format: float's sign and exponent, 8 bits of precision. Arithmetic happens in float.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  /// Rounds to nearest, ties to even; overflow gives infinity, NaN stays NaN.
  explicit bfloat16(float value) noexcept : bits(round(value)) {}
  /// Exact.
  operator float() const noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  static bfloat16 from_bits(std::uint16_t bits) noexcept {
    bfloat16 x;
    x.bits = bits;
    return x;
  }

 private:
  static std::uint16_t round(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    // Rounding could carry a NaN's payload into an infinity or another sign: keep its upper bits, make it
    // quiet.
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x0040u);
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

static_assert(sizeof(bfloat16) == 2);

/// Compares values as floats do: NaN equals nothing, -0 equals 0.
inline bool operator==(bfloat16 a, bfloat16 b) noexcept {
  return static_cast<float>(a) == static_cast<float>(b);
}

}  // namespace eigenformer
