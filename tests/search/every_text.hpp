#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "eigenformer/search/beams/generate.hpp"
#include "search/search_tools.hpp"

namespace eigenformer::testing {

/// A text of an enumeration, and what a search should say of it.
struct Text {
  Ids ids;
  double log_probability, score;
  bool ended;
};

inline std::vector<double> softmax_of(std::vector<double> x, const Ids& forbidden = {}) {
  for (const std::int32_t id : forbidden)
    x[static_cast<std::size_t>(id)] = -std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const double v : x) sum += std::exp(v);
  for (double& v : x) v = std::exp(v) / sum;
  return x;
}

// Every text of at most max_length tokens, the end symbol included; cut: those without one, too.
// next(ids): the probabilities of the token after begin and ids.
template <class Next>
void enumerate(const Next& next, const SearchOptions& options, const Ids& ids, double total, bool cut,
               std::vector<Text>& all) {
  const std::vector<double> p = next(ids);
  const auto length = static_cast<index_t>(ids.size()) + 1;
  for (std::int32_t id = 3; id < static_cast<std::int32_t>(p.size()); ++id) {
    const double sum = total + std::log(p[static_cast<std::size_t>(id)]);
    Ids longer = ids;
    if (id != 3) longer.push_back(id);
    if (id == 3 || (cut && length == options.max_length))
      all.push_back({longer, sum, detail::hypothesis_score(sum, length, options), id == 3});
    if (id != 3 && length < options.max_length) enumerate(next, options, longer, sum, cut, all);
  }
}

inline void sort_by_score(std::vector<Text>& all) {
  std::sort(all.begin(), all.end(), [](const Text& a, const Text& b) { return a.score > b.score; });
}

inline void check_same(const std::vector<Hypothesis>& found, const std::vector<Text>& expected,
                       std::size_t count) {
  REQUIRE(found.size() == count);
  REQUIRE(expected.size() >= count);
  for (std::size_t i = 0; i < count; ++i) {
    CAPTURE(i);
    CHECK(found[i].ids == expected[i].ids);
    CHECK(found[i].finished == expected[i].ended);
    CHECK(found[i].log_probability == doctest::Approx(expected[i].log_probability).epsilon(1e-10));
    CHECK(found[i].score == doctest::Approx(expected[i].score).epsilon(1e-10));
  }
}

inline Ids after_begin(const Ids& ids) {
  Ids read = {2};
  read.insert(read.end(), ids.begin(), ids.end());
  return read;
}

}  // namespace eigenformer::testing
