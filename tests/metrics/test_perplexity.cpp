#include <doctest/doctest.h>

#include <cmath>

#include "eigenformer/metrics/perplexity.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

TEST_CASE("perplexity: a uniform guess has the vocabulary's size, and batches count by their tokens") {
  Perplexity uniform;
  uniform.add(5 * std::log(23.0), 5);
  uniform.add(2 * std::log(23.0), 2);
  CHECK(uniform.value() == doctest::Approx(23));
  CHECK(uniform.tokens() == 7);
  Perplexity uneven;
  uneven.add(9, 1);
  uneven.add(3, 5);
  CHECK(uneven.mean_loss() == doctest::Approx(2));
  CHECK(uneven.value() == doctest::Approx(std::exp(2.0)));
}

TEST_CASE("perplexity: without a token there is none") {
  Perplexity none;
  none.add(0, 0);
  CHECK(contains(message_of<ValueError>([&] { (void)none.value(); }), "no token was added"));
  CHECK(contains(message_of<ValueError>([&] { none.add(1, -2); }), "-2 tokens"));
}
