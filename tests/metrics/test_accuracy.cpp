#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "eigenformer/metrics/accuracy.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

TEST_CASE("accuracy: exact matches of texts and of id sequences") {
  const std::vector<std::string> hypotheses = {"a b", "a", "", "B"}, references = {"a b", "a ", "", "b"};
  const Accuracy texts = exact_match(hypotheses, references);
  CHECK(texts.correct == 2);
  CHECK(texts.total == 4);
  CHECK(texts.rate() == 0.5);
  const std::vector<std::vector<std::int32_t>> a = {{1, 2}, {3}, {4}}, b = {{1, 2}, {3, 3}, {4}};
  CHECK(exact_match(a, b).correct == 2);
  const std::vector<std::int32_t> x = {1, 2, 3}, y = {1, 2, 4};
  CHECK(exact_match(x, y).rate() == doctest::Approx(2.0 / 3));
}

TEST_CASE("accuracy: nothing to compare is 0, unequal numbers are refused") {
  const std::vector<std::string> none, one = {"a"};
  CHECK(exact_match(none, none).rate() == 0);
  CHECK(contains(message_of<ValueError>([&] { exact_match(one, none); }), "1 hypotheses and 0 references"));
}
