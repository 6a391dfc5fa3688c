#include "eigenformer/core/base/stable_sort.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/core/base/random.hpp"

using namespace eigenformer;

TEST_CASE("stable_sort: the order of std::stable_sort, with many ties, of a part, of types that only move") {
  RandomGenerator rng(7);
  const auto before = [](const auto& a, const auto& b) { return a.first > b.first; };
  for (const int n : {0, 1, 2, 17, 1000}) {
    CAPTURE(n);
    std::vector<std::pair<int, int>> items;
    for (int i = 0; i < n; ++i) items.emplace_back(static_cast<int>(rng.uniform_int(5)), i);
    auto expected = items;
    std::stable_sort(expected.begin(), expected.end(), before);
    auto sorted = items;
    detail::stable_sort(std::span(sorted), before);
    CHECK(sorted == expected);
    const auto half = items.size() / 2;
    expected = sorted = items;
    std::stable_sort(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(half), before);
    detail::stable_sort(std::span(sorted).first(half), before);
    CHECK(sorted == expected);
  }
  std::vector<std::unique_ptr<int>> owned;
  for (const int x : {3, 1, 2}) owned.push_back(std::make_unique<int>(x));
  detail::stable_sort(std::span(owned), [](const auto& a, const auto& b) { return *a < *b; });
  CHECK((*owned[0] == 1 && *owned[1] == 2 && *owned[2] == 3));
}
