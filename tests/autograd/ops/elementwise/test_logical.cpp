#include "eigenformer/autograd/ops/elementwise/compare.hpp"

#include <cmath>
#include <cstdint>
#include <sstream>
#include <vector>

#include <doctest/doctest.h>

#include "elementwise_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;
namespace ef = eigenformer;

#include "eigenformer/core/tensor/print.hpp"

using Bools = std::vector<bool>;

TEST_CASE("logical functions") {
  const Tensor<bool> a = Tensor<bool>::from({2, 1}, {false, true}),
                     b = Tensor<bool>::from({2}, {false, true});
  CHECK(values(ef::logical_and(a, b)) == Bools{false, false, false, true});
  CHECK(values(ef::logical_or(a, b)) == Bools{false, true, true, true});
  CHECK(values(ef::logical_xor(a, b)) == Bools{false, true, true, false});
  CHECK(values(ef::logical_not(a)) == Bools{true, false});
  CHECK_THROWS_AS((void)ef::logical_or(b, Tensor<bool>::from({3}, {true, true, true})), ShapeError);
}

TEST_CASE_TEMPLATE("isnan, isinf, isfinite, isclose", T, float, double) {
  const T inf = static_cast<T>(HUGE_VAL), nan = static_cast<T>(std::nan(""));
  const Tensor<T> x = Tensor<T>::from({4}, {nan, inf, -inf, T(1)});
  CHECK(values(ef::isnan(x)) == Bools{true, false, false, false});
  CHECK(values(ef::isinf(Var<T>(x))) == Bools{false, true, true, false});
  CHECK(values(ef::isfinite(x)) == Bools{false, false, false, true});
  CHECK(values(ef::isclose(x, x)) == Bools{false, true, true, true});
  CHECK(values(ef::isclose(x, x, 1e-5, 1e-8, true)) == Bools{true, true, true, true});
  CHECK(values(ef::isclose(x, 1.000001)) == Bools{false, false, false, true});
  CHECK(values(ef::isclose(x, 1.1, 0, 0.2)) == Bools{false, false, false, true});
  CHECK_THROWS_AS((void)ef::isclose(x, x, -1), ValueError);
}

TEST_CASE("comparisons of int64 are exact, and a Var prints as its value") {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const auto a = Tensor<std::int64_t>::from({3}, {big, big, -big});
  const auto b = Tensor<std::int64_t>::from({3}, {big - 1, big, 1 - big});
  CHECK(values(ef::equal(a, b)) == Bools{false, true, false});
  CHECK(values(ef::not_equal(a, b)) == Bools{true, false, true});
  CHECK(values(ef::less(a, b)) == Bools{false, false, true});
  CHECK(values(ef::less_equal(a, b)) == Bools{false, true, true});
  CHECK(values(ef::greater(a, b)) == Bools{true, false, false});
  CHECK(values(ef::greater_equal(a, b)) == Bools{true, true, false});
  const Tensor<float> t({2}, {1, 2});
  std::ostringstream of_tensor, of_var;
  of_tensor << t;
  of_var << Var<float>(t);
  CHECK(of_var.str() == of_tensor.str());
}
