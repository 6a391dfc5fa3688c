#include "eigenformer/core/tensor/view.hpp"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/core/tensor/tensor.hpp"
#include "test_tools.hpp"

namespace ef = eigenformer;
using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
using eigenformer::testing::values;

namespace {

using Ints = std::vector<std::int64_t>;

Tensor<std::int64_t> numbers(const Shape& shape) {
  return Tensor<std::int64_t>::arange(shape.numel()).reshape(shape);
}

}  // namespace

TEST_CASE("index: numbers, all, range, newaxis and ellipsis, as NumPy's") {
  const Tensor<std::int64_t> x = numbers({2, 3, 4});
  const auto part = x(ef::all, ef::range(1, 3), -1, ef::newaxis);
  CHECK(part.shape() == Shape{2, 2, 1});
  CHECK(values(part) == Ints{7, 11, 19, 23});
  CHECK(x(1, ef::all).shape() == Shape{3, 4});
  CHECK(values(x(1, ef::all, 2)) == Ints{14, 18, 22});
  CHECK(values(x(ef::ellipsis, 0)) == Ints{0, 4, 8, 12, 16, 20});
  CHECK(values(x(-1, ef::ellipsis, 0)) == Ints{12, 16, 20});
  CHECK(x(ef::newaxis, ef::ellipsis, ef::newaxis).shape() == Shape{1, 2, 3, 4, 1});
  CHECK(values(x(1, 2, 3, ef::ellipsis)) == Ints{23});
  CHECK(x(1, 2, 3, ef::ellipsis).shape() == Shape{});
  CHECK(x(0, ef::range(1), ef::range(0, 4, 2)).shape() == Shape{2, 2});
  CHECK(values(x(0, ef::range(1), ef::range(0, 4, 2))) == Ints{4, 6, 8, 10});
  CHECK(x(ef::all).shape() == x.shape());
}

TEST_CASE("range: bounds move to the ends of the dimension, steps of either sign") {
  const Tensor<std::int64_t> x = numbers({7});
  CHECK(values(x(ef::range(-3, 100))) == Ints{4, 5, 6});
  CHECK(values(x(ef::range(-100, 2))) == Ints{0, 1});
  CHECK(values(x(ef::range(1, 7, 3))) == Ints{1, 4});
  CHECK(values(x(ef::range(1, 8, 3))) == Ints{1, 4});
  CHECK(values(x(ef::range(0, 7, 3))) == Ints{0, 3, 6});
  CHECK(values(x(ef::range(ef::slice_end, ef::slice_end, -1))) == Ints{6, 5, 4, 3, 2, 1, 0});
  CHECK(values(x(ef::range(5, 1, -2))) == Ints{5, 3});
  CHECK(values(x(ef::range(-1, -100, -3))) == Ints{6, 3, 0});
  CHECK(values(x(ef::range(-100, -100, -1))).empty());
  CHECK(values(x(ef::range(5, 2))).empty());
  CHECK(values(x(ef::range(2, 5, -1))).empty());
  CHECK(values(x(ef::range(100, 200))).empty());
  constexpr index_t far = std::numeric_limits<index_t>::max(), least = std::numeric_limits<index_t>::min();
  CHECK(values(x(ef::range(3, far, far))) == Ints{3});
  CHECK(values(x(ef::range(3, far, least))) == Ints{3});
  CHECK(numbers({0})(ef::range(0, 1)).shape() == Shape{0});
  CHECK(numbers({0})(ef::range(ef::slice_end, ef::slice_end, -1)).shape() == Shape{0});
}

TEST_CASE("index: what does not exist is named") {
  const Tensor<std::int64_t> x = numbers({2, 3});
  CHECK(message_of<IndexError>([&] { (void)x(ef::all, 3); }) ==
        "[index] index 3 is outside dimension 1 of shape (2, 3)");
  CHECK(contains(message_of<IndexError>([&] { (void)x(ef::all, -4); }), "index -4"));
  CHECK(contains(message_of<IndexError>([&] { (void)x(ef::all, 0, 0); }), "3 indices"));
  CHECK(contains(message_of<IndexError>([&] { (void)x(ef::ellipsis, ef::ellipsis); }), "2 ellipses"));
  CHECK(contains(message_of<ValueError>([&] { (void)x(ef::range(0, 1, 0)); }), "step"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)x(ef::newaxis, ef::newaxis, ef::newaxis, ef::newaxis, ef::newaxis, ef::all);
                 }),
                 "6 dimensions"));
  CHECK(contains(message_of<IndexError>([&] { (void)x(0); }), "1 indices given"));
  CHECK(contains(message_of<IndexError>([&] { (void)x(0, 3); }), "outside dimension 1"));
  CHECK(contains(message_of<ValueError>([&] { (void)Tensor<float>::without_storage({2})(ef::all); }),
                 "memory"));
}

TEST_CASE("element access reads and writes") {
  Tensor<std::int64_t> x = numbers({2, 3});
  x(1, -1) = 50;
  x(0, 1) += 5;
  CHECK(values(x) == Ints{0, 6, 2, 3, 4, 50});
  CHECK(std::as_const(x)(1, 2) == 50);
  CHECK(Tensor<float>::scalar(3)() == 3);
}

TEST_CASE("assignment to a part: numbers, tensors that broadcast, other parts") {
  Tensor<std::int64_t> x = Tensor<std::int64_t>::zeros({3, 4});
  x(ef::all, 1) = 7;
  x(1, ef::range(2)) = Tensor<std::int64_t>::from({2}, {8, 9});
  CHECK(values(x) == Ints{0, 7, 0, 0, 0, 7, 8, 9, 0, 7, 0, 0});
  x(ef::range(0, 2), ef::range(0, 2)) = Tensor<std::int64_t>::from({2, 1}, {1, 2});
  CHECK(values(x) == Ints{1, 1, 0, 0, 2, 2, 8, 9, 0, 7, 0, 0});
  x(2, ef::all) = x(1, ef::all);
  CHECK(values(x(2, ef::all).clone()) == Ints{2, 2, 8, 9});
  // A part over itself, reversed.
  x(2, ef::all) = x(2, ef::range(ef::slice_end, ef::slice_end, -1));
  CHECK(values(x(2, ef::all).clone()) == Ints{9, 8, 2, 2});
  Tensor<std::int64_t> y = numbers({4});
  y(ef::range(1, 4)) = y.rows(0, 3);
  CHECK(values(y) == Ints{0, 0, 1, 2});
  y(ef::range(0, 4, 2)) += 10;
  y(ef::range(1, 3)) *= Tensor<std::int64_t>::from({2}, {2, 3});
  y(3) -= 1;
  y(ef::range(3)) -= 1;
  CHECK(values(y) == Ints{10, 0, 33, 0});
  y(ef::range(0, 1)) /= 5;
  CHECK(y(0) == 2);
}

TEST_CASE("assignment to a part: what does not fit, and the count of changes") {
  Tensor<float> x = Tensor<float>::zeros({3, 4});
  const auto watch = x.watch();
  CHECK(message_of<ShapeError>([&] { x(0, ef::all) = Tensor<float>::zeros({3}); }) ==
        "[assign] shape (3,) does not broadcast to shape (4,)");
  CHECK(contains(message_of<ShapeError>([&] { x(0, ef::all) = Tensor<float>::zeros({1, 4}); }), "(1, 4)"));
  CHECK_FALSE(watch.changed());
  x(0, ef::all) = 1;
  CHECK(watch.changed());
  Tensor<bool> flags = Tensor<bool>::full({2, 2}, false);
  flags(ef::all, 0) = true;
  CHECK(values(flags) == std::vector<bool>{true, false, true, false});
}

TEST_CASE("a copied view of rank 6, in several tasks") {
  const auto x = Tensor<double>::arange(4 * 5 * 6 * 7 * 8 * 9).reshape({4, 5, 6, 7, 8, 9});
  const Tensor<double> y = x(ef::range(3, ef::slice_end, -2), ef::all, 2, ef::newaxis, ef::range(1, 6, 2));
  REQUIRE(y.shape() == Shape{2, 5, 1, 3, 8, 9});
  for (index_t a = 0; a < 2; ++a) {
    for (index_t b = 0; b < 5; ++b) {
      for (index_t c = 0; c < 3; ++c) {
        for (index_t d = 0; d < 8; ++d) {
          for (index_t e = 0; e < 9; ++e) REQUIRE(y(a, b, 0, c, d, e) == x(3 - 2 * a, b, 2, 1 + 2 * c, d, e));
        }
      }
    }
  }
}

TEST_CASE("a copied view whose last dimensions are 1") {
  const auto x = Tensor<double>::arange(4 * 6).reshape({4, 6});
  const Tensor<double> y = x(ef::range(3, ef::slice_end, -2), ef::range(1, 6, 2), ef::newaxis, ef::newaxis);
  REQUIRE(y.shape() == Shape{2, 3, 1, 1});
  CHECK(values(y) == std::vector<double>{19, 21, 23, 7, 9, 11});
  const Tensor<double> one = x(ef::range(2, 3), ef::range(4, 5), ef::newaxis);
  REQUIRE(one.shape() == Shape{1, 1, 1});
  CHECK(values(one) == std::vector<double>{16});
}
