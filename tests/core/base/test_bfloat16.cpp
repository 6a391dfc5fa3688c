#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "eigenformer/core/base/float16.hpp"

using eigenformer::bfloat16;

namespace {

std::uint16_t bits(bfloat16 x) { return std::bit_cast<std::uint16_t>(x); }

}  // namespace

TEST_CASE("bfloat16 holds what fits exactly") {
  for (const float x : {0.0f, 1.0f, -2.0f, 0.5f, 255.0f, -1.5f, 1.9921875f}) {
    CHECK(static_cast<float>(bfloat16(x)) == x);
  }
  CHECK(bits(bfloat16(1.0f)) == 0x3f80);
  CHECK(bits(bfloat16(-0.0f)) == 0x8000);
  CHECK(bits(bfloat16{}) == 0);
  CHECK(bfloat16(0.0f) == bfloat16(-0.0f));
}

TEST_CASE("every bfloat16 survives the way to float and back") {
  for (std::uint32_t pattern = 0; pattern <= 0xffff; ++pattern) {
    const auto x = std::bit_cast<bfloat16>(static_cast<std::uint16_t>(pattern));
    const float f = x;
    if (std::isnan(f)) {
      REQUIRE(std::isnan(static_cast<float>(bfloat16(f))));
    } else {
      REQUIRE(bits(bfloat16(f)) == pattern);
    }
  }
}

TEST_CASE("bfloat16 rounds to nearest, ties to even") {
  CHECK(bits(bfloat16(std::bit_cast<float>(0x3f808000u))) == 0x3f80);  // tie, down to even
  CHECK(bits(bfloat16(std::bit_cast<float>(0x3f818000u))) == 0x3f82);  // tie, up to even
  CHECK(bits(bfloat16(std::bit_cast<float>(0x3f808001u))) == 0x3f81);
  CHECK(bits(bfloat16(std::bit_cast<float>(0x3f807fffu))) == 0x3f80);
  CHECK(bits(bfloat16(std::bit_cast<float>(0x3fffffffu))) == 0x4000);  // carries into the exponent
  CHECK(bits(bfloat16(std::bit_cast<float>(0xbf818000u))) == 0xbf82);
}

TEST_CASE("bfloat16 keeps infinities and NaN") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(static_cast<float>(bfloat16(infinity)) == infinity);
  CHECK(static_cast<float>(bfloat16(-infinity)) == -infinity);
  CHECK(static_cast<float>(bfloat16(std::numeric_limits<float>::max())) == infinity);
  CHECK(std::isnan(static_cast<float>(bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  // A payload only in the lower bits must not round to infinity, one of all ones must not carry into the
  // sign.
  CHECK(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7fffffffu)))));
  CHECK(!(bfloat16(std::nanf("")) == bfloat16(std::nanf(""))));
}
