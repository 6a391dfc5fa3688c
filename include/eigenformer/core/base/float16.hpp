#pragma once

#include <bit>
#include <cstdint>

namespace eigenformer {

namespace detail {

/// The value of an IEEE 754 binary16 number: exact.
inline float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  const std::uint32_t rest = half & 0x7fffU;
  if (rest >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (rest & 0x3ffU) << 13U);
  // Placed in a float's bits, a half is too small by 2^112; the product is exact, also for subnormal
  // halves.
  const float magnitude = std::bit_cast<float>(rest << 13U) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

}  // namespace detail

/// A 16-bit storage format, IEEE 754 binary16: 5 bits of exponent, 11 bits of precision, at most 65504.
/// Arithmetic happens in float.
struct float16 {
  std::uint16_t bits;

  float16() = default;
  /// Rounds to nearest, ties to even; 65520 and more give infinity, NaN stays NaN.
  explicit float16(float value) noexcept : bits(round(value)) {}
  /// Exact, subnormals, infinities and NaN included.
  operator float() const noexcept { return detail::half_to_float(bits); }

  static float16 from_bits(std::uint16_t bits) noexcept {
    float16 x;
    x.bits = bits;
    return x;
  }

 private:
  static std::uint16_t round(float value) noexcept {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = u >> 16U & 0x8000U;
    const std::uint32_t magnitude = u & 0x7fffffffU;
    std::uint32_t half = 0x7c00U;
    if (magnitude > 0x7f800000U) {
      // The payload's upper bits stay, and the NaN becomes quiet, so that it cannot turn into an infinity.
      half |= 0x200U | (magnitude >> 13U & 0x3ffU);
    } else if (magnitude < 0x38800000U) {
      // Below 2^-14 halves have steps of 2^-24, as floats between 1/2 and 1 have: the sum rounds.
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    } else if (magnitude < 0x477ff000U) {
      half = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13U & 1U)) >> 13U;
    }
    return static_cast<std::uint16_t>(sign | half);
  }
};

static_assert(sizeof(float16) == 2);

/// Compares values as floats do: NaN equals nothing, -0 equals 0.
inline bool operator==(float16 a, float16 b) noexcept {
  return static_cast<float>(a) == static_cast<float>(b);
}

}  // namespace eigenformer
