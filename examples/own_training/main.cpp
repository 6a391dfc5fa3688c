/// A model of your own, trained by ef::train: does a point lie inside the unit circle? Norms and biases have
/// no weight decay, and the output layer has half the learning rate. Prints the first and the last loss.
///
///     own_training [STEPS]

#include <cstdio>
#include <iostream>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"
#include "eigenformer/train/loop/loop.hpp"
#include "eigenformer/train/reporting/console_sink.hpp"

namespace ef = eigenformer;

struct Batch {
  ef::Tensor<float> points{ef::Shape{64, 2}};
  ef::Tensor<std::int32_t> inside{ef::Shape{64}};
  explicit Batch(ef::index_t step) {
    ef::RandomGenerator rng(static_cast<std::uint64_t>(step));
    rng.fill_normal(points.data(), points.numel(), 0, 1);
    const auto square = [&](ef::index_t i, ef::index_t k) { return points.at({i, k}) * points.at({i, k}); };
    for (ef::index_t i = 0; i < 64; ++i) inside.at({i}) = square(i, 0) + square(i, 1) < 1 ? 1 : 0;
  }
};

struct Classifier {
  using value_type = float;
  ef::Linear<float> hidden, output;
  ef::LayerNorm<float> norm;
  explicit Classifier(ef::RandomGenerator& rng)
      : hidden({.in_features = 2, .out_features = 32}, rng),
        output({.in_features = 32, .out_features = 2}, rng),
        norm({.size = 32}) {}
  ef::Var<float> loss(const ef::Context<float>& ctx, const Batch& batch) const {
    return ef::cross_entropy(output(ctx, norm(ctx, ef::tanh(hidden(ctx, batch.points)))), batch.inside);
  }
  static void fields(auto& self, auto&& visit) {
    visit("hidden", self.hidden), visit("output", self.output), visit("norm", self.norm);
  }
};

struct Losses : ef::TrainingSink {
  ef::ConsoleSink console{std::clog, example::terminal()};
  double first = -1, last = 0;
  void on_step(const ef::StepReport& r) override {
    first < 0 ? first = last = r.loss : last = r.loss;
    console.on_step(r);
  }
};
int run(const example::Arguments& arguments) {
  ef::RandomGenerator rng(1);
  Classifier model(rng);
  ef::AdamW<float> optimizer(ef::parameters(model), {.groups = {{.pattern = "output.*", .rate = 0.5}}});
  Losses losses;
  const auto loss = [&](const ef::Context<float>& ctx, const Batch& batch) { return model.loss(ctx, batch); };
  const auto rate = [](ef::index_t step) { return ef::schedule::cosine(step, 0.02, 0, 300); };
  ef::train(
      ef::parameters(model), loss, [](ef::index_t step) { return Batch(step); }, optimizer, rate,
      {.max_steps = arguments.whole(0, 300), .report_every = 1}, losses);
  std::printf("first loss %.3f, last loss %.3f\n", losses.first, losses.last);
  return 0;
}
int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, run); }
