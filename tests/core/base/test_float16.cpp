#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "eigenformer/core/base/float16.hpp"

using eigenformer::float16;

namespace {

std::uint16_t bits(float16 x) { return std::bit_cast<std::uint16_t>(x); }

}  // namespace

TEST_CASE("every half-precision number is exact") {
  for (std::uint32_t pattern = 0; pattern < 0x10000U; ++pattern) {
    const int exponent = static_cast<int>(pattern >> 10U & 31U);
    const auto fraction = static_cast<double>(pattern & 1023U);
    const float value = std::bit_cast<float16>(static_cast<std::uint16_t>(pattern));
    const bool negative = (pattern & 0x8000U) != 0;
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
  for (std::uint32_t pattern = 0; pattern < 0x10000U; ++pattern) {
    const auto x = std::bit_cast<float16>(static_cast<std::uint16_t>(pattern));
    const float f = x;
    if (std::isnan(f)) {
      REQUIRE(std::isnan(static_cast<float>(float16(f))));
    } else {
      REQUIRE(bits(float16(f)) == pattern);
    }
  }
}

TEST_CASE("between two neighbours the nearer is taken, at the middle the even one") {
  for (std::uint32_t pattern = 0; pattern < 0x7bffU; ++pattern) {
    const float low = std::bit_cast<float16>(static_cast<std::uint16_t>(pattern)),
                high = std::bit_cast<float16>(static_cast<std::uint16_t>(pattern + 1));
    const float middle = 0.5F * (low + high);  // exact: a float has 13 bits more
    const std::uint32_t even = pattern % 2 == 0 ? pattern : pattern + 1;
    REQUIRE(bits(float16(middle)) == even);
    REQUIRE(bits(float16(-middle)) == (even | 0x8000U));
    REQUIRE(bits(float16(std::nextafter(middle, 0.0F))) == pattern);
    REQUIRE(bits(float16(std::nextafter(middle, high))) == pattern + 1);
  }
}

TEST_CASE("what is too large becomes infinity, and NaN stays NaN") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(bits(float16(65504.0F)) == 0x7bff);
  CHECK(bits(float16(std::nextafter(65520.0F, 0.0F))) == 0x7bff);
  CHECK(bits(float16(65520.0F)) == 0x7c00);
  CHECK(bits(float16(std::numeric_limits<float>::max())) == 0x7c00);
  CHECK(static_cast<float>(float16(-infinity)) == -infinity);
  CHECK(bits(float16(std::numeric_limits<float>::denorm_min())) == 0);
  // A payload only in the lower bits must not become an infinity.
  CHECK(std::isnan(static_cast<float>(float16(std::bit_cast<float>(0x7f800001U)))));
  CHECK(std::isnan(static_cast<float>(float16(std::bit_cast<float>(0xffffffffU)))));
  CHECK(float16(0.0F) == float16(-0.0F));
  CHECK(!(float16(std::nanf("")) == float16(std::nanf(""))));
}
