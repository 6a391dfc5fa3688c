/// A score rule of your own in every attention of a model: scores decrease with the square root of the
/// distance, with soft capping (Gemma 2). Prints how much the outputs differ with and without it, and whether
/// its gradients are right.

#include <cmath>
#include <cstdio>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

// Called for each tile; backward multiplies by the derivative. A rule that only adds has `additive = true`.
struct CappedDistance {
  double slope = 0.5, cap = 3;

  template <class T>
  void operator()(ef::ScoreTile<T>& tile) const {
    const T c = static_cast<T>(cap), by = static_cast<T>(slope);
    for (ef::index_t i = 0; i < tile.rows; ++i) {
      for (ef::index_t j = 0; j < tile.columns; ++j) {
        const T distance = std::sqrt(std::abs(static_cast<T>(tile.query + i - tile.key - j)));
        tile.row(i)[j] = c * std::tanh((tile.row(i)[j] - by * distance) / c);
      }
    }
  }
  template <class T>
  void backward(const ef::ScoreTile<T>& tile, T* gradient) const {
    for (ef::index_t i = 0; i < tile.rows; ++i) {
      for (ef::index_t j = 0; j < tile.columns; ++j) {
        const T t = tile.row(i)[j] / static_cast<T>(cap);
        gradient[i * tile.stride + j] *= 1 - t * t;
      }
    }
  }
};

int run(const example::Arguments&) {
  ef::RandomGenerator rng(1);
  ef::Encoder<double> encoder(
      {.num_layers = 2,
       .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20, .activation = ef::Activation::gelu}},
      rng);
  ef::Tensor<double> x({2, 7, 12});
  rng.fill_normal(x.data(), x.numel(), 0, 1);
  const auto ctx = ef::Context<double>::inference();
  const auto plain = encoder(ctx, x).value();
  for (auto& layer : encoder.layers) layer.self_attn.score_rule = CappedDistance{};
  const auto ruled = encoder(ctx, x).value();
  std::printf("largest difference that the rule makes to an output: %.3f\n",
              (ef::as_array(plain) - ef::as_array(ruled)).abs().maxCoeff());
  const auto result = ef::grad_check(
      [&](ef::Tape<double>& tape, const std::vector<ef::Var<double>>& in) {
        return ef::sum(encoder(ef::Context<double>::checking(tape), in[0], ef::AttentionMask::causal()));
      },
      {x}, ef::parameters(encoder));
  std::printf("gradients of the rule: %s\n", result.ok ? "right" : result.str().c_str());
  return result.ok ? 0 : 1;
}

int main(int argc, char** argv) { return example::run(argc, argv, {}, run); }
