#include "eigenformer/autograd/ops/reduction/search.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/autograd/ops/indexing/index.hpp"
#include "reduction_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

template <class T>
std::vector<std::int64_t> whole(const Tensor<T>& x) {
  return {x.span().begin(), x.span().end()};
}

// CHECKs f(x, axes), of numbers without a gradient, against every result of `op` in the fixture.
template <class T, class F>
void check_whole(const std::string& op, const F& f) {
  for_each_result(op, [&](const std::string& source, const auto& axes, const std::string& rest) {
    const auto y = f(reductions().get<T>("in." + source), axes);
    const auto expected = reductions().file().template tensor<std::int64_t>(op + "." + rest);
    CHECK(y.shape() == expected.shape());
    CHECK(whole(y) == whole(expected));
  });
}

template <class T, class F>
void check_flags(const std::string& op, const F& f) {
  for_each_result(op, [&](const std::string& source, const auto& axes, const std::string& rest) {
    const Tensor<bool> y = f(reductions().get<T>("in." + source), axes);
    const auto expected = reductions().get<bool>(op + "." + rest);
    CHECK(y.shape() == expected.shape());
    CHECK(whole(y) == whole(expected));
  });
}

}  // namespace

TEST_CASE_TEMPLATE("any, all, count_nonzero, argmin, argmax are PyTorch's", T, float, double) {
  check_flags<T>("any", [](const auto& x, const auto& axes) { return ef::any(ef::greater(x, 0.1), axes); });
  check_flags<T>("all", [](const auto& x, const auto& axes) { return ef::all(ef::greater(x, -0.5), axes); });
  check_whole<T>("count", [](const auto& x, const auto& axes) { return ef::count_nonzero(x, axes); });
  check_whole<T>("argmin", [](const auto& x, const auto& axes) { return ef::argmin(x, axes[0]); });
  check_whole<T>("argmax", [](const auto& x, const auto& axes) { return ef::argmax(x, axes[0]); });
}

TEST_CASE("all is a reduction and an index") {
  const Tensor<float> x({2, 3}, {1, 2, 0, 4, 5, 6});
  CHECK(whole(ef::all(x)) == std::vector<std::int64_t>{0});
  CHECK(whole(ef::all(x, {1})) == std::vector<std::int64_t>{0, 1});
  CHECK(ef::all(x(ef::all, 0)).item());
  CHECK(whole(ef::all(x(1, ef::all))) == std::vector<std::int64_t>{1});
  CHECK(values(ef::assign(x, {ef::all, 1}, 0).value()) == std::vector<float>{1, 0, 0, 4, 0, 6});
  const Var<float> v(x);
  CHECK(values(v(ef::all, 2).value()) == std::vector<float>{0, 6});
}

TEST_CASE("any, all, count_nonzero: types, NaN, shapes, long rows, nothing") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(ef::count_nonzero(Tensor<double>({4}, {0, -0.0, nan, 1})).item() == 2);
  CHECK(ef::any(Tensor<double>({2}, {0, nan})).item());
  CHECK(whole(ef::count_nonzero(Tensor<std::int32_t>({2, 2}, {0, 3, 4, 5}), {0})) ==
        std::vector<std::int64_t>{1, 2});
  CHECK(whole(ef::any(Tensor<std::int64_t>({2, 2}, {0, 0, 4, 5}), {-1})) == std::vector<std::int64_t>{0, 1});
  CHECK(ef::any(Tensor<bool>::full({2, 3, 4}, true), {0, 2}, true).shape() == Shape{1, 3, 1});
  CHECK(ef::all(Tensor<bool>::full({2, 3, 4}, true), {1}).shape() == Shape{2, 4});
  Tensor<bool> flags = Tensor<bool>::full({2, 50001}, true);
  CHECK(whole(ef::count_nonzero(flags, {1})) == std::vector<std::int64_t>{50001, 50001});
  flags(1, 40000) = false;
  CHECK(ef::count_nonzero(flags).item() == 100001);
  CHECK(whole(ef::all(flags, {1})) == std::vector<std::int64_t>{1, 0});
  const Tensor<float> none(Shape{2, 0});
  CHECK(whole(ef::any(none, {1})) == std::vector<std::int64_t>{0, 0});
  CHECK(whole(ef::all(none, {1})) == std::vector<std::int64_t>{1, 1});
  CHECK(ef::all(none).item());
  CHECK(ef::count_nonzero(none).item() == 0);
  CHECK_THROWS_AS((void)ef::any(none, {2}), IndexError);
  CHECK_THROWS_AS((void)ef::all(none, {0, -2}), ShapeError);
}

TEST_CASE("argmax, argmin: ties, NaN, axes, shapes, nothing") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor<double> x({2, 4}, {3, 7, 7, 1, 1, nan, 9, nan});
  CHECK(whole(ef::argmax(x, 1)) == std::vector<std::int64_t>{1, 1});
  CHECK(whole(ef::argmin(x, -1)) == std::vector<std::int64_t>{3, 1});
  CHECK(whole(ef::argmin(x, 0)) == std::vector<std::int64_t>{1, 1, 0, 1});
  CHECK(ef::argmax(x).item() == 5);
  CHECK(ef::argmin(Tensor<float>({2, 2}, {4, 2, 2, 3})).item() == 1);
  CHECK(ef::argmax(x, 0, true).shape() == Shape{1, 4});
  CHECK(ef::argmax(x, std::nullopt, true).shape() == Shape{1, 1});
  CHECK(ef::argmax(Tensor<float>::scalar(3)).item() == 0);
  const Tensor<float> none(Shape{2, 0});
  CHECK(ef::argmin(none, 0).shape() == Shape{0});
  CHECK(message_of<ValueError>([&] { (void)ef::argmin(none, 1); }) ==
        "[argmin] input of shape (2, 0) has no entries, must have at least one");
  CHECK_THROWS_AS((void)ef::argmax(none), ValueError);
  CHECK_THROWS_AS((void)ef::argmax(x, 2), IndexError);
}
