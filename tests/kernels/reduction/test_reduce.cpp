#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "eigenformer/kernels/elementwise/elementwise.hpp"
#include "eigenformer/kernels/reduction/reduce.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

/// The output that element `flat` of `shape` belongs to when the dimensions of `kept` that are 1 are reduced.
std::size_t target(index_t flat, const Shape& shape, const Shape& kept) {
  index_t at = 0, step = 1;
  for (index_t i = 1; i <= shape.rank(); ++i) {
    const index_t d = flat % shape[-i];
    flat /= shape[-i];
    if (kept[-i] != 1) at += d * step;
    step *= kept[-i];
  }
  return static_cast<std::size_t>(at);
}

const std::vector<Shape> shapes = {
    Shape{},         Shape{7},           Shape{5, 19},          Shape{1, 35, 1},
    Shape{2, 5, 12}, Shape{3, 4, 5, 65}, Shape{2, 3, 1, 4, 17}, Shape{2, 3, 2, 2, 3, 5},
    Shape{131, 67},  Shape{300, 2},      Shape{20000},          Shape{40, 1000}};

/// Every set of axes of a shape.
std::vector<std::vector<index_t>> axis_sets(const Shape& shape) {
  std::vector<std::vector<index_t>> sets;
  for (unsigned bits = 0; bits < 1u << shape.rank(); ++bits) {
    std::vector<index_t> axes;
    for (index_t d = 0; d < shape.rank(); ++d) {
      if (bits >> d & 1u) axes.push_back(d % 2 == 0 ? d : d - shape.rank());
    }
    sets.push_back(axes);
  }
  return sets;
}

TEST_CASE_TEMPLATE("sums and maxima over all sets of axes equal a plain loop", T, float, double) {
  for_each_isa([&] {
    for (const Shape& shape : shapes) {
      const auto x = random_values<T>(shape.numel(), 1);
      for (const auto& axes : axis_sets(shape)) {
        const Shape kept = detail::kernels::reduced_shape(shape, axes, true);
        INFO(shape.str(), " to ", kept.str());
        const auto outputs = static_cast<std::size_t>(kept.numel());
        std::vector<double> sum(outputs), added(outputs), largest(outputs, -1e9);
        for (index_t i = 0; i < shape.numel(); ++i) {
          const auto value = static_cast<double>(x[static_cast<std::size_t>(i)]);
          sum[target(i, shape, kept)] += value * 0.5;
          largest[target(i, shape, kept)] = std::max(largest[target(i, shape, kept)], value);
        }
        for (std::size_t o = 0; o < outputs; ++o) added[o] = sum[o] + 0.25;
        std::vector<T> y(outputs, std::numeric_limits<T>::quiet_NaN()), z(outputs, T(0.25)), m(outputs);
        detail::kernels::reduce_sum(x.data(), shape, axes, y.data(), T(0.5), T(0));
        detail::kernels::reduce_sum(x.data(), shape, axes, z.data(), T(0.5), T(1));
        detail::kernels::reduce_max(x.data(), shape, axes, m.data());
        CHECK(worst_error(y, sum) < 20 * tolerance<T>);
        CHECK(worst_error(z, added) < 20 * tolerance<T>);
        CHECK(worst_error(m, largest) == 0);

        // The gradient of the maximum goes to where it stands; every value is another here.
        const auto dy = random_values<T>(kept.numel(), 2);
        std::vector<T> dx(x.size(), std::numeric_limits<T>::quiet_NaN());
        detail::kernels::reduce_max_backward(x.data(), shape, axes, m.data(), dy.data(), dx.data(), T(0));
        double given = 0, wanted = 0;
        index_t stray = 0;
        for (const T g : dy) wanted += static_cast<double>(g);
        for (index_t i = 0; i < shape.numel(); ++i) {
          const auto at = static_cast<std::size_t>(i);
          if (x[at] != m[target(i, shape, kept)] && dx[at] != T(0)) ++stray;
          given += static_cast<double>(dx[at]);
        }
        CHECK(stray == 0);
        CHECK(given == doctest::Approx(wanted).epsilon(1e-4));
      }
    }
  });
}

TEST_CASE_TEMPLATE("minima, products and sums of squares over all sets of axes equal a plain loop", T, float,
                   double) {
  for_each_isa([&] {
    for (const Shape& shape : shapes) {
      auto x = random_values<T>(shape.numel(), 1);
      for (T& v : x) v = T(1) + v / 100;  // so that products stay near 1
      for (const auto& axes : axis_sets(shape)) {
        const Shape kept = detail::kernels::reduced_shape(shape, axes, true);
        INFO(shape.str(), " to ", kept.str());
        const auto outputs = static_cast<std::size_t>(kept.numel());
        std::vector<double> smallest(outputs, 1e9), product(outputs, 1), squares(outputs);
        for (index_t i = 0; i < shape.numel(); ++i) {
          const auto value = static_cast<double>(x[static_cast<std::size_t>(i)]);
          const std::size_t o = target(i, shape, kept);
          smallest[o] = std::min(smallest[o], value);
          product[o] *= value;
          squares[o] += value * value;
        }
        std::vector<T> m(outputs), p(outputs), s(outputs);
        detail::kernels::reduce_min(x.data(), shape, axes, m.data());
        detail::kernels::reduce_prod(x.data(), shape, axes, p.data());
        detail::kernels::reduce_square_sum(x.data(), shape, axes, s.data());
        CHECK(worst_error(m, smallest) == 0);
        CHECK(worst_error(p, product) < (sizeof(T) == 4 ? 1e-3 : 1e-11));
        CHECK(worst_error(s, squares) < 20 * tolerance<T>);
      }
    }
    std::vector<T> all = random_values<T>(40000, 2);
    all[17000] = std::numeric_limits<T>::quiet_NaN();
    T y = 0;
    detail::kernels::reduce_min(all.data(), Shape{40000}, {}, &y);
    CHECK(std::isnan(y));
  });
  std::vector<T> y(3, T(9));
  const std::vector<index_t> axes = {0};
  detail::kernels::reduce_min<T>(nullptr, Shape{0, 3}, axes, y.data());
  CHECK(y[1] == std::numeric_limits<T>::infinity());
  detail::kernels::reduce_prod<T>(nullptr, Shape{0, 3}, axes, y.data());
  CHECK(y[1] == 1);
}

TEST_CASE("the maximum's gradient is shared among equals, and added") {
  const std::vector<double> x = {3, 1, 3, 2}, y = {3}, dy = {1};
  std::vector<double> dx = {1, 1, 1, 1};
  detail::kernels::reduce_max_backward<double>(x.data(), Shape{4}, {}, y.data(), dy.data(), dx.data(), 1.0);
  CHECK(dx == std::vector<double>{1.5, 1, 1.5, 1});
}

TEST_CASE_TEMPLATE("the maximum of what holds a NaN is NaN, wherever it stands", T, float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for_each_isa([&] {
    for (const Shape& shape : {Shape{3, 37}, Shape{37, 3}, Shape{1, 300}, Shape{150, 70}}) {
      for (const index_t axis : {0, 1}) {
        const index_t kept = shape[1 - axis], n = shape[axis];
        for (index_t at = 0; at<n; at += n> 40 ? 29 : 1) {
          auto x = random_values<T>(shape.numel(), 1);
          const auto entry = [&](index_t k, index_t i) {
            return static_cast<std::size_t>(axis == 1 ? k * n + i : i * kept + k);
          };
          x[entry(kept - 1, at)] = nan;
          const std::vector<index_t> axes = {axis};
          std::vector<T> y(static_cast<std::size_t>(kept));
          detail::kernels::reduce_max(x.data(), shape, axes, y.data());
          for (index_t k = 0; k < kept; ++k) {
            T largest = x[entry(k, 0)];
            for (index_t i = 0; i < n; ++i) largest = std::max(largest, x[entry(k, i)]);
            if (k == kept - 1) {
              CHECK(std::isnan(y[static_cast<std::size_t>(k)]));
            } else {
              CHECK(y[static_cast<std::size_t>(k)] == largest);
            }
          }
        }
      }
    }
    std::vector<T> all = random_values<T>(40000, 2);
    for (const std::size_t at : {std::size_t{0}, std::size_t{17000}, std::size_t{39999}}) {
      const T value = std::exchange(all[at], nan);
      T y = 0;
      detail::kernels::reduce_max(all.data(), Shape{40000}, {}, &y);
      CHECK(std::isnan(y));
      all[at] = value;
    }
  });
  const std::vector<T> x = {3, nan, 1, nan}, y = {nan}, dy = {1};
  std::vector<T> dx(4, T(9));
  detail::kernels::reduce_max_backward<T>(x.data(), Shape{4}, {}, y.data(), dy.data(), dx.data(), T(0));
  CHECK(dx == std::vector<T>{0, T(0.5), 0, T(0.5)});
}

TEST_CASE("sums over nothing are zero, maxima -inf") {
  std::vector<float> y(3, 9.0f);
  const std::vector<index_t> axes = {0};
  detail::kernels::reduce_sum<float>(nullptr, Shape{0, 3}, axes, y.data(), 1, 0);
  CHECK(y == std::vector<float>(3, 0.0f));
  detail::kernels::reduce_max<float>(nullptr, Shape{0, 3}, axes, y.data());
  CHECK(y[2] == -std::numeric_limits<float>::infinity());
}

TEST_CASE("reduced shapes, and axes that do not exist") {
  const std::vector<index_t> last = {-1}, twice = {1, -2}, outside = {3};
  CHECK(detail::kernels::reduced_shape(Shape{2, 5, 12}, last, false) == Shape{2, 5});
  CHECK(detail::kernels::reduced_shape(Shape{2, 5, 12}, last, true) == Shape{2, 5, 1});
  CHECK(detail::kernels::reduced_shape(Shape{2, 5, 12}, {}, false) == Shape{});
  CHECK_THROWS_AS((void)detail::kernels::reduced_shape(Shape{2, 5, 12}, twice, false), ShapeError);
  CHECK_THROWS_WITH_AS((void)detail::kernels::reduced_shape(Shape{2, 5, 12}, outside, false),
                       "[reduce] axis 3 does not exist in shape (2, 5, 12)", IndexError);
}

TEST_CASE_TEMPLATE("reduce_to_shape undoes a broadcast", T, float, double) {
  for_each_isa([&] {
    const Shape from{2, 5, 3, 12};
    const auto g = random_values<T>(from.numel(), 1);
    for (const Shape& to : {Shape{}, Shape{1}, Shape{12}, Shape{3, 12}, Shape{5, 1, 12}, Shape{2, 1, 3, 1},
                            Shape{5, 3, 1}, Shape{1, 1, 1, 1}, Shape{2, 5, 3, 12}}) {
      INFO(to.str());
      std::vector<index_t> padded(static_cast<std::size_t>(from.rank() - to.rank()), 1);
      padded.insert(padded.end(), to.begin(), to.end());
      const Shape aligned{std::span<const index_t>(padded)};
      std::vector<double> expected(static_cast<std::size_t>(to.numel()), 0.5);
      for (index_t i = 0; i < from.numel(); ++i) {
        expected[target(i, from, aligned)] += 2 * static_cast<double>(g[static_cast<std::size_t>(i)]);
      }
      std::vector<T> out(expected.size(), T(0.5));
      detail::kernels::reduce_to_shape(g.data(), from, out.data(), to, T(2), T(1));
      CHECK(worst_error(out, expected) < 20 * tolerance<T>);
    }
    T unused[12];
    CHECK_THROWS_AS(detail::kernels::reduce_to_shape(g.data(), from, unused, Shape{5}, T(1), T(0)),
                    ShapeError);
  });
}

TEST_CASE_TEMPLATE("long sums stay accurate and do not depend on the threads", T, float, double) {
  for_each_isa([&] {
    const index_t rows = 30011, n = 35;
    const auto x = random_values<T>(rows * n, 1, 0, 1);
    double whole = 0;
    std::vector<double> columns(35);
    for (index_t i = 0; i < rows * n; ++i) {
      whole += static_cast<double>(x[static_cast<std::size_t>(i)]);
      columns[static_cast<std::size_t>(i % n)] += static_cast<double>(x[static_cast<std::size_t>(i)]);
    }
    std::vector<T> first, sums;
    for (const int count : {1, 3}) {
      const ThreadScope threads(count);
      std::vector<T> y(36);
      detail::kernels::sum_rows(x.data(), y.data(), T(0), rows, n);
      detail::kernels::reduce_sum<T>(x.data(), Shape{rows, n}, {}, y.data() + 35, T(1), T(0));
      (first.empty() ? first : sums) = y;
    }
    CHECK(first == sums);
    columns.push_back(whole);
    CHECK(worst_error(sums, columns) < (sizeof(T) == 4 ? 1e-6 : 1e-13));
  });
}

TEST_CASE_TEMPLATE("argmax is the first of the largest", T, float, double) {
  for_each_isa([&] {
    for (const index_t n : {1, 2, 15, 17, 255, 256, 257, 1000}) {
      const auto x = random_values<T>(4 * n, 1);
      std::vector<std::int32_t> out(4);
      detail::kernels::argmax(x.data(), out.data(), 4, n);
      for (index_t r = 0; r < 4; ++r) {
        const auto begin = x.begin() + r * n;
        CHECK(out[static_cast<std::size_t>(r)] == std::max_element(begin, begin + n) - begin);
      }
    }
    const T minus = -std::numeric_limits<T>::infinity();
    const std::vector<T> ties = {1, 5, 5, 2, minus, minus, minus, minus, minus, minus, 0, minus};
    std::vector<std::int32_t> out(3);
    detail::kernels::argmax(ties.data(), out.data(), 3, 4);
    CHECK(out == std::vector<std::int32_t>{1, 0, 2});
  });
}

TEST_CASE_TEMPLATE("argmax is the first NaN where there is one", T, float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  for_each_isa([&] {
    for (const index_t n : {1, 2, 15, 17, 256, 257, 1000}) {
      for (const index_t at : {index_t{0}, n / 2, n - 1}) {
        auto x = random_values<T>(2 * n, 1);
        x[static_cast<std::size_t>(n)] = inf;
        x[static_cast<std::size_t>(n + at)] = nan;
        x.back() = nan;
        std::vector<std::int32_t> out(2);
        detail::kernels::argmax(x.data(), out.data(), 2, n);
        CHECK(out[0] == std::max_element(x.begin(), x.begin() + n) - x.begin());
        CHECK(out[1] == at);
      }
    }
  });
}

}  // namespace
