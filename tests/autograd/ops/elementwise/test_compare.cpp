#include "eigenformer/autograd/ops/elementwise/compare.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Bools = std::vector<bool>;

Tensor<bool> mask_of(const Shape& shape, std::uint64_t seed) {
  Tensor<bool> t(shape);
  RandomGenerator rng(seed);
  for (bool& b : t.span()) b = rng.uniform_int(2) == 1;
  return t;
}

}  // namespace

TEST_CASE_TEMPLATE("comparisons: values", T, float, double, std::int32_t) {
  const Tensor<T> a = Tensor<T>::from({3}, {1, 2, 3});
  const Tensor<T> b = Tensor<T>::from({3}, {3, 2, 1});
  CHECK(values(less(a, b)) == Bools{true, false, false});
  CHECK(values(less_equal(a, b)) == Bools{true, true, false});
  CHECK(values(greater(a, b)) == Bools{false, false, true});
  CHECK(values(greater_equal(a, b)) == Bools{false, true, true});
  CHECK(values(equal(a, b)) == Bools{false, true, false});
  CHECK(values(not_equal(a, b)) == Bools{true, false, true});
  CHECK(values(less(a, 2)) == Bools{true, false, false});
  CHECK(values(equal(a, 2)) == Bools{false, true, false});
}

TEST_CASE("comparisons: Vars, Tensors and both") {
  const Tensor<float> t = Tensor<float>::from({2}, {1, 2});
  Tape<float> tape;
  const Var<float> v = tape.variable(t);
  const auto size = tape.size();
  CHECK(values(less(v, t * 2)) == Bools{true, true});
  CHECK(values(equal(t, v)) == Bools{true, true});
  CHECK(values(greater(v, 1.5)) == Bools{false, true});
  CHECK(tape.size() == size);
}

TEST_CASE("comparisons: broadcasting") {
  const Tensor<double> column = Tensor<double>::from({3, 1}, {0, 1, 2});
  const Tensor<double> row = Tensor<double>::from({4}, {0, 1, 2, 3});
  const Tensor<bool> causal = less_equal(row, column);
  CHECK(causal.shape() == Shape{3, 4});
  CHECK(values(causal) ==
        Bools{true, false, false, false, true, true, false, false, true, true, true, false});
  CHECK(equal(Tensor<std::int32_t>::zeros({2, 1, 3}), Tensor<std::int32_t>::zeros({5, 1})).shape() ==
        Shape{2, 5, 3});
  CHECK(less(Tensor<float>(Shape{0, 3}), Tensor<float>::zeros({3})).shape() == Shape{0, 3});
  CHECK(contains(message_of<ShapeError>([] {
                   (void)less(Tensor<float>::zeros({2, 3}), Tensor<float>::zeros({4}));
                 }),
                 "[less] shapes (2, 3) and (4,) do not broadcast"));
  CHECK(contains(message_of<ShapeError>([] {
                   (void)not_equal(Tensor<std::int32_t>::zeros({2, 3}), Tensor<std::int32_t>::zeros({4}));
                 }),
                 "[not_equal] shapes (2, 3) and (4,) do not broadcast"));
}

TEST_CASE("comparisons: NaN is unequal to everything, -0 equals 0, int32 is exact") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor<float> x = Tensor<float>::from({3}, {nan, -0.0f, 1});
  CHECK(values(equal(x, x)) == Bools{false, true, true});
  CHECK(values(not_equal(x, x)) == Bools{true, false, false});
  CHECK(values(less(x, 5)) == Bools{false, true, true});
  CHECK(values(greater_equal(x, -5)) == Bools{false, true, true});
  CHECK(values(equal(x, 0)) == Bools{false, true, false});
  // Neighbours that a float cannot tell apart.
  const Tensor<std::int32_t> big = Tensor<std::int32_t>::from({2}, {2147483647, -2147483647 - 1});
  CHECK(values(equal(big, 2147483646)) == Bools{false, false});
  CHECK(values(less(Tensor<std::int32_t>::from({1}, {16777216}), 16777217)) == Bools{true});
}

TEST_CASE_TEMPLATE("comparisons: integers with numbers of other types are exact", T, std::int32_t,
                   std::int64_t) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor<T> ids = Tensor<T>::from({4}, {-3, 2, 3, std::numeric_limits<T>::max()});
  CHECK(values(less(ids, 2.5)) == Bools{true, true, false, false});
  CHECK(values(greater(ids, -2.5)) == Bools{false, true, true, true});
  CHECK(values(less_equal(2.5, ids)) == Bools{false, false, true, true});
  CHECK(values(equal(ids, 2.5f)) == Bools{false, false, false, false});
  CHECK(values(not_equal(ids, 2.5)) == Bools{true, true, true, true});
  CHECK(values(equal(3.0, ids)) == Bools{false, false, true, false});
  CHECK(values(less(ids, infinity)) == Bools{true, true, true, true});
  CHECK(values(greater_equal(ids, -infinity)) == Bools{true, true, true, true});
  CHECK(values(greater(ids, 1e300)) == Bools{false, false, false, false});
  CHECK(values(less(ids, nan)) == Bools{false, false, false, false});
  CHECK(values(not_equal(ids, nan)) == Bools{true, true, true, true});
  CHECK(values(less(ids, std::uint64_t{1} << 63)) == Bools{true, true, true, true});
  CHECK(values(equal(ids, std::uint64_t(-3))) == Bools{false, false, false, false});
  CHECK(values(less(ids, std::int64_t{1} << 40)) == Bools{true, true, true, sizeof(T) == 4});
  CHECK(values(less(ids, 9223372036854775808.0)) == Bools{true, true, true, true});
}

TEST_CASE("comparisons: booleans, for masks") {
  CHECK(values(less(Tensor<bool>::from({2}, {false, true}), 0.5)) == Bools{true, false});
  CHECK(values(equal(Tensor<bool>::from({2}, {false, true}), 2)) == Bools{false, false});
  const Tensor<bool> a = Tensor<bool>::from({3}, {true, false, true});
  const Tensor<bool> b = Tensor<bool>::from({3}, {true, true, false});
  CHECK(values(equal(a, b)) == Bools{true, false, false});
  CHECK(values(not_equal(a, b)) == Bools{false, true, true});
}

TEST_CASE("where: gradients with every kind of broadcasting") {
  check_op(
      [](const Vars& v) {
        return where(mask_of({2, 3, 5}, 1), v[0], v[1]);
      },
      {random({2, 3, 5}, 1), random({2, 3, 5}, 2)});
  check_op(
      [](const Vars& v) {
        return where(mask_of({3, 5}, 2), v[0], v[1]);
      },
      {random({2, 3, 5}, 1), random({3, 1}, 2)});
  check_op(
      [](const Vars& v) {
        return where(mask_of({2, 1, 5}, 3), v[0], v[1]);
      },
      {random({3, 1}, 1), random({}, 2)});
  check_op([](const Vars& v) { return where(mask_of({7}, 4), v[0], v[1]); }, {random({}, 1), random({}, 2)});
  check_op([](const Vars& v) { return where(mask_of({}, 4), v[0], v[1]); },
           {random({2, 3}, 1), random({3}, 2)});
  check_op([](const Vars& v) { return where(mask_of({2, 3}, 5), v[0], v[0] * 2); }, {random({2, 3}, 1)});
  check_op([](const Vars& v) { return where(mask_of({2, 3}, 5), v[0], 7); }, {random({2, 3}, 1)});
  check_op([](const Vars& v) { return where(mask_of({2, 3}, 5), 7, v[0]); }, {random({2, 3}, 1)});
  const Tensor<double> constant = random({3}, 8);
  check_op([&](const Vars& v) { return where(mask_of({2, 3}, 6), v[0], constant); }, {random({2, 3}, 1)});
}

TEST_CASE_TEMPLATE("where: values", T, float, double) {
  const Tensor<bool> mask = Tensor<bool>::from({2, 1}, {true, false});
  const Var<T> a = Tensor<T>::from({3}, {1, 2, 3});
  CHECK(values(where(mask, a, a * 10).value()) == std::vector<T>{1, 2, 3, 10, 20, 30});
  CHECK(values(where(mask, a, -1).value()) == std::vector<T>{1, 2, 3, -1, -1, -1});
  CHECK(values(where(mask, 0.5, a).value()) == std::vector<T>{0.5, 0.5, 0.5, 1, 2, 3});
}

TEST_CASE("where: what is not chosen has no effect, even NaN") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::from({3}, {nan, inf, 2}));
  const Var<double> b = tape.variable(Tensor<double>::from({3}, {1, 2, nan}));
  const Tensor<bool> mask = Tensor<bool>::from({3}, {false, false, true});
  const Var<double> y = where(mask, x, b);
  CHECK(values(y.value()) == std::vector<double>{1, 2, 2});
  Gradients<double> none;
  tape.backward(sum(y), Tensor<double>::scalar(3), none);
  CHECK(values(tape.gradient(x)) == std::vector<double>{0, 0, 3});
  CHECK(values(tape.gradient(b)) == std::vector<double>{3, 3, 0});
  // A gradient of NaN at a place that was not chosen stays away too.
  const Var<double> z = tape.variable(Tensor<double>::ones({2}));
  tape.backward(where(Tensor<bool>::from({2}, {true, false}), z, 0), Tensor<double>::from({2}, {4, nan}),
                none);
  CHECK(values(tape.gradient(z)) == std::vector<double>{4, 0});
}

TEST_CASE("where: shapes that do not broadcast") {
  const Var<double> a = random({2, 3}), b = random({4});
  CHECK(contains(message_of<ShapeError>([&] { (void)where(mask_of({3}, 1), a, b); }),
                 "[where] shapes (2, 3) and (4,) do not broadcast"));
  CHECK(contains(message_of<ShapeError>([&] { (void)where(mask_of({5}, 1), a, a); }),
                 "[where] shapes (5,) and (2, 3) do not broadcast"));
}

TEST_CASE("comparisons of 15, 16, 17, 40 elements with NaN and -0") {
  const float v[] = {0, -0.F, 1, std::numeric_limits<float>::quiet_NaN(),
                     std::numeric_limits<float>::infinity()};
  for (const index_t n : {0, 15, 16, 17, 40}) {
    Tensor<float> a({2, n}), b({n});
    for (index_t i = 0; i < 2 * n; ++i) a.data()[i] = v[i % 5];
    for (index_t i = 0; i < n; ++i) b.data()[i] = v[i / 5 % 5];
    const auto below = less(a, b), other = not_equal(a, b);
    for (index_t i = 0; i < 2 * n; ++i) {
      CHECK(below.data()[i] == (a.data()[i] < b.data()[i % n]));
      CHECK(other.data()[i] == (a.data()[i] != b.data()[i % n]));
    }
  }
}
