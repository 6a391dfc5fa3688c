#include <cstdio>

#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

int main() {
  ef::RandomGenerator rng(1);
  ef::Seq2SeqTransformer<float> model({.source_vocab_size = 12, .d_model = 32, .num_heads = 4, .num_encoder_layers = 2,
                                       .num_decoder_layers = 2, .dim_feedforward = 64, .dropout = 0}, rng);
  // Two sentences and their "translations", which are the same words backwards. 2 begins a sentence, 3 ends it.
  const auto source = ef::Tensor<std::int32_t>::from({2, 5}, {4, 5, 6, 7, 3, 8, 4, 9, 11, 3});
  const auto target_in = ef::Tensor<std::int32_t>::from({2, 5}, {2, 7, 6, 5, 4, 2, 11, 9, 4, 8});
  const auto target_out = ef::Tensor<std::int32_t>::from({2, 5}, {7, 6, 5, 4, 3, 11, 9, 4, 8, 3});

  ef::Adam<float> optimizer(ef::parameters(model));
  ef::Gradients<float> gradients(ef::parameters(model));
  for (int step = 1; step <= 40; ++step) {
    ef::Tape<float> tape;
    const auto loss = model.loss(ef::Context<float>::training(tape, rng), source, target_in, target_out);
    gradients.zero();
    tape.backward(loss, gradients);
    optimizer.step(gradients, 3e-3);
    if (step % 10 == 0) std::printf("step %2d  loss %.4f\n", step, static_cast<double>(loss.item()));
  }
  const std::vector<std::vector<std::int32_t>> sentences = {{4, 5, 6, 7, 3}, {8, 4, 9, 11, 3}};
  for (const auto& found : ef::generate<float>(model, ef::Context<float>::inference(), sentences)) {
    for (const std::int32_t id : found[0].ids) std::printf("%d ", id);  // 7 6 5 4, then 11 9 4 8
    std::printf("\n");
  }
}
