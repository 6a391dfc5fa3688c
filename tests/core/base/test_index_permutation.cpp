#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "eigenformer/core/base/random.hpp"

using namespace eigenformer;

TEST_CASE("index permutation: every number comes once, whatever their number") {
  for (const index_t n : {1, 2, 3, 4, 5, 7, 8, 9, 64, 65, 1000, 4097}) {
    RandomGenerator rng(3);
    const detail::IndexPermutation permutation(n, rng);
    std::vector<int> seen(static_cast<std::size_t>(n));
    for (index_t i = 0; i < n; ++i) {
      const index_t at = permutation(i);
      REQUIRE(at >= 0);
      REQUIRE(at < n);
      ++seen[static_cast<std::size_t>(at)];
    }
    CHECK(seen == std::vector<int>(static_cast<std::size_t>(n), 1));
  }
  RandomGenerator rng(3);
  CHECK_THROWS_AS(detail::IndexPermutation(0, rng), ValueError);
  const detail::IndexPermutation five(5, rng);
  for (const index_t place : {index_t{-1}, index_t{5}, index_t{8}})
    CHECK_THROWS_WITH_AS((void)five(place), doctest::Contains("is outside a permutation of 5 numbers"),
                         IndexError);
}

TEST_CASE("index permutation: places are spread evenly, and keys give orders of their own") {
  constexpr index_t n = 10'000, cells = 10;
  RandomGenerator rng(1);
  const detail::IndexPermutation one(n, rng), other(n, rng);
  RandomGenerator again(1);
  const detail::IndexPermutation same(n, again);
  index_t equal = 0;
  std::vector<double> count(cells * cells);  // of pairs of places, by tenths
  for (index_t i = 0; i < n; ++i) {
    CHECK(one(i) == same(i));
    equal += one(i) == other(i) ? 1 : 0;
    count[static_cast<std::size_t>(i * cells / n * cells + one(i) * cells / n)] += 1;
  }
  CHECK(equal < 10);  // 1 is expected
  double chi = 0;
  for (const double c : count) chi += (c - 100) * (c - 100) / 100;
  CHECK(chi < 81 + 5 * std::sqrt(2 * 81.0));  // 81 degrees of freedom
}
