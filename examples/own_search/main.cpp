/// A logits processor of your own: translations that never use a token twice in a row and that begin with a
/// given id. Prints the ids found without and with it.
///
///     own_search

#include <cstdio>
#include <limits>

#include "../arguments.hpp"
#include "eigenformer/eigenformer.hpp"

namespace ef = eigenformer;

struct NoStutter {
  template <class T>
  void operator()(const ef::LogitsStep& step, std::span<T> scores) const {
    if (step.generated.empty()) return;
    scores[static_cast<std::size_t>(step.generated.back())] = -std::numeric_limits<T>::infinity();
  }
};

void print(const char* what, const std::vector<std::vector<ef::Hypothesis>>& found) {
  std::printf("%s:", what);
  for (const auto id : found[0][0].ids) std::printf(" %d", id);
  std::printf("\n");
}

int run(const example::Arguments&) {
  ef::RandomGenerator rng(4);
  const ef::Seq2SeqTransformer<float> model(
      {.source_vocab_size = 20, .layer = {.d_model = 32, .num_heads = 4, .dim_feedforward = 64}}, rng);
  const std::vector<std::vector<std::int32_t>> sentences = {{7, 8, 9, 3}};
  const auto ctx = ef::Context<float>::inference();
  ef::SearchOptions options{.max_length = 8};
  print("without processors", ef::generate(model, ctx, sentences, options));
  options.processors.push_back(ef::logits_processor(NoStutter{}));
  options.processors.push_back(ef::logits_processor([](const ef::LogitsStep& step, auto scores) {
    for (std::size_t id = 0; step.step == 0 && id < scores.size(); ++id) {
      if (id != 12) scores[id] = -std::numeric_limits<typename decltype(scores)::value_type>::infinity();
    }
  }));
  const auto found = ef::generate(model, ctx, sentences, options);
  print("with them", found);
  for (std::size_t i = 1; i < found[0][0].ids.size(); ++i) {
    if (found[0][0].ids[i] == found[0][0].ids[i - 1]) return 1;
  }
  return found[0][0].ids.front() == 12 ? 0 : 1;
}

int main(int argc, char** argv) { return example::run(argc, argv, {}, run); }
