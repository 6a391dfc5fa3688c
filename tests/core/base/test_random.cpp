#include "eigenformer/core/base/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::message_of;

TEST_CASE("Philox4x32-10: the known answers published with Random123") {
  using Counter = detail::Philox4x32::Counter;
  CHECK(detail::Philox4x32::generate({0, 0, 0, 0}, {0, 0}) ==
        Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(detail::Philox4x32::generate({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                                     {0xffffffff, 0xffffffff}) ==
        Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(detail::Philox4x32::generate({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                                     {0xa4093822, 0x299f31d0}) ==
        Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("RandomGenerator: a seed's numbers are the blocks of Philox in order") {
  RandomGenerator rng(0);
  for (const std::uint32_t word : {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u})
    CHECK(rng.next_u32() == word);
  CHECK(rng.next_u32() == detail::Philox4x32::generate({1, 0, 0, 0}, {0, 0})[0]);
  // The high word of the seed counts.
  RandomGenerator high(std::uint64_t{7} << 32 | 5);
  CHECK(high.next_u32() == detail::Philox4x32::generate({0, 0, 0, 0}, {5, 7})[0]);
  CHECK(high.state().seed == (std::uint64_t{7} << 32 | 5));
}

TEST_CASE("RandomGenerator: two 32-bit words make a 64-bit one, the first above") {
  RandomGenerator a(3), b(3);
  const std::uint64_t high = a.next_u32();
  const std::uint64_t low = a.next_u32();
  CHECK(b.next_u64() == (high << 32 | low));
}

TEST_CASE("RandomGenerator: a saved state goes on where it stood, at any phase of a block") {
  for (int drawn = 0; drawn < 9; ++drawn) {
    RandomGenerator rng(42);
    for (int i = 0; i < drawn; ++i) (void)rng.next_u32();
    const RandomGenerator::State state = rng.state();
    CHECK(state.position == static_cast<std::uint64_t>(drawn));
    std::vector<std::uint32_t> expected;
    for (int i = 0; i < 10; ++i) expected.push_back(rng.next_u32());

    RandomGenerator other(7);
    (void)other.next_u32();  // a cached block of another seed must not survive
    other.set_state(state);
    CHECK(other.state() == state);
    for (const std::uint32_t word : expected) CHECK(other.next_u32() == word);
  }
}

TEST_CASE("RandomGenerator: a state beyond 2^34 words uses the high counter word") {
  RandomGenerator rng(9);
  rng.set_state({9, (std::uint64_t{1} << 34) + 2});
  CHECK(rng.next_u32() == detail::Philox4x32::generate({0, 1, 0, 0}, {9, 0})[2]);
}

TEST_CASE("RandomGenerator: copies go separate ways with equal numbers") {
  RandomGenerator a(5);
  (void)a.next_u32();
  RandomGenerator b = a;
  CHECK(a.next_u64() == b.next_u64());
  (void)a.next_u32();
  CHECK_FALSE(a.state() == b.state());
}

TEST_CASE("RandomGenerator: uniform covers [0, 1) evenly") {
  RandomGenerator rng(11);
  constexpr int n = 200000;
  double sum = 0, squares = 0, least = 1, most = 0;
  std::array<int, 10> bins{};
  for (int i = 0; i < n; ++i) {
    const double u = rng.uniform();
    sum += u;
    squares += u * u;
    least = std::min(least, u);
    most = std::max(most, u);
    ++bins[static_cast<std::size_t>(u * 10)];
  }
  CHECK(least >= 0.0);
  CHECK(most < 1.0);
  CHECK(least < 1e-4);
  CHECK(most > 1 - 1e-4);
  CHECK(std::abs(sum / n - 0.5) < 0.003);
  CHECK(std::abs(squares / n - 1.0 / 3) < 0.003);
  double chi_squared = 0;
  for (const int count : bins) chi_squared += (count - n / 10.0) * (count - n / 10.0) / (n / 10.0);
  CHECK(chi_squared < 27.9);  // 9 degrees of freedom: exceeded by chance once in a thousand seeds
}

TEST_CASE("RandomGenerator: normal has mean 0, variance 1, the tails and the symmetry of a normal") {
  RandomGenerator rng(12);
  constexpr int n = 200000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  int within1 = 0, beyond3 = 0;
  for (int i = 0; i < n; ++i) {
    const double x = rng.normal();
    REQUIRE(std::isfinite(x));
    m1 += x;
    m2 += x * x;
    m3 += x * x * x;
    m4 += x * x * x * x;
    within1 += std::abs(x) < 1;
    beyond3 += std::abs(x) > 3;
  }
  CHECK(std::abs(m1 / n) < 0.01);
  CHECK(std::abs(m2 / n - 1) < 0.015);
  CHECK(std::abs(m3 / n) < 0.04);
  CHECK(std::abs(m4 / n - 3) < 0.12);
  CHECK(std::abs(within1 / static_cast<double>(n) - 0.682689) < 0.005);
  CHECK(std::abs(beyond3 / static_cast<double>(n) - 0.0027) < 0.0006);
}

TEST_CASE("RandomGenerator: uniform_int stays in range and has no bias") {
  RandomGenerator rng(13);
  constexpr int n = 90000;
  std::array<int, 3> counts{};
  for (int i = 0; i < n; ++i) ++counts[static_cast<std::size_t>(rng.uniform_int(3))];
  for (const int count : counts) CHECK(std::abs(count - n / 3) < 600);
  for (int i = 0; i < 100; ++i) CHECK(rng.uniform_int(1) == 0);

  // With bound 3 * 2^61, plain x % bound would give numbers below 2^62 twice as often as those above.
  const index_t bound = index_t{3} << 61;
  int low = 0;
  constexpr int draws = 30000;
  for (int i = 0; i < draws; ++i) {
    const index_t x = rng.uniform_int(bound);
    REQUIRE(x >= 0);
    REQUIRE(x < bound);
    low += x < (index_t{1} << 61);
  }
  CHECK(std::abs(low / static_cast<double>(draws) - 1.0 / 3) < 0.012);
}

TEST_CASE("RandomGenerator: uniform_int refuses bounds below 1") {
  RandomGenerator rng(1);
  CHECK(message_of<ValueError>([&] { (void)rng.uniform_int(0); }) ==
        "[random] uniform_int needs a positive bound, got 0");
  CHECK_THROWS_AS((void)rng.uniform_int(-5), ValueError);
}

TEST_CASE("RandomGenerator: shuffle permutes, and every order is about equally likely") {
  RandomGenerator rng(14);
  std::array<int, 6> counts{};
  for (int round = 0; round < 12000; ++round) {
    std::vector<int> v{0, 1, 2};
    rng.shuffle(std::span<int>(v));
    std::vector<int> sorted = v;
    std::sort(sorted.begin(), sorted.end());
    REQUIRE(sorted == std::vector<int>{0, 1, 2});
    ++counts[static_cast<std::size_t>(v[0] * 2 + (v[1] > v[2] ? 1 : 0))];
  }
  for (const int count : counts) CHECK(std::abs(count - 2000) < 190);
  std::vector<int> none;
  const auto before = rng.state();
  rng.shuffle(std::span<int>(none));
  CHECK(rng.state() == before);
}

TEST_CASE("RandomGenerator: filling gives the same numbers as drawing one by one") {
  RandomGenerator a(15), b(15);
  std::vector<float> filled(7);
  a.fill_normal(filled.data(), 7, 2.0, 0.5);
  for (const float x : filled) CHECK(x == static_cast<float>(2.0 + 0.5 * b.normal()));
  std::vector<double> uniform(1000);
  a.fill_uniform(uniform.data(), 1000, -3.0, -1.0);
  for (const double x : uniform) {
    CHECK(x >= -3.0);
    CHECK(x < -1.0);
  }
  CHECK(a.state().position == 7 * 4 + 1000 * 2);
}

TEST_CASE("RandomGenerator: different seeds give different streams") {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) seen.insert(RandomGenerator(seed).next_u64());
  CHECK(seen.size() == 1000);
}

TEST_CASE("an idle generator leaves the memory that it should fill as it is") {
  RandomGenerator rng = RandomGenerator::idle();
  std::vector<float> numbers = {1, 2, 3};
  rng.fill_uniform(numbers.data(), 3, -1, 1);
  rng.fill_normal(numbers.data(), 3, 0, 1);
  CHECK(numbers == std::vector<float>{1, 2, 3});
}
