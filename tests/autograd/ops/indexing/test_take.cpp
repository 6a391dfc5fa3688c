#include "eigenformer/autograd/ops/indexing/take.hpp"

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

namespace ef = eigenformer;
using namespace eigenformer;
using namespace eigenformer::testing;

using Long = Tensor<std::int64_t>;
using Doubles = std::vector<double>;

TEST_CASE("take: along an axis and of the flattened tensor") {
  const Tensor<double> x = Tensor<double>::arange(6).reshape({2, 3});
  CHECK(values(ef::take(x, Long::from({2}, {2, -3}), 1).value()) == Doubles{2, 0, 5, 3});
  const auto y = ef::take(x, Tensor<std::int32_t>::from({2, 1}, {1, 1}), 0);
  CHECK(y.shape() == Shape{2, 1, 3});
  CHECK(values(y.value()) == Doubles{3, 4, 5, 3, 4, 5});
  CHECK(ef::take(x, Long::scalar(1), 1).shape() == Shape{2});
  CHECK(values(ef::take(x, Long::from({2, 2}, {0, -1, 3, 3})).value()) == Doubles{0, 5, 3, 3});
  CHECK(ef::take(x, Long(Shape{0}), 1).shape() == Shape{2, 0});
  check_op(
      [](const Vars& v) {
        return ef::take(v[0], Long::from({4}, {2, 0, 2, 1}), 1);
      },
      {random({2, 3, 4})});
  check_op([](const Vars& v) { return ef::take(v[0], Long::from({2, 2}, {5, 0, 5, -1})); }, {random({2, 3})});
  CHECK(message_of<IndexError>([&] { (void)ef::take(x, Long::from({1}, {3}), 1); }) ==
        "[take] index 3 is outside 3 entries");
  CHECK_THROWS_AS((void)ef::take(x, Long::from({1}, {-4}), 1), IndexError);
  CHECK_THROWS_AS((void)ef::take(x, Long::from({1}, {0}), 2), IndexError);
}

TEST_CASE("take_along_axis: broadcast outside the axis") {
  const Tensor<double> x = Tensor<double>::arange(6).reshape({2, 3});
  CHECK(values(ef::take_along_axis(x, Long::from({2, 2}, {0, -1, 1, 1}), 1).value()) == Doubles{0, 2, 4, 4});
  CHECK(values(ef::take_along_axis(x, Long::from({1, 1}, {2}), 1).value()) == Doubles{2, 5});
  const auto wide = ef::take_along_axis(x.rows(0, 1), Long::from({2, 1}, {2, 0}), 1);
  CHECK(values(wide.value()) == Doubles{2, 0});
  check_op(
      [](const Vars& v) {
        return ef::take_along_axis(v[0], Long::from({1, 2}, {1, 1}), 1);
      },
      {random({4, 3})});
  check_op(
      [](const Vars& v) {
        return ef::take_along_axis(v[0], Long::from({2, 2}, {1, 1, 0, 2}), 1);
      },
      {random({1, 3})});
  CHECK_THROWS_AS((void)ef::take_along_axis(x, Long::from({1}, {0}), 1), ShapeError);
  CHECK_THROWS_AS((void)ef::take_along_axis(x, Long::from({3, 1}, {0, 0, 0}), 1), ShapeError);
  CHECK_THROWS_AS((void)ef::take_along_axis(x, Long::from({1, 1}, {3}), 1), IndexError);
}
