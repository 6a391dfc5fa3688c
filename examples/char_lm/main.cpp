/// A small language model of characters: learns a tale of forty sentences and then samples sentences. At a
/// low temperature they are sentences of the tale; at a higher temperature, or after fewer steps, new ones.
/// Prints the loss in nats per character, and fails if it is not small after at least 300 steps (the
/// default).
///
///     char_lm [STEPS [TEMPERATURE [SEED]]]

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"
#include "text.hpp"

namespace ef = eigenformer;

namespace {

/// The packed sentences of a batch: the model's input, and the expected output one character later.
struct Pairs {
  std::vector<std::int32_t> input, output;
  std::vector<ef::index_t> lengths;

  void add(const std::vector<std::int32_t>& sentence) {
    input.push_back(ef::SpecialIds::begin);
    input.insert(input.end(), sentence.begin(), sentence.end());
    output.insert(output.end(), sentence.begin(), sentence.end());
    output.push_back(ef::SpecialIds::end);
    lengths.push_back(static_cast<ef::index_t>(sentence.size()) + 1);
  }
};

ef::Tensor<std::int32_t> row(const std::vector<std::int32_t>& ids) {
  return ef::Tensor<std::int32_t>::from({static_cast<ef::index_t>(ids.size())}, ids);
}

int train_and_sample(const example::Arguments& arguments) {
  const ef::index_t steps = arguments.whole(0, 300);
  const double temperature = arguments.number(1, 0.8);
  const auto seed = static_cast<std::uint64_t>(arguments.whole(2, 1));

  const std::vector<std::string> lines(tale.begin(), tale.end());
  const auto tokenizer = ef::CharacterTokenizer::train(lines);
  std::vector<std::vector<std::int32_t>> sentences;
  for (const std::string& line : lines) sentences.push_back(tokenizer.encode(line));

  // Layers as in current language models: RMSNorm before each sub-layer, SwiGLU, no biases.
  ef::RandomGenerator rng(seed);
  ef::LanguageModel<float> model({.vocab_size = tokenizer.vocabulary_size(),
                                  .num_layers = 2,
                                  .layer = {.d_model = 64,
                                            .num_heads = 4,
                                            .dim_feedforward = 128,
                                            .dropout = {0},
                                            .activation = ef::Activation::silu,
                                            .gated = true,
                                            .norm = {.kind = ef::NormKind::rms_norm},
                                            .norm_first = true,
                                            .bias = false}},
                                 rng);
  ef::Adam<float> optimizer(ef::parameters(model));
  ef::Gradients<float> gradients(ef::parameters(model));
  double loss = 0;
  for (ef::index_t step = 1; step <= steps; ++step) {
    Pairs batch;
    for (int i = 0; i < 10; ++i) {
      const auto n = static_cast<ef::index_t>(sentences.size());
      batch.add(sentences[static_cast<std::size_t>(rng.uniform_int(n))]);
    }
    ef::Tape<float> tape;
    gradients.zero();
    const auto mean = model.loss(ef::Context<float>::training(tape, rng), row(batch.input),
                                 ef::SequenceLayout::packed(batch.lengths), row(batch.output));
    tape.backward(mean, gradients);
    optimizer.step(gradients,
                   ef::schedule::cosine(step, 5e-3, std::min<ef::index_t>(20, steps / 2), steps + 1),
                   ef::clip_factor(gradients, 1.0).factor);
    loss = static_cast<double>(mean.item());
    if (step % 50 == 0) std::printf("step %lld  loss %.3f\n", static_cast<long long>(step), loss);
  }

  const std::vector<std::vector<std::int32_t>> prompts(8, {ef::SpecialIds::begin});
  const auto texts =
      ef::generate(model, ef::Context<float>::inference(), prompts,
                   {.sampling = ef::Sampling{.temperature = temperature, .top_p = 0.95, .seed = seed},
                    .max_length = 120,
                    .forbidden_ids = {ef::SpecialIds::pad, ef::SpecialIds::unknown, ef::SpecialIds::begin}});
  for (const auto& drawn : texts) std::printf("| %s\n", tokenizer.decode(drawn[0].ids).c_str());
  std::printf("final loss: %.3f nats per character\n", loss);
  return steps < 300 || loss < 0.5 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argc, argv, {"STEPS", "TEMPERATURE", "SEED"}, train_and_sample);
}
