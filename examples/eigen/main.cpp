/// Eigen in, Eigen out: a small network learns from Eigen matrices without explicit copies, and its
/// predictions are an Eigen matrix. Prints the error on new data.
///
///     eigen [STEPS]

#include <Eigen/Core>
#include <cstdio>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

struct Network {
  using value_type = float;
  ef::Linear<float> hidden, output;
  explicit Network(ef::RandomGenerator& rng) : hidden({2, 48}, rng), output({48, 1}, rng) {}
  ef::Var<float> operator()(const ef::Context<float>& ctx, const ef::Var<float>& x) const {
    return output(ctx, ef::tanh(hidden(ctx, x)));
  }
  static void fields(auto& self, auto&& visit) { visit("hidden", self.hidden), visit("output", self.output); }
};

// sin(x) y, row by row.
Eigen::MatrixXf wanted(const Eigen::MatrixXf& x) {
  return x.col(0).array().sin().matrix().cwiseProduct(x.col(1));
}

int run(const example::Arguments& arguments) {
  ef::RandomGenerator rng(1);
  Network network(rng);
  ef::Adam<float> adam(ef::parameters(network));
  ef::Gradients<float> gradients(ef::parameters(network));
  const Eigen::MatrixXf points = 2 * Eigen::MatrixXf::Random(512, 2), values = wanted(points);
  for (ef::index_t step = 0; step < arguments.whole(0, 300); ++step) {
    const ef::index_t first = step % 4 * 128;
    ef::Tape<float> tape;
    const auto ctx = ef::Context<float>::training(tape, rng);
    // Blocks and expressions of Eigen are inputs of modules and ops.
    const auto predicted = network(ctx, points.middleRows(first, 128));
    const auto loss = ef::mean(ef::square(ef::subtract(predicted, values.middleRows(first, 128))));
    gradients.zero();
    tape.backward(loss, gradients);
    adam.step(gradients, 1e-2);
  }
  const Eigen::MatrixXf unseen = 2 * Eigen::MatrixXf::Random(200, 2);
  const Eigen::MatrixXf found = ef::as_eigen(network(ef::Context<float>::inference(), unseen).value());
  std::printf("mean squared error %.4f\n", (found - wanted(unseen)).squaredNorm() / 200);
  return 0;
}

int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, run); }
