#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "eigenformer/search/text/text_translator.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// The share of equal places, over the hypothesis's length: not symmetric.
double utility(const std::string& h, const std::string& r) {
  double same = 0;
  for (std::size_t i = 0; i < std::min(h.size(), r.size()); ++i) same += h[i] == r[i] ? 1 : 0;
  return same / static_cast<double>(h.size());
}

std::vector<double> pairwise(std::span<const std::string> texts) {
  std::vector<double> all;
  for (const auto& h : texts) {
    for (const auto& r : texts) all.push_back(utility(h, r));
  }
  return all;
}

}  // namespace

TEST_CASE("expected utilities are those of plain loops, texts counted as often as they come") {
  const std::vector<std::string> texts = {"abcd", "abxd", "abcd", "zz", "ab", "abcd"};
  const std::vector<double> weights = {1, 2, 0.5, 3, 0, 0.25};
  for (const bool weighted : {false, true}) {
    const auto found = detail::expected_utilities(
        texts, weighted ? std::span<const double>(weights) : std::span<const double>(), pairwise);
    REQUIRE(found.size() == 6);
    for (std::size_t i = 0; i < 6; ++i) {
      double sum = 0, total = 0;
      for (std::size_t j = 0; j < 6; ++j) {
        const double w = weighted ? weights[j] : 1;
        sum += w * utility(texts[i], texts[j]);
        total += w;
      }
      CHECK(found[i] == doctest::Approx(sum / total).epsilon(1e-12));
    }
  }
  CHECK(detail::expected_utilities({}, {}, pairwise).empty());
  // Weights whose sum is beyond the range of double.
  const std::vector<double> large = {1e308, 1e308, 1e308, 0, 0, 0};
  const std::vector<double> equal = {1, 1, 1, 0, 0, 0};
  CHECK(detail::expected_utilities(texts, large, pairwise) ==
        detail::expected_utilities(texts, equal, pairwise));
}

TEST_CASE("weights and utilities that do not fit are refused") {
  const std::vector<std::string> texts = {"a", "b"};
  const auto refusal = [&](std::vector<double> weights, const PairwiseUtility& u) {
    return message_of<ValueError>([&] { (void)detail::expected_utilities(texts, weights, u); });
  };
  CHECK(contains(refusal({1}, pairwise), "1 weights, must be 2"));
  CHECK(contains(refusal({1, -1}, pairwise), "weight 1 is -1, must be finite and not negative"));
  CHECK(contains(refusal({0, 0}, pairwise), "all weights are 0"));
  CHECK(contains(refusal({}, [](std::span<const std::string>) { return std::vector<double>(3); }),
                 "returned 3 numbers for 2 texts, must be 4"));
}
