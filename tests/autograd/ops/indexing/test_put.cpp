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

TEST_CASE("put_along_axis: values at places, the last one counts") {
  const Tensor<double> x = Tensor<double>::zeros({2, 3});
  CHECK(values(ef::put_along_axis(x, Long::from({2, 1}, {2, -3}), 7, 1).value()) ==
        Doubles{0, 0, 7, 7, 0, 0});
  CHECK(values(ef::put_along_axis(x, Long::from({1, 2}, {1, 1}), Tensor<double>({2}, {5, 6}), 1).value()) ==
        Doubles{0, 6, 0, 0, 6, 0});
  check_op(
      [](const Vars& v) {
        return ef::put_along_axis(v[0], Long::from({1, 2}, {2, 0}), v[1], 1);
      },
      {random({4, 3}), random({4, 2}, 2)});
  check_op(
      [](const Vars& v) {
        return ef::put_along_axis(v[0], Long::from({2, 2}, {1, 1, 0, 1}), v[1], 0);
      },
      {random({3, 2}), random({2, 1}, 2)});
  CHECK_THROWS_AS((void)ef::put_along_axis(x, Long::from({1, 1}, {3}), 1, 1), IndexError);
  CHECK_THROWS_AS((void)ef::put_along_axis(x.rows(0, 1), Long::from({2, 1}, {0, 0}), 1, 1), ShapeError);
  CHECK_THROWS_AS((void)ef::put_along_axis(x, Long::from({1, 1}, {0}), Tensor<double>::zeros({3}), 1),
                  ShapeError);
}

TEST_CASE("scatter_add: sums at places") {
  const Tensor<double> x = Tensor<double>::ones({2, 3});
  const auto index = Long::from({2, 2}, {0, 0, 2, 1});
  CHECK(values(ef::scatter_add(x, 1, index, Tensor<double>({2, 2}, {1, 2, 3, 4})).value()) ==
        Doubles{4, 1, 1, 1, 5, 4});
  check_op([&](const Vars& v) { return ef::scatter_add(v[0], 1, index, v[1]); },
           {random({3, 3}), random({2, 2}, 2)});
  check_op(
      [](const Vars& v) {
        return ef::scatter_add(v[0], 0, Long::from({3}, {1, 1, 0}), v[0]);
      },
      {random({3})});
  CHECK_THROWS_AS((void)ef::scatter_add(x, 1, index, Tensor<double>::zeros({2, 1})), ShapeError);
  CHECK_THROWS_AS((void)ef::scatter_add(x, 1, Long::from({1, 1}, {-1}), Tensor<double>::zeros({1, 1})),
                  IndexError);
  CHECK_THROWS_AS((void)ef::scatter_add(x, 1, Long::full({3, 1}, 0), Tensor<double>::zeros({3, 1})),
                  ShapeError);
}

TEST_CASE("index_add: entries of an axis") {
  const Tensor<double> x = Tensor<double>::ones({2, 3});
  const auto index = Long::from({2}, {2, 2});
  CHECK(values(ef::index_add(x, 1, index, Tensor<double>({2, 2}, {1, 2, 3, 4})).value()) ==
        Doubles{1, 1, 4, 1, 1, 8});
  check_op(
      [](const Vars& v) {
        return ef::index_add(v[0], 0, Tensor<std::int32_t>::from({4}, {1, 0, 1, 2}), v[1]);
      },
      {random({3, 2}), random({4, 2}, 2)});
  check_op([&](const Vars& v) { return ef::index_add(v[0], 1, index, v[1]); },
           {random({2, 3, 4}), random({2, 2, 4}, 2)});
  CHECK_THROWS_AS((void)ef::index_add(x, 1, index, Tensor<double>::zeros({2, 3})), ShapeError);
  CHECK_THROWS_AS((void)ef::index_add(x, 0, index, Tensor<double>::zeros({2, 3})), IndexError);
}
