#include "eigenformer/data/corpus/alignment_model.hpp"

#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "eigenformer/core/base/random.hpp"

using namespace eigenformer;

namespace {

using Ids = std::vector<std::int32_t>;

double share(const Lexicon& lexicon, std::size_t source, std::int32_t target) {
  for (const auto& [id, p] : lexicon[source])
    if (id == target) return p;
  return 0;
}

}  // namespace

TEST_CASE("a lexicon of alignments has the shares of links") {
  const std::vector<Ids> sources = {{1, 2, 1}, {2}}, targets = {{5, 6}, {7, 6}};
  const std::vector<std::vector<AlignmentLink>> links = {{{0, 0}, {2, 0}, {1, 1}, {2, 1}}, {{0, 0}, {0, 1}}};
  const Lexicon lexicon = lexicon_of_alignments(sources, targets, links, 4);
  REQUIRE(lexicon.size() == 4);
  CHECK(lexicon[0].empty());
  CHECK(share(lexicon, 1, 5) == doctest::Approx(2.0 / 3));
  CHECK(share(lexicon, 1, 6) == doctest::Approx(1.0 / 3));
  CHECK(share(lexicon, 2, 6) == doctest::Approx(2.0 / 3));
  CHECK(share(lexicon, 2, 7) == doctest::Approx(1.0 / 3));
  const std::vector<std::vector<AlignmentLink>> outside = {{{3, 0}}, {}}, few = {{}};
  CHECK_THROWS_AS(lexicon_of_alignments(sources, targets, outside, 4), IndexError);
  CHECK_THROWS_AS(lexicon_of_alignments(sources, targets, few, 4), ValueError);
  CHECK_THROWS_AS(lexicon_of_alignments(sources, targets, links, 2), IndexError);
}

TEST_CASE("IBM Model 1 equals plain loops over a table") {
  RandomGenerator rng(1);
  std::vector<Ids> sources, targets;
  for (int p = 0; p < 12; ++p) {
    Ids s, t;
    for (std::uint64_t i = 0, n = 1 + rng.uniform_int(4); i < n; ++i)
      s.push_back(static_cast<std::int32_t>(rng.uniform_int(5)));
    for (std::uint64_t i = 0, n = 1 + rng.uniform_int(4); i < n; ++i)
      t.push_back(static_cast<std::int32_t>(rng.uniform_int(6)));
    sources.push_back(s);
    targets.push_back(t);
  }
  double table[5][6];
  for (auto& row : table)
    for (double& x : row) x = 1;
  for (int pass = 0; pass < 4; ++pass) {
    double counts[5][6] = {};
    for (std::size_t p = 0; p < sources.size(); ++p) {
      for (const std::int32_t t : targets[p]) {
        double total = 0;
        for (const std::int32_t s : sources[p]) total += table[s][t];
        for (const std::int32_t s : sources[p]) counts[s][t] += table[s][t] / total;
      }
    }
    for (int s = 0; s < 5; ++s) {
      double total = 0;
      for (const double c : counts[s]) total += c;
      for (int t = 0; t < 6; ++t) table[s][t] = total > 0 ? counts[s][t] / total : 0;
    }
  }
  const Lexicon lexicon = train_lexicon(sources, targets, 5, {.iterations = 4, .least = 0});
  for (std::size_t s = 0; s < 5; ++s) {
    for (std::int32_t t = 0; t < 6; ++t)
      CHECK(share(lexicon, s, t) == doctest::Approx(table[s][t]).epsilon(1e-12));
  }
}

TEST_CASE("IBM Model 1 finds which words stand for each other") {
  // Word s is translated by 10 + s, in any order.
  RandomGenerator rng(2);
  std::vector<Ids> sources, targets;
  for (int p = 0; p < 300; ++p) {
    Ids s;
    for (int i = 0; i < 5; ++i) s.push_back(static_cast<std::int32_t>(rng.uniform_int(9)));
    Ids t;
    for (auto at = s.rbegin(); at != s.rend(); ++at) t.push_back(10 + *at);
    sources.push_back(s);
    targets.push_back(t);
  }
  const Lexicon lexicon = train_lexicon(sources, targets, 9);
  for (std::size_t s = 0; s < 9; ++s) CHECK(share(lexicon, s, static_cast<std::int32_t>(10 + s)) > 0.6);
  CHECK_THROWS_AS(train_lexicon(sources, std::vector<Ids>{}, 9), ValueError);
  CHECK_THROWS_AS(train_lexicon(sources, targets, 3), IndexError);
  CHECK_THROWS_AS(train_lexicon(sources, targets, 9, {.iterations = 0}), ValueError);
  CHECK_THROWS_AS(train_lexicon(sources, targets, -1), ValueError);
  const std::vector<std::vector<AlignmentLink>> none(sources.size());
  CHECK_THROWS_AS(lexicon_of_alignments(sources, targets, none, -1), ValueError);
}
