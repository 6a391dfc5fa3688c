#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "eigenformer/data/corpus/corpus.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

using Strings = std::vector<std::string>;
using Ids = std::vector<std::int32_t>;

TEST_CASE("corpus: two files, with both line ends, a byte order mark, odd spaces and no last line end") {
  const testing::TemporaryFolder folder;
  const auto en = folder.write("x.en", "\xEF\xBB\xBFThe dog.\r\n  The\u00A0cat. \r\nA bird");
  const auto de = folder.write("x.de", "Der Hund.\nDie Katze.\nEin Vogel\n");
  const ParallelCorpus corpus = read_parallel_files(en, de);
  CHECK(corpus.source == Strings{"The dog.", "The cat.", "A bird"});
  CHECK(corpus.target == Strings{"Der Hund.", "Die Katze.", "Ein Vogel"});
  CHECK(corpus.report.str() == "3 pairs read, 3 kept");
}

TEST_CASE("corpus: pairs with an empty side are dropped together and counted") {
  const testing::TemporaryFolder folder;
  const auto en = folder.write("x.en", "a\n\nc\n \u00A0\ne\n");
  const auto de = folder.write("x.de", "A\nB\n\nD\nE\n");
  const ParallelCorpus corpus = read_parallel_files(en, de);
  CHECK(corpus.source == Strings{"a", "e"});
  CHECK(corpus.target == Strings{"A", "E"});
  CHECK(corpus.report.read == 5);
  CHECK(corpus.report.empty == 3);
  CHECK(corpus.report.kept == 2);
}

TEST_CASE("corpus: one file with tabs") {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("x.tsv", "a b\tA B\tCC-BY\r\nc\tC\n\n\tD\ne\t\n");
  const ParallelCorpus corpus = read_parallel_tsv(path);
  CHECK(corpus.source == Strings{"a b", "c"});
  CHECK(corpus.target == Strings{"A B", "C"});
  CHECK(corpus.report.read == 5);
  CHECK(corpus.report.empty == 3);
  const auto bad = folder.write("bad.tsv", "a\tA\nb B\n");
  CHECK(contains(message_of<IoError>([&] { read_parallel_tsv(bad); }), "bad.tsv', line 2 has no tab"));
}

TEST_CASE("corpus: unequal, missing, empty and undecodable files are refused") {
  const testing::TemporaryFolder folder;
  const auto two = folder.write("two", "a\nb\n");
  const auto three = folder.write("three", "a\nb\nc");
  const auto none = folder.write("none", "");
  const auto blank = folder.write("blank", "\n\n");
  const auto latin1 = folder.write("latin1",
                                   "a\nGr\xFC\xDF"
                                   "e\n");
  const auto message = [&](const auto& source, const auto& target) {
    return message_of<IoError>([&] { read_parallel_files(source, target); });
  };
  CHECK(contains(message(two, three), "two' has 2 lines"));
  CHECK(contains(message(two, three), "three' has 3,"));
  CHECK(contains(message(two, folder.path() / "missing"), "missing': No such file"));
  const std::string none_name = "'" + none.string() + "'", two_name = "'" + two.string() + "'";
  CHECK(message(none, none) ==
        "[corpus] " + none_name + " and " + none_name + " are empty, expected at least one sentence pair");
  CHECK(message(none, two) ==
        "[corpus] " + none_name + " is empty, expected 2 lines, as many as " + two_name + " has");
  CHECK(message(two, none) ==
        "[corpus] " + none_name + " is empty, expected 2 lines, as many as " + two_name + " has");
  CHECK(contains(message(two, blank), "all 2 pairs"));
  CHECK(contains(message(two, latin1), "latin1', line 2, byte offset 4"));
  CHECK(message_of<IoError>([&] { read_parallel_tsv(none); }) ==
        "[corpus] " + none_name + " is empty, expected at least one sentence pair");
  CHECK(contains(message_of<IoError>([&] { read_parallel_tsv(blank); }), "all 2 pairs"));
}

TEST_CASE("corpus: encoding drops over-long pairs and counts them on top of the empty ones") {
  const testing::TemporaryFolder folder;
  const auto en = folder.write("x.en", "a b c\n\na b c d\na\nb a\n");
  const auto de = folder.write("x.de", "A\nB\nC\nA B C D\nB A\n");
  const ParallelCorpus corpus = read_parallel_files(en, de);
  const TokenizerPair tokenizers =
      train_tokenizers({.kind = "word", .vocabulary_size = 20, .joint = false}, corpus);
  const EncodedCorpus encoded = encode_corpus(corpus, tokenizers, {}, 3);
  CHECK(encoded.size() == 2);
  CHECK(encoded.report.str() == "5 pairs read, 2 kept; dropped: 1 empty, 2 over-long");
  CHECK(encoded.source.tokens() == 5);
  CHECK(encoded.target.tokens() == 3);
  CHECK(tokenizers.source->decode(encoded.source[0]) == "a b c");
  CHECK(tokenizers.target->decode(encoded.target[1]) == "B A");
  CHECK(encode_corpus(corpus, tokenizers).size() == 4);
  ParallelCorpus long_only;
  long_only.source = {"a b c d"};
  long_only.target = {"A"};
  CHECK(contains(message_of<ValueError>([&] { encode_corpus(long_only, tokenizers, {}, 3); }),
                 "no sentence pair is left of 1 pair read"));
  CHECK(contains(message_of<ValueError>([&] { encode_corpus(corpus, tokenizers, {}, -1); }),
                 "max_length is -1"));
  long_only.target.clear();
  CHECK(contains(message_of<ValueError>([&] { encode_corpus(long_only, tokenizers); }),
                 "1 source and 0 target"));
}

TEST_CASE("corpus: token sequences, empty ones too") {
  TokenSequences sequences;
  CHECK(sequences.size() == 0);
  for (const Ids& ids : {Ids{4, 5}, Ids{}, Ids{6}}) sequences.push_back(ids);
  CHECK(sequences.size() == 3);
  CHECK(sequences.tokens() == 3);
  CHECK(Ids(sequences[0].begin(), sequences[0].end()) == Ids{4, 5});
  CHECK(sequences.length(1) == 0);
  CHECK(sequences[2][0] == 6);
  CHECK(contains(message_of<IndexError>([&] { (void)sequences[3]; }), "index is 3, must be in [0, 3)"));
  CHECK(contains(message_of<IndexError>([&] { (void)sequences.length(-1); }), "index is -1"));
}
