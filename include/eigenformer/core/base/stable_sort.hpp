#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"

namespace eigenformer::detail {

/// The indices 0 .. n - 1 in the order of before(i, j), equal ones in their own order.
EIGENFORMER_FUNCTION std::vector<std::size_t> stable_order(
    std::size_t n, const std::function<bool(std::size_t, std::size_t)>& before);

#if EIGENFORMER_DEFINITIONS
EIGENFORMER_FUNCTION std::vector<std::size_t> stable_order(
    std::size_t n, const std::function<bool(std::size_t, std::size_t)>& before) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return before(i, j); });
  return order;
}
#endif

/// std::stable_sort, which is compiled once for all types: each of its instances is 10 kB of code.
template <class T, class Before>
void stable_sort(std::span<T> items, const Before& before) {
  const auto order =
      stable_order(items.size(), [&](std::size_t i, std::size_t j) { return before(items[i], items[j]); });
  std::vector<T> old(std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
  for (std::size_t k = 0; k < order.size(); ++k) items[k] = std::move(old[order[k]]);
}

}  // namespace eigenformer::detail
