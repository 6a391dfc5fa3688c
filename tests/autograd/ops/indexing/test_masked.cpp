#include "eigenformer/autograd/ops/indexing/index.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

namespace ef = eigenformer;
using namespace eigenformer;
using namespace eigenformer::testing;

using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

namespace {

const double nan_value = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("masked_fill: a number or a tensor of one element") {
  const Tensor<double> x = Tensor<double>::arange(6).reshape({2, 3});
  const auto mask = Tensor<bool>::from({3}, {true, false, true});
  CHECK(values(ef::masked_fill(x, mask, -1).value()) == Doubles{-1, 1, -1, -1, 4, -1});
  check_op([&](const Vars& v) { return ef::masked_fill(v[0], mask, 5); }, {random({2, 3})});
  check_op([&](const Vars& v) { return ef::masked_fill(v[0], mask, v[1]); },
           {random({2, 3}), random({1}, 2)});
  CHECK_THROWS_AS((void)ef::masked_fill(x, Tensor<bool>::full({4, 2, 3}, true), 1), ShapeError);
  CHECK_THROWS_AS((void)ef::masked_fill(x, mask, Tensor<double>::zeros({3})), ShapeError);
}

TEST_CASE("masked_select: in row-major order, broadcast") {
  const Tensor<double> x = Tensor<double>::arange(6).reshape({2, 3});
  const auto mask = Tensor<bool>::from({2, 3}, {true, false, true, false, true, true});
  CHECK(values(ef::masked_select(x, mask).value()) == Doubles{0, 2, 4, 5});
  CHECK(values(ef::masked_select(x.rows(1, 1), mask).value()) == Doubles{3, 5, 4, 5});
  CHECK(ef::masked_select(x, Tensor<bool>::full({1}, false)).shape() == Shape{0});
  check_op([&](const Vars& v) { return ef::masked_select(v[0], mask); }, {random({2, 3})});
  check_op([&](const Vars& v) { return ef::masked_select(v[0], mask); }, {random({3})});
  CHECK_THROWS_AS((void)ef::masked_select(x, Tensor<bool>::full({2}, true)), ShapeError);
}

TEST_CASE("nonzero: indices of every rank and type") {
  const auto found = ef::nonzero(Tensor<double>({2, 3}, {0, 2, 0, -0.0, nan_value, 1}));
  CHECK(found.shape() == Shape{3, 2});
  CHECK(values(found) == Ints{0, 1, 1, 1, 1, 2});
  CHECK(values(ef::nonzero(Tensor<bool>::from({4}, {false, true, true, false}))) == Ints{1, 2});
  CHECK(ef::nonzero(Tensor<std::int64_t>::zeros({2, 3, 4})).shape() == Shape{0, 3});
  CHECK(ef::nonzero(Tensor<float>::scalar(1)).shape() == Shape{1, 0});
}

TEST_CASE("searchsorted: left and right, NaN at the end") {
  const Tensor<double> sorted({4}, {1, 3, 3, 7});
  const Tensor<double> x({2, 3}, {0, 1, 3, 4, 8, nan_value});
  CHECK(values(ef::searchsorted(sorted, x)) == Ints{0, 0, 1, 3, 4, 4});
  CHECK(values(ef::searchsorted(sorted, x, true)) == Ints{0, 1, 3, 3, 4, 4});
  const Tensor<std::int64_t> rows({2, 2}, {1, 5, 2, 3});
  CHECK(values(ef::searchsorted(rows, Tensor<std::int64_t>({2, 3}, {0, 2, 6, 2, 3, 4}))) ==
        Ints{0, 1, 2, 0, 1, 2});
  CHECK(values(ef::searchsorted(Tensor<double>(Shape{0}), x)) == Ints(6, 0));
  CHECK_THROWS_AS((void)ef::searchsorted(rows, Tensor<std::int64_t>({3, 1}, {0, 2, 6})), ShapeError);
  CHECK_THROWS_AS((void)ef::searchsorted(Tensor<double>::scalar(1), x), ShapeError);
}

TEST_CASE("masked_select: added to another gradient, rank 0; nonzero: empty axes") {
  const auto mask = Tensor<bool>::from({2, 3}, {true, false, true, false, true, true});
  check_op([&](const Vars& v) { return ef::sum(v[0] * v[0]) + ef::sum(ef::masked_select(v[0], mask)); },
           {random({2, 3})});
  CHECK(ef::masked_select(Tensor<double>::scalar(3), Tensor<bool>::scalar(true)).shape() == Shape{1});
  CHECK(ef::nonzero(Tensor<float>(Shape{3, 0})).shape() == Shape{0, 2});
  CHECK(values(ef::nonzero(Tensor<std::int32_t>::from({2, 2}, {0, -1, 0, 0}))) == Ints{0, 1});
}
