#include "eigenformer/autograd/ops/shape/gather.hpp"

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Tensor<std::int32_t> indices(const Shape& shape, index_t n, std::uint64_t seed) {
  Tensor<std::int32_t> t(shape);
  RandomGenerator rng(seed);
  for (auto& i : t.span()) i = static_cast<std::int32_t>(rng.uniform_int(n));
  return t;
}

}  // namespace

TEST_CASE("gather: gradients along every axis, with repeats and smaller indices") {
  const Shape shape{2, 3, 5};
  check_op([](const Vars& v) { return gather(v[0], 0, indices({4, 3, 5}, 2, 1)); }, {random(shape)});
  check_op([](const Vars& v) { return gather(v[0], 1, indices({2, 7, 5}, 3, 2)); }, {random(shape)});
  check_op([](const Vars& v) { return gather(v[0], -1, indices({2, 3, 4}, 5, 3)); }, {random(shape)});
  check_op([](const Vars& v) { return gather(v[0], 1, indices({1, 2, 4}, 3, 4)); }, {random(shape)});
  check_op([](const Vars& v) { return gather(v[0], 2, indices({2, 1, 1}, 5, 5)); }, {random(shape)});
  check_op([](const Vars& v) { return gather(v[0], 0, indices({6}, 4, 6)); }, {random({4})});
}

TEST_CASE("gather: values, PyTorch's example and plain loops") {
  const Var<double> t = Tensor<double>::from({2, 2}, {1, 2, 3, 4});
  CHECK(values(gather(t, 1, Tensor<std::int32_t>::from({2, 2}, {0, 0, 1, 0})).value()) ==
        std::vector<double>{1, 1, 4, 3});
  const Tensor<double> x = random({3, 4, 5}, 7);
  const Tensor<std::int32_t> index = indices({2, 6, 4}, 4, 8);
  const Tensor<double> y = gather(Var<double>(x), 1, index).value();
  REQUIRE(y.shape() == Shape{2, 6, 4});
  for (index_t i = 0; i < 2; ++i) {
    for (index_t j = 0; j < 6; ++j) {
      for (index_t k = 0; k < 4; ++k) CHECK(y.at({i, j, k}) == x.at({i, index.at({i, j, k}), k}));
    }
  }
}

TEST_CASE("gather: an element that is taken often collects all its gradients") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::from({1, 3}, {1, 2, 3}));
  const Var<double> y = gather(x, 1, Tensor<std::int32_t>::from({1, 4}, {2, 0, 2, 2}));
  tape.backward(sum(y * Tensor<double>::from({4}, {1, 10, 100, 1000})));
  CHECK(values(tape.gradient(x)) == std::vector<double>{10, 0, 1101});
}

TEST_CASE("gather: indices that do not fit") {
  const Var<double> x = random({2, 3});
  CHECK(message_of<IndexError>([&] {
          (void)gather(x, 1, Tensor<std::int32_t>::from({1, 2}, {0, 3}));
        }) == "[gather] index 3 at position 1 is outside axis 1 of shape (2, 3)");
  CHECK_THROWS_AS((void)gather(x, 1, Tensor<std::int32_t>::from({1, 1}, {-1})), IndexError);
  CHECK_THROWS_AS((void)gather(x, 2, Tensor<std::int32_t>::from({1, 1}, {0})), IndexError);
  CHECK(message_of<ShapeError>([&] {
          (void)gather(x, 1, Tensor<std::int32_t>::zeros({3, 1}));
        }) == "[gather] index of shape (3, 1) must have the rank of (2, 3) and be no larger outside axis 1");
  CHECK_THROWS_AS((void)gather(x, 1, Tensor<std::int32_t>::zeros({2})), ShapeError);
  CHECK(gather(x, 1, Tensor<std::int32_t>(Shape{2, 0})).shape() == Shape{2, 0});
}

TEST_CASE("gather: the same bits for any number of threads") {
  const Tensor<double> x = random({40, 50, 21}, 2);
  const Tensor<std::int32_t> index = indices({40, 70, 21}, 50, 3);
  const auto run = [&](int threads) {
    const ThreadScope scope(threads);
    Tape<double> tape;
    const Var<double> v = tape.variable(x);
    tape.backward(sum(square(gather(v, 1, index))));
    return values(tape.gradient(v));
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

TEST_CASE("index_select: gradients and values") {
  const Tensor<std::int32_t> rows = Tensor<std::int32_t>::from({5}, {3, 0, 3, 1, 3});
  check_op([&](const Vars& v) { return index_select(v[0], rows); }, {random({4, 7})});
  check_op([&](const Vars& v) { return index_select(v[0], rows); }, {random({4, 2, 3})});
  check_op([&](const Vars& v) { return index_select(v[0], rows); }, {random({4})});
  const Tensor<double> x = random({4, 2, 3}, 5);
  const Tensor<double> y = index_select(Var<double>(x), rows).value();
  REQUIRE(y.shape() == Shape{5, 2, 3});
  for (index_t i = 0; i < 5; ++i) CHECK(values(y.rows(i, 1)) == values(x.rows(rows.at({i}), 1)));
}

TEST_CASE("index_select: rows that do not exist") {
  const Var<double> x = random({4, 7});
  CHECK(message_of<IndexError>([&] {
          (void)index_select(x, Tensor<std::int32_t>::from({2}, {1, 4}));
        }) == "[index_select] index 4 at position 1 is outside axis 0 of shape (4, 7)");
  CHECK_THROWS_AS((void)index_select(x, Tensor<std::int32_t>::from({1}, {-1})), IndexError);
  CHECK_THROWS_AS((void)index_select(x, Tensor<std::int32_t>::zeros({1, 1})), ShapeError);
  CHECK_THROWS_AS(
      (void)index_select(Var<double>(Tensor<double>::scalar(1)), Tensor<std::int32_t>::zeros({1})),
      ShapeError);
  CHECK(index_select(x, Tensor<std::int32_t>(Shape{0})).shape() == Shape{0, 7});
}

TEST_CASE("gather: the first bad index is named for any number of threads, and an empty axis has none") {
  const Tensor<double> x = random({400, 50, 3});
  auto index = Tensor<std::int64_t>::zeros({400, 50, 3});
  index(399, 0, 0) = -1;
  index(200, 3, 1) = 50;
  for (const int threads : {1, 3}) {
    const ThreadScope scope(threads);
    CHECK(contains(message_of<IndexError>([&] { (void)gather(x, 1, index); }), "position 30010 "));
  }
  const Tensor<double> none(Shape{0, 3});
  CHECK_THROWS_AS((void)gather(none, 0, Tensor<std::int64_t>::zeros({1, 3})), IndexError);
  CHECK(gather(none, 0, Tensor<std::int64_t>(Shape{0, 3})).numel() == 0);
}
