/// A layer of your own: a causal depthwise convolution before an ordinary decoder layer. It is written once,
/// trains, and decodes with a cache. Learns to copy; prints a copy.
///
///     own_layer [STEPS]

#include <cstdio>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

template <class T>
struct ConvolutionLayer {
  using value_type = T;
  using Options = ef::LayerOptions;
  static constexpr bool is_decoder = true;

  ef::Parameter<T> filter;  // (3, D): of a token and the two before it
  ef::DecoderLayer<T> layer;

  ConvolutionLayer(const Options& options, ef::RandomGenerator& rng)
      : filter(ef::init::normal<T>({3, options.d_model}, rng, 0, 0.5)), layer(options, rng) {
    ef::name_parameters(*this);
  }
  ef::Var<T> operator()(const ef::Context<T>& ctx, const ef::Var<T>& x, ef::LayerPass<T>& pass) const {
    const ef::Var<T> near = pass.window(ctx, x, 3);  // (rows, 3, D)
    return layer(ctx, ef::sum(ef::multiply(near, ctx.use(filter)), {1}), pass);
  }
  ef::index_t d_model() const { return layer.d_model(); }
  static void fields(auto& self, auto&& visit) { visit("filter", self.filter), visit("", self.layer); }
};

int run(const example::Arguments& arguments) {
  ef::RandomGenerator rng(1);
  using Model = ef::Seq2SeqTransformer<float, ef::EncoderLayer<float>, ConvolutionLayer<float>>;
  Model model({.source_vocab_size = 20,
               .layer = {.d_model = 32, .num_heads = 4, .dim_feedforward = 64, .dropout = {0}},
               .encoder = {.num_layers = 1},
               .decoder = {.num_layers = 2}},
              rng);
  ef::Adam<float> adam(ef::parameters(model));
  ef::Gradients<float> gradients(ef::parameters(model));
  const auto source = ef::Tensor<std::int32_t>::from({2, 5}, {7, 8, 9, 10, 3, 14, 13, 12, 11, 3});
  const auto target = ef::Tensor<std::int32_t>::from({2, 5}, {2, 7, 8, 9, 10, 2, 14, 13, 12, 11});
  for (ef::index_t step = 0; step < arguments.whole(0, 100); ++step) {
    ef::Tape<float> tape;
    gradients.zero();
    const auto loss = model.loss(ef::Context<float>::training(tape, rng), source, target, source);
    tape.backward(loss, gradients);
    adam.step(gradients, 3e-3);
  }
  const std::vector<std::vector<std::int32_t>> sentences = {{14, 13, 12, 11, 3}};
  const auto found = ef::generate(model, ef::Context<float>::inference(), sentences);
  std::printf("the copy of 14 13 12 11:");
  for (const auto id : found[0][0].ids) std::printf(" %d", id);
  std::printf("\n");
  return 0;
}

int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, run); }
