#include "eigenformer/autograd/ops/shape/rearrange.hpp"

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

TEST_CASE("repeat: each entry in a row") {
  CHECK(values(ef::repeat(numbers({3}), 2, 0).value()) == Doubles{0, 0, 1, 1, 2, 2});
  CHECK(values(ef::repeat(numbers({2, 2}), 2, 1).value()) == Doubles{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(values(ef::repeat(numbers({2, 2}), {0, 3}, 0).value()) == Doubles{2, 3, 2, 3, 2, 3});
  CHECK(ef::repeat(numbers({2, 3}), 0, 1).shape() == Shape{2, 0});
  check_op([](const Vars& v) { return ef::repeat(v[0], {1, 0, 3}, 1); }, {random({2, 3, 2})});
  check_op([](const Vars& v) { return ef::repeat(v[0], 3, -1); }, {random({2, 3})});
  CHECK_THROWS_AS((void)ef::repeat(numbers({3}), {1, 2}, 0), ShapeError);
  CHECK_THROWS_AS((void)ef::repeat(numbers({3}), -1, 0), ValueError);
  CHECK_THROWS_AS((void)ef::repeat(numbers({3}), 1, 1), IndexError);
}

TEST_CASE("tile: the whole tensor again") {
  CHECK(values(ef::tile(numbers({2}), {3}).value()) == Doubles{0, 1, 0, 1, 0, 1});
  CHECK(values(ef::tile(numbers({2, 2}), {2}).value()) == Doubles{0, 1, 0, 1, 2, 3, 2, 3});
  CHECK(values(ef::tile(numbers({2}), {2, 2}).value()) == Doubles{0, 1, 0, 1, 0, 1, 0, 1});
  CHECK(ef::tile(numbers({2}), {2, 2}).shape() == Shape{2, 4});
  CHECK(ef::tile(numbers({2, 3}), {2, 0}).shape() == Shape{4, 0});
  check_op([](const Vars& v) { return ef::tile(v[0], {2, 1, 3}); }, {random({3, 2})});
  CHECK_THROWS_AS((void)ef::tile(numbers({3}), {-1}), ValueError);
}

TEST_CASE("flip and roll") {
  CHECK(values(ef::flip(numbers({2, 3})).value()) == Doubles{5, 4, 3, 2, 1, 0});
  CHECK(values(ef::flip(numbers({2, 3}), {0}).value()) == Doubles{3, 4, 5, 0, 1, 2});
  CHECK(values(ef::flip(numbers({2, 3}), {-1}).value()) == Doubles{2, 1, 0, 5, 4, 3});
  CHECK(ef::flip(numbers({2, 0})).shape() == Shape{2, 0});
  CHECK(ef::flip(numbers({})).item() == 0);
  CHECK(values(ef::roll(numbers({5}), 2, 0).value()) == Doubles{3, 4, 0, 1, 2});
  CHECK(values(ef::roll(numbers({5}), -11, 0).value()) == Doubles{1, 2, 3, 4, 0});
  CHECK(values(ef::roll(numbers({2, 3}), {1, 1}, {0, 1}).value()) == Doubles{5, 3, 4, 2, 0, 1});
  CHECK(ef::roll(numbers({2, 0}), 1, 1).shape() == Shape{2, 0});
  check_op([](const Vars& v) { return ef::flip(v[0], {0, 2}); }, {random({2, 3, 4})});
  check_op([](const Vars& v) { return ef::roll(v[0], 2, 1); }, {random({2, 3, 4})});
  CHECK_THROWS_AS((void)ef::flip(numbers({3}), {1}), IndexError);
  CHECK_THROWS_AS((void)ef::roll(numbers({3}), {1, 2}, {0}), ValueError);
}

TEST_CASE("pad: constant, reflect and edge") {
  CHECK(values(ef::pad(numbers({3}), {{1, 2}}, PadMode::constant, 9).value()) == Doubles{9, 0, 1, 2, 9, 9});
  CHECK(values(ef::pad(numbers({3}), {{2, 1}}, PadMode::reflect).value()) == Doubles{2, 1, 0, 1, 2, 1});
  CHECK(values(ef::pad(numbers({3}), {{2, 1}}, PadMode::edge).value()) == Doubles{0, 0, 0, 1, 2, 2});
  CHECK(values(ef::pad(numbers({2, 2}), {{1, 0}, {0, 1}}).value()) == Doubles{0, 0, 0, 0, 1, 0, 2, 3, 0});
  // Fewer pairs are of the last dimensions.
  CHECK(ef::pad(numbers({2, 3}), {{1, 1}}).shape() == Shape{2, 5});
  CHECK(ef::pad(numbers({0}), {{1, 1}}).shape() == Shape{2});
  for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::edge}) {
    check_op(
        [mode](const Vars& v) {
          return ef::pad(v[0], {{1, 0}, {0, 0}, {2, 3}}, mode);
        },
        {random({2, 3, 4})});
  }
  CHECK_THROWS_AS((void)ef::pad(numbers({3}), {{3, 0}}, PadMode::reflect), ValueError);
  CHECK_THROWS_AS((void)ef::pad(numbers({0}), {{1, 0}}, PadMode::edge), ValueError);
  CHECK_THROWS_AS((void)ef::pad(numbers({3}), {{-1, 0}}), ValueError);
  CHECK_THROWS_AS((void)ef::pad(numbers({3}), {{1, 0}, {1, 0}}), ShapeError);
}

TEST_CASE("diag and diagonal") {
  CHECK(values(ef::diag(numbers({2})).value()) == Doubles{0, 0, 0, 1});
  CHECK(values(ef::diag(numbers({2}), 1).value()) == Doubles{0, 0, 0, 0, 0, 1, 0, 0, 0});
  CHECK(values(ef::diag(numbers({2}), -1).value()) == Doubles{0, 0, 0, 0, 0, 0, 0, 1, 0});
  CHECK(values(ef::diag(numbers({2, 3}), 1).value()) == Doubles{1, 5});
  CHECK(values(ef::diag(numbers({2, 3}), -1).value()) == Doubles{3});
  CHECK(ef::diag(numbers({2, 3}), 3).shape() == Shape{0});
  CHECK(ef::diag(numbers({2, 3}), -2).shape() == Shape{0});
  CHECK(values(ef::diagonal(numbers({2, 2, 2})).value()) == Doubles{0, 6, 1, 7});
  CHECK(values(ef::diagonal(numbers({2, 2, 2}), 0, 2, 1).value()) == Doubles{0, 3, 4, 7});
  check_op([](const Vars& v) { return ef::diag(v[0], -2); }, {random({3})});
  check_op([](const Vars& v) { return ef::diag(v[0], 1); }, {random({3, 4})});
  check_op([](const Vars& v) { return ef::diagonal(v[0], -1, 1, -1); }, {random({2, 3, 4})});
  CHECK_THROWS_AS((void)ef::diag(numbers({})), ShapeError);
  CHECK_THROWS_AS((void)ef::diagonal(numbers({2, 2}), 0, 1, 1), ValueError);
  CHECK_THROWS_AS((void)ef::diagonal(numbers({2})), IndexError);
}

TEST_CASE("tril and triu, of each matrix") {
  CHECK(values(ef::tril(numbers({2, 3})).value()) == Doubles{0, 0, 0, 3, 4, 0});
  CHECK(values(ef::tril(numbers({2, 3}), 1).value()) == Doubles{0, 1, 0, 3, 4, 5});
  CHECK(values(ef::triu(numbers({2, 3})).value()) == Doubles{0, 1, 2, 0, 4, 5});
  CHECK(values(ef::triu(numbers({2, 3}), -1).value()) == Doubles{0, 1, 2, 3, 4, 5});
  CHECK(values(ef::triu(numbers({2, 2, 2}), 1).value()) == Doubles{0, 1, 0, 0, 0, 5, 0, 0});
  CHECK(values(ef::tril(numbers({2, 2}), -5).value()) == Doubles(4, 0));
  check_op([](const Vars& v) { return ef::tril(v[0], -1); }, {random({2, 3, 4})});
  check_op([](const Vars& v) { return ef::triu(v[0], 1); }, {random({2, 3, 4})});
  CHECK_THROWS_AS((void)ef::tril(numbers({3})), ShapeError);
}

TEST_CASE_TEMPLATE("flip: rows shorter and longer than a block", T, float, double) {
  for (const index_t n : {1, 15, 16, 17, 33, 300}) {
    CAPTURE(n);
    const auto x = Tensor<T>::arange(3 * n).reshape({3, n});
    const auto y = ef::flip(x, {1}).value();
    for (index_t i = 0; i < 3; ++i) {
      for (index_t j = 0; j < n; ++j) CHECK(y(i, j) == x(i, n - 1 - j));
    }
  }
}

TEST_CASE("roll: runs of more than a kilobyte, in several tasks") {
  const auto x = Tensor<double>::arange(600 * 300).reshape({600, 300});
  const auto y = ef::roll(x, 7, 1).value();
  for (index_t i = 0; i < 600; ++i) {
    for (index_t j = 0; j < 300; ++j) REQUIRE(y(i, j) == x(i, (j + 293) % 300));
  }
}

TEST_CASE("tril, triu: diagonals far outside") {
  const auto x = Tensor<double>::arange(6).reshape({2, 3});
  const index_t far = std::numeric_limits<index_t>::max();
  CHECK(values(ef::tril(x, far).value()) == values(x));
  CHECK(values(ef::triu(x, -far).value()) == values(x));
  CHECK(values(ef::tril(x, -far).value()) == Doubles(6, 0));
  CHECK(values(ef::triu(x, far).value()) == Doubles(6, 0));
}
