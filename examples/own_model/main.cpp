/// A model of your own: a language model of convolutions, without attention. It has the members that
/// generation needs, so beam search and sampling work with it. Learns to count; prints how it continues 5
/// 6 7.

#include <cstdio>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;
using Tokens = ef::Tensor<std::int32_t>;
struct ConvolutionModel {
  using value_type = float;
  using Input = std::vector<std::int32_t>;  // what generate() takes: a prompt
  ef::Embedding<float> embedding;
  ef::Parameter<float> filter;  // (3, D)
  ef::Linear<float> projection;
  ConvolutionModel(ef::index_t ids, ef::index_t d, ef::RandomGenerator& rng)
      : embedding({ids, d}, rng),
        filter(ef::init::normal<float>({3, d}, rng, 0, 1)),
        projection({d, ids}, rng) {
    ef::name_parameters(*this);
  }
  ef::Var<float> rows(const ef::Context<float>& ctx, const Tokens& ids, ef::LayerPass<float>& pass) const {
    return ef::tanh(ef::sum(ef::multiply(pass.window(ctx, embedding(ctx, ids), 3), ctx.use(filter)), {1}));
  }
  ef::Var<float> logits(const ef::Context<float>& ctx, const ef::Var<float>& x) const {
    return projection(ctx, x);
  }
  ef::index_t vocabulary_size() const { return projection.weight.shape()[0]; }
  const Input& prompt(const Input& input) const { return input; }
  ef::DecoderState<float> begin(const ef::Context<float>& ctx, std::span<const Input> inputs) const {
    const auto run = [this](const auto& c, const Tokens& ids, auto& pass) { return rows(c, ids, pass); };
    return {ctx, static_cast<ef::index_t>(inputs.size()), {}, run};
  }
  static void fields(auto& self, auto&& visit) {
    visit("embedding", self.embedding), visit("filter", self.filter), visit("projection", self.projection);
  }
};
int run(const example::Arguments& arguments) {
  ef::RandomGenerator rng(1);
  ConvolutionModel model(20, 32, rng);
  ef::Adam<float> adam(ef::parameters(model));
  ef::Gradients<float> gradients(ef::parameters(model));
  const auto input = Tokens::from({8}, {4, 5, 6, 7, 8, 9, 10, 11}),
             output = Tokens::from({8}, {5, 6, 7, 8, 9, 10, 11, 3});
  for (ef::index_t step = 0; step < arguments.whole(0, 100); ++step) {
    ef::Tape<float> tape;
    const auto ctx = ef::Context<float>::training(tape, rng);
    ef::SequencePass<float> pass(ef::SequenceLayout::packed({8}));
    gradients.zero();
    tape.backward(ef::cross_entropy(model.logits(ctx, model.rows(ctx, input, pass)), output), gradients);
    adam.step(gradients, 1e-2);
  }
  const std::vector<std::vector<std::int32_t>> prompts = {{5, 6, 7}};
  const auto found = ef::generate(model, ef::Context<float>::inference(), prompts);
  std::printf("after 5 6 7:");
  for (const auto id : found[0][0].ids) std::printf(" %d", id);
  std::printf("\n");
  return 0;
}
int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, run); }
