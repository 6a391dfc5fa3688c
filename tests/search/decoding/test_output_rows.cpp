#include "eigenformer/search/decoding/next_tokens.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "eigenformer/data/corpus/shortlist.hpp"
#include "search/packed_test_tools.hpp"
#include "search/search_tools.hpp"
#include "search/table_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// Forbids all ids but some: what a shortlist does, by way of all columns.
struct Only final : LogitsProcessor {
  explicit Only(Ids given) : ids(std::move(given)) {}
  template <class T>
  void keep(std::span<T> scores) const {
    for (std::size_t id = 0; id < scores.size(); ++id) {
      if (!std::binary_search(ids.begin(), ids.end(), static_cast<std::int32_t>(id)))
        scores[id] = -std::numeric_limits<T>::infinity();
    }
  }
  void operator()(const LogitsStep&, std::span<float> scores) const override { keep(scores); }
  void operator()(const LogitsStep&, std::span<double> scores) const override { keep(scores); }
  Ids ids;
};

std::shared_ptr<const Shortlist> random_shortlist(index_t sources, index_t targets, std::uint64_t seed) {
  RandomGenerator rng(seed);
  std::vector<Ids> lists(static_cast<std::size_t>(sources));
  for (auto& list : lists) {
    for (int i = 0; i < 3; ++i)
      list.push_back(static_cast<std::int32_t>(rng.uniform_int(static_cast<std::uint64_t>(targets))));
  }
  return std::make_shared<const Shortlist>(5, std::move(lists));
}

void check_same(const std::vector<Hypothesis>& a, const std::vector<Hypothesis>& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].ids == b[i].ids);
    CHECK(a[i].log_probability == doctest::Approx(b[i].log_probability).epsilon(tolerance));
  }
}

}  // namespace

TEST_CASE("a search with a shortlist is one in which all other ids are forbidden") {
  const index_t vocabulary = 41;
  const auto model = small_model(vocabulary);
  const auto shortlist = random_shortlist(23, vocabulary, 3);
  for (const Ids& source : std::vector<Ids>{{5, 6, 7, 3}, {8, 3}, {11, 4, 4, 19, 3}}) {
    // This rule normalises what is left, as a shortlist does.
    SearchOptions all{.beam_size = 4, .max_length = 12, .rule = SearchRule::ctranslate2, .num_hypotheses = 4};
    for (const int variant : {0, 1, 2}) {
      if (variant == 1) all.no_repeat_ngram_size = 2;
      if (variant == 2) all.repetition_penalty = 1.7, all.min_length = 5;
      SearchOptions some = all;
      some.shortlist = shortlist;
      all.processors = {std::make_shared<Only>(shortlist->choose(source, vocabulary))};
      const auto ctx = Context<double>::inference();
      check_same(generate(model, ctx, std::vector<Ids>{source}, some)[0],
                 generate(model, ctx, std::vector<Ids>{source}, all)[0], 1e-10);
      all.processors.clear();
    }
  }
}

TEST_CASE("sentences of a batch share the union of their lists, and the end symbol is always there") {
  const index_t vocabulary = 41;
  const auto model = small_model(vocabulary);
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}};
  auto lists = std::vector<Ids>(23);
  lists[5] = {20, 30};
  lists[8] = {25};
  const auto shortlist = std::make_shared<const Shortlist>(0, lists);
  SearchOptions options{
      .beam_size = 2, .max_length = 10, .rule = SearchRule::ctranslate2, .shortlist = shortlist};
  const auto ctx = Context<double>::inference();
  const auto found = generate(model, ctx, sources, options);
  options.shortlist = nullptr;
  Ids both = shortlist->choose(Ids{5, 6, 7, 3, 8, 3}, vocabulary);
  CHECK(std::find(both.begin(), both.end(), 25) != both.end());
  if (!std::binary_search(both.begin(), both.end(), 3))
    both.insert(std::upper_bound(both.begin(), both.end(), 3), 3);
  options.processors = {std::make_shared<Only>(both)};
  const auto expected = generate(model, ctx, sources, options);
  for (std::size_t i = 0; i < 2; ++i) check_same(found[i], expected[i], 1e-10);
}

TEST_CASE("a shortlist takes the columns of packed weights, of tied embeddings, too") {
  for (const Tying tying : {Tying::none, Tying::all}) {
    const auto model = float_model(tying);
    const auto sources = float_model_sources();
    const auto shortlist = random_shortlist(53, 53, 5);
    for (const WeightFormat format : {WeightFormat::float32, WeightFormat::bf16, WeightFormat::int8}) {
      const auto ctx = packed_context(pack_weights(model, format));
      for (const auto& source : sources) {
        SearchOptions options{
            .beam_size = 3, .max_length = 12, .rule = SearchRule::ctranslate2, .num_hypotheses = 3};
        options.processors = {std::make_shared<Only>(shortlist->choose(source, 53))};
        const auto expected = generate(model, ctx, std::vector<Ids>{source}, options);
        options.processors.clear();
        options.shortlist = shortlist;
        check_same(generate(model, ctx, std::vector<Ids>{source}, options)[0], expected[0], 1e-6);
      }
    }
  }
}

TEST_CASE("a shortlist is refused by a model whose output layer is not known") {
  const TableModel<float> model(9, 1, 1.5);
  SearchOptions options{.beam_size = 1};
  options.shortlist = random_shortlist(9, 9, 1);
  CHECK_THROWS_AS(generate(model, Context<float>::inference(), std::vector<Ids>{{1, 2}}, options),
                  ValueError);
}
