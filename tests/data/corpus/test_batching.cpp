#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/batching.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

using Ids = std::vector<std::int32_t>;

namespace {

/// n pairs of 1 to 19 tokens; pair i says 4 + i everywhere, so that it can be recognised.
EncodedCorpus numbered_corpus(index_t n) {
  EncodedCorpus corpus;
  RandomGenerator rng(7);
  for (index_t i = 0; i < n; ++i) {
    const auto id = static_cast<std::int32_t>(4 + i);
    corpus.source.push_back(Ids(static_cast<std::size_t>(1 + rng.uniform_int(19)), id));
    corpus.target.push_back(Ids(static_cast<std::size_t>(1 + rng.uniform_int(19)), id));
  }
  return corpus;
}

std::vector<index_t> epoch_order(Batcher& batcher, index_t epoch) {
  std::vector<index_t> order;
  for (index_t k = 0; k < batcher.num_batches(epoch); ++k) {
    const auto part = batcher.sentences(epoch, k);
    order.insert(order.end(), part.begin(), part.end());
  }
  return order;
}

}  // namespace

TEST_CASE(
    "batching: a batch is packed, with end at the source, begin before the input and end behind the output") {
  EncodedCorpus corpus;
  corpus.source.push_back(Ids{10, 11, 12});
  corpus.target.push_back(Ids{20, 21});
  corpus.source.push_back(Ids{13});
  corpus.target.push_back(Ids{22, 23, 24});
  Batcher batcher(corpus, {.shuffle = false});
  REQUIRE(batcher.num_batches(0) == 1);
  const Batch batch = batcher.batch(0, 0);
  CHECK(batch.size() == 2);
  CHECK(batch.target_tokens() == 7);
  CHECK(batch.source == Ids{10, 11, 12, 3, 13, 3});
  CHECK(batch.target_input == Ids{2, 20, 21, 2, 22, 23, 24});
  CHECK(batch.target_output == Ids{20, 21, 3, 22, 23, 24, 3});
  CHECK(batch.source_layout == SequenceLayout::packed({4, 2}));
  CHECK(batch.target_layout == SequenceLayout::packed({3, 4}));
}

TEST_CASE("batching: every pair comes once an epoch, in another order in each") {
  const EncodedCorpus corpus = numbered_corpus(503);
  for (const index_t bucket : {1, 10, 64, 100000}) {
    Batcher batcher(corpus, {.max_target_tokens = 100, .bucket_sentences = bucket});
    std::vector<index_t> all(503);
    std::iota(all.begin(), all.end(), index_t{0});
    std::vector<index_t> first = epoch_order(batcher, 0), second = epoch_order(batcher, 1);
    CHECK(first != second);
    std::sort(first.begin(), first.end());
    std::sort(second.begin(), second.end());
    CHECK(first == all);
    CHECK(second == all);
  }
}

TEST_CASE("batching: limits are kept, and batches are well filled") {
  const EncodedCorpus corpus = numbered_corpus(503);
  Batcher batcher(
      corpus,
      {.max_target_tokens = 90, .max_source_tokens = 110, .max_sentences = 12, .bucket_sentences = 50});
  index_t tokens = 0;
  for (index_t k = 0; k < batcher.num_batches(3); ++k) {
    const Batch batch = batcher.batch(3, k);
    CHECK(batch.target_tokens() <= 90);
    CHECK(batch.source_layout.rows() <= 110);
    CHECK(batch.size() <= 12);
    CHECK(batch.source.size() == static_cast<std::size_t>(batch.source_layout.rows()));
    CHECK(batch.target_input.size() == batch.target_output.size());
    tokens += batch.target_tokens();
  }
  CHECK(tokens == corpus.target.tokens() + 503);
  Batcher by_tokens(corpus, {.max_target_tokens = 90});
  CHECK(by_tokens.num_batches(0) < (tokens + 69) / 70);
}

TEST_CASE("batching: the default limit of source tokens is twice that of target tokens") {
  EncodedCorpus corpus;
  for (int i = 0; i < 40; ++i) {
    corpus.source.push_back(Ids(9, 5));
    corpus.target.push_back(Ids(1, 5));
  }
  Batcher batcher(corpus, {.max_target_tokens = 20});
  for (index_t k = 0; k < batcher.num_batches(0); ++k) CHECK(batcher.batch(0, k).source_layout.rows() == 40);
}

TEST_CASE("batching: a pair over the limit is a batch alone") {
  EncodedCorpus corpus;
  for (const std::size_t length : {3, 50, 4}) {
    corpus.source.push_back(Ids(length, 5));
    corpus.target.push_back(Ids(length, 5));
  }
  Batcher batcher(corpus, {.max_target_tokens = 10});
  std::vector<index_t> tokens;
  for (index_t k = 0; k < batcher.num_batches(0); ++k) tokens.push_back(batcher.batch(0, k).target_tokens());
  std::sort(tokens.begin(), tokens.end());
  CHECK(tokens == std::vector<index_t>{9, 51});
}

TEST_CASE("batching: lengths in a batch are alike, and neighbours of the sorted epoch stay together") {
  const EncodedCorpus corpus = numbered_corpus(2000);
  const auto spread = [&](index_t bucket) {
    Batcher batcher(corpus, {.max_target_tokens = 200, .bucket_sentences = bucket});
    double sum = 0;
    for (index_t k = 0; k < batcher.num_batches(0); ++k) {
      const auto lengths = batcher.batch(0, k).target_layout;
      const auto [low, high] = std::minmax_element(lengths.lengths().begin(), lengths.lengths().end());
      sum += static_cast<double>(*high - *low);
    }
    return sum / static_cast<double>(batcher.num_batches(0));
  };
  CHECK(spread(1) > 12);
  CHECK(spread(500) < 3);
  CHECK(spread(2000) < 2);
}

TEST_CASE("batching: batch k of epoch e depends on seed, e and k alone") {
  const EncodedCorpus corpus = numbered_corpus(211);
  const BatchingOptions options = {.max_target_tokens = 60, .bucket_sentences = 40, .seed = 5};
  Batcher straight(corpus, options);
  std::vector<std::vector<index_t>> seen;
  for (index_t epoch = 0; epoch < 3; ++epoch) seen.push_back(epoch_order(straight, epoch));
  Batcher resumed(corpus, options);
  const auto part = resumed.sentences(2, 4);
  const auto same = straight.sentences(2, 4);
  CHECK(std::equal(part.begin(), part.end(), same.begin(), same.end()));
  CHECK(resumed.batch(2, 4).source == straight.batch(2, 4).source);
  CHECK(resumed.batch(2, 4).target_layout == straight.batch(2, 4).target_layout);
  CHECK(epoch_order(resumed, 0) == seen[0]);
  CHECK(epoch_order(resumed, 2) == seen[2]);
  BatchingOptions other = options;
  other.seed = 6;
  Batcher different(corpus, other);
  CHECK(epoch_order(different, 0) != seen[0]);
}

TEST_CASE("batching: numbers of the sentences are those of the epoch, and the same on both sides") {
  const EncodedCorpus corpus = numbered_corpus(97);
  Batcher batcher(corpus, {.max_target_tokens = 50, .bucket_sentences = 30});
  std::vector<std::uint32_t> numbers;
  for (index_t k = 0; k < batcher.num_batches(1); ++k) {
    const Batch batch = batcher.batch(1, k);
    const auto source = batch.source_layout.sequence_numbers(),
               target = batch.target_layout.sequence_numbers();
    CHECK(std::equal(source.begin(), source.end(), target.begin(), target.end()));
    numbers.insert(numbers.end(), source.begin(), source.end());
  }
  std::sort(numbers.begin(), numbers.end());
  for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(numbers[i] == i);
}

TEST_CASE("batching: a smaller budget cuts the same order into more batches") {
  const EncodedCorpus corpus = numbered_corpus(300);
  const auto number_of = [&](index_t budget) {
    std::vector<std::uint32_t> number(300);
    Batcher batcher(corpus, {.max_target_tokens = budget, .bucket_sentences = 50});
    for (index_t k = 0; k < batcher.num_batches(0); ++k) {
      const auto part = batcher.sentences(0, k);
      const Batch batch = batcher.batch(0, k);
      for (std::size_t b = 0; b < part.size(); ++b) {
        number[static_cast<std::size_t>(part[b])] =
            batch.source_layout.sequence_number(static_cast<index_t>(b));
      }
    }
    return number;
  };
  CHECK(number_of(50) == number_of(400));
}

TEST_CASE("batching: without shuffling the corpus keeps its order between buckets") {
  const EncodedCorpus corpus = numbered_corpus(60);
  Batcher batcher(corpus, {.max_target_tokens = 40, .bucket_sentences = 1, .shuffle = false});
  std::vector<index_t> all(60);
  std::iota(all.begin(), all.end(), index_t{0});
  CHECK(epoch_order(batcher, 0) == all);
  CHECK(epoch_order(batcher, 1) == all);
}

TEST_CASE("batching: what cannot be is refused") {
  const EncodedCorpus none, one = numbered_corpus(1);
  CHECK(contains(message_of<ValueError>([&] { Batcher batcher(none); }), "number of sentence pairs is 0"));
  CHECK(contains(message_of<ValueError>([&] { Batcher batcher(one, {.max_target_tokens = 0}); }),
                 "max_target_tokens is 0"));
  CHECK(contains(message_of<ValueError>([&] { Batcher batcher(one, {.max_source_tokens = -1}); }),
                 "max_source_tokens is -1"));
  CHECK(contains(message_of<ValueError>([&] { Batcher batcher(one, {.max_sentences = -3}); }),
                 "max_sentences is -3"));
  CHECK(contains(message_of<ValueError>([&] { Batcher batcher(one, {.bucket_sentences = 0}); }),
                 "bucket_sentences is 0"));
  Batcher batcher(one);
  CHECK(contains(message_of<IndexError>([&] { (void)batcher.batch(0, 1); }),
                 "batch 1 does not exist, epoch 0 has 1"));
  CHECK(contains(message_of<IndexError>([&] { (void)batcher.batch(0, -1); }), "batch -1"));
  CHECK(contains(message_of<ValueError>([&] { (void)batcher.num_batches(-1); }), "epoch is -1"));
}
