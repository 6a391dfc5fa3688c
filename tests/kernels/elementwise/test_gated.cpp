#include "eigenformer/kernels/elementwise/activation.hpp"

#include <vector>

#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

constexpr Activation all[] = {Activation::none,      Activation::relu,         Activation::gelu,
                              Activation::gelu_tanh, Activation::silu,         Activation::sigmoid,
                              Activation::tanh,      Activation::relu_squared, Activation::elu_plus_one};

TEST_CASE_TEMPLATE("a gated tile and its gradients are those of the activation and the product", T, float,
                   double) {
  for_each_isa([&] {
    for (const index_t cols : {1, 7, 16, 19, 35}) {
      const index_t rows = 3, ld = 41, ld_dy = 43, ld_dgate = 47, ld_dup = 53;
      const auto gate = random_values<T>(rows * ld, 1), up = random_values<T>(rows * ld, 2),
                 dy = random_values<T>(rows * ld_dy, 3);
      for (const Activation activation : all) {
        CAPTURE(static_cast<int>(activation));
        for (const T beta : {T(0), T(1)}) {
          std::vector<T> y(static_cast<std::size_t>(rows * ld_dy), T(77));
          std::vector<T> dgate(static_cast<std::size_t>(rows * ld_dgate), T(0.5)),
              dup(static_cast<std::size_t>(rows * ld_dup), T(0.25));
          detail::kernels::gated_tile(activation, gate.data(), ld, up.data(), ld, y.data(), ld_dy, rows,
                                      cols);
          detail::kernels::gated_backward_tile(activation, gate.data(), up.data(), ld, dy.data(), ld_dy, beta,
                                               dgate.data(), ld_dgate, dup.data(), ld_dup, rows, cols);
          for (index_t r = 0; r < rows; ++r) {
            for (index_t c = 0; c < ld; ++c) {
              const auto at = [r, c](index_t width) { return static_cast<std::size_t>(r * width + c); };
              if (c >= cols) {
                REQUIRE(y[at(ld_dy)] == T(77));
                REQUIRE(dgate[at(ld_dgate)] == T(0.5));
                REQUIRE(dup[at(ld_dup)] == T(0.25));
                continue;
              }
              T value = gate[at(ld)], slope = T(1);
              detail::kernels::activation_forward(activation, &value, &value, 1);
              const T operand =
                  detail::kernels::activation_backward_takes_output(activation) ? value : gate[at(ld)];
              detail::kernels::activation_backward(activation, &operand, &slope, &slope, T(0), 1);
              const auto close = [](T a, T b) {
                return std::abs(static_cast<double>(a) - static_cast<double>(b)) < 20 * tolerance<T>;
              };
              REQUIRE(close(y[at(ld_dy)], value * up[at(ld)]));
              REQUIRE(close(dgate[at(ld_dgate)], beta * T(0.5) + slope * up[at(ld)] * dy[at(ld_dy)]));
              REQUIRE(close(dup[at(ld_dup)], beta * T(0.25) + value * dy[at(ld_dy)]));
            }
          }
        }
      }
    }
  });
}

TEST_CASE_TEMPLATE("a gated tile may be written over its gate, and its gradient over dy", T, float, double) {
  const index_t n = 35;
  const auto gate = random_values<T>(n, 1), up = random_values<T>(n, 2), dy = random_values<T>(n, 3);
  std::vector<T> y(gate.size()), place = gate, dgate(gate.size()), dup(gate.size()), again(gate.size()),
                                 over = dy;
  detail::kernels::gated_tile(Activation::silu, gate.data(), n, up.data(), n, y.data(), n, 1, n);
  detail::kernels::gated_tile(Activation::silu, place.data(), n, up.data(), n, place.data(), n, 1, n);
  CHECK(place == y);
  detail::kernels::gated_backward_tile(Activation::silu, gate.data(), up.data(), n, dy.data(), n, T(0),
                                       dgate.data(), n, dup.data(), n, 1, n);
  detail::kernels::gated_backward_tile(Activation::silu, gate.data(), up.data(), n, over.data(), n, T(0),
                                       over.data(), n, again.data(), n, 1, n);
  CHECK(over == dgate);
  CHECK(again == dup);
}

}  // namespace
