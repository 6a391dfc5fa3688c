#pragma once

#include "eigenformer/eigenformer.hpp"
#include "product.hpp"

/// The options of a small Transformer.
static eigenformer::Seq2SeqOptions small_options() {
  return {.source_vocab_size = 11,
          .target_vocab_size = 13,
          .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20, .dropout = {0}},
          .encoder = {.num_layers = 1},
          .decoder = {.num_layers = 1}};
}

/// Trains a small Transformer to copy one batch. Returns the first loss divided by the last.
static float loss_ratio() {
  namespace ef = eigenformer;
  ef::RandomGenerator rng(1);
  const ef::Seq2SeqTransformer<float> model(small_options(), rng);
  const auto source = ef::Tensor<std::int32_t>::from({2, 3}, {4, 5, 6, 7, 8, 9});
  const auto target_in = ef::Tensor<std::int32_t>::from({2, 4}, {2, 4, 5, 6, 2, 7, 8, 9});
  const auto target_out = ef::Tensor<std::int32_t>::from({2, 4}, {4, 5, 6, 3, 7, 8, 9, 3});
  const auto parameters = ef::parameters(model);
  ef::Adam<float> adam(parameters, {});
  ef::Gradients<float> gradients(parameters);
  ef::Tape<float> tape;
  float first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    const auto loss = model.loss(ef::Context<float>::training(tape, rng), source, target_in, target_out);
    last = loss.item();
    if (step == 0) first = last;
    gradients.zero();
    tape.backward(loss, gradients);
    adam.step(gradients, 1e-2);
  }
  return first / last;
}
