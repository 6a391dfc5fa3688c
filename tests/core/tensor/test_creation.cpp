#include "eigenformer/core/tensor/creation.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
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
  CHECK(values(ef::tri(2, 2, std::numeric_limits<index_t>::max())) == Floats(4, 1));
  CHECK(values(ef::tri(2, 2, std::numeric_limits<index_t>::min())) == Floats(4, 0));
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
