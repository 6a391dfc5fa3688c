#include "eigenformer/core/tensor/tensor.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
using eigenformer::testing::values;

TEST_CASE("Tensor: the factories fill what they say") {
  CHECK(values(Tensor<float>::zeros({2, 3})) == std::vector<float>(6, 0.0f));
  CHECK(values(Tensor<double>::ones({5})) == std::vector<double>(5, 1.0));
  CHECK(values(Tensor<std::int32_t>::full({2, 2}, 7)) == std::vector<std::int32_t>(4, 7));
  CHECK(values(Tensor<std::int32_t>::arange(4)) == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(values(Tensor<bool>::full({3}, true)) == std::vector<bool>{true, true, true});
  CHECK(values(Tensor<bool>::from({2}, std::vector<bool>{true, false})) == std::vector<bool>{true, false});
  CHECK(values(Tensor<float>::from({2, 2}, {1, 2, 3, 4})) == std::vector<float>{1, 2, 3, 4});
  CHECK(values(Tensor<int>({2, 2}, {1, 2, 3, 4})) == std::vector<int>{1, 2, 3, 4});
  const std::vector<int> ids = {5, 6, 7, 8, 9, 10};
  CHECK(values(Tensor<int>({2, 3}, ids)) == ids);
  CHECK(values(Tensor<int>({2, 3}, std::span<const int>(ids))) == ids);
  CHECK(values(Tensor<bool>({2}, std::vector<bool>{true, false})) == std::vector<bool>{true, false});
  const std::vector<float> v{5, 6};
  CHECK(values(Tensor<float>::from({1, 2}, v)) == v);
  CHECK(Tensor<double>::scalar(2.5).rank() == 0);
  CHECK(Tensor<double>::scalar(2.5).item() == 2.5);
}

TEST_CASE("Tensor: a wrong number of values is named") {
  CHECK(message_of<ShapeError>([] {
          (void)Tensor<float>::from({2, 3}, {1, 2, 3});
        }) == "[tensor] 3 values do not fill shape (2, 3)");
  CHECK(message_of<ShapeError>([] {
          (void)Tensor<int>({2, 3}, {1, 2, 3, 4, 5});
        }) == "[tensor] 5 values do not fill shape (2, 3)");
}

TEST_CASE("Tensor: default-constructed is undefined, with shape (0,)") {
  const Tensor<float> t;
  CHECK_FALSE(t.defined());
  CHECK(t.shape() == Shape{0});
  CHECK(t.numel() == 0);
  CHECK(t.data() == nullptr);
  CHECK(t.clone().numel() == 0);
  CHECK(t.reshape({3, 0}).shape() == Shape{3, 0});
  CHECK_THROWS_AS((void)t.item(), ShapeError);
}

TEST_CASE("Tensor: empty tensors of any rank work") {
  Tensor<double> t(Shape{3, 0, 2});
  CHECK(t.numel() == 0);
  t.fill(1);
  t.copy_from(Tensor<double>(Shape{3, 0, 2}));
  CHECK(t.rows(1, 2).shape() == Shape{2, 0, 2});
  CHECK(Tensor<double>(Shape{0, 4}).rows(0, 0).shape() == Shape{0, 4});
  CHECK_THROWS_AS((void)t.at({0, 0, 0}), IndexError);
}

TEST_CASE("Tensor: a copy shares, clone copies, reshape and rows share") {
  Tensor<float> t = Tensor<float>::from({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor<float> shared = t;
  Tensor<float> copy = t.clone();
  Tensor<float> flat = t.reshape({6});
  Tensor<float> second = t.rows(1, 1);
  t.at({1, 0}) = 40;
  CHECK(shared.at({1, 0}) == 40);
  CHECK(copy.at({1, 0}) == 4);
  CHECK(flat.at({3}) == 40);
  CHECK(second.at({0, 0}) == 40);
  CHECK(second.shape() == Shape{1, 3});
  second.fill(-1);
  CHECK(values(t) == std::vector<float>{1, 2, 3, -1, -1, -1});
}

TEST_CASE("Tensor: a part keeps the whole storage alive") {
  Tensor<float> part;
  {
    const Tensor<float> whole = Tensor<float>::from({3, 2}, {1, 2, 3, 4, 5, 6});
    part = whole.rows(2, 1);
  }
  CHECK(values(part) == std::vector<float>{5, 6});
}

TEST_CASE("Tensor: element access counts from both ends and checks") {
  const Tensor<std::int32_t> t = Tensor<std::int32_t>::arange(30).reshape({2, 3, 5});
  CHECK(t.at({1, 2, 4}) == 29);
  CHECK(t.at({-1, -3, -5}) == 15);
  CHECK(t.dim(-2) == 3);
  CHECK(message_of<IndexError>([&] {
          (void)t.at({0, 3, 0});
        }) == "[at] index 3 is outside dimension 1 of shape (2, 3, 5)");
  CHECK(message_of<IndexError>([&] {
          (void)t.at({0, 0, -6});
        }) == "[at] index -6 is outside dimension 2 of shape (2, 3, 5)");
  CHECK(message_of<IndexError>([&] { (void)t.at({0, 0}); }) == "[at] 2 indices given for shape (2, 3, 5)");
  CHECK(Tensor<float>::scalar(3).at({}) == 3);
}

TEST_CASE("Tensor: rows outside the first dimension") {
  const Tensor<float> t = Tensor<float>::zeros({4, 3});
  CHECK(t.rows(4, 0).numel() == 0);
  CHECK(contains(message_of<IndexError>([&] { (void)t.rows(2, 3); }),
                 "3 rows starting at row 2 are outside a tensor of shape"));
  CHECK_THROWS_AS((void)t.rows(-1, 1), IndexError);
  CHECK_THROWS_AS((void)t.rows(0, -1), IndexError);
  CHECK_THROWS_AS((void)t.rows(5, std::numeric_limits<index_t>::max() - 2), IndexError);
  CHECK_THROWS_AS((void)Tensor<float>::scalar(1).rows(0, 1), IndexError);
}

TEST_CASE("Tensor: reshape, item and copy_from name the shapes") {
  Tensor<float> t = Tensor<float>::zeros({2, 3});
  CHECK(message_of<ShapeError>([&] { (void)t.reshape({4}); }) ==
        "[reshape] tensor of shape (2, 3) has 6 elements, which do not fit shape (4,)");
  CHECK(message_of<ShapeError>([&] { (void)t.item(); }) ==
        "[item] tensor of shape (2, 3) must have one element");
  CHECK(message_of<ShapeError>([&] {
          t.copy_from(Tensor<float>::zeros({3, 2}));
        }) == "[copy] cannot copy shape (3, 2) into shape (2, 3)");
  CHECK(Tensor<float>::full({1, 1}, 4).item() == 4);
}

TEST_CASE("Tensor: to converts the element type") {
  const Tensor<double> t = Tensor<double>::from({3}, {-1.75, 0.0, 2.5});
  CHECK(values(t.to<float>()) == std::vector<float>{-1.75f, 0.0f, 2.5f});
  CHECK(values(t.to<std::int32_t>()) == std::vector<std::int32_t>{-1, 0, 2});
  CHECK(values(t.to<bool>()) == std::vector<bool>{true, false, true});
}

TEST_CASE("Tensor: borrowed memory is used in place and never freed by the tensor") {
  std::vector<double> buffer{1, 2, 3, 4, 5, 6};
  {
    Tensor<double> t = Tensor<double>::borrow(buffer.data(), {2, 3});
    CHECK(t.data() == buffer.data());
    t.at({1, 1}) = 50;
    const Tensor<double> copy = t.clone();
    CHECK(copy.data() != buffer.data());
  }
  CHECK(buffer == std::vector<double>{1, 2, 3, 4, 50, 6});
}

TEST_CASE("Tensor: what keeps borrowed memory alive lives exactly as long as the last tensor on it") {
  auto buffer = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4, 5, 6});
  const std::weak_ptr<std::vector<float>> watch = buffer;
  float* data = buffer->data();
  Tensor<float> row;
  {
    const Tensor<float> t = Tensor<float>::borrow(data, {3, 2}, std::move(buffer));
    CHECK_FALSE(watch.expired());
    row = t.reshape({2, 3}).rows(1, 1);
  }
  REQUIRE_FALSE(watch.expired());
  CHECK(values(row) == std::vector<float>{4, 5, 6});
  row = Tensor<float>();
  CHECK(watch.expired());
}

TEST_CASE("Tensor: a null pointer can be borrowed for nothing only") {
  CHECK(message_of<ValueError>([] { (void)Tensor<float>::borrow(nullptr, {2}); }) ==
        "[tensor] cannot borrow a null pointer");
  CHECK(Tensor<float>::borrow(nullptr, {0, 2}).numel() == 0);
}

TEST_CASE("Tensor: a watch notices changes by any tensor that shares the storage, borrowed or not") {
  std::vector<float> memory(6);
  for (const bool borrowed : {false, true}) {
    Tensor<float> t = borrowed ? Tensor<float>::borrow(memory.data(), {3, 2}) : Tensor<float>::zeros({3, 2});
    detail::StorageWatch watch = t.watch();
    CHECK_FALSE(watch.changed());
    t.data()[0] = 1;  // not seen: data() is also how values are read
    CHECK_FALSE(watch.changed());
    t.mark_changed();
    CHECK(watch.changed());
    watch = t.watch();
    t.rows(2, 1).fill(3);
    CHECK(watch.changed());
    watch = t.watch();
    t.reshape({6}).copy_from(Tensor<float>::ones({6}));
    CHECK(watch.changed());
    watch = t.watch();
    Tensor<float> copy = t.clone();
    copy.fill(2);
    CHECK_FALSE(watch.changed());
    CHECK(watch.same_storage(t.reshape({2, 3}).watch()));
    CHECK_FALSE(watch.same_storage(copy.watch()));
  }
  CHECK_FALSE(Tensor<float>().watch().changed());
  Tensor<float>().mark_changed();
}

TEST_CASE("Tensor: a watch keeps no memory alive, and memory that is gone counts as unchanged") {
  Tensor<float> t = Tensor<float>::ones({1000});
  const std::size_t before = Runtime::instance().pool().statistics().bytes_in_use;
  const detail::StorageWatch watch = t.watch();
  t.fill(2);
  CHECK(watch.changed());
  t = Tensor<float>();
  CHECK(Runtime::instance().pool().statistics().bytes_in_use < before);
  CHECK_FALSE(watch.changed());
  CHECK(watch.storage() == nullptr);
}

TEST_CASE("Tensor: unique is memory of the pool that no other tensor shares") {
  std::vector<float> memory(2);
  const Tensor<float> t = Tensor<float>::ones({2}), borrowed = Tensor<float>::borrow(memory.data(), {2});
  CHECK(t.unique());
  CHECK_FALSE(borrowed.unique());
  CHECK_FALSE(Tensor<float>().unique());
  const Tensor<float> row = t.rows(0, 1);
  CHECK_FALSE(t.unique());
  CHECK_FALSE(row.unique());
}

TEST_CASE("Tensor: a moved-from tensor can be assigned again") {
  Tensor<float> a = Tensor<float>::ones({2});
  const Tensor<float> b = std::move(a);
  CHECK(b.numel() == 2);
  a = Tensor<float>::ones({3});
  CHECK(a.numel() == 3);
}

TEST_CASE("Tensor: what has a shape but no memory gives no elements, and its parts have no memory either") {
  Tensor<float> released = Tensor<float>::without_storage({3, 2});
  CHECK_FALSE(released.rows(1, 2).defined());
  CHECK(released.rows(1, 2).shape() == Shape{2, 2});
  Tensor<float> number = Tensor<float>::scalar(2), moved = std::move(number);
  CHECK(message_of<ValueError>([&] { (void)number.item(); }) ==
        "[item] the memory of this tensor of shape () was released or never allocated");
  CHECK_THROWS_AS((void)released.at({0, 1}), ValueError);
  CHECK_THROWS_AS((void)std::as_const(released).at({2, 0}), ValueError);
  CHECK_THROWS_AS((void)released.at({3, 0}), IndexError);
  CHECK_THROWS_AS((void)released.to<double>(), ValueError);
  CHECK_THROWS_AS(released.fill(1), ValueError);
  CHECK_THROWS_AS((void)released.clone(), ValueError);
  CHECK(moved.item() == 2);
}

TEST_CASE("Tensor: sizes next to the largest number are errors and never wrap") {
  constexpr index_t most = std::numeric_limits<index_t>::max();
  const Tensor<float> t = Tensor<float>::arange(12).reshape({4, 3});
  for (const index_t big : {most, most - 1, most / 2 + 1, most / 4 + 1}) {
    CAPTURE(big);
    CHECK_THROWS_AS(Tensor<float>::arange(big), ShapeError);
    CHECK_THROWS_AS(Tensor<float>::zeros({big, 0}), ShapeError);
    CHECK_THROWS_AS((void)t.reshape({big, 4}), ShapeError);
    CHECK_THROWS_AS((void)t.rows(big, 1), IndexError);
    CHECK_THROWS_AS((void)t.rows(1, big), IndexError);
    CHECK_THROWS_AS((void)t.rows(big, big), IndexError);
    CHECK_THROWS_AS((void)t.at({big, 0}), IndexError);
    CHECK_THROWS_AS((void)t.at({-big, 0}), IndexError);
  }
  // The number of bytes does not wrap either: this is 2^61 of them.
  CHECK_THROWS_AS(Tensor<double>(Shape{Shape::max_numel}), Error);
}
