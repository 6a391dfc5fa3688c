#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "eigenformer/core/base/float16.hpp"

using eigenformer::float16;

TEST_CASE("every half-precision number is exact") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const int exponent = static_cast<int>(bits >> 10U & 31U);
    const auto fraction = static_cast<double>(bits & 1023U);
    const float value = float16::from_bits(static_cast<std::uint16_t>(bits));
    const bool negative = (bits & 0x8000U) != 0;
    REQUIRE(std::signbit(value) == negative);
    if (exponent == 31) {
      REQUIRE((fraction == 0 ? std::isinf(value) : std::isnan(value)));
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    REQUIRE(static_cast<double>(value) == (negative ? -magnitude : magnitude));
  }
}

TEST_CASE("every half-precision number survives the way to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto x = float16::from_bits(static_cast<std::uint16_t>(bits));
    const float f = x;
    if (std::isnan(f)) {
      REQUIRE(std::isnan(static_cast<float>(float16(f))));
    } else {
      REQUIRE(float16(f).bits == bits);
    }
  }
}

TEST_CASE("between two neighbours the nearer is taken, at the middle the even one") {
  for (std::uint32_t bits = 0; bits < 0x7bffU; ++bits) {
    const float low = float16::from_bits(static_cast<std::uint16_t>(bits)),
                high = float16::from_bits(static_cast<std::uint16_t>(bits + 1));
    const float middle = 0.5F * (low + high);  // exact: a float has 13 bits more
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    REQUIRE(float16(middle).bits == even);
    REQUIRE(float16(-middle).bits == (even | 0x8000U));
    REQUIRE(float16(std::nextafter(middle, 0.0F)).bits == bits);
    REQUIRE(float16(std::nextafter(middle, high)).bits == bits + 1);
  }
}

TEST_CASE("what is too large becomes infinity, and NaN stays NaN") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(float16(65504.0F).bits == 0x7bff);
  CHECK(float16(std::nextafter(65520.0F, 0.0F)).bits == 0x7bff);
  CHECK(float16(65520.0F).bits == 0x7c00);
  CHECK(float16(std::numeric_limits<float>::max()).bits == 0x7c00);
  CHECK(static_cast<float>(float16(-infinity)) == -infinity);
  CHECK(float16(std::numeric_limits<float>::denorm_min()).bits == 0);
  // A payload only in the lower bits must not become an infinity.
  CHECK(std::isnan(static_cast<float>(float16(std::bit_cast<float>(0x7f800001U)))));
  CHECK(std::isnan(static_cast<float>(float16(std::bit_cast<float>(0xffffffffU)))));
  CHECK(float16(0.0F) == float16(-0.0F));
  CHECK(!(float16(std::nanf("")) == float16(std::nanf(""))));
}
