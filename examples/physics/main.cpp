/// Fits a physical law to noisy data: the stiffness, the damping and the start of an oscillator, by gradients
/// through the simulation of its motion. There is no model and no tape: ef::value_and_grad differentiates a
/// function.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

constexpr const char* names[] = {"stiffness", "damping", "position", "velocity"};

/// The positions of a mass of 1 at 120 times, for p = (stiffness, damping, first position, first velocity).
ef::Var<double> motion(const ef::Var<double>& p) {
  const double dt = 0.05;
  const auto stiffness = p(0), damping = p(1);
  auto x = p(2), v = p(3);
  std::vector<ef::Var<double>> positions;
  for (int i = 0; i < 120; ++i) {
    positions.push_back(x);
    v = v - dt * (stiffness * x + damping * v);
    x = x + dt * v;
  }
  return ef::stack(positions, 0);
}

int fit(const example::Arguments& arguments) {
  const std::int64_t steps = arguments.whole(0, 300);
  const ef::Tensor<double> truth({4}, {4, 0.3, 1.5, -0.5});
  ef::RandomGenerator rng(1);
  ef::Tensor<double> measured = motion(truth).value().clone();
  for (double& x : measured.span()) x += 0.02 * rng.normal();

  const auto loss = ef::value_and_grad([&](const auto& p) { return ef::mse_loss(motion(p), measured); });
  ef::Tensor<double> p({4}, {3, 0, 1, 0}), mean = ef::zeros_like(p), square = ef::zeros_like(p);
  double last = 0;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const auto [value, gradient] = loss(p);
    last = value;
    for (ef::index_t i = 0; i < 4; ++i) {  // Adam, Kingma and Ba 2015
      mean(i) = 0.9 * mean(i) + 0.1 * gradient(i);
      square(i) = 0.99 * square(i) + 0.01 * gradient(i) * gradient(i);
      const double m = mean(i) / (1 - std::pow(0.9, step)), s = square(i) / (1 - std::pow(0.99, step));
      p(i) -= 0.03 * m / (std::sqrt(s) + 1e-8);
    }
  }
  std::printf("found and true, with a mean squared error of %.5f:\n", last);
  for (ef::index_t i = 0; i < 4; ++i)
    std::printf("%-10s %7.3f %7.3f\n", names[static_cast<std::size_t>(i)], p(i), truth(i));
  return 0;
}

int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, fit); }
