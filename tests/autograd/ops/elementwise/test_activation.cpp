#include "eigenformer/autograd/ops/elementwise/activation.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

double reference(Activation f, double x) {
  switch (f) {
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
    case Activation::relu_squared:
      return x > 0 ? x * x : 0;
    case Activation::elu_plus_one:
      return x > 0 ? x + 1 : std::exp(x);
    case Activation::none:
      break;
  }
  return x;
}

constexpr Activation every_activation[] = {
    Activation::none,      Activation::relu,         Activation::gelu,
    Activation::gelu_tanh, Activation::silu,         Activation::sigmoid,
    Activation::tanh,      Activation::relu_squared, Activation::elu_plus_one};

}  // namespace

TEST_CASE("activations: gradients") {
  const std::vector<Tensor<double>> x = {away_from_zero({2, 3, 7}, 1, 0.05, 4.0)};
  check_op([](const Vars& v) { return relu(v[0]); }, x);
  check_op([](const Vars& v) { return gelu(v[0]); }, x);
  check_op([](const Vars& v) { return gelu_tanh(v[0]); }, x);
  check_op([](const Vars& v) { return silu(v[0]); }, x);
  check_op([](const Vars& v) { return sigmoid(v[0]); }, x);
  check_op([](const Vars& v) { return tanh(v[0]); }, x);
  check_op([](const Vars& v) { return relu_squared(v[0]); }, x);
  check_op([](const Vars& v) { return elu_plus_one(v[0]); }, x);
  check_op([](const Vars& v) { return gelu(v[0]); }, {Tensor<double>::scalar(0.3)});
}

TEST_CASE_TEMPLATE("activations: values over the whole range, for sizes around the vectors'", T, float,
                   double) {
  const double tolerance = std::is_same_v<T, float> ? 3e-6 : 1e-13;
  for (const Activation f : every_activation) {
    CAPTURE(static_cast<int>(f));
    for (const index_t n : {1, 7, 8, 9, 16, 17, 67}) {
      Tensor<double> x(Shape{n}), y(Shape{n});
      for (index_t i = 0; i < n; ++i)
        x.data()[i] = -30 + 60.0 * static_cast<double>(i) / static_cast<double>(n);
      const Var<T> v = x.to<T>();
      for (index_t i = 0; i < n; ++i) y.data()[i] = reference(f, static_cast<double>(v.value().data()[i]));
      CHECK(worst_difference(activate(v, f).value(), y) < tolerance);
    }
  }
}

TEST_CASE("activations: each name is its own function") {
  const Var<double> x = Tensor<double>::from({1}, {0.7});
  CHECK(relu(x).item() == 0.7);
  CHECK(gelu(x).item() == doctest::Approx(reference(Activation::gelu, 0.7)).epsilon(1e-12));
  CHECK(gelu_tanh(x).item() == doctest::Approx(reference(Activation::gelu_tanh, 0.7)).epsilon(1e-12));
  CHECK(silu(x).item() == doctest::Approx(reference(Activation::silu, 0.7)).epsilon(1e-12));
  CHECK(sigmoid(x).item() == doctest::Approx(reference(Activation::sigmoid, 0.7)).epsilon(1e-12));
  CHECK(tanh(x).item() == doctest::Approx(reference(Activation::tanh, 0.7)).epsilon(1e-12));
  CHECK(std::abs(gelu(x).item() - gelu_tanh(x).item()) > 1e-5);
}

TEST_CASE("activations: extreme inputs stay finite, NaN stays NaN") {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor<float> x = Tensor<float>::from({4}, {1e30f, -1e30f, inf, -inf});
  CHECK(values(sigmoid(Var<float>(x)).value()) == std::vector<float>{1, 0, 1, 0});
  CHECK(values(tanh(Var<float>(x)).value()) == std::vector<float>{1, -1, 1, -1});
  CHECK(values(relu(Var<float>(x)).value()) == std::vector<float>{1e30f, 0, inf, 0});
  CHECK(std::isfinite(gelu(Var<float>(x)).value().at({0})));
  CHECK(gelu(Var<float>(x)).value().at({1}) == 0);
  CHECK(silu(Var<float>(x)).value().at({1}) == 0);
  const Var<float> nan = Tensor<float>::full({1}, std::numeric_limits<float>::quiet_NaN());
  for (const Activation f : every_activation) CHECK(std::isnan(activate(nan, f).item()));
}

TEST_CASE("relu: the gradient at 0 is 0") {
  Tape<double> tape;
  const Var<double> x = tape.variable(Tensor<double>::from({3}, {-1, 0, 2}));
  tape.backward(sum(relu(x)));
  CHECK(values(tape.gradient(x)) == std::vector<double>{0, 0, 1});
}

TEST_CASE("activations: gradients of large inputs are finite") {
  for (const Activation f : every_activation) {
    CAPTURE(static_cast<int>(f));
    Tape<float> tape;
    const Var<float> x = tape.variable(Tensor<float>::from({4}, {-500, -50, 50, 500}));
    tape.backward(sum(activate(x, f)));
    for (const float g : values(tape.gradient(x))) CHECK(std::isfinite(g));
  }
}
