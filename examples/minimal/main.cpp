#include <eigenformer/eigenformer.hpp>
#include <iostream>
namespace ef = eigenformer;

int main() {
  ef::RandomGenerator rng(1);
  ef::Seq2SeqTransformer<float> model(
      {.source_vocab_size = 20,
       .layer = {.d_model = 32, .num_heads = 4, .dim_feedforward = 64, .dropout = {0}},
       .encoder = {.num_layers = 1},
       .decoder = {.num_layers = 1}},
      rng);
  ef::Adam<float> adam(ef::parameters(model));
  ef::Gradients<float> gradients(ef::parameters(model));
  // Two sentences to copy. Token 2 begins a sentence, token 3 ends it.
  auto source = ef::Tensor<std::int32_t>::from({2, 5}, {7, 8, 9, 10, 3, 14, 13, 12, 11, 3});
  auto target = ef::Tensor<std::int32_t>::from({2, 5}, {2, 7, 8, 9, 10, 2, 14, 13, 12, 11});
  for (int step = 0; step < 100; ++step) {
    ef::Tape<float> tape;
    gradients.zero();
    // The third tensor holds the labels: the token that the model should write at each position of the
    // target. To copy means that the labels are the source.
    auto loss = model.loss(ef::Context<float>::training(tape, rng), source, target, source);
    tape.backward(loss, gradients);
    adam.step(gradients, 3e-3);
  }
  std::vector<std::vector<std::int32_t>> sentences = {{7, 8, 9, 10, 3}};
  auto found = ef::generate(model, ef::Context<float>::inference(), sentences);
  for (auto id : found[0][0].ids) std::cout << id << ' ';  // prints 7 8 9 10
}
