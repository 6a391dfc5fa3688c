#include "eigenformer/kernels/normalization/softmax.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

std::vector<double> reference_softmax(const std::vector<double>& x, index_t rows, index_t n) {
  std::vector<double> y(x.size());
  for (index_t r = 0; r < rows; ++r) {
    const double* row = x.data() + r * n;
    const double largest = *std::max_element(row, row + n);
    double sum = 0;
    for (index_t i = 0; i < n; ++i) sum += std::exp(row[i] - largest);
    for (index_t i = 0; i < n; ++i) y[static_cast<std::size_t>(r * n + i)] = std::exp(row[i] - largest) / sum;
  }
  return y;
}

template <class T>
std::vector<double> wide(const std::vector<T>& x) {
  return {x.begin(), x.end()};
}

TEST_CASE_TEMPLATE("softmax and its gradient equal a plain loop", T, float, double) {
  for_each_isa([&] {
    for (const index_t n : edge_sizes) {
      CAPTURE(n);
      const index_t rows = 5;
      const auto x = random_values<T>(rows * n, 1, -9, 9), dy = random_values<T>(rows * n, 2);
      std::vector<T> y(x.size());
      detail::kernels::softmax(x.data(), y.data(), rows, n);
      const auto expected = reference_softmax(wide(x), rows, n);
      CHECK(worst_error(y, expected) < tolerance<T>);

      auto log_y = x;
      detail::kernels::log_softmax(log_y.data(), log_y.data(), rows, n);
      std::vector<double> log_expected;
      for (const double p : expected) log_expected.push_back(std::log(p));
      CHECK(worst_error(log_y, log_expected) < tolerance<T>);

      for (const T beta : {T(0), T(1)}) {
        std::vector<double> dx(x.size()), dx_log(x.size());
        for (index_t r = 0; r < rows; ++r) {
          double dot = 0, sum = 0;
          for (index_t i = r * n; i < (r + 1) * n; ++i) {
            const auto at = static_cast<std::size_t>(i);
            dot += expected[at] * static_cast<double>(dy[at]);
            sum += static_cast<double>(dy[at]);
          }
          for (index_t i = r * n; i < (r + 1) * n; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const double before = static_cast<double>(beta) * 0.5;
            dx[at] = before + expected[at] * (static_cast<double>(dy[at]) - dot);
            dx_log[at] = before + static_cast<double>(dy[at]) - expected[at] * sum;
          }
        }
        // beta 0 must not read what it overwrites.
        const T old = beta == T(0) ? std::numeric_limits<T>::quiet_NaN() : T(0.5);
        std::vector<T> result(x.size(), old), result_log(x.size(), old);
        detail::kernels::softmax_backward(y.data(), dy.data(), result.data(), beta, rows, n);
        detail::kernels::log_softmax_backward(log_y.data(), dy.data(), result_log.data(), beta, rows, n);
        CHECK(worst_error(result, dx) < tolerance<T>);
        CHECK(worst_error(result_log, dx_log) < 10 * tolerance<T>);
      }
    }
  });
}

TEST_CASE_TEMPLATE("softmax of masked entries is exactly zero, and of a masked row zeros", T, float, double) {
  const T minus = -std::numeric_limits<T>::infinity();
  for_each_isa([&] {
    const std::vector<T> x = {minus, 1, 1, minus, minus, minus, minus, minus};
    std::vector<T> y(x.size());
    detail::kernels::softmax(x.data(), y.data(), 2, 4);
    CHECK(y == std::vector<T>{0, T(0.5), T(0.5), 0, 0, 0, 0, 0});
    detail::kernels::log_softmax(x.data(), y.data(), 2, 4);
    CHECK(y[0] == minus);
    CHECK(static_cast<double>(y[1]) == doctest::Approx(-std::log(2.0)));
    CHECK(y[5] == minus);
    // Gradients stay finite there.
    const std::vector<T> dy(8, T(1));
    std::vector<T> dx(8);
    detail::kernels::log_softmax_backward(y.data(), dy.data(), dx.data(), T(0), 2, 4);
    for (const T g : dx) CHECK(std::isfinite(g));
  });
}

TEST_CASE_TEMPLATE("softmax does not hide NaN and survives large logits", T, float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN(), minus = -std::numeric_limits<T>::infinity();
  for_each_isa([&] {
    const std::vector<T> x = {T(1e30), T(1e30), T(-1e30)};
    std::vector<T> y(3);
    detail::kernels::softmax(x.data(), y.data(), 1, 3);
    CHECK(y == std::vector<T>{T(0.5), T(0.5), T(0)});
    // As in PyTorch, one NaN makes its row NaN, wherever it stands and whatever stands beside it.
    for (const index_t n : {1, 2, 3, 37}) {
      for (const T other : {T(1), minus, -minus, nan}) {
        for (index_t at = 0; at < n; ++at) {
          std::vector<T> row(static_cast<std::size_t>(n), other), result(row.size());
          row[static_cast<std::size_t>(at)] = nan;
          detail::kernels::softmax(row.data(), result.data(), 1, n);
          for (const T p : result) CHECK(std::isnan(p));
          detail::kernels::softmax(row.data(), row.data(), 1, n);
          for (const T p : row) CHECK(std::isnan(p));
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("log_softmax does not hide NaN beside nothing or -inf", T, float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN(), minus = -std::numeric_limits<T>::infinity();
  for_each_isa([&] {
    const std::vector<T> x = {nan, nan, nan, nan, minus, minus, 1, nan, 2, minus, minus, minus};
    std::vector<T> y(x.size());
    detail::kernels::log_softmax(x.data(), y.data(), 4, 3);
    for (std::size_t i = 0; i < 9; ++i) CHECK(std::isnan(y[i]));
    for (std::size_t i = 9; i < 12; ++i) CHECK(y[i] == minus);
  });
}

TEST_CASE_TEMPLATE("softmax of a row is the same alone and in any batch, on any number of threads", T, float,
                   double) {
  for_each_isa([&] {
    const index_t rows = 700, n = 67;
    const auto x = random_values<T>(rows * n, 3, -9, 9);
    std::vector<T> one(x.size()), many(x.size()), alone(x.size());
    {
      const ThreadScope threads(1);
      detail::kernels::softmax(x.data(), one.data(), rows, n);
    }
    {
      const ThreadScope threads(3);
      detail::kernels::softmax(x.data(), many.data(), rows, n);
    }
    for (index_t r = 0; r < rows; ++r) detail::kernels::softmax(x.data() + r * n, alone.data() + r * n, 1, n);
    CHECK(one == many);
    CHECK(one == alone);
  });
}

}  // namespace
