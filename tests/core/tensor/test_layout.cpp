#include "eigenformer/core/tensor/layout.hpp"

#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"

namespace ef = eigenformer;
using ef::SequenceLayout;
using eigenformer::testing::message_of;

TEST_CASE("layout: padded sequences take max_length rows each") {
  const auto layout = SequenceLayout::padded({3, 0, 5}, 7);
  CHECK(layout.batch() == 3);
  CHECK(layout.max_length() == 7);
  CHECK(layout.rows() == 21);
  CHECK(layout.tokens() == 8);
  CHECK(layout.length(2) == 5);
  CHECK(layout.offset(0) == 0);
  CHECK(layout.offset(2) == 14);
  CHECK(!layout.is_packed());
  // A list of one length is not a batch size.
  CHECK(SequenceLayout::padded({3}, 7).batch() == 1);
}

TEST_CASE("layout: a batch of full sequences") {
  const auto layout = SequenceLayout::padded(2, 5);
  CHECK(layout == SequenceLayout::padded({5, 5}, 5));
  CHECK(layout.tokens() == 10);
}

TEST_CASE("layout: packed sequences follow each other") {
  const auto layout = SequenceLayout::packed({3, 0, 5});
  CHECK(layout.max_length() == 5);
  CHECK(layout.rows() == 8);
  CHECK(layout.tokens() == 8);
  CHECK(layout.offset(1) == 3);
  CHECK(layout.offset(2) == 3);
  CHECK(layout.is_packed());
}

TEST_CASE("layout: cached sequences have room to grow") {
  const auto layout = SequenceLayout::cached({3, 2}, 64);
  CHECK(layout.max_length() == 3);
  CHECK(layout.rows() == 128);
  CHECK(layout.offset(1) == 64);
  CHECK(!layout.is_packed());
}

TEST_CASE("layout: no sequences at all") {
  const SequenceLayout layout;
  CHECK(layout.batch() == 0);
  CHECK(layout.rows() == 0);
  CHECK(layout.row_keys()->empty());
}

TEST_CASE("layout: row keys name each row by its sequence's number and its position") {
  const auto packed = SequenceLayout::packed({2, 3});
  const std::vector<ef::detail::RowKey> expected{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}};
  CHECK(*packed.row_keys() == expected);
  CHECK(packed.row_keys() == packed.row_keys());

  const auto later =
      SequenceLayout::padded({1, 2}, 2).with_sequence_numbers({40, 7}).with_first_position({5, 9});
  const std::vector<ef::detail::RowKey> shifted{{40, 5}, {40, 6}, {7, 9}, {7, 10}};
  CHECK(*later.row_keys() == shifted);
  CHECK(later.sequence_number(1) == 7);
  CHECK(later.position(0) == 5);
  CHECK(later.with_first_position(4).position(1) == 4);
  CHECK(SequenceLayout::padded(2, 3).sequence_number(1) == 1);
  CHECK(SequenceLayout::padded(2, 3).position(1) == 0);
}

TEST_CASE("layout: equality compares what rows mean") {
  const auto layout = SequenceLayout::packed({4, 4});
  CHECK(layout == SequenceLayout::packed({4, 4}));
  CHECK(layout == layout.with_sequence_numbers({0, 1}));
  CHECK(layout != layout.with_sequence_numbers({1, 0}));
  CHECK(layout != layout.with_first_position(1));
  CHECK(layout != SequenceLayout::padded(2, 4));
  CHECK(layout != SequenceLayout::packed({4, 3}));
}

TEST_CASE("layout: bad lengths are refused by name") {
  CHECK(message_of<ef::ValueError>([] {
          (void)SequenceLayout::padded({3, 8}, 7);
        }) == "[layout] length of sequence 1 is 8, exceeds the maximum length 7");
  CHECK(message_of<ef::ValueError>([] {
          (void)SequenceLayout::packed({3, 4, -1});
        }) == "[layout] length of sequence 2 is -1, must not be negative");
  CHECK(message_of<ef::ValueError>([] { (void)SequenceLayout::cached({9}, 8); }) ==
        "[layout] length of sequence 0 is 9, exceeds the capacity 8");
  CHECK(message_of<ef::ValueError>([] { (void)SequenceLayout::padded(-2, 8); }) ==
        "[layout] batch is -2, must not be negative");
  CHECK(message_of<ef::ValueError>([] { (void)SequenceLayout::padded(2, -8); }) ==
        "[layout] maximum length is -8, must not be negative");
  const auto layout = SequenceLayout::packed({3, 4});
  CHECK(message_of<ef::ValueError>([&] { (void)layout.with_sequence_numbers({1}); }) ==
        "[layout] 1 sequence numbers given, there must be one for each of the 2 sequences");
  CHECK(message_of<ef::ValueError>([&] {
          (void)layout.with_first_position({0, -3});
        }) == "[layout] first position of sequence 1 is -3, must not be negative");
  CHECK_THROWS_AS(layout.length(2), ef::IndexError);
  CHECK_THROWS_AS(layout.offset(-1), ef::IndexError);
}

TEST_CASE("layout: padding on the left, and on both sides") {
  const auto left = SequenceLayout::padded_left({3, 7}, 7);
  CHECK(left.rows() == 14);
  CHECK(left.tokens() == 10);
  CHECK(left.max_length() == 7);
  CHECK(left.offset(0) == 4);
  CHECK(left.offset(1) == 7);
  CHECK(left.leading(0) == 4);
  CHECK(left.leading(1) == 0);
  CHECK(left.position(0) == 0);
  CHECK(left ==
        SequenceLayout::padded_around(std::vector<ef::index_t>{4, 0}, std::vector<ef::index_t>{3, 7}, 7));
  CHECK(left != SequenceLayout::padded({3, 7}, 7));
  CHECK(SequenceLayout::packed({3, 7}).leading(1) == 0);
  CHECK(SequenceLayout::cached({3, 7}, 9).leading(1) == 0);
  // The first token stands at position 0; every row has a key.
  const auto both =
      SequenceLayout::padded_around(std::vector<ef::index_t>{1, 2}, std::vector<ef::index_t>{2, 1}, 4);
  const auto keys = both.row_keys();
  REQUIRE(keys->size() == 8);
  CHECK((*keys)[1] == ef::detail::RowKey{0, 0});
  CHECK((*keys)[2] == ef::detail::RowKey{0, 1});
  CHECK((*keys)[6] == ef::detail::RowKey{1, 0});
  CHECK(message_of<ef::ValueError>([] {
          (void)SequenceLayout::padded_around(std::vector<ef::index_t>{0, 3}, std::vector<ef::index_t>{2, 2},
                                              4);
        }) == "[layout] sequence 1 has 3 leading rows and 2 tokens, which must fit in 4 rows");
  CHECK_THROWS_AS((void)SequenceLayout::padded_left({5}, 4), ef::ValueError);
}

TEST_CASE("layout: sizes next to the largest number are refused and never wrap") {
  using Lengths = std::vector<ef::index_t>;
  constexpr ef::index_t most = std::numeric_limits<ef::index_t>::max();
  for (const ef::index_t big : {most, most - 1, most / 2 + 1, ef::Shape::max_numel + 1}) {
    CAPTURE(big);
    CHECK_THROWS_AS(SequenceLayout::padded({1, 2}, big), ef::ShapeError);
    CHECK_THROWS_AS(SequenceLayout::padded({1}, big), ef::ShapeError);
    CHECK_THROWS_AS(SequenceLayout::padded(big, 1), ef::ShapeError);
    CHECK_THROWS_AS(SequenceLayout::padded(big, 0), ef::ShapeError);
    CHECK_THROWS_AS(SequenceLayout::padded_left({1, 2}, big), ef::ShapeError);
    CHECK_THROWS_AS(SequenceLayout::packed({big}), ef::ShapeError);
    CHECK_THROWS_AS(SequenceLayout::packed({1, big, 1}), ef::ShapeError);
    CHECK_THROWS_AS(SequenceLayout::packed({big, big, 3}), ef::ShapeError);
    CHECK_THROWS_AS(SequenceLayout::cached({1, 2, 3}, big), ef::ShapeError);
    CHECK_THROWS_AS(SequenceLayout::padded_around(Lengths{big}, Lengths{2}, 4), ef::ValueError);
    CHECK_THROWS_AS((void)SequenceLayout::packed({2, 3}).with_first_position(big), ef::ShapeError);
    CHECK_THROWS_AS((void)SequenceLayout::packed({2, 3}).with_first_position({0, big}), ef::ShapeError);
  }
  // Sums and products of sizes that are fine by themselves.
  const ef::index_t half = ef::Shape::max_numel / 2 + 1;
  CHECK_THROWS_AS(SequenceLayout::packed({half, half}), ef::ShapeError);
  CHECK_THROWS_AS(SequenceLayout::padded({1, 1}, half), ef::ShapeError);
  CHECK(SequenceLayout::padded({1, 1}, half - 1).rows() == ef::Shape::max_numel);
  CHECK_THROWS_AS(SequenceLayout::padded_left({-1}, most), ef::ShapeError);
  CHECK_THROWS_AS(SequenceLayout::padded_left({1}, std::numeric_limits<ef::index_t>::min()), ef::ValueError);
  CHECK(message_of<ef::ShapeError>([] {
          SequenceLayout::packed({1, most});
        }) == "[layout] length of sequence 1 is 9223372036854775807, more rows than any memory holds");
  CHECK(message_of<ef::ShapeError>([] {
          SequenceLayout::padded({1, 1}, most);
        }) ==
        "[layout] a batch of 2 with a maximum length of 9223372036854775807 has more rows than any memory "
        "holds");
}

TEST_CASE("layout: more sequences than max_batch, and keys of more rows than they can number, are refused") {
  using ef::index_t;
  const auto refusal = [](index_t batch, index_t length) {
    return message_of<ef::ShapeError>([&] { (void)SequenceLayout::padded(batch, length); });
  };
  CHECK(refusal(SequenceLayout::max_batch + 1, 1) ==
        "[layout] batch is 16777217, must be at most 16777216 sequences");
  for (const int bits : {32, 40, 58, 62}) {
    const index_t many = index_t{1} << bits;
    CHECK(refusal(many, 0) ==
          "[layout] batch is " + std::to_string(many) + ", must be at most 16777216 sequences");
    CHECK(refusal(many, 1) == refusal(many, 0));
  }
  CHECK(SequenceLayout::padded(1, index_t{1} << 40).rows() == index_t{1} << 40);
  for (const int bits : {33, 40, 58}) {
    const auto layout = SequenceLayout::packed({index_t{1} << bits});
    CHECK(message_of<ef::ShapeError>([&] { (void)layout.row_keys(); }) ==
          "[layout] keys of " + std::to_string(index_t{1} << bits) +
              " rows are requested, there must be at most 4294967296");
  }
}
