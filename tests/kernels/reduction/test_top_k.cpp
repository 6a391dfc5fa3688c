#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/kernels/reduction/top_k.hpp"
#include "eigenformer/kernels/simd/simd.hpp"
#include "isa.hpp"

using namespace eigenformer;

namespace {

template <class T>
void check_top_k(index_t rows, index_t n, index_t ld, index_t k, double tolerance) {
  RandomGenerator rng(static_cast<std::uint64_t>(n * 31 + k));
  std::vector<T> x(static_cast<std::size_t>(rows * ld), std::numeric_limits<T>::quiet_NaN());
  for (index_t r = 0; r < rows; ++r) {
    // Whole numbers, so that there are ties.
    for (index_t j = 0; j < n; ++j)
      x[static_cast<std::size_t>(r * ld + j)] = static_cast<T>(rng.uniform_int(9) - 4);
  }
  std::vector<T> values(static_cast<std::size_t>(rows * k));
  std::vector<std::int32_t> ids(values.size());
  std::vector<T> sums(static_cast<std::size_t>(rows));
  detail::kernels::top_k<T>(x.data(), ld, rows, n, k, values.data(), ids.data());
  detail::kernels::log_sum_exp<T>(x.data(), ld, rows, n, sums.data());
  std::vector<T> values_of_both(values.size()), sums_of_both(sums.size());
  std::vector<std::int32_t> ids_of_both(ids.size());
  detail::kernels::top_k<T>(x.data(), ld, rows, n, k, values_of_both.data(), ids_of_both.data(),
                            sums_of_both.data());
  CHECK(values_of_both == values);
  CHECK(ids_of_both == ids);
  CHECK(sums_of_both == sums);
  for (index_t r = 0; r < rows; ++r) {
    const T* row = x.data() + r * ld;
    double sum = 0;
    for (index_t j = 0; j < n; ++j) sum += std::exp(static_cast<double>(row[j]));
    std::vector<std::int32_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return row[a] > row[b]; });
    for (index_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(r * k + i);
      CHECK(ids[at] == order[static_cast<std::size_t>(i)]);
      CHECK(values[at] == row[ids[at]]);
    }
    CHECK(std::abs(static_cast<double>(sums[static_cast<std::size_t>(r)]) - std::log(sum)) < tolerance);
  }
}

}  // namespace

TEST_CASE("the k best entries and the logarithm of the sum, on every instruction set") {
  testing::for_each_isa([] {
    for (const index_t n : {1, 7, 15, 16, 17, 35, 300, 1200, 9000}) {
      for (const index_t k : {1, 3, 9, 40, 70}) {
        if (k > n) continue;
        check_top_k<float>(3, n, n + 2, k, 1e-5);
        check_top_k<double>(3, n, n + 2, k, 1e-12);
      }
    }
  });
}

TEST_CASE("entries that no group of the row hides are found wherever they stand") {
  testing::for_each_isa([] {
    constexpr index_t n = 2003, k = 5;
    for (index_t first = 0; first < n - k; first += 37) {
      std::vector<float> x(n, -1.0f), values(k), sums(1);
      for (index_t i = 0; i < k; ++i) x[static_cast<std::size_t>(first + i)] = static_cast<float>(i % 3);
      std::vector<std::int32_t> ids(k);
      const auto at = [&](index_t i) { return static_cast<std::int32_t>(first + i); };
      const std::vector<std::int32_t> expected{at(2), at(1), at(4), at(0), at(3)};
      detail::kernels::top_k<float>(x.data(), n, 1, n, k, values.data(), ids.data());
      CHECK(ids == expected);
      detail::kernels::top_k<float>(x.data(), n, 1, n, k, values.data(), ids.data(), sums.data());
      CHECK(ids == expected);
      CHECK(values == std::vector<float>{2, 1, 1, 0, 0});
    }
  });
}

TEST_CASE("top k refuses an impossible k and survives rows without numbers") {
  const std::vector<float> x(8, -std::numeric_limits<float>::infinity());
  std::vector<float> values(2);
  std::vector<std::int32_t> ids(2);
  CHECK_THROWS_AS(detail::kernels::top_k<float>(x.data(), 8, 1, 8, 0, values.data(), ids.data()), ValueError);
  CHECK_THROWS_AS(detail::kernels::top_k<float>(x.data(), 8, 1, 8, 9, values.data(), ids.data()), ValueError);
  detail::kernels::top_k<float>(x.data(), 8, 1, 8, 2, values.data(), ids.data());
  CHECK(ids == std::vector<std::int32_t>{0, 1});
  // Enough numbers for the k best, in one group of many.
  std::vector<float> sparse(2000, -std::numeric_limits<float>::infinity());
  sparse[1999] = 1;
  sparse[1998] = 2;
  detail::kernels::top_k<float>(sparse.data(), 2000, 1, 2000, 2, values.data(), ids.data());
  CHECK(ids == std::vector<std::int32_t>{1998, 1999});
}

TEST_CASE("the logarithm of the sum of NaN, of +inf and of nothing is NaN, and -inf counts nothing") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto sum = [](std::vector<float> x) {
    float y = 0;
    detail::kernels::log_sum_exp<float>(x.data(), 0, 1, static_cast<index_t>(x.size()), &y);
    return y;
  };
  for (const index_t n : {1, 5, 16, 64, 1000}) {
    for (const index_t at : {index_t{0}, n / 2, n - 1}) {
      for (const float bad : {nan, inf}) {
        std::vector<float> x(static_cast<std::size_t>(n), 0.5f);
        x[static_cast<std::size_t>(at)] = bad;
        CHECK(std::isnan(sum(x)));
      }
    }
    CHECK(std::isnan(sum(std::vector<float>(static_cast<std::size_t>(n), -inf))));
  }
  CHECK(sum({-inf, 1, -inf}) == 1.0f);
}
