#include "eigenformer/core/tensor/creation.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"

namespace ef = eigenformer;
using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
using eigenformer::testing::values;

using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;

TEST_CASE("eye and tri: diagonals of every sign") {
  CHECK(values(ef::eye(2)) == Floats{1, 0, 0, 1});
  CHECK(values(ef::eye<std::int64_t>(2, 3, 1)) == Ints{0, 1, 0, 0, 0, 1});
  CHECK(values(ef::eye(3, 2, -1)) == Floats{0, 0, 1, 0, 0, 1});
  CHECK(values(ef::eye(2, 2, 5)) == Floats(4, 0));
  CHECK(ef::eye(0).shape() == Shape{0, 0});
  CHECK(values(ef::tri(2, 3)) == Floats{1, 0, 0, 1, 1, 0});
  CHECK(values(ef::tri<bool>(2, 3, 1)) == std::vector<bool>{true, true, false, true, true, true});
  CHECK(values(ef::tri(3, 2, -1)) == Floats{0, 0, 1, 0, 1, 1});
  CHECK_THROWS_AS((void)ef::eye(-1), ShapeError);
}

TEST_CASE("linspace: both ends are exact") {
  CHECK(values(ef::linspace(0, 1, 5)) == Floats{0, 0.25f, 0.5f, 0.75f, 1});
  CHECK(values(ef::linspace<double>(2, -1, 4)) == std::vector<double>{2, 1, 0, -1});
  CHECK(values(ef::linspace(3, 4, 1)) == Floats{3});
  CHECK(ef::linspace(3, 4, 0).shape() == Shape{0});
  const auto x = ef::linspace<double>(0.1, 0.7, 100);
  CHECK(x(0) == 0.1);
  CHECK(x(99) == 0.7);
}

TEST_CASE("arange: integers are exact, the count is rounded up") {
  CHECK(values(ef::arange(1, 8, 2)) == Floats{1, 3, 5, 7});
  CHECK(values(ef::arange(1, 4)) == Floats{1, 2, 3});
  CHECK(values(ef::arange<double>(0, 1, 0.25)) == std::vector<double>{0, 0.25, 0.5, 0.75});
  CHECK(values(ef::arange(5, 0, -2)) == Floats{5, 3, 1});
  CHECK(values(ef::arange(3)) == Floats{0, 1, 2});
  CHECK(ef::arange(3, 3).numel() == 0);
  CHECK(ef::arange(3, 1).numel() == 0);
  const std::int64_t big = (std::int64_t{1} << 55) + 1;
  CHECK(values(ef::arange<std::int64_t>(big, big + 64, std::int64_t{40})) == Ints{big, big + 40});
  CHECK(contains(message_of<ValueError>([] { (void)ef::arange(0, 1, 0); }), "step"));
  CHECK_THROWS_AS((void)ef::arange(0, std::numeric_limits<double>::infinity()), ValueError);
  CHECK_THROWS_AS((void)ef::arange(0, std::numeric_limits<double>::quiet_NaN()), ValueError);
}

TEST_CASE("full_like, zeros_like, ones_like: shape and type of the other") {
  const Tensor<std::int64_t> x(Shape{2, 3});
  CHECK(ef::zeros_like(x).shape() == Shape{2, 3});
  CHECK(values(ef::zeros_like(x)) == Ints(6, 0));
  CHECK(values(ef::ones_like(x)) == Ints(6, 1));
  CHECK(values(ef::full_like(x, 4)) == Ints(6, 4));
}

TEST_CASE("one_hot: a row for each index") {
  const auto indices = Tensor<std::int64_t>::from({2, 2}, {0, 2, 1, 0});
  const auto t = ef::one_hot(indices);
  CHECK(t.shape() == Shape{2, 2, 3});
  CHECK(values(t) == Floats{1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0});
  CHECK(values(ef::one_hot<bool>(Tensor<std::int32_t>::from({1}, {1}), 3)) ==
        std::vector<bool>{false, true, false});
  CHECK(message_of<IndexError>([&] { (void)ef::one_hot(indices, 2); }) ==
        "[one_hot] index 2 is outside 0 .. 1");
  CHECK_THROWS_AS((void)ef::one_hot(Tensor<std::int32_t>::from({1}, {-1})), IndexError);
}

TEST_CASE("meshgrid: each axis along its dimension") {
  const auto grid = ef::meshgrid<float>({ef::arange(0, 2), ef::arange(5, 8)});
  REQUIRE(grid.size() == 2);
  CHECK(grid[0].shape() == Shape{2, 3});
  CHECK(values(grid[0]) == Floats{0, 0, 0, 1, 1, 1});
  CHECK(values(grid[1]) == Floats{5, 6, 7, 5, 6, 7});
  CHECK_THROWS_AS((void)ef::meshgrid<float>({ef::eye(2)}), ShapeError);
}

TEST_CASE("uniform and normal: the generator's numbers in order, of the moments that they should have") {
  RandomGenerator a(5), b(5);
  const auto u = ef::uniform<double>({100, 40}, a, -1, 3);
  for (const double x : u.span()) CHECK(x == b.uniform(-1, 3));
  const auto z = ef::normal<double>({100, 40}, a, 2, 0.5);
  for (const double x : z.span()) CHECK(x == 2 + 0.5 * b.normal());
  CHECK(a.state() == b.state());
  double sum = 0;
  for (const double x : z.span()) sum += x;
  CHECK(sum / 4000 == doctest::Approx(2).epsilon(0.02));
}

TEST_CASE("truncated_normal: within its bounds, with the truncated distribution's mean") {
  RandomGenerator rng(7);
  // The mean of a standard normal number between a and b is (pdf(a) - pdf(b)) / (cdf(b) - cdf(a)).
  const auto mean_of = [&](double low, double high) {
    const auto x = ef::truncated_normal<double>({20000}, rng, 0, 1, low, high);
    double sum = 0;
    for (const double v : x.span()) {
      CHECK_UNARY(v >= low && v <= high);
      sum += v;
    }
    return sum / 20000;
  };
  const auto expected = [](double a, double b) {
    const auto pdf = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * 3.141592653589793); };
    const auto cdf = [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; };
    return (pdf(a) - pdf(b)) / (cdf(-a) - cdf(-b));
  };
  CHECK(mean_of(-2, 2) == doctest::Approx(0).scale(1).epsilon(0.02));
  CHECK(mean_of(0.5, 1.5) == doctest::Approx(expected(0.5, 1.5)).epsilon(0.01));
  CHECK(mean_of(-1, 3) == doctest::Approx(expected(-1, 3)).epsilon(0.05));
  // Far in the tail, where the distribution function is 1 in double: about 10 + 1 / 10.
  CHECK(mean_of(10, 100) == doctest::Approx(10.0981).epsilon(0.001));
  CHECK(ef::truncated_normal({3}, rng, 0, 1, 5, 5)(1) == 5);
  CHECK_THROWS_AS((void)ef::truncated_normal({3}, rng, 0, 1, 2, 1), ValueError);
  CHECK_THROWS_AS((void)ef::truncated_normal({3}, rng, 0, 0), ValueError);
}

TEST_CASE("bernoulli, randint, permutation") {
  RandomGenerator rng(11);
  const auto b = ef::bernoulli({100, 100}, rng, 0.3);
  CHECK(std::count(b.span().begin(), b.span().end(), true) == doctest::Approx(3000).epsilon(0.05));
  CHECK(values(ef::bernoulli({3}, rng, 0)) == std::vector<bool>(3, false));
  CHECK(values(ef::bernoulli({3}, rng, 1)) == std::vector<bool>(3, true));
  CHECK_THROWS_AS((void)ef::bernoulli({3}, rng, 1.5), ValueError);
  const auto r = ef::randint(-2, 3, {1000}, rng);
  CHECK(std::set<std::int64_t>(r.span().begin(), r.span().end()) == std::set<std::int64_t>{-2, -1, 0, 1, 2});
  CHECK_THROWS_AS((void)ef::randint(3, 3, {1}, rng), ValueError);
  auto p = ef::permutation<std::int32_t>(50, rng);
  CHECK_FALSE(std::is_sorted(p.span().begin(), p.span().end()));
  std::sort(p.span().begin(), p.span().end());
  CHECK(values(p) == values(Tensor<std::int32_t>::arange(50)));
}

TEST_CASE("multinomial: in proportion to the weights, with and without replacement") {
  RandomGenerator rng(13);
  const auto weights = Tensor<float>::from({2, 4}, {1, 0, 3, 0, 0, 1, 0, 0});
  const auto drawn = ef::multinomial(weights, 8000, rng, true);
  CHECK(drawn.shape() == Shape{2, 8000});
  index_t counts[4] = {};
  for (index_t i = 0; i < 8000; ++i) ++counts[drawn(0, i)];
  CHECK(counts[1] + counts[3] == 0);
  CHECK(counts[2] == doctest::Approx(6000).epsilon(0.03));
  for (index_t i = 0; i < 8000; ++i) CHECK_UNARY(drawn(1, i) == 1);
  auto both = ef::multinomial(Tensor<double>::from({4}, {1, 0, 3, 0}), 2, rng);
  std::sort(both.span().begin(), both.span().end());
  CHECK(values(both) == Ints{0, 2});
  // The first of two without replacement is index 2 in three of four draws.
  index_t first = 0;
  for (int i = 0; i < 2000; ++i)
    first += ef::multinomial(Tensor<double>::from({4}, {1, 0, 3, 0}), 2, rng)(0) == 2;
  CHECK(first == doctest::Approx(1500).epsilon(0.05));
  CHECK(contains(message_of<ValueError>([&] { (void)ef::multinomial(weights, 2, rng); }), "cannot be drawn"));
  CHECK_THROWS_AS((void)ef::multinomial(Tensor<float>::zeros({2}), 1, rng, true), ValueError);
  CHECK_THROWS_AS((void)ef::multinomial(Tensor<float>::from({1}, {-1}), 1, rng), ValueError);
  CHECK_THROWS_AS((void)ef::multinomial(Tensor<float>::zeros({}), 1, rng), ShapeError);
}
