/// A convolutional network tells rings, squares, crosses and triangles apart, in images that the program
/// draws under noise. Prints the share of new images that it names correctly, and fails if it is below 95 %
/// after at least 600 steps (the default).
///
///     conv_net [STEPS]

#include <cstdio>

#include "../arguments.hpp"
#include "../shapes.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

namespace {

// A convolution with a norm, a ReLU and the largest of each 2 x 2 pixels.
auto block(ef::index_t in, ef::index_t out, ef::RandomGenerator& rng) {
  return ef::Sequential(
      ef::Conv2d<float>(
          {.in_channels = in, .out_channels = out, .kernel_size = 3, .padding = 1, .bias = false}, rng),
      ef::BatchNorm<float>({.num_features = out}), [](const auto& x) { return ef::relu(x); },
      [](const auto& x) { return ef::max_pool2d(x, 2); });
}

int train_and_test(const example::Arguments& arguments) {
  const ef::index_t steps = arguments.whole(0, 600);
  ef::RandomGenerator rng(1);
  ef::Sequential model(
      block(1, 8, rng), block(8, 16, rng),              // (N, 16, 4, 4)
      [](const auto& x) { return ef::flatten(x, 1); },  // (N, 256)
      ef::Dropout<float>(0.1),                          //
      ef::Linear<float>({.in_features = 256, .out_features = 4}, rng));
  const auto parameters = ef::parameters(model);
  ef::Adam<float> optimizer(parameters);
  ef::Gradients<float> gradients(parameters);
  std::printf("%lld parameters\n", static_cast<long long>(ef::count_parameters(model)));
  for (ef::index_t step = 1; step <= steps; ++step) {
    const example::Shapes batch(64, rng);
    ef::Tape<float> tape;
    gradients.zero();
    const auto logits = model(ef::Context<float>::training(tape, rng), batch.images);
    const auto loss = ef::cross_entropy(logits, batch.labels);
    tape.backward(loss, gradients);
    optimizer.step(gradients, ef::schedule::cosine(step, 1e-2, 10, steps + 11));
    if (step % 100 == 0)
      std::printf("step %lld  loss %.3f\n", static_cast<long long>(step), static_cast<double>(loss.item()));
  }
  const example::Shapes test(1000, rng);
  const auto answers = ef::argmax(model(ef::Context<float>::inference(), test.images), 1);
  return example::accuracy(test, answers) >= 0.95 || steps < 600 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, train_and_test); }
