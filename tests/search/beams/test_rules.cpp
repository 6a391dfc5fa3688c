#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "eigenformer/search/beams/generate.hpp"
#include "search/table_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Ids = std::vector<std::int32_t>;
constexpr SearchRule rules[] = {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2,
                                SearchRule::marian};

std::vector<double> log_softmax_of(std::vector<double> x, const Ids& forbidden) {
  for (const std::int32_t id : forbidden)
    x[static_cast<std::size_t>(id)] = -std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const double v : x) sum += std::exp(v);
  for (double& v : x) v -= std::log(sum);
  return x;
}

struct Best {
  Ids ids;
  double score = -std::numeric_limits<double>::infinity();
};

// Tries every text of at most max_length tokens, the end symbol included. cut: those without an end symbol
// compete.
template <class T>
void exhaust(const TableModel<T>& model, const Ids& input, const SearchOptions& options, Ids ids,
             double total, bool cut, Best& best) {
  Ids read = ids;
  read.insert(read.begin(), 2);
  const bool renormalised = options.rule == SearchRule::ctranslate2;
  const auto p = log_softmax_of(model.next(input, read), renormalised ? Ids{0, 1, 2} : Ids{});
  const auto length = static_cast<index_t>(ids.size()) + 1;
  for (std::int32_t id = 3; id < model.vocabulary; ++id) {
    const double sum = total + p[static_cast<std::size_t>(id)];
    const double score = detail::hypothesis_score(sum, length, options);
    Ids longer = ids;
    if (id != 3) longer.push_back(id);
    if ((id == 3 || (cut && length == options.max_length)) && score > best.score) best = {longer, score};
    if (id != 3 && length < options.max_length) exhaust(model, input, options, longer, sum, cut, best);
  }
}

}  // namespace

TEST_CASE("beam size 1 is greedy, by every rule and length penalty: 200 models") {
  index_t ended = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const TableModel<float> model(9, seed, 1.5);
    const Ids input = {static_cast<std::int32_t>(seed % 7)};
    Ids expected;
    for (int t = 0; t < 20; ++t) {
      Ids read = expected;
      read.insert(read.begin(), 2);
      const auto x = model.next(input, read);
      const auto best = static_cast<std::int32_t>(std::max_element(x.begin() + 3, x.end()) - x.begin());
      if (best == 3) break;
      expected.push_back(best);
    }
    ended += expected.size() < 20 ? 1 : 0;
    for (const SearchRule rule : rules) {
      for (const double alpha : {0.0, 1.0, 3.0}) {
        const auto found =
            generate(model, Context<float>::inference(), std::vector<Ids>{input},
                     {.beam_size = 1, .max_length = 20, .length_penalty = alpha, .rule = rule});
        CAPTURE(seed);
        CAPTURE(static_cast<int>(rule));
        CHECK(found[0][0].ids == expected);
      }
    }
  }
  CHECK(ended > 100);
}

TEST_CASE("a beam that holds every text finds the best by every rule, and does not stop before it has") {
  for (const SearchRule rule : rules) {
    for (const double alpha : {0.0, 0.6, 1.0, 2.0}) {
      for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        const TableModel<double> model(6, seed, 2);
        const Ids input = {static_cast<std::int32_t>(seed % 5)};
        // 31 texts and their beginnings.
        SearchOptions options{.beam_size = 40, .max_length = 5, .length_penalty = alpha, .rule = rule};
        Best best;
        exhaust(model, input, options, {}, 0, rule != SearchRule::gnmt, best);
        const auto found = generate(model, Context<double>::inference(), std::vector<Ids>{input}, options);
        CAPTURE(static_cast<int>(rule));
        CAPTURE(alpha);
        CAPTURE(seed);
        // CTranslate2 without a length penalty ends when the best of the beam has, which is the best there
        // is.
        CHECK(found[0][0].ids == best.ids);
        CHECK(found[0][0].score == doctest::Approx(best.score).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE(
    "without a length penalty the search may stop early, and has found what a search of all steps finds") {
  // A rule that never stops before max_length.
  struct Patient : BeamRule {
    double score(double log_probability, index_t length, const SearchOptions& options) const override {
      return GnmtRule().score(log_probability, length, options);
    }
    bool done(const detail::BeamState& state, const SearchOptions&) const override {
      CHECK(!state.growing.empty());
      return false;
    }
  };
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const TableModel<double> model(9, seed, 1.5);
    const std::vector<Ids> inputs = {{1}, {2, 3}};
    for (const index_t wanted : {1, 3}) {
      SearchOptions options{.beam_size = 3, .max_length = 12, .length_penalty = 0, .num_hypotheses = wanted};
      const auto found = generate(model, Context<double>::inference(), inputs, options);
      options.own_rule = std::make_shared<Patient>();
      const auto patient = generate(model, Context<double>::inference(), inputs, options);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        REQUIRE(found[i].size() == patient[i].size());
        for (std::size_t h = 0; h < found[i].size(); ++h) CHECK(found[i][h].ids == patient[i][h].ids);
      }
    }
  }
}

TEST_CASE("a rule of one's own scores and ends the search") {
  struct Shortest : BeamRule {
    double score(double, index_t length, const SearchOptions&) const override {
      return -static_cast<double>(length);
    }
    bool done(const detail::BeamState& state, const SearchOptions&) const override {
      return !state.finished.empty();
    }
  };
  const TableModel<double> model(9, 5, 1);
  SearchOptions options{.beam_size = 4, .max_length = 20};
  options.own_rule = std::make_shared<Shortest>();
  const auto found = generate(model, Context<double>::inference(), std::vector<Ids>{{1}, {2}, {3}}, options);
  for (const auto& hypotheses : found) {
    CHECK(hypotheses[0].score == -static_cast<double>(hypotheses[0].ids.size()) - 1);
  }
}

TEST_CASE("hypothesis_score: the word penalty is taken from the sum before it is divided by the length") {
  SearchOptions options{.length_penalty = 1, .rule = SearchRule::marian};
  options.word_penalty = 0.5;
  CHECK(detail::hypothesis_score(-6, 4, options) == doctest::Approx((-6 - 0.5 * 4) / 4));
  options.word_penalty = 0;
  CHECK(detail::hypothesis_score(-6, 4, options) == doctest::Approx(-6.0 / 4));
}
