#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "eigenformer/core/base/bfloat16.hpp"

using eigenformer::bfloat16;

TEST_CASE("bfloat16 holds what fits exactly") {
  for (const float x : {0.0f, 1.0f, -2.0f, 0.5f, 255.0f, -1.5f, 1.9921875f}) {
    CHECK(static_cast<float>(bfloat16(x)) == x);
  }
  CHECK(bfloat16(1.0f).bits == 0x3f80);
  CHECK(bfloat16(-0.0f).bits == 0x8000);
  CHECK(bfloat16{}.bits == 0);
  CHECK(bfloat16(0.0f) == bfloat16(-0.0f));
}

TEST_CASE("every bfloat16 survives the way to float and back") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto x = bfloat16::from_bits(static_cast<std::uint16_t>(bits));
    const float f = x;
    if (std::isnan(f)) {
      REQUIRE(std::isnan(static_cast<float>(bfloat16(f))));
    } else {
      REQUIRE(bfloat16(f).bits == bits);
    }
  }
}

TEST_CASE("bfloat16 rounds to nearest, ties to even") {
  CHECK(bfloat16(std::bit_cast<float>(0x3f808000u)).bits == 0x3f80);  // tie, down to even
  CHECK(bfloat16(std::bit_cast<float>(0x3f818000u)).bits == 0x3f82);  // tie, up to even
  CHECK(bfloat16(std::bit_cast<float>(0x3f808001u)).bits == 0x3f81);
  CHECK(bfloat16(std::bit_cast<float>(0x3f807fffu)).bits == 0x3f80);
  CHECK(bfloat16(std::bit_cast<float>(0x3fffffffu)).bits == 0x4000);  // carries into the exponent
  CHECK(bfloat16(std::bit_cast<float>(0xbf818000u)).bits == 0xbf82);
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
