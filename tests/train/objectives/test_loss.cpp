#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "test_tools.hpp"
#include "train/step/accumulate.hpp"
#include "train/train_test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// Sentences [begin, end) of a batch, with the numbers they had in it.
Batch part_of(const Batch& batch, index_t begin, index_t end) {
  Batch part;
  std::vector<index_t> source, target;
  std::vector<std::uint32_t> numbers;
  for (index_t b = begin; b < end; ++b) {
    const auto copy = [&](const std::vector<std::int32_t>& from, const SequenceLayout& layout,
                          std::vector<std::int32_t>& to) {
      const auto first = from.begin() + static_cast<std::ptrdiff_t>(layout.offset(b));
      to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(layout.length(b)));
    };
    copy(batch.source, batch.source_layout, part.source);
    copy(batch.target_input, batch.target_layout, part.target_input);
    copy(batch.target_output, batch.target_layout, part.target_output);
    source.push_back(batch.source_layout.length(b));
    target.push_back(batch.target_layout.length(b));
    numbers.push_back(batch.source_layout.sequence_number(b));
  }
  part.source_layout = SequenceLayout::packed(source).with_sequence_numbers(numbers);
  part.target_layout = SequenceLayout::packed(target).with_sequence_numbers(numbers);
  return part;
}

struct Result {
  double loss;
  std::vector<double> gradients;
};

Result run(const Seq2SeqTransformer<double>& model, const std::vector<Batch>& batches, double smoothing) {
  Seq2SeqTransformer<double> copy(model);
  Gradients<double> gradients(parameters(copy));
  Tape<double> tape;
  Result result;
  const detail::SourceTargetLoss<Seq2SeqTransformer<double>> loss{copy, {.label_smoothing = smoothing}};
  result.loss = accumulate_gradients(loss, batches, tape, detail::DropoutKey{7, 5, 0}, gradients).loss;
  for (const auto& entry : gradients.entries()) {
    CHECK(entry.written);
    result.gradients.insert(result.gradients.end(), entry.value.span().begin(), entry.value.span().end());
  }
  return result;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("micro-batches of unequal size are one batch, dropout included") {
  const EncodedCorpus corpus = reversal_corpus(11, 1);
  Batcher batcher(corpus, {.max_target_tokens = 1000});
  const Batch whole = batcher.batch(2, 0);
  REQUIRE(whole.size() == 11);
  const auto model = small_model<double>(0.4);
  const Result once = run(model, {whole}, 0.1);
  const Result parts = run(model, {part_of(whole, 0, 2), part_of(whole, 2, 3), part_of(whole, 3, 11)}, 0.1);
  CHECK(once.loss == doctest::Approx(parts.loss).epsilon(1e-12));
  CHECK(largest_difference(once.gradients, parts.gradients) < 1e-12);
  // Were the masks or the divisors those of each part, this would differ as much as another key does.
  const Result sum_of_means = run(model, {part_of(whole, 0, 2)}, 0.1);
  CHECK(largest_difference(once.gradients, sum_of_means.gradients) > 1e-3);
}

TEST_CASE("what is reported as the loss has no smoothing, whatever the batches") {
  const EncodedCorpus corpus = reversal_corpus(11, 1);
  const Batch whole = Batcher(corpus, {.max_target_tokens = 1000}).batch(2, 0);
  const auto model = small_model<double>(0.4);
  Gradients<double> gradients(parameters(model));
  Tape<double> tape;
  const auto loss_of = [&](const std::vector<Batch>& batches, double smoothing) {
    const detail::SourceTargetLoss<Seq2SeqTransformer<double>> loss{model, {.label_smoothing = smoothing}};
    return accumulate_gradients(loss, batches, tape, detail::DropoutKey{7, 5, 0}, gradients);
  };
  const detail::UpdateLoss plain = loss_of({whole}, 0), smoothed = loss_of({whole}, 0.3),
                           parts = loss_of({part_of(whole, 0, 4), part_of(whole, 4, 11)}, 0.3);
  CHECK(plain.parts.shown(0) == doctest::Approx(plain.loss * plain.weight).epsilon(1e-12));
  CHECK(smoothed.parts.shown(0) == doctest::Approx(plain.loss * plain.weight).epsilon(1e-12));
  CHECK(parts.parts.shown(0) == doctest::Approx(plain.loss * plain.weight).epsilon(1e-12));
  CHECK(smoothed.loss != doctest::Approx(plain.loss).epsilon(1e-3));
  CHECK(smoothed.parts.means(2).empty());
}

TEST_CASE("dropout is on while gradients are made and off in a validation") {
  const EncodedCorpus corpus = reversal_corpus(5, 2);
  Batcher batcher(corpus, {.max_target_tokens = 1000});
  const Batch batch = batcher.batch(0, 0);
  const Result dropped = run(small_model<double>(0.4), {batch}, 0);
  const Result plain = run(small_model<double>(0), {batch}, 0);
  CHECK(std::abs(dropped.loss - plain.loss) > 1e-3);
  CHECK(corpus_loss(small_model<double>(0.4), corpus) == doctest::Approx(plain.loss).epsilon(1e-12));
}

TEST_CASE("a corpus's loss is the mean over its tokens, whatever the batches") {
  const EncodedCorpus corpus = reversal_corpus(17, 3);
  const auto model = small_model<double>(0.2);
  double sum = 0;
  index_t tokens = 0;
  for (index_t i = 0; i < corpus.size(); ++i) {
    EncodedCorpus one;
    one.source.push_back(corpus.source[i]);
    one.target.push_back(corpus.target[i]);
    const index_t n = corpus.target.length(i) + 1;
    sum += corpus_loss(model, one) * static_cast<double>(n);
    tokens += n;
  }
  const double expected = sum / static_cast<double>(tokens);
  CHECK(corpus_loss(model, corpus, 1) == doctest::Approx(expected).epsilon(1e-12));
  CHECK(corpus_loss(model, corpus, 20) == doctest::Approx(expected).epsilon(1e-12));
  CHECK(corpus_loss(model, corpus, 5000) == doctest::Approx(expected).epsilon(1e-12));
  CHECK(contains(message_of<ValueError>([&] { (void)corpus_loss(model, EncodedCorpus{}); }),
                 "sentence pairs is 0"));
}

TEST_CASE("a token outside the model's vocabulary is an IndexError") {
  const EncodedCorpus corpus = reversal_corpus(4, 4, 21);
  const auto model = small_model<double>(0);
  const std::string message = message_of<IndexError>([&] { (void)corpus_loss(model, corpus); });
  CHECK(contains(message, "23"));  // the size of the vocabulary
}
