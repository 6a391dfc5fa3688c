#include "translator/preparing/token_file.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "eigenformer/data/corpus/batching.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;
using eigenformer::testing::TemporaryFolder;

using Ids = std::vector<std::int32_t>;

namespace {

EncodedCorpus random_corpus(index_t pairs, std::int32_t vocabulary = 50) {
  EncodedCorpus corpus;
  RandomGenerator rng(9);
  for (index_t i = 0; i < pairs; ++i) {
    for (TokenSequences* side : {&corpus.source, &corpus.target}) {
      Ids ids(static_cast<std::size_t>(1 + rng.uniform_int(12)));
      for (std::int32_t& id : ids) id = static_cast<std::int32_t>(rng.uniform_int(vocabulary));
      side->push_back(ids);
    }
  }
  return corpus;
}

void write(const std::filesystem::path& path, const EncodedCorpus& corpus, index_t vocabulary = 50) {
  TokenFileWriter writer(path, vocabulary, vocabulary, 77);
  for (index_t i = 0; i < corpus.size(); ++i) writer.add(corpus.source[i], corpus.target[i]);
  writer.commit();
}

bool equal(const Batch& a, const Batch& b) {
  return a.source == b.source && a.target_input == b.target_input && a.target_output == b.target_output &&
         a.source_layout == b.source_layout && a.target_layout == b.target_layout;
}

}  // namespace

TEST_CASE("token file: what was written is read, with ids of 2 and of 4 bytes") {
  const TemporaryFolder folder;
  for (const std::int32_t vocabulary : {50, 65536, 65537, 250000}) {
    const EncodedCorpus corpus = random_corpus(700, vocabulary);
    const auto path = folder.path() / "tokens";
    write(path, corpus, vocabulary);
    const index_t tokens = corpus.source.tokens() + corpus.target.tokens();
    CHECK(static_cast<index_t>(std::filesystem::file_size(path)) ==
          16 + tokens * (vocabulary > 65536 ? 4 : 2) + 4 * 700 + 64);
    const TokenFile file(path);
    REQUIRE(file.size() == 700);
    CHECK(file.source_tokens() == corpus.source.tokens());
    CHECK(file.target_tokens() == corpus.target.tokens());
    CHECK(file.source_vocabulary_size() == vocabulary);
    CHECK(file.target_vocabulary_size() == vocabulary);
    CHECK(file.tokenizers() == 77);
    CHECK_FALSE(file.aligned());
    EncodedPair mapped, held;
    for (index_t i = 0; i < 700; ++i) {
      file.read(3, i, mapped);
      corpus.read(3, i, held);
      CHECK(mapped.source == held.source);
      CHECK(mapped.target == held.target);
      CHECK(file.lengths(0, i).source == corpus.lengths(0, i).source);
      CHECK(file.lengths(0, i).target == corpus.lengths(0, i).target);
    }
  }
}

TEST_CASE("token file: batches are those of the corpus in memory") {
  const TemporaryFolder folder;
  const EncodedCorpus corpus = random_corpus(500);
  write(folder.path() / "tokens", corpus);
  const TokenFile file(folder.path() / "tokens");
  const BatchingOptions options = {.max_target_tokens = 70, .bucket_sentences = 60, .seed = 4};
  Batcher held(corpus, options), mapped(file, options);
  for (const index_t epoch : {0, 2}) {
    REQUIRE(held.num_batches(epoch) == mapped.num_batches(epoch));
    for (index_t k = 0; k < held.num_batches(epoch); ++k)
      CHECK(equal(held.batch(epoch, k), mapped.batch(epoch, k)));
  }
}

TEST_CASE("token file: planned in segments, every pair comes once an epoch, and a batch is found again") {
  const TemporaryFolder folder;
  const EncodedCorpus corpus = random_corpus(1003);
  write(folder.path() / "tokens", corpus);
  const TokenFile file(folder.path() / "tokens");
  // 32 pairs a segment, the last with 11.
  const BatchingOptions options = {
      .max_target_tokens = 40, .bucket_sentences = 2, .whole_pairs = 100, .seed = 4};
  Batcher batcher(file, options);
  std::vector<std::vector<index_t>> orders;
  for (index_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<index_t> order;
    std::vector<std::uint32_t> numbers;
    for (index_t k = 0; k < batcher.num_batches(epoch); ++k) {
      const auto part = batcher.sentences(epoch, k);
      order.insert(order.end(), part.begin(), part.end());
      const Batch batch = batcher.batch(epoch, k);
      CHECK((batch.size() == 1 || batch.target_tokens() <= 40));
      const auto own = batch.source_layout.sequence_numbers();
      numbers.insert(numbers.end(), own.begin(), own.end());
    }
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    std::sort(numbers.begin(), numbers.end());
    REQUIRE(order.size() == 1003);
    for (std::size_t i = 0; i < order.size(); ++i) {
      CHECK(order[i] == static_cast<index_t>(i));
      CHECK(numbers[i] == i);
    }
  }
  CHECK(orders[0] != orders[1]);
  // Neighbours in the file are not neighbours in the epoch.
  index_t near = 0;
  for (std::size_t i = 1; i < 1003; ++i) near += std::abs(orders[0][i] - orders[0][i - 1]) < 32 ? 1 : 0;
  CHECK(near < 150);

  const TokenFile opened_again(folder.path() / "tokens");
  Batcher resumed(opened_again, options);
  const index_t last = batcher.num_batches(1) - 1;
  for (const index_t k : {index_t{17}, last, index_t{0}})
    CHECK(equal(resumed.batch(1, k), batcher.batch(1, k)));
  CHECK(resumed.num_batches(0) == batcher.num_batches(0));
  CHECK_THROWS_AS((void)batcher.batch(1, last + 1), IndexError);

  BatchingOptions straight = options;
  straight.shuffle = false;
  straight.bucket_sentences = 1;
  Batcher in_order(file, straight);
  index_t expected = 0;
  for (index_t k = 0; k < in_order.num_batches(0); ++k)
    for (const index_t i : in_order.sentences(0, k)) CHECK(i == expected++);

  // What is in memory keeps its order.
  BatchingOptions whole = options;
  whole.whole_pairs = 1 << 20;
  Batcher held(corpus, options), planned_whole(file, whole);
  CHECK(equal(held.batch(1, 5), planned_whole.batch(1, 5)));
}

TEST_CASE("token file: every damaged byte and every truncation is refused") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tokens";
  write(path, random_corpus(9));
  const std::string good = detail::read_file(path);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char flip : {'\1', '\x80'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      detail::write_file(path, bad);
      CHECK(contains(message_of<IoError>([&] { TokenFile file(path); }), path.string()));
    }
    detail::write_file(path, std::string_view(good).substr(0, i));
    CHECK_THROWS_AS(TokenFile{path}, IoError);
  }
  detail::write_file(path, good + good.substr(0, 4));
  CHECK_THROWS_AS(TokenFile{path}, IoError);
  detail::write_file(path, good);
  CHECK(TokenFile(path).size() == 9);
}

TEST_CASE("token file: what cannot be is refused") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tokens";
  TokenFileWriter writer(path, 10, 20);
  const Ids longest(65535, 1), longer(65536, 1), small = {1, 9}, large = {10}, negative = {-1};
  writer.add(longest, small);
  CHECK(contains(message_of<ValueError>([&] { writer.add(longer, small); }), "65536 tokens"));
  CHECK(contains(message_of<ValueError>([&] { TokenFileWriter none(path, 0, 5); }), "0 entries"));
  CHECK(contains(message_of<IndexError>([&] {
                   TokenFileWriter ids(path, 10, 20);
                   ids.add(large, small);
                 }),
                 "the source of pair 0 has the id 10"));
  CHECK_THROWS_AS(TokenFileWriter(folder.path() / "other", 10, 20).add(small, negative), IndexError);
  CHECK_FALSE(std::filesystem::exists(path));
  const auto empty = folder.path() / "empty";
  TokenFileWriter(empty, 10, 20).commit();
  CHECK(TokenFile(empty).size() == 0);
  writer.commit();
  const TokenFile file(path);
  CHECK(file.lengths(0, 0).source == 65535);
  EncodedPair pair;
  CHECK(contains(message_of<IndexError>([&] { file.read(0, 1, pair); }), "pair 1 does not exist"));
  CHECK_THROWS_AS((void)file.lengths(0, -1), IndexError);
  CHECK(contains(message_of<IoError>([&] { TokenFile missing(folder.path() / "none"); }), "none"));
}

TEST_CASE("token file: a pair that is refused leaves nothing behind, and the writer goes on") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tokens";
  TokenFileWriter writer(path, 50, 50);
  writer.add(Ids{1, 2}, Ids{3});
  CHECK_THROWS_AS(writer.add(Ids{4, 5}, Ids{6, 50}), IndexError);
  CHECK_THROWS_AS(writer.add(Ids{-1}, Ids{6}), IndexError);
  CHECK_THROWS_AS(writer.add(Ids{7}, Ids(static_cast<std::size_t>(TokenFileWriter::longest) + 1, 1)),
                  ValueError);
  CHECK(writer.size() == 1);
  CHECK(writer.source_tokens() == 2);
  CHECK(writer.target_tokens() == 1);
  writer.add(Ids{8}, Ids{9, 10});
  writer.commit();
  const TokenFile file(path);
  REQUIRE(file.size() == 2);
  EncodedPair pair;
  file.read(0, 1, pair);
  CHECK(pair.source == Ids{8});
  CHECK(pair.target == Ids{9, 10});
  // A committed writer is finished, and its file stays.
  CHECK_THROWS_AS(writer.add(Ids{1}, Ids{1}), IoError);
  CHECK_THROWS_AS(writer.commit(), IoError);
  CHECK(TokenFile(path).size() == 2);
}
