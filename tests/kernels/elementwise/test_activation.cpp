#include "eigenformer/kernels/elementwise/activation.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

constexpr Activation all[] = {Activation::none,      Activation::relu,         Activation::gelu,
                              Activation::gelu_tanh, Activation::silu,         Activation::sigmoid,
                              Activation::tanh,      Activation::relu_squared, Activation::elu_plus_one};

double value(Activation activation, double x) {
  const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(u));
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
  }
  return 0;
}

/// The derivative by central differences; the points of the tests keep away from relu's kink.
double slope(Activation activation, double x) {
  const double h = 1e-4;
  return (8 * (value(activation, x + h) - value(activation, x - h)) -
          (value(activation, x + 2 * h) - value(activation, x - 2 * h))) /
         (12 * h);
}

TEST_CASE_TEMPLATE("activations and their gradients equal a plain loop", T, float, double) {
  for_each_isa([&] {
    for (const Activation activation : all) {
      CAPTURE(static_cast<int>(activation));
      for (const index_t n : edge_sizes) {
        const auto x = random_values<T>(n, 1, -6, 6), dy = random_values<T>(n, 2);
        std::vector<double> expected, gradient, added;
        for (std::size_t i = 0; i < x.size(); ++i) {
          expected.push_back(value(activation, static_cast<double>(x[i])));
          gradient.push_back(slope(activation, static_cast<double>(x[i])) * static_cast<double>(dy[i]));
          added.push_back(gradient.back() + 0.5);
        }
        std::vector<T> y(x.size()), dx(x.size(), std::numeric_limits<T>::quiet_NaN());
        detail::kernels::activation_forward(activation, x.data(), y.data(), n);
        CHECK(worst_error(y, expected) < tolerance<T>);
        const T* operand =
            detail::kernels::activation_backward_takes_output(activation) ? y.data() : x.data();
        detail::kernels::activation_backward(activation, operand, dy.data(), dx.data(), T(0), n);
        const double close = std::max(tolerance<T>, 1e-10);
        CHECK(worst_error(dx, gradient) < close);
        dx.assign(x.size(), T(0.5));
        detail::kernels::activation_backward(activation, operand, dy.data(), dx.data(), T(1), n);
        CHECK(worst_error(dx, added) < close);
      }
    }
  });
}

TEST_CASE_TEMPLATE("relu passes the gradient of NaN on, as PyTorch does", T, float, double) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for_each_isa([&] {
    for (const index_t n : edge_sizes) {
      CAPTURE(n);
      const auto dy = random_values<T>(n, 2);
      const std::vector<T> x(dy.size(), nan);
      std::vector<T> y(dy.size()), dx(dy.size(), nan);
      detail::kernels::activation_forward(Activation::relu, x.data(), y.data(), n);
      for (const T v : y) CHECK(std::isnan(v));
      detail::kernels::activation_backward(Activation::relu, y.data(), dy.data(), dx.data(), T(0), n);
      CHECK(dx == dy);
      detail::kernels::activation_backward_tile(Activation::relu, x.data(), n, dy.data(), dx.data(), n, T(0),
                                                1, n);
      CHECK(dx == dy);
    }
  });
}

TEST_CASE_TEMPLATE("tails and NaN", T, float, double) {
  for_each_isa([&] {
    const T nan = std::numeric_limits<T>::quiet_NaN();
    const std::vector<T> x = {T(1e20), T(-1e20), T(100), T(-100), nan}, dy(5, T(1));
    for (const Activation activation : all) {
      if (activation == Activation::relu_squared || activation == Activation::elu_plus_one)
        continue;  // other bounds
      CAPTURE(static_cast<int>(activation));
      std::vector<T> y(5), dx(5);
      detail::kernels::activation_forward(activation, x.data(), y.data(), 5);
      const bool output = detail::kernels::activation_backward_takes_output(activation);
      detail::kernels::activation_backward(activation, output ? y.data() : x.data(), dy.data(), dx.data(),
                                           T(0), 5);
      const bool bounded = activation == Activation::sigmoid || activation == Activation::tanh;
      const double low = activation == Activation::tanh ? -1 : 0;
      CHECK(y[2] == (bounded ? T(1) : T(100)));
      if (activation != Activation::none) {
        CHECK(std::abs(static_cast<double>(y[3]) - low) < 1e-30);
        CHECK(std::abs(static_cast<double>(dx[1])) < 1e-30);
        CHECK(static_cast<double>(dx[0]) == doctest::Approx(bounded ? 0 : 1));
      }
      CHECK(std::isnan(y[4]));
    }
  });
}

TEST_CASE_TEMPLATE("a tile leaves the gaps alone", T, float, double) {
  for_each_isa([&] {
    const index_t rows = 3, cols = 19, ldx = 23, ldy = 29;
    const auto x = random_values<T>(rows * ldx, 1), dy = random_values<T>(rows * ldy, 3);
    for (const Activation activation : all) {
      std::vector<T> y(static_cast<std::size_t>(rows * ldy), T(77)), dx(y);
      detail::kernels::activation_tile(activation, x.data(), ldx, y.data(), ldy, rows, cols);
      const bool output = detail::kernels::activation_backward_takes_output(activation);
      detail::kernels::activation_backward_tile(activation, output ? y.data() : x.data(), output ? ldy : ldx,
                                                dy.data(), dx.data(), ldy, T(0), rows, cols);
      for (index_t r = 0; r < rows; ++r) {
        for (index_t c = 0; c < ldy; ++c) {
          const auto at = static_cast<std::size_t>(r * ldy + c);
          if (c >= cols) {
            REQUIRE(y[at] == T(77));
            REQUIRE(dx[at] == T(77));
            continue;
          }
          const auto input = static_cast<double>(x[static_cast<std::size_t>(r * ldx + c)]);
          REQUIRE(static_cast<double>(y[at]) == doctest::Approx(value(activation, input)).epsilon(1e-5));
          REQUIRE(static_cast<double>(dx[at]) ==
                  doctest::Approx(slope(activation, input) * static_cast<double>(dy[at])).epsilon(1e-4));
        }
      }
    }
  });
}

}  // namespace
