#include "eigenformer/core/tensor/mask.hpp"

#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "test_tools.hpp"

namespace ef = eigenformer;
using ef::AttentionMask;
using ef::Shape;
using ef::Tensor;
using eigenformer::testing::message_of;

namespace {

constexpr float forbidden = -std::numeric_limits<float>::infinity();

/// Row i of sequence b and head h as ones and dots.
std::string row(const Tensor<bool>& allowed, ef::index_t b, ef::index_t h, ef::index_t i) {
  std::string s;
  for (ef::index_t j = 0; j < allowed.dim(3); ++j) s += allowed.at({b, h, i, j}) ? '1' : '.';
  return s;
}

}  // namespace

TEST_CASE("mask: causal compares absolute positions") {
  const auto at_start = AttentionMask::causal().to_tensor(1, 1, 3, 5);
  CHECK(row(at_start, 0, 0, 0) == "1....");
  CHECK(row(at_start, 0, 0, 2) == "111..");
  const auto later = AttentionMask::causal().to_tensor(1, 1, 2, 5, 3);
  CHECK(row(later, 0, 0, 0) == "1111.");
  CHECK(row(later, 0, 0, 1) == "11111");
}

TEST_CASE("mask: none allows everything") {
  CHECK(AttentionMask().is_none());
  CHECK(row(AttentionMask::none().to_tensor(2, 3, 5, 7), 1, 2, 4) == "1111111");
}

TEST_CASE("mask: a window reaches left and right") {
  const auto mask = AttentionMask::window(2, 1);
  CHECK(row(mask.to_tensor(1, 1, 5, 7), 0, 0, 0) == "11.....");
  CHECK(row(mask.to_tensor(1, 1, 5, 7), 0, 0, 4) == "..1111.");
  CHECK(row((mask & AttentionMask::causal()).to_tensor(1, 1, 5, 7), 0, 0, 4) == "..111..");
  CHECK(row(AttentionMask::window(AttentionMask::unlimited, 0).to_tensor(1, 1, 2, 3), 0, 0, 1) == "11.");
  CHECK_THROWS_AS(AttentionMask::window(-1, 0), ef::ValueError);
}

TEST_CASE("mask: allow and block are each other's opposite") {
  const auto flags = Tensor<bool>::from(Shape{2, 3}, {true, false, true, false, false, true});
  CHECK(row(AttentionMask::allow(flags).to_tensor(1, 2, 2, 3), 0, 1, 0) == "1.1");
  CHECK(row(AttentionMask::block(flags).to_tensor(1, 2, 2, 3), 0, 1, 0) == ".1.");
}

TEST_CASE("mask: ranks 2, 3 and 4 count from the last dimension") {
  auto rank3 = Tensor<bool>::zeros(Shape{2, 2, 3});
  rank3.at({1, 0, 2}) = true;
  const auto by_batch = AttentionMask::allow(rank3).to_tensor(2, 3, 2, 3);
  CHECK(row(by_batch, 1, 2, 0) == "..1");
  CHECK(row(by_batch, 0, 2, 0) == "...");

  auto heads = Tensor<bool>::zeros(Shape{1, 3, 1, 3});
  heads.at({0, 1, 0, 0}) = true;
  const auto by_head = AttentionMask::allow(heads).to_tensor(2, 3, 2, 3);
  CHECK(row(by_head, 1, 1, 1) == "1..");
  CHECK(row(by_head, 1, 0, 1) == "...");
}

TEST_CASE("mask: additive masks add up and forbid by -infinity") {
  const auto bias = Tensor<float>::from(Shape{1, 3}, {0.5F, forbidden, -2.0F});
  const auto mask =
      AttentionMask::additive(bias) & AttentionMask::additive(Tensor<float>::full(Shape{1, 3}, 1.0F));
  const auto sum = mask.to_additive(1, 1, 1, 3);
  CHECK(sum.at({0, 0, 0, 0}) == 1.5F);
  CHECK(sum.at({0, 0, 0, 1}) == forbidden);
  CHECK(sum.at({0, 0, 0, 2}) == -1.0F);
  CHECK(row(mask.to_tensor(1, 1, 1, 3), 0, 0, 0) == "1.1");
  const auto in_double = Tensor<double>::from(Shape{1, 2}, {0.25, 4.0});
  CHECK(AttentionMask::additive(in_double).to_additive(1, 1, 1, 2).at({0, 0, 0, 1}) == 4.0F);
}

TEST_CASE("mask: key padding is true where there is padding") {
  auto padding = Tensor<bool>::zeros(Shape{2, 4});
  padding.at({1, 3}) = true;
  const auto mask = AttentionMask::key_padding(padding) & AttentionMask::causal();
  const auto allowed = mask.to_tensor(2, 3, 4, 4);
  CHECK(row(allowed, 0, 2, 3) == "1111");
  CHECK(row(allowed, 1, 2, 3) == "111.");
  CHECK(row(allowed, 1, 0, 1) == "11..");
}

TEST_CASE("mask: shapes that do not fit are refused with what would fit") {
  const auto mask = AttentionMask::block(Tensor<bool>::zeros(Shape{4, 5}));
  CHECK_NOTHROW(mask.check(2, 3, 4, 2, 5));
  CHECK(message_of<ef::ShapeError>([&] { mask.check(2, 3, 5, 2, 7); }) ==
        "[attention] mask of shape (4, 5) must be (5, 7), (2, 5, 7) or (2 or 1, 3 or 1, 5 or 1, 7) for "
        "(batch, heads, "
        "queries, keys)");
  CHECK(message_of<ef::ShapeError>([&] {
          AttentionMask::key_padding(Tensor<bool>::zeros(Shape{3, 7})).check(2, 3, 5, 2, 7);
        }) == "[attention] key padding of shape (3, 7) must be (2, 7) (batch, keys)");
  CHECK(message_of<ef::ShapeError>([&] {
          (void)AttentionMask::key_padding(Tensor<bool>::zeros(Shape{7}));
        }) == "[attention_mask] key padding of shape (7,) must have the shape (batch, keys)");
  CHECK(message_of<ef::ShapeError>([&] { (void)AttentionMask::allow(Tensor<bool>::zeros(Shape{7})); }) ==
        "[attention_mask] mask of shape (7,) must be (queries, keys), (batch, queries, keys) or (batch or 1, "
        "heads or 1, "
        "queries or 1, keys)");
  CHECK_NOTHROW(AttentionMask::allow(Tensor<bool>::zeros(Shape{1, 1, 1, 7})).check(2, 3, 5, 2, 7));
  CHECK_THROWS_AS(AttentionMask::allow(Tensor<bool>::zeros(Shape{1, 5, 7})).check(2, 3, 5, 2, 7),
                  ef::ShapeError);
  CHECK_THROWS_AS(AttentionMask::key_padding(Tensor<bool>::zeros(Shape{1, 7})).check(2, 3, 5, 2, 7),
                  ef::ShapeError);
  // Of several masks, each is checked.
  const auto fits = AttentionMask::allow(Tensor<bool>::zeros(Shape{5, 7}));
  CHECK_NOTHROW((fits & fits).check(2, 3, 5, 2, 7));
  CHECK_THROWS_AS((fits & mask).check(2, 3, 5, 2, 7), ef::ShapeError);
}

TEST_CASE("mask: prefixes and documents, alone and joined, as tensors") {
  const auto prefix = AttentionMask::prefix({2, 0});
  CHECK_FALSE(prefix.is_none());
  const auto p = prefix.to_tensor(2, 1, 3, 4);
  const auto ids = Tensor<std::int32_t>::from({2, 4}, {0, 0, 1, 1, 5, 6, 5, 6});
  const auto q = Tensor<std::int32_t>::from({2, 3}, {0, 1, 0, 5, 5, 6});
  const auto documents = AttentionMask::documents(q, ids);
  const auto d = documents.to_tensor(2, 1, 3, 4);
  const auto both = (prefix & documents).to_tensor(2, 1, 3, 4);
  for (ef::index_t b = 0; b < 2; ++b) {
    for (ef::index_t i = 0; i < 3; ++i) {
      for (ef::index_t j = 0; j < 4; ++j) {
        CHECK(p.at({b, 0, i, j}) == (j <= i || j < (b == 0 ? 2 : 0)));
        CHECK(d.at({b, 0, i, j}) == (q.at({b, i}) == ids.at({b, j})));
        CHECK(both.at({b, 0, i, j}) == (p.at({b, 0, i, j}) && d.at({b, 0, i, j})));
      }
    }
  }
  CHECK(message_of<ef::ShapeError>([&] { prefix.check(3, 1, 3, 3, 4); }) ==
        "[attention] 2 prefix lengths must be 3, one for each sequence of queries");
  CHECK(message_of<ef::ShapeError>([&] { documents.check(2, 1, 4, 2, 4); }) ==
        "[attention] documents of shapes (2, 3) and (2, 4) must be (2, 4) of the queries and (2, 4) of the "
        "keys");
  CHECK_THROWS_AS((void)AttentionMask::prefix({1, -1}), ef::ValueError);
  CHECK_THROWS_AS((void)AttentionMask::documents(Tensor<std::int32_t>::zeros({3})), ef::ShapeError);
  const auto bias = ef::AttentionMask::key_padding(Tensor<float>::from({2, 3}, {1, 2, 3, 4, 5, 6}));
  CHECK(bias.to_additive(2, 1, 1, 3).at({1, 0, 0, 2}) == 6);
}

TEST_CASE("mask: combined with itself in place, additive masks are summed as by &") {
  auto mask = AttentionMask::additive(Tensor<float>::from({1, 2}, {1.5F, forbidden}));
  const auto want = (mask & mask).to_additive(1, 1, 1, 2);
  const AttentionMask& same = mask;
  mask &= same;
  const auto found = mask.to_additive(1, 1, 1, 2);
  CHECK(found.at({0, 0, 0, 0}) == 3);
  CHECK(found.at({0, 0, 0, 0}) == want.at({0, 0, 0, 0}));
  CHECK(found.at({0, 0, 0, 1}) == forbidden);
}

TEST_CASE("mask: a first position next to the largest number is refused and does not wrap") {
  const auto mask = AttentionMask::causal();
  CHECK(mask.to_tensor(1, 1, 2, 3, ef::Shape::max_numel).at({0, 0, 1, 2}));
  CHECK_THROWS_AS((void)mask.to_tensor(1, 1, 2, 3, std::numeric_limits<ef::index_t>::max()), ef::ShapeError);
  CHECK_THROWS_AS((void)mask.to_tensor(1, 1, 2, 3, std::numeric_limits<ef::index_t>::min()), ef::ShapeError);
}
