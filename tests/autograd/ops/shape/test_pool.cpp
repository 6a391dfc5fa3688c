#include "eigenformer/autograd/ops/shape/pool.hpp"

#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("pool: the mean or the first of each sequence's rows, without padding, and zeros of nothing") {
  const Tensor<double> x = random({3, 5, 4}, 1);
  const auto padded = SequenceLayout::padded({5, 0, 2}, 5);
  const Tensor<double> mean = pool(Var<double>(x), padded).value();
  const Tensor<double> first = pool(Var<double>(x), padded, Pooling::first).value();
  CHECK(mean.shape() == Shape{3, 4});
  for (index_t i = 0; i < 4; ++i) {
    double sum = 0;
    for (index_t t = 0; t < 5; ++t) sum += x.at({0, t, i});
    CHECK(mean.at({0, i}) == doctest::Approx(sum / 5));
    CHECK(mean.at({2, i}) == doctest::Approx((x.at({2, 0, i}) + x.at({2, 1, i})) / 2));
    CHECK(first.at({2, i}) == x.at({2, 0, i}));
    CHECK(mean.at({1, i}) == 0);
    CHECK(first.at({1, i}) == 0);
  }
}

TEST_CASE("pool: gradients, padded and packed") {
  for (const auto pooling : {Pooling::mean, Pooling::first}) {
    const auto padded = SequenceLayout::padded({5, 0, 2}, 5), packed = SequenceLayout::packed({4, 1, 0});
    check_op([&](const Vars& v) { return pool(v[0], padded, pooling); }, {random({3, 5, 4}, 1)});
    check_op([&](const Vars& v) { return pool(v[0], packed, pooling); }, {random({5, 4}, 2)});
  }
  CHECK(message_of<ShapeError>([] {
          (void)pool(Var<double>(Tensor<double>::zeros({4, 3})), SequenceLayout::packed({2, 3}));
        }) == "[pool] input of shape (4, 3) must have the 5 rows of its layout");
}
