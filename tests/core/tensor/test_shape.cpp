#include "eigenformer/core/tensor/shape.hpp"

#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

TEST_CASE("Shape: rank, sizes, negative indices, number of elements") {
  const Shape s{2, 3, 5};
  CHECK(s.rank() == 3);
  CHECK(s[0] == 2);
  CHECK(s[-1] == 5);
  CHECK(s[-3] == 2);
  CHECK(s.numel() == 30);
  CHECK(s.rows() == 6);
  CHECK(s.cols() == 5);
  CHECK(std::vector<index_t>(s.begin(), s.end()) == std::vector<index_t>{2, 3, 5});
}

TEST_CASE("Shape: rank 0 has one element, a zero has none") {
  CHECK(Shape{}.rank() == 0);
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{}.rows() == 1);
  CHECK(Shape{}.cols() == 1);
  CHECK(Shape{4, 0}.numel() == 0);
  CHECK(Shape{4, 0}.rows() == 4);
  CHECK(Shape{0, 7}.rows() == 0);
}

TEST_CASE("Shape: written as Python writes a tuple") {
  CHECK(Shape{}.str() == "()");
  CHECK(Shape{4}.str() == "(4,)");
  CHECK(Shape{2, 3}.str() == "(2, 3)");
  CHECK(Shape{1, 2, 3, 4, 5, 6}.str() == "(1, 2, 3, 4, 5, 6)");
}

TEST_CASE("Shape: equality looks at rank and sizes only") {
  CHECK(Shape{2, 3} == Shape{2, 3});
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
  CHECK_FALSE(Shape{2, 3} == Shape{2, 3, 1});
  CHECK_FALSE(Shape{} == Shape{1});
  // A size left over from a longer shape does not count.
  CHECK(Shape{2, 3, 9}.without(2) == Shape{2, 3});
}

TEST_CASE("Shape: indices outside the rank") {
  const Shape s{2, 3};
  CHECK(message_of<IndexError>([&] { (void)s[2]; }) == "[shape] dimension 2 does not exist in shape (2, 3)");
  CHECK(message_of<IndexError>([&] { (void)s[-3]; }) ==
        "[shape] dimension -3 does not exist in shape (2, 3)");
  CHECK(message_of<IndexError>([] { (void)Shape{}[0]; }) == "[shape] dimension 0 does not exist in shape ()");
  CHECK_THROWS_AS((void)s.with(2, 1), IndexError);
  CHECK_THROWS_AS((void)s.without(-3), IndexError);
  CHECK_THROWS_AS((void)s.inserted(4, 1), IndexError);
  CHECK_THROWS_AS((void)s.inserted(-4, 1), IndexError);
}

TEST_CASE("Shape: with, without, inserted") {
  const Shape s{2, 3, 5};
  CHECK(s.with(-1, 7) == Shape{2, 3, 7});
  CHECK(s.with(0, 0) == Shape{0, 3, 5});
  CHECK(s.without(1) == Shape{2, 5});
  CHECK(s.without(-3) == Shape{3, 5});
  CHECK(s.inserted(0, 9) == Shape{9, 2, 3, 5});
  CHECK(s.inserted(3, 9) == Shape{2, 3, 5, 9});
  CHECK(s.inserted(-1, 9) == Shape{2, 3, 5, 9});
  CHECK(s.inserted(-4, 9) == Shape{9, 2, 3, 5});
  CHECK(s == Shape{2, 3, 5});
}

TEST_CASE("Shape: negative sizes and more than six dimensions are refused everywhere") {
  CHECK(message_of<ShapeError>([] { (void)Shape{2, -1}; }) == "[shape] dimension -1 must not be negative");
  CHECK_THROWS_AS((void)(Shape{2, 3}.with(0, -2)), ShapeError);
  CHECK_THROWS_AS((void)(Shape{2, 3}.inserted(1, -2)), ShapeError);
  CHECK(message_of<ShapeError>([] { (void)Shape{1, 1, 1, 1, 1, 1, 1}; }) ==
        "[shape] rank 7 exceeds the maximum rank 6");
  CHECK_THROWS_AS((void)(Shape{1, 1, 1, 1, 1, 1}.inserted(2, 1)), ShapeError);
}

TEST_CASE("Shape: a number of elements that would overflow is refused") {
  const index_t big = index_t{1} << 40;
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)Shape{big, big};
                 }),
                 "(1099511627776, 1099511627776) has more elements"));
  CHECK_THROWS_AS((void)(Shape{std::numeric_limits<index_t>::max()}), ShapeError);
  CHECK_THROWS_AS((void)(Shape{big, 2}.with(1, big)), ShapeError);
  CHECK_THROWS_AS((void)(Shape{big, 2}.inserted(0, big)), ShapeError);
  // The product of a part of the dimensions (rows) must not overflow beside a zero either.
  CHECK_THROWS_AS((void)(Shape{big, big, 0}), ShapeError);
  CHECK(Shape{Shape::max_numel}.numel() == Shape::max_numel);
}

TEST_CASE("Shape: sizes next to the largest number never wrap") {
  const index_t most = std::numeric_limits<index_t>::max();
  for (const index_t big : {most, most - 1, most / 2 + 1, most / 3 + 1, Shape::max_numel + 1}) {
    CHECK_THROWS_AS((void)(Shape{big}), ShapeError);
    CHECK_THROWS_AS((void)(Shape{big, 0}), ShapeError);
    CHECK_THROWS_AS((void)(Shape{0, big}), ShapeError);
    CHECK_THROWS_AS((void)(Shape{3, big, 2}), ShapeError);
    CHECK_THROWS_AS((void)(Shape{2, 3}.with(0, big)), ShapeError);
    CHECK_THROWS_AS((void)(Shape{2, 3}.inserted(1, big)), ShapeError);
    CHECK_THROWS_AS((void)(Shape{2, 3}[big]), IndexError);
    CHECK_THROWS_AS((void)(Shape{2, 3}[-big]), IndexError);
  }
  CHECK_THROWS_AS((void)(Shape{2, 3}[std::numeric_limits<index_t>::min()]), IndexError);
  // 2^32 * 2^32 is 0 in 64 bits.
  CHECK_THROWS_AS((void)(Shape{index_t{1} << 32, index_t{1} << 32}), ShapeError);
}
