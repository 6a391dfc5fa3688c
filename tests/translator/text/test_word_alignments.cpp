#include "translator/text/word_alignments.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/data/text/text_walk.hpp"
#include "temporary_folder.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("links between words and between tokens") {
  // Tokens of "the  big dogs" are the, big, dog, s and the end symbol.
  const std::string source = "the  big dogs", target = "die großen Hunde";
  TextAlignment a;
  a.source = {{0, 3}, {5, 8}, {9, 12}, {12, 13}, {13, 13}};
  a.target = {{0, 3}, {4, 11}, {12, 15}, {15, 17}, {17, 17}};
  a.links = {{0, 0}, {1, 1}, {2, 2}, {3, 2}, {4, 3}, {1, 4}};
  CHECK(alignment_text(word_links(a, source, target)) == "0-0 1-1 2-2");
  const std::vector<AlignmentLink> words = parse_alignment("2-2 0-0\t1-1 ");
  CHECK(alignment_text(detail::token_links(words, source, a.source, target, a.target)) ==
        "0-0 1-1 2-2 2-3 3-2 3-3");
  CHECK_THROWS_WITH_AS((void)detail::token_links(parse_alignment("3-0"), source, a.source, target, a.target),
                       doctest::Contains("3 source and 3 target words"), IndexError);
  // A token over two words belongs to both.
  a.source = {{0, 8}, {9, 13}};
  a.links = {{0, 1}};
  CHECK(alignment_text(word_links(a, source, target)) == "0-1 1-1");
  for (const std::pair<std::uint32_t, std::uint32_t>& link : {std::pair(2U, 0U), std::pair(0U, 5U)}) {
    a.links = {{0, 1}, link};
    CHECK_THROWS_WITH_AS(
        (void)word_links(a, source, target),
        doctest::Contains("is outside the alignment, which has 2 source and 5 target tokens"), IndexError);
  }
  CHECK(detail::word_spans(" \t").empty());
  for (const char* line : {"0", "0-", "-1", "0-1x", "a-b", "1--1", "0-0 1", "0-99999999999"})
    CHECK_THROWS_WITH_AS((void)parse_alignment(line), doctest::Contains("is not a link"), ValueError);
  const TemporaryFolder folder;
  CHECK(read_alignments(folder.write("a", "0-0\n\n1-0 2-1\n")).size() == 3);
  const auto right = read_right_alignments(folder.write("c", "0-0 1p2 3-3\n"));
  CHECK(alignment_text(right[0].sure) == "0-0 3-3");
  CHECK(alignment_text(right[0].possible) == "1-2");
  const auto bad = folder.write("b", "0-0\n0:1\n");
  CHECK_THROWS_WITH_AS((void)read_alignments(bad), doctest::Contains("line 2: "), IoError);
}

TEST_CASE("a corpus gets the links of its lines, whatever was dropped") {
  const WordTokenizer words = WordTokenizer::train(std::vector<std::string>{"a dog, runs ein Hund läuft"});
  ParallelCorpus corpus;
  for (const auto& [s, t] : {std::pair("a dog", "ein Hund"), std::pair("", "x"),
                             std::pair("dog, runs", "Hund läuft"), std::pair("a a a a a", "ein")})
    detail::add_pair(corpus, s, t);
  CHECK(corpus.lines == std::vector<index_t>{0, 2, 3});
  EncodedCorpus encoded = encode_corpus(
      corpus, {std::make_shared<WordTokenizer>(words), std::make_shared<WordTokenizer>(words)}, {}, 4);
  REQUIRE(encoded.size() == 2);
  std::vector<std::vector<AlignmentLink>> links = {{{1, 1}, {0, 0}}, {}, {{0, 0}, {1, 1}}, {{9, 9}}};
  align_corpus(encoded, corpus, links, words, words);
  CHECK(alignment_text(encoded.alignment[0]) == "0-0 1-1");
  CHECK(alignment_text(encoded.alignment[1]) == "0-0 1-0 2-1");  // dog and its comma
  links[2].push_back({2, 0});
  CHECK_THROWS_WITH_AS(align_corpus(encoded, corpus, links, words, words),
                       doctest::Contains("line 3: link 2-0 is outside"), IndexError);
  links.pop_back();
  CHECK_THROWS_WITH_AS(align_corpus(encoded, corpus, links, words, words),
                       doctest::Contains("is 3, must be 4"), ValueError);
}

TEST_CASE("alignment_error: precision, recall and error rate by sure and possible links") {
  using Links = std::vector<AlignmentLink>;
  AlignmentError error;
  CHECK(std::isnan(error.rate()));
  // A = {0-0, 1-1, 2-3}, S = {0-0, 1-2}, P = S and 1-1: |A & S| = 1, |A & P| = 2.
  error.add(Links{{0, 0}, {1, 1}, {2, 3}, {0, 0}}, Links{{0, 0}, {1, 2}}, Links{{1, 1}});
  CHECK(error.found() == 3);
  CHECK(error.precision() == doctest::Approx(2.0 / 3));
  CHECK(error.recall() == doctest::Approx(0.5));
  CHECK(error.rate() == doctest::Approx(1 - 3.0 / 5));
  // A right one of another sentence.
  error.add(Links{{4, 4}}, Links{{4, 4}});
  CHECK(error.rate() == doctest::Approx(1 - 5.0 / 7));
  CHECK(error.sure() == 3);
}
