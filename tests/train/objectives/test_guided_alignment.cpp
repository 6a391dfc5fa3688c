#include "eigenformer/train/objectives/loss.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "autograd/op_check.hpp"
#include "test_tools.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// reversal_corpus() with the alignment that it has: the last token stands for the first.
EncodedCorpus aligned_reversal(index_t pairs, std::uint64_t seed) {
  EncodedCorpus corpus = reversal_corpus(pairs, seed);
  for (index_t i = 0; i < corpus.size(); ++i) {
    auto& links = corpus.alignment.emplace_back();
    const index_t n = corpus.source.length(i);
    for (index_t k = 0; k < n; ++k) links.push_back({k, n - 1 - k});
  }
  return corpus;
}

TrainingOptions options(index_t steps, double weight) {
  TrainingOptions o{.loop = {.max_steps = steps, .accumulate = 2, .validate_every = 0, .report_every = 1},
                    .batch_tokens = 60,
                    .learning_rate = 8e-3,
                    .warmup = 20,
                    .label_smoothing = 0};
  o.guided_alignment.weight = weight;
  return o;
}

/// The alignment error rate of the last layer's first head, with the given pairs.
double error_rate(const Seq2SeqTransformer<float>& model, const EncodedCorpus& corpus) {
  index_t links = 0, right = 0;
  for (index_t i = 0; i < corpus.size(); ++i) {
    std::vector<std::int32_t> source(corpus.source[i].begin(), corpus.source[i].end());
    source.push_back(SpecialIds::end);
    const std::vector<std::int32_t> target(corpus.target[i].begin(), corpus.target[i].end());
    const Tensor<float> weights =
        attention_of_head(cross_attention_weights(model, Context<float>::inference(), std::span(&source, 1),
                                                  std::span(&target, 1), SpecialIds::begin, 0, -1)[0],
                          0);
    const auto& sure = corpus.alignment[static_cast<std::size_t>(i)];
    links += static_cast<index_t>(sure.size());
    for (const auto& [s, t] : attention_links(weights, 0)) {
      if (t >= target.size()) continue;
      ++links;
      right += std::any_of(sure.begin(), sure.end(), [&, s = s, t = t](const AlignmentLink& link) {
        return link.source == s && link.target == t;
      });
    }
  }
  return 1 - 2 * static_cast<double>(right) / static_cast<double>(links);
}

}  // namespace

TEST_CASE(
    "guided alignment: batches carry the links of their pairs through shuffling, packing and prefixes") {
  const EncodedCorpus corpus = aligned_reversal(30, 4);
  BatchingOptions batching{.max_target_tokens = 40};
  batching.text.source_prefix = {20, 21};
  batching.text.target_prefix = {22};
  Batcher batcher(corpus, batching);
  for (index_t k = 0; k < batcher.num_batches(1); ++k) {
    const Batch batch = batcher.batch(1, k);
    REQUIRE(static_cast<index_t>(batch.alignment.size()) == batch.size());
    for (index_t b = 0; b < batch.size(); ++b) {
      const index_t n = batch.target_layout.length(b) - 2;  // without prefix and end
      CHECK(static_cast<index_t>(batch.alignment[static_cast<std::size_t>(b)].size()) == n);
      for (const AlignmentLink& link : batch.alignment[static_cast<std::size_t>(b)]) {
        const index_t s = batch.source_layout.offset(b) + link.source,
                      t = batch.target_layout.offset(b) + link.target;
        CHECK(batch.source[static_cast<std::size_t>(s)] == batch.target_output[static_cast<std::size_t>(t)]);
      }
    }
  }
  EncodedCorpus short_one = corpus;
  short_one.alignment.pop_back();
  CHECK_THROWS_WITH_AS(Batcher{short_one}, doctest::Contains("29 alignments and 30 pairs"), ValueError);
}

TEST_CASE(
    "guided alignment: the loss is that of the words and of the attention, as plain loops say; its "
    "gradient") {
  const auto model = small_model<double>(0);
  const EncodedCorpus corpus = aligned_reversal(4, 6);
  Batcher batcher(corpus);
  Batch batch = batcher.batch(0, 0);
  batch.alignment[1].push_back({0, 0});  // two source tokens for one target token
  const CrossEntropyOptions words{.divisor = 11};
  for (const index_t head : {0, 2, -1}) {
    for (const index_t layer : {-1, 0}) {
      const GuidedAlignmentOptions guided{.weight = 0.3, .layer = layer, .head = head};
      LossParts parts;
      const double both =
          detail::guided_alignment_loss(model, Context<double>::inference(), batch, words, guided, &parts)
              .value()
              .item();
      double sum = 0;
      for (index_t b = 0; b < batch.size(); ++b) {
        const auto part = [](const std::vector<std::int32_t>& ids, const SequenceLayout& layout, index_t i) {
          const auto first = ids.begin() + static_cast<std::ptrdiff_t>(layout.offset(i));
          return std::vector<std::int32_t>(first, first + static_cast<std::ptrdiff_t>(layout.length(i)));
        };
        auto target = part(batch.target_input, batch.target_layout, b);
        target.erase(target.begin());
        const auto maps =
            attention_maps(model, Context<double>::inference(), part(batch.source, batch.source_layout, b),
                           target, SpecialIds::begin);
        const Tensor<float> w = attention_of_head(maps.memory[layer < 0 ? 1 : 0], head);
        const auto& links = batch.alignment[static_cast<std::size_t>(b)];
        for (const AlignmentLink& link : links) {
          const auto n = std::count_if(links.begin(), links.end(), [&](const AlignmentLink& other) {
            return other.target == link.target;
          });
          sum -=
              std::log(static_cast<double>(w.at({link.target, link.source})) + 1e-6) / static_cast<double>(n);
        }
      }
      REQUIRE(parts.sums().size() == 1);
      const double alignment = parts.sums()[0].value / 11;
      CHECK(alignment == doctest::Approx(sum / 11).epsilon(1e-6));
      const double plain = batch_loss(model, Context<double>::inference(), batch, words).value().item();
      CHECK(both == doctest::Approx(plain + 0.3 * alignment).epsilon(1e-12));
      if (layer == 0 || head == 2) continue;
      check_op(
          [&](Tape<double>& tape, const Vars&) {
            return detail::guided_alignment_loss(model, Context<double>::checking(tape), batch, words,
                                                 guided);
          },
          {}, parameters(model), {.max_elements = 6});
    }
  }
}

TEST_CASE("guided alignment: training with it brings the error rate near 0, and reports the loss") {
  const EncodedCorpus aligned = aligned_reversal(200, 1), test = aligned_reversal(40, 2);
  EncodedCorpus bare = aligned;
  bare.alignment.clear();
  const auto train_on = [&](const EncodedCorpus& corpus, Recorder& recorder) {
    auto model = small_model(0.0);
    Trainer trainer(model, corpus, nullptr, options(400, 1), recorder);
    trainer.run();
    return error_rate(model, test);
  };
  Recorder with, without;
  const double guided = train_on(aligned, with), unguided = train_on(bare, without);
  MESSAGE("alignment error rate guided " << guided << ", unguided " << unguided);
  CHECK(guided < 0.06);
  CHECK(unguided > 0.2);
  REQUIRE(with.steps.back().parts.size() == 1);
  CHECK(with.steps.back().parts[0].name == "alignment");
  CHECK(with.steps.back().parts[0].value < 0.2 * with.steps.front().parts[0].value);
  CHECK(without.steps.back().parts.empty());
}

TEST_CASE("guided alignment: resumed training is uninterrupted training, and another alignment is refused") {
  const EncodedCorpus corpus = aligned_reversal(40, 3);
  const TrainingOptions o = options(8, 0.2);
  auto whole = small_model(0.1);
  Trainer first(whole, corpus, nullptr, o);
  first.run();
  auto part = small_model(0.1), rest = small_model(0.1, 11);
  TrainingOptions half = o;
  half.loop.max_steps = 3;
  Trainer begun(part, corpus, nullptr, half);
  begun.run();
  const auto state = begun.state();
  Trainer resumed(rest, corpus, nullptr, o);
  resumed.load(state);
  resumed.run();
  CHECK(weights_of(rest) == weights_of(whole));
  EncodedCorpus other = corpus;
  other.alignment[7][0].target = 0;
  auto model = small_model(0.1);
  Trainer refused(model, other, nullptr, o);
  CHECK_THROWS_WITH_AS(refused.load(state), doctest::Contains("corpus"), ValueError);
}

TEST_CASE("guided alignment: what cannot be taught is refused before the first update") {
  const EncodedCorpus corpus = aligned_reversal(10, 3);
  auto model = small_model(0.0);
  TrainingOptions o = options(2, 0.1);
  o.guided_alignment.layer = 2;
  CHECK_THROWS_WITH_AS((Trainer(model, corpus, nullptr, o)),
                       doctest::Contains("guided_alignment_layer is 2, must be in [-2, 2)"), ValueError);
  o.guided_alignment = {.head = 3};
  CHECK_THROWS_WITH_AS((Trainer(model, corpus, nullptr, o)),
                       doctest::Contains("guided_alignment_head is 3, must be below 3"), ValueError);
  o.guided_alignment = {.weight = -1};
  CHECK_THROWS_AS((Trainer(model, corpus, nullptr, o)), ValueError);
  EncodedCorpus wrong = corpus;
  wrong.alignment[0].push_back({99, 0});
  Trainer trainer(model, wrong, nullptr, options(2, 0.1));
  CHECK_THROWS_WITH_AS(trainer.run(), doctest::Contains("link 99-0"), IndexError);
}
