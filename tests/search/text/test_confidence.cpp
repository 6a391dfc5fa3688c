#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "eigenformer/search/text/confidence.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("a word's confidence is the product of its tokens' probabilities, forced tokens being certain") {
  const auto tokenizer = CharacterTokenizer::train(std::vector<std::string>{"ab c"});
  const std::vector<std::int32_t> ids = tokenizer.encode("ab cb");
  REQUIRE(ids.size() == 5);
  const std::vector<double> p = {0.5, 0.8, 0.9, 0.25, 0.4};
  std::vector<double> logs;
  for (const double x : p) logs.push_back(std::log(x));
  const auto words = word_confidences(tokenizer, ids, logs);
  REQUIRE(words.size() == 2);
  CHECK(words[0].word == "ab");
  // The space belongs to the word before it: the text still ends in that.
  CHECK(words[0].confidence == doctest::Approx(0.5 * 0.8 * 0.9));
  CHECK(words[1].word == "cb");
  CHECK(words[1].confidence == doctest::Approx(0.25 * 0.4));
  CHECK(sentence_confidence(words) == doctest::Approx((0.36 + 0.1) / 2));
  const auto forced = word_confidences(tokenizer, ids, std::span<const double>(logs).last(1));
  CHECK(forced[0].confidence == 1);
  CHECK(forced[1].confidence == doctest::Approx(0.4));
  CHECK(word_confidences(tokenizer, {}, {}).empty());
  CHECK(sentence_confidence({}) == 0);
  CHECK(contains(message_of<ValueError>([&] { (void)word_confidences(tokenizer, {}, logs); }),
                 "5 log-probabilities, must be at most 0"));
}

TEST_CASE("a punctuation mark that touches a word is part of it") {
  const auto tokenizer = WordTokenizer::train(std::vector<std::string>{"der Hund. (alt)"});
  const std::vector<std::int32_t> ids = tokenizer.encode("der Hund. (alt)");
  const auto words = word_confidences(tokenizer, ids, std::vector<double>(ids.size(), std::log(0.5)));
  REQUIRE(words.size() == 3);
  CHECK(words[1].word == "Hund.");
  CHECK(words[0].confidence == doctest::Approx(0.5));
  CHECK(words[1].confidence == doctest::Approx(0.25));
  CHECK(words[2].confidence == doctest::Approx(0.125));
}

TEST_CASE("a scale moves confidences and keeps them in [0, 1] and in order") {
  const ConfidenceScale same, scale{.slope = 0.5, .offset = -1};
  CHECK(same(0.3) == 0.3);
  CHECK(scale(0.5) == doctest::Approx(1 / (1 + std::exp(1.0))));
  double before = -1;
  for (const double p : {0.0, 1e-300, 0.1, 0.5, 0.9, 1 - 1e-15, 1.0}) {
    CHECK(scale(p) >= 0);
    CHECK(scale(p) <= 1);
    CHECK(scale(p) >= before);
    before = scale(p);
  }
}
