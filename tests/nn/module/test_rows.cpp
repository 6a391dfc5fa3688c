#include <doctest/doctest.h>

#include "eigenformer/nn/module/rows.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
using eigenformer::testing::values;

TEST_CASE("inputs without a layout are full sequences") {
  CHECK(detail::full_layout("test", Shape{2, 5, 12}) == SequenceLayout::padded(2, 5));
  CHECK(detail::full_layout("test", Shape{5, 12}) == SequenceLayout::padded(1, 5));
  CHECK(contains(message_of<ShapeError>([] { (void)detail::full_layout("test", Shape{12}); }),
                 "[test] input of shape (12,)"));
}

TEST_CASE("token layouts end at the last id that is not padding") {
  const auto ids = Tensor<std::int32_t>::from({3, 4}, {5, 6, 7, 0, 0, 0, 0, 0, 1, 2, 3, 4});
  CHECK(token_layout("test", ids, 0) == SequenceLayout::padded({3, 0, 4}, 4));
  CHECK(token_layout("test", ids) == SequenceLayout::padded(3, 4));
  CHECK(token_layout("test", ids.reshape({12}), 4) == SequenceLayout::padded({11}, 12));
  // Padding on the left, and on both sides: the first token stands at position 0.
  const auto left = Tensor<std::int32_t>::from({2, 4}, {0, 0, 5, 6, 7, 9, 8, 0});
  CHECK(token_layout("test", left.rows(0, 1), 0, PaddingSide::left) == SequenceLayout::padded_left({2}, 4));
  CHECK(token_layout("test", left, 0, PaddingSide::both) ==
        SequenceLayout::padded_around(std::vector<index_t>{2, 0}, std::vector<index_t>{2, 3}, 4));
  CHECK(values(detail::pack_tokens(left, token_layout("test", left, 0, PaddingSide::both))) ==
        std::vector<std::int32_t>{5, 6, 7, 9, 8});
  CHECK(message_of<ValueError>([] {
          (void)token_layout("test", Tensor<std::int32_t>::from({2, 3}, {5, 6, 0, 7, 0, 8}), 0);
        }) ==
        "[test] token 1 of sequence 1 is the padding id 0, but other tokens follow it; set padding_index to "
        "-1 if "
        "the id is an ordinary token, or give a layout");
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)token_layout("test", ids.reshape({1, 3, 4}));
                 }),
                 "(1, 3, 4)"));
}

TEST_CASE("packing drops the padding and keeps numbers and positions") {
  const auto ids = Tensor<std::int32_t>::from({2, 3}, {1, 2, 9, 4, 9, 9});
  const auto layout =
      SequenceLayout::padded({2, 1}, 3).with_sequence_numbers({8, 5}).with_first_position({0, 4});
  const auto packed = detail::packed_layout(layout);
  CHECK(values(detail::pack_tokens(ids, layout)) == std::vector<std::int32_t>{1, 2, 4});
  CHECK(packed.is_packed());
  CHECK(packed.rows() == 3);
  CHECK(packed.sequence_number(0) == 8);
  CHECK(packed.position(1) == 4);
  CHECK(detail::packed_layout(packed) == packed);
  CHECK(values(detail::pack_tokens(detail::pack_tokens(ids, layout), packed)) ==
        std::vector<std::int32_t>{1, 2, 4});
}

TEST_CASE("rows that do not fit a layout are refused") {
  const auto refused = [](const Shape& shape, const SequenceLayout& layout) {
    return message_of<ShapeError>([&] { detail::check_rows("test", "input", shape, layout); }) != "no error";
  };
  CHECK(!refused({2, 5, 12}, SequenceLayout::padded({5, 3}, 5)));
  CHECK(!refused({10, 12}, SequenceLayout::padded({5, 3}, 5)));
  CHECK(!refused({8, 12}, SequenceLayout::packed({5, 3})));
  CHECK(refused({2, 4, 12}, SequenceLayout::packed({5, 3})));
  CHECK(refused({5, 2, 12}, SequenceLayout::padded({5, 3}, 5)));
  CHECK(refused({9, 12}, SequenceLayout::packed({5, 3})));
  CHECK(refused({8}, SequenceLayout::packed({5, 3})));
  CHECK(message_of<ShapeError>([] {
          detail::check_tokens("test", "source", Tensor<std::int32_t>::zeros({7}),
                               SequenceLayout::packed({5, 3}));
        }) != "no error");
}
