/// Linear regression twice: by least squares in one step, and by gradient descent, which finds the same
/// weights. Prints both and the largest difference.
///
///     regression [STEPS]

#include <cstdio>
#include <limits>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"
#include "eigenformer/linalg.hpp"

namespace ef = eigenformer;

int run(const example::Arguments& arguments) {
  // 200 points with three numbers each, and a column of ones for the constant; noise on what is observed.
  ef::RandomGenerator rng(1);
  const auto points = ef::normal<double>({200, 3}, rng);
  const auto x = ef::concat({points, ef::Tensor<double>::ones({200, 1})}, 1).value();
  const ef::Tensor<double> truth({4}, {1.5, -2, 0.5, 3});
  const auto y = (ef::matmul(x, truth) + 0.1 * ef::normal<double>({200}, rng)).value();

  const auto exact = ef::lstsq(x, y).value();

  auto w = ef::Tensor<double>::zeros({4});
  for (ef::index_t step = 0; step < arguments.whole(0, 300); ++step) {
    ef::Tape<double> tape;
    const auto v = tape.variable(w);
    tape.backward(ef::mean(ef::square(ef::matmul(x, v) - y)));
    w = (w - 0.2 * tape.gradient(v)).value();
  }

  std::printf("       truth  least squares  gradient descent\n");
  for (ef::index_t i = 0; i < 4; ++i) std::printf("%12.4f %14.4f %17.4f\n", truth(i), exact(i), w(i));
  std::printf("largest difference %.1e\n",
              ef::norm(exact - w, {}, false, std::numeric_limits<double>::infinity()).item());
  return 0;
}

int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, run); }
