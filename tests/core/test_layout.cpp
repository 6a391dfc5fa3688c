#include "eigenformer/core/layout.hpp"

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
  const std::vector<ef::RowKey> expected{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}};
  CHECK(*packed.row_keys() == expected);
  CHECK(packed.row_keys() == packed.row_keys());

  const auto later =
      SequenceLayout::padded({1, 2}, 2).with_sequence_numbers({40, 7}).with_first_position({5, 9});
  const std::vector<ef::RowKey> shifted{{40, 5}, {40, 6}, {7, 9}, {7, 10}};
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
