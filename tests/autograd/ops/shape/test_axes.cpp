#include "eigenformer/autograd/ops/shape/axes.hpp"

#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

namespace ef = eigenformer;
using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Var<double> numbers(const Shape& shape) { return Tensor<double>::arange(shape.numel()).reshape(shape); }

using Doubles = std::vector<double>;

}  // namespace

TEST_CASE("broadcast_to: values, gradients, and shapes that do not fit") {
  CHECK(values(ef::broadcast_to(numbers({2, 1}), {2, 2, 3}).value()) ==
        Doubles{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1});
  CHECK(ef::broadcast_to(numbers({1, 3}), {0, 3}).shape() == Shape{0, 3});
  check_op([](const Vars& v) { return ef::broadcast_to(v[0], {4, 2, 5, 3}); }, {random({2, 1, 3})});
  check_op([](const Vars& v) { return ef::broadcast_to(v[0], {2, 3}); }, {random({})});
  check_op([](const Vars& v) { return ef::broadcast_to(v[0], {2, 3}); }, {random({2, 3})});
  CHECK(message_of<ShapeError>([] {
          (void)ef::broadcast_to(numbers({2, 3}), {2, 4});
        }) == "[broadcast_to] shape (2, 3) does not broadcast to shape (2, 4)");
  CHECK_THROWS_AS((void)ef::broadcast_to(numbers({1, 3}), {3}), ShapeError);
}

TEST_CASE("squeeze, unsqueeze, flatten, atleast: shapes and gradients") {
  CHECK(ef::squeeze(numbers({1, 2, 1, 3})).shape() == Shape{2, 3});
  CHECK(ef::squeeze(numbers({1, 2, 1, 3}), {-2}).shape() == Shape{1, 2, 3});
  // An axis of another size stays, as in PyTorch.
  CHECK(ef::squeeze(numbers({1, 2, 1}), {0, 1}).shape() == Shape{2, 1});
  CHECK(ef::squeeze(numbers({1, 1})).shape() == Shape{});
  CHECK(ef::unsqueeze(numbers({2, 3}), 1).shape() == Shape{2, 1, 3});
  CHECK(ef::unsqueeze(numbers({2, 3}), -1).shape() == Shape{2, 3, 1});
  CHECK(ef::flatten(numbers({2, 3, 4})).shape() == Shape{24});
  CHECK(ef::flatten(numbers({2, 3, 4}), 1).shape() == Shape{2, 12});
  CHECK(ef::flatten(numbers({2, 3, 4}), 0, -2).shape() == Shape{6, 4});
  CHECK(ef::flatten(numbers({})).shape() == Shape{1});
  CHECK(ef::atleast_1d(numbers({})).shape() == Shape{1});
  CHECK(ef::atleast_2d(numbers({3})).shape() == Shape{1, 3});
  CHECK(ef::atleast_3d(numbers({3})).shape() == Shape{1, 3, 1});
  CHECK(ef::atleast_3d(numbers({2, 3})).shape() == Shape{2, 3, 1});
  CHECK(ef::atleast_3d(numbers({})).shape() == Shape{1, 1, 1});
  CHECK(ef::atleast_2d(numbers({2, 3, 4})).shape() == Shape{2, 3, 4});
  check_op([](const Vars& v) { return ef::squeeze(v[0]); }, {random({1, 2, 1, 3})});
  check_op([](const Vars& v) { return ef::unsqueeze(v[0], 1); }, {random({2, 3})});
  check_op([](const Vars& v) { return ef::flatten(v[0], 1); }, {random({2, 3, 4})});
  check_op([](const Vars& v) { return ef::atleast_3d(v[0]); }, {random({2, 3})});
  CHECK_THROWS_AS((void)ef::squeeze(numbers({2}), {1}), IndexError);
  CHECK_THROWS_AS((void)ef::unsqueeze(numbers({2}), 3), IndexError);
  CHECK(contains(message_of<IndexError>([] { (void)ef::flatten(numbers({2, 3}), 1, 0); }), "behind axis 0"));
}

TEST_CASE("moveaxis and swapaxes: shapes, values and gradients") {
  CHECK(ef::moveaxis(numbers({2, 3, 4, 5}), 0, -1).shape() == Shape{3, 4, 5, 2});
  CHECK(ef::moveaxis(numbers({2, 3, 4, 5}), 3, 1).shape() == Shape{2, 5, 3, 4});
  CHECK(ef::moveaxis(numbers({2, 3, 4, 5}), {0, 1}, {-1, 0}).shape() == Shape{3, 4, 5, 2});
  CHECK(values(ef::swapaxes(numbers({2, 3}), 0, 1).value()) == Doubles{0, 3, 1, 4, 2, 5});
  check_op([](const Vars& v) { return ef::moveaxis(v[0], {2, 0}, {0, 1}); }, {random({2, 3, 4})});
  check_op([](const Vars& v) { return ef::swapaxes(v[0], 0, 2); }, {random({2, 3, 4})});
  CHECK_THROWS_AS((void)ef::moveaxis(numbers({2, 3}), {0, 0}, {0, 1}), ValueError);
  CHECK_THROWS_AS((void)ef::moveaxis(numbers({2, 3}), {0, 1}, {1, 1}), ValueError);
  CHECK_THROWS_AS((void)ef::moveaxis(numbers({2, 3}), {0, 1}, {1}), ValueError);
  CHECK_THROWS_AS((void)ef::moveaxis(numbers({2, 3}), 2, 0), IndexError);
}

TEST_CASE("split, chunk, unstack: sizes as PyTorch's") {
  const auto sizes = [](const std::vector<Var<double>>& parts, index_t axis) {
    std::vector<index_t> n;
    for (const auto& part : parts) n.push_back(part.dim(axis));
    return n;
  };
  using Sizes = std::vector<index_t>;
  CHECK(sizes(ef::split(numbers({7, 2}), 3), 0) == Sizes{3, 3, 1});
  CHECK(sizes(ef::split(numbers({2, 6}), 3, 1), 1) == Sizes{3, 3});
  CHECK(sizes(ef::split(numbers({0, 2}), 3), 0) == Sizes{0});
  CHECK(sizes(ef::split(numbers({2, 6}), {1, 0, 5}, -1), 1) == Sizes{1, 0, 5});
  CHECK(sizes(ef::chunk(numbers({7}), 3), 0) == Sizes{3, 3, 1});
  CHECK(sizes(ef::chunk(numbers({6}), 4), 0) == Sizes{2, 2, 2});
  CHECK(sizes(ef::chunk(numbers({2}), 5), 0) == Sizes{1, 1});
  CHECK(sizes(ef::chunk(Tensor<double>(Shape{2, 0, 3}), 2, 1), 1) == Sizes{0, 0});
  CHECK(values(ef::split(numbers({2, 3}), {1, 2}, 1)[1].value()) == Doubles{1, 2, 4, 5});
  const auto columns = ef::unstack(numbers({2, 3}), 1);
  REQUIRE(columns.size() == 3);
  CHECK(columns[2].shape() == Shape{2});
  CHECK(values(columns[2].value()) == Doubles{2, 5});
  check_op([](const Vars& v) { return ef::split(v[0], {3, 1, 2}, 1)[2]; }, {random({2, 6})});
  check_op([](const Vars& v) { return ef::chunk(v[0], 2)[1]; }, {random({5, 2})});
  check_op([](const Vars& v) { return ef::unstack(v[0], 1)[2]; }, {random({2, 4, 3})});
  CHECK_THROWS_AS((void)ef::split(numbers({4}), 0), ValueError);
  CHECK_THROWS_AS((void)ef::split(numbers({4}), {-1, 5}), ValueError);
  CHECK(contains(message_of<ShapeError>([] { (void)ef::split(numbers({4}), {1, 2}); }), "sum to 3"));
  const index_t most = std::numeric_limits<index_t>::max();
  CHECK_THROWS_AS((void)ef::split(numbers({4}), {most, most, 6}), ShapeError);  // whose sum is 4 modulo 2^64
  CHECK_THROWS_AS((void)ef::chunk(numbers({4}), 0), ValueError);
  CHECK_THROWS_AS((void)ef::unstack(numbers({4}), 1), IndexError);
}
