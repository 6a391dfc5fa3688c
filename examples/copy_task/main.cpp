/// Two classic first tasks of an encoder-decoder: copying a sequence of symbols, and reversing one. Prints
/// the share of new sequences that are completely correct, and fails if it is below 100 % after at least 1000
/// steps (the default).
///
///     copy_task [STEPS]

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <vector>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"
#include "eigenformer/train/reporting/console_sink.hpp"
#include "eigenformer/train/trainer.hpp"

namespace ef = eigenformer;

namespace {

using Sequence = std::vector<std::int32_t>;

constexpr ef::index_t symbols = 16;

Sequence random_sequence(ef::RandomGenerator& rng) {
  Sequence s(static_cast<std::size_t>(3 + rng.uniform_int(8)));
  for (std::int32_t& id : s)
    id = static_cast<std::int32_t>(ef::Vocabulary::num_specials + rng.uniform_int(symbols));
  return s;
}

Sequence answer(Sequence s, bool reverse) {
  if (reverse) std::reverse(s.begin(), s.end());
  return s;
}

/// Trains a model on one of the tasks; returns how many of 200 new sequences are correct.
ef::Accuracy learn(bool reverse, ef::index_t steps) {
  ef::RandomGenerator rng(reverse ? 2 : 1);
  ef::EncodedCorpus corpus;
  for (int i = 0; i < 20000; ++i) {
    const Sequence s = random_sequence(rng);
    corpus.source.push_back(s);
    corpus.target.push_back(answer(s, reverse));
  }
  ef::Seq2SeqTransformer<float> model(
      {.source_vocab_size = ef::Vocabulary::num_specials + symbols,
       .layer = {.d_model = 64, .num_heads = 4, .dim_feedforward = 128, .dropout = {0}, .norm_first = true},
       .encoder = {.num_layers = 2},
       .decoder = {.num_layers = 2}},
      rng);
  ef::ConsoleSink console(std::clog, example::terminal());
  ef::Trainer trainer(model, corpus, nullptr,
                      {.loop = {.max_steps = steps, .validate_every = steps},
                       .batch_tokens = 512,
                       .learning_rate = 3e-3,
                       .warmup = 50,
                       .schedule = ef::ScheduleKind::cosine,
                       .label_smoothing = 0},
                      console);
  trainer.run();

  std::vector<Sequence> questions, expected, answers;
  for (int i = 0; i < 200; ++i) {
    questions.push_back(random_sequence(rng));
    expected.push_back(answer(questions.back(), reverse));
    questions.back().push_back(ef::SpecialIds::end);
  }
  for (const auto& found :
       ef::generate(model, ef::Context<float>::inference(), questions, {.beam_size = 1, .max_length = 20})) {
    answers.push_back(found[0].ids);
  }
  return ef::exact_match(answers, expected);
}

int learn_both(const example::Arguments& arguments) {
  const ef::index_t steps = arguments.whole(0, 1000);
  bool all = true;
  for (const bool reverse : {false, true}) {
    const ef::Accuracy right = learn(reverse, steps);
    std::printf("%s: %.1f %% exact (%lld of %lld)\n", reverse ? "reverse" : "copy", 100 * right.rate(),
                static_cast<long long>(right.correct), static_cast<long long>(right.total));
    std::fflush(stdout);
    all = all && right.correct == right.total;
  }
  return steps < 1000 || all ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return example::run(argc, argv, {"STEPS"}, learn_both); }
