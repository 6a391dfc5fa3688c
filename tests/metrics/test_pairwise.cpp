#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "eigenformer/metrics/pairwise.hpp"

using namespace eigenformer;

TEST_CASE("all pairs have the scores of single sentences") {
  const std::vector<std::string> texts = {"Der Hund schläft im Garten.", "Ein Hund schläft im Haus.", "Ja!",
                                          ""};
  const auto chrf = pairwise_chrf(texts), bleu = pairwise_bleu(texts);
  REQUIRE(chrf.size() == 16);
  REQUIRE(bleu.size() == 16);
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      CHECK(chrf[4 * i + j] == sentence_chrf(texts[i], texts[j]));
      CHECK(bleu[4 * i + j] == sentence_bleu(texts[i], texts[j]));
    }
  }
  CHECK(chrf[0] == doctest::Approx(100));
  CHECK(chrf[1] != chrf[4]);
  CHECK(chrf[2] < 10);
}

TEST_CASE("BLEU of a sentence is sacreBLEU's: effective order, smoothed") {
  CHECK(sentence_bleu("Ja!", "Ja!") == doctest::Approx(100));
  CHECK(sentence_bleu("a b c d e", "a b c d e") == doctest::Approx(100));
  // 1-grams 3 of 4, 2-grams 1 of 3, 3-grams 0 of 2 (half of a match), 4-grams 0 of 1 (a quarter).
  CHECK(sentence_bleu("a b x d", "a b c d") == doctest::Approx(100 * std::pow(3.0 / 4 / 3 / 4 / 4, 0.25)));
  // A single word of three: 1-gram 1 of 1, brevity exp(1 - 3).
  CHECK(sentence_bleu("a", "a b c") == doctest::Approx(100 * std::exp(-2.0)));
  CHECK(sentence_bleu("", "a") == 0);
}
