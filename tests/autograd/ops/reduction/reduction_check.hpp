#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "autograd/op_check.hpp"
#include "fixtures.hpp"

namespace eigenformer::testing {

namespace ef = eigenformer;

/// CHECKs that two tensors agree relative to max(1, |expected|), and that NaN and infinities are the same.
template <class T>
void check_all_close(const Tensor<T>& actual, const Tensor<double>& expected, double tolerance) {
  REQUIRE(actual.shape() == expected.shape());
  for (index_t i = 0; i < actual.numel(); ++i) {
    const double a = static_cast<double>(actual.data()[i]), e = expected.data()[i];
    const bool same = std::isnan(e)   ? std::isnan(a)
                      : std::isinf(e) ? a == e
                                      : std::abs(a - e) <= tolerance * std::max(1.0, std::abs(e));
    CHECK_MESSAGE(same, "element " << i << " is " << a << ", expected " << e);
  }
}

/// The fixture of reductions; generate.py says what is in it.
inline const Fixture& reductions() {
  static const Fixture fixture("ops/reductions");
  return fixture;
}

/// Calls use(source, axes, the two as in names) for every result of an operation in the fixture.
template <class F>
void for_each_result(const std::string& op, const F& use) {
  int found = 0;
  for (const TensorInfo& info : reductions().file().infos()) {
    if (!info.name.starts_with(op + ".")) continue;
    const std::string rest = info.name.substr(op.size() + 1);
    std::vector<index_t> axes;
    for (const char c : rest.substr(2)) axes.push_back(c - '0');
    CAPTURE(info.name);
    use(rest.substr(0, 1), axes, rest);
    ++found;
  }
  CHECK(found >= 3);
}

/// CHECKs values and gradients of f(x, axes) against every result of `op` in the fixture; without `nan`, not
/// the gradients that are NaN in PyTorch or belong to a NaN.
template <class T, class F>
void check_fixture(const std::string& op, const F& f, bool nan = true) {
  const double tolerance = std::is_same_v<T, float> ? 1e-5 : 1e-13;
  for_each_result("out." + op, [&](const std::string& source, const auto& axes, const std::string& rest) {
    const std::string key = op + "." + rest;
    Tape<T> tape;
    const Var<T> x = tape.variable(reductions().get<T>("in." + source));
    const Var<T> y = f(x, axes);
    check_all_close(y.value(), reductions().get<double>("out." + key), tolerance);
    Gradients<T> none;
    tape.backward(y, reductions().get<T>("in.cotangent." + key), none);
    auto dx = tape.gradient(x);
    auto expected = reductions().get<double>("grad_in." + key).clone();
    for (index_t i = 0; i < (nan ? 0 : dx.numel()); ++i) {
      if (!std::isnan(expected.data()[i]) && !std::isnan(x.value().data()[i])) continue;
      dx.data()[i] = T(0);
      expected.data()[i] = 0;
    }
    check_all_close(dx, expected, tolerance * 10);
  });
}

}  // namespace eigenformer::testing
