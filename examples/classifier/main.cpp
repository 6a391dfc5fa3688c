/// Classifies sentences with an encoder: is a sentence praise or not? A small grammar makes the sentences;
/// negations, "but" and "although" reverse the meaning, so counting words is not enough. Prints the share of
/// correctly classified new sentences, and fails if it is below 97 % after at least 1500 steps (the default).
///
///     classifier [STEPS]

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"
#include "sentences.hpp"

namespace ef = eigenformer;

namespace {

/// An encoder and a linear layer on the average of its rows.
struct Classifier {
  using value_type = float;

  ef::TextEncoder<float> encoder;
  ef::Linear<float> head;

  Classifier(ef::index_t vocab_size, ef::RandomGenerator& rng)
      : encoder({.vocab_size = vocab_size,
                 .num_layers = 2,
                 .layer = {.d_model = 48,
                           .num_heads = 4,
                           .dim_feedforward = 96,
                           .dropout = {0.1},
                           .activation = ef::Activation::gelu,
                           .norm_first = true},
                 .pooling = ef::Pooling::mean},
                rng),
        head({.in_features = 48, .out_features = 2}, rng) {
    ef::name_parameters(*this);
  }

  /// Logits (B, 2) for B sentences, packed.
  ef::Var<float> operator()(const ef::Context<float>& ctx, const ef::Tensor<std::int32_t>& ids,
                            const ef::SequenceLayout& layout) const {
    return head(ctx, encoder.vectors(ctx, ids, layout));
  }

  static void fields(auto& self, auto&& visit) {
    visit("encoder", self.encoder);
    visit("head", self.head);
  }
};

struct LabelledBatch {
  ef::Tensor<std::int32_t> ids, labels;
  ef::SequenceLayout layout;

  LabelledBatch(const std::vector<Opinion>& sentences, const ef::Tokenizer& tokenizer) {
    std::vector<std::int32_t> all, answers;
    std::vector<ef::index_t> lengths;
    for (const Opinion& s : sentences) {
      const auto tokens = tokenizer.encode(s.text);
      all.insert(all.end(), tokens.begin(), tokens.end());
      lengths.push_back(static_cast<ef::index_t>(tokens.size()));
      answers.push_back(s.label);
    }
    ids = ef::Tensor<std::int32_t>::from({static_cast<ef::index_t>(all.size())}, all);
    labels = ef::Tensor<std::int32_t>::from({static_cast<ef::index_t>(answers.size())}, answers);
    layout = ef::SequenceLayout::packed(lengths);
  }
};

int answer(const ef::Tensor<float>& logits, ef::index_t i) {
  return logits.at({i, 1}) > logits.at({i, 0}) ? 1 : 0;
}

int train_and_test(const example::Arguments& arguments) {
  const ef::index_t steps = arguments.whole(0, 1500);
  ef::RandomGenerator rng(1);
  std::vector<std::string> texts;
  for (const Opinion& s : opinions::sentences(2000, rng)) texts.push_back(s.text);
  const auto tokenizer = ef::WordTokenizer::train(texts);
  Classifier model(tokenizer.vocabulary_size(), rng);
  ef::Adam<float> optimizer(ef::parameters(model));
  ef::Gradients<float> gradients(ef::parameters(model));
  for (ef::index_t step = 1; step <= steps; ++step) {
    const LabelledBatch batch(opinions::sentences(32, rng), tokenizer);
    ef::Tape<float> tape;
    gradients.zero();
    const auto loss = ef::cross_entropy(
        model(ef::Context<float>::training(tape, rng), batch.ids, batch.layout), batch.labels);
    tape.backward(loss, gradients);
    optimizer.step(gradients,
                   ef::schedule::cosine(step, 2e-3, std::min<ef::index_t>(30, steps / 2), steps + 1),
                   ef::clip_factor(gradients, 1.0).factor);
    if (step % 100 == 0)
      std::printf("step %lld  loss %.3f\n", static_cast<long long>(step), static_cast<double>(loss.item()));
  }

  const std::vector<Opinion> unseen = opinions::sentences(500, rng);
  const LabelledBatch batch(unseen, tokenizer);
  const ef::Tensor<float> logits = model(ef::Context<float>::inference(), batch.ids, batch.layout).value();
  ef::index_t right = 0;
  for (ef::index_t i = 0; i < 500; ++i) {
    const Opinion& s = unseen[static_cast<std::size_t>(i)];
    right += answer(logits, i) == s.label ? 1 : 0;
    if (i < 4) std::printf("%s  %s\n", answer(logits, i) == 1 ? "+" : "-", s.text.c_str());
  }
  std::printf("%.1f %% right (%lld of 500)\n", static_cast<double>(right) / 5, static_cast<long long>(right));
  return steps < 1500 || right >= 485 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, train_and_test); }
