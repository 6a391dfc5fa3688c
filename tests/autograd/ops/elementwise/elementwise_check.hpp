#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "autograd/op_check.hpp"
#include "fixtures.hpp"

namespace eigenformer::testing {

/// The fixture of functions of elements; generate.py says what is in it.
inline const Fixture& elementwise() {
  static const Fixture fixture("ops/elementwise");
  return fixture;
}

/// CHECKs that two tensors agree relative to max(1, |expected|), and that NaN and infinities are the same.
template <class T>
void check_elements(const Tensor<T>& actual, const Tensor<double>& expected) {
  REQUIRE(actual.shape() == expected.shape());
  const double tolerance = std::is_same_v<T, float> ? 2e-5 : 1e-12;
  for (index_t i = 0; i < actual.numel(); ++i) {
    const double a = static_cast<double>(actual.data()[i]), e = expected.data()[i];
    // Floats overflow where the doubles of the fixture do not.
    const bool same =
        std::isnan(e) ? std::isnan(a)
        : std::isinf(e) || std::abs(e) > 3e38
            ? (std::is_same_v<T, float> ? std::abs(a) > 3e38 : std::abs(a - e) < 1e300 || a == e)
            : std::abs(a - e) <= tolerance * std::max(1.0, std::abs(e));
    CHECK_MESSAGE(same, "element " << i << " is " << a << ", expected " << e);
  }
}

/// 0.5 to 1.5 in equal steps, the gradients of results in the fixture.
template <class T>
Tensor<T> cotangent(const Shape& shape) {
  Tensor<T> t(shape);
  for (index_t i = 0; i < t.numel(); ++i) {
    t.data()[i] = static_cast<T>(0.5 + static_cast<double>(i) / static_cast<double>(t.numel() - 1));
  }
  return t;
}

/// CHECKs value and gradient of f(x) against PyTorch's, and f of no elements; without `special`, not the
/// gradients of NaN and infinities.
template <class T, class F>
void check_unary(const std::string& op, F f, bool special = true) {
  CAPTURE(op);
  Tape<T> tape;
  const Var<T> x = tape.variable(elementwise().get<T>("in.x"));
  const Var<T> y = f(x);
  check_elements(y.value(), elementwise().get<double>("out." + op));
  Gradients<T> none;
  tape.backward(y, cotangent<T>(y.shape()), none);
  auto dx = tape.gradient(x).clone();
  auto expected = elementwise().get<double>("grad_in." + op).clone();
  for (index_t i = 0; i < (special ? 0 : dx.numel()); ++i) {
    if (std::isfinite(x.value().data()[i])) continue;
    dx.data()[i] = T(0);
    expected.data()[i] = 0;
  }
  check_elements(dx, expected);
  CHECK(f(Var<T>(Tensor<T>(Shape{0, 3}))).shape() == Shape{0, 3});
}

/// CHECKs value and gradients of f(a, b) against PyTorch's, of the operands of these names in the fixture.
template <class T, class F>
void check_pair(const std::string& op, F f, const std::string& first = "in.a",
                const std::string& second = "in.b") {
  CAPTURE(op);
  Tape<T> tape;
  const Var<T> a = tape.variable(elementwise().get<T>(first));
  const Var<T> b = tape.variable(elementwise().get<T>(second));
  const Var<T> y = f(a, b);
  check_elements(y.value(), elementwise().get<double>("out." + op));
  Gradients<T> none;
  tape.backward(y, cotangent<T>(y.shape()), none);
  check_elements(tape.gradient(a), elementwise().get<double>("grad_a." + op));
  check_elements(tape.gradient(b), elementwise().get<double>("grad_b." + op));
}

}  // namespace eigenformer::testing

// check_unary() of the operation of this name.
#define EIGENFORMER_CHECK_UNARY(name) check_unary<T>(#name, [](const Var<T>& x) { return ef::name(x); })
