#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/runtime/runtime.hpp"
#include "isa.hpp"

namespace eigenformer::testing {

/// Sizes around the widths of vectors and blocks: 1, b - 1, b, b + 1, 2 b + 3 for b = 16 and 64.
inline const std::vector<index_t> edge_sizes = {1, 3, 4, 5, 15, 16, 17, 35, 63, 64, 65, 131};

/// n numbers, uniform in [low, high).
template <class T>
std::vector<T> random_values(index_t n, std::uint64_t seed, double low = -2, double high = 2) {
  std::vector<T> v(static_cast<std::size_t>(n));
  RandomGenerator(seed).fill_uniform(v.data(), n, low, high);
  return v;
}

/// The largest |actual - expected| / max(1, |expected|); infinite where a size differs or but one of the two
/// is NaN.
template <class T, class U>
double worst_error(const std::vector<T>& actual, const std::vector<U>& expected) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const auto a = static_cast<double>(actual[i]), e = static_cast<double>(expected[i]);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    const double error = std::abs(a - e) / std::max(1.0, std::abs(e));
    if (!(error <= worst)) worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  return worst;
}

/// What rounding may do to a short computation in T.
template <class T>
constexpr double tolerance = sizeof(T) == 4 ? 3e-6 : 1e-14;

}  // namespace eigenformer::testing
