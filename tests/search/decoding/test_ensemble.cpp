#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "eigenformer/search/beams/target_scores.hpp"
#include "eigenformer/search/decoding/ensemble.hpp"
#include "search/packed_test_tools.hpp"
#include "search/search_tools.hpp"
#include "search/table_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}};

// As small_model(), but wider: another d_model, one layer.
Seq2SeqTransformer<double> wide_model(index_t vocabulary) {
  RandomGenerator rng(5);
  Seq2SeqTransformer<double> model({.source_vocab_size = 23,
                                    .target_vocab_size = vocabulary,
                                    .layer = {.d_model = 20, .num_heads = 2, .dim_feedforward = 24},
                                    .encoder = {.num_layers = 1},
                                    .decoder = {.num_layers = 1}},
                                   rng);
  for (double& w : model.own_projection.value().span()) w *= 3;
  return model;
}

}  // namespace

TEST_CASE("models of different widths and depths give the mean of their probabilities") {
  const auto a = small_model(19), b = wide_model(19);
  const Ensemble<Seq2SeqTransformer<double>> both({{a}, {b}});
  const auto ctx = Context<double>::inference();
  CHECK(both.vocabulary_size() == 19);
  const std::vector<Ids> targets = {{7, 8, 9}, {10}};
  const auto scores = score_targets(both, ctx, std::span<const Ids>(sources), std::span<const Ids>(targets));
  for (std::size_t i = 0; i < 2; ++i) {
    Ids read = {2};
    read.insert(read.end(), targets[i].begin(), targets[i].end());
    const auto p = uncached_log_probabilities(a, encode(a, {sources[i]}), read),
               q = uncached_log_probabilities(b, encode(b, {sources[i]}), read);
    Ids expected = targets[i];
    expected.push_back(3);
    for (std::size_t t = 0; t < expected.size(); ++t) {
      const auto row = static_cast<index_t>(t);
      const double mean = (std::exp(p.at({row, expected[t]})) + std::exp(q.at({row, expected[t]}))) / 2;
      CHECK(scores[i].token_log_probabilities[t] == doctest::Approx(std::log(mean)).epsilon(1e-10));
    }
  }
  // A search's numbers are those of its texts, across reordered beams.
  const auto found = generate(both, ctx, sources, {.beam_size = 3, .max_length = 8});
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<Ids> source{sources[i]}, target{found[i][0].ids};
    const auto score =
        score_targets(both, ctx, std::span<const Ids>(source), std::span<const Ids>(target))[0];
    const double end = found[i][0].finished ? 0 : score.token_log_probabilities.back();
    CHECK(found[i][0].log_probability == doctest::Approx(score.log_probability - end).epsilon(1e-9));
  }
  CHECK(draw(both, ctx, std::span<const Ids>(sources)).size() == 2);
}

TEST_CASE("members whose rows or logits do not match are refused") {
  struct Odd : TableModel<double> {
    using TableModel<double>::TableModel;
    struct State : TableModel<double>::State {
      Var<double> step(const Tensor<std::int32_t>& ids, std::span<const index_t> counts,
                       const std::vector<index_t>& prefix) {
        const Var<double> rows = TableModel<double>::State::step(ids, counts, prefix);
        return static_cast<const Odd*>(model)->more ? concat({rows, rows}, 0) : rows;
      }
      Var<double> step(const Tensor<std::int32_t>& ids) {
        return step(ids, std::vector<index_t>(shift.size(), 1), {});
      }
    };
    State begin(const Context<double>& ctx, std::span<const Input> inputs) const {
      return {TableModel<double>::begin(ctx, inputs)};
    }
    Var<double> logits(const Context<double>& ctx, const Var<double>& rows) const {
      const Var<double> all = TableModel<double>::logits(ctx, rows);
      return narrow ? slice(all, -1, 0, 5) : all;
    }
    bool more = false, narrow = false;
  };
  const auto ctx = Context<double>::inference();
  const auto refused = [&](bool more, bool narrow) {
    const Odd good(9, 1);
    Odd odd(9, 2);
    odd.more = more;
    odd.narrow = narrow;
    const Ensemble<Odd> both({{good}, {odd}});
    return message_of<ShapeError>([&] { (void)generate(both, ctx, sources, {.max_length = 3}); });
  };
  CHECK(contains(refused(true, false), "model 1 returned rows of shape (4, 1), must be (2, d_model)"));
  CHECK(contains(refused(false, true), "the model's logits have shape (2, 5), must be (2, 9)"));
  CHECK(refused(false, false) == "no error");
  const auto a = small_model(19), b = wide_model(19);
  const Ensemble<Seq2SeqTransformer<double>> both({{a}, {b}});
  auto state = both.begin(ctx, std::span<const Ids>(sources));
  (void)state.step(Tensor<std::int32_t>::full({2}, 2));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)both.logits(ctx, Var<double>(Tensor<double>::zeros({2, 3})));
                 }),
                 "rows of shape (2, 3) must be (rows, "));
}

TEST_CASE("an ensemble of one gives that model's own numbers, with its packed weights, and its attention") {
  const auto model = float_model();
  const auto packed = packed_context(pack_weights(model, WeightFormat::int8));
  const Ensemble<Seq2SeqTransformer<float>> one({{model, packed}});
  const auto inputs = float_model_sources();
  SearchOptions options{.beam_size = 3, .max_length = 10};
  options.attention = true;
  const auto alone = generate(model, packed, std::span<const Ids>(inputs), options);
  const auto found = generate(one, Context<float>::inference(), std::span<const Ids>(inputs), options);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CHECK(found[i][0].ids == alone[i][0].ids);
    CHECK(found[i][0].log_probability == alone[i][0].log_probability);
    REQUIRE(found[i][0].attention != nullptr);
    CHECK(found[i][0].attention->memory[1].at({0, 0, 0}) == alone[i][0].attention->memory[1].at({0, 0, 0}));
  }
}

TEST_CASE("attention of an ensemble is the mean of its models', where they are alike") {
  const auto a = small_model(19, false, 1), b = small_model(19, false, 2), wide = wide_model(19);
  const auto ctx = Context<double>::inference();
  const Ensemble<Seq2SeqTransformer<double>> both({{a}, {b}}), unlike({{a}, {wide}});
  const Ids target = {7, 8};
  const auto mean = attention_maps(both, ctx, sources[0], target, 2),
             x = attention_maps(a, ctx, sources[0], target, 2),
             y = attention_maps(b, ctx, sources[0], target, 2);
  REQUIRE(mean.memory.size() == 2);
  CHECK(mean.memory[1].at({2, 1, 3}) ==
        doctest::Approx((x.memory[1].at({2, 1, 3}) + y.memory[1].at({2, 1, 3})) / 2));
  CHECK(contains(message_of<ValueError>([&] { (void)attention_maps(unlike, ctx, sources[0], target, 2); }),
                 "differ in layers or heads"));
}

TEST_CASE("models that do not go together are refused, and logits that are not numbers are seen") {
  using Tables = Ensemble<TableModel<double>>;
  TableModel<double> a(9, 1), b(8, 1), c(9, 2);
  CHECK(contains(message_of<ValueError>([&] { (void)Tables({}); }), "[ensemble] there is no model"));
  CHECK(contains(message_of<ValueError>([&] {
                   (void)Tables({{a}, {b}});
                 }),
                 "model 1 has a vocabulary of 8 ids, must have 9"));
  for (double& x : c.table) x = std::nan("");
  CHECK(contains(message_of<ValueError>([&] {
                   (void)generate(Tables({{a}, {c}}), Context<double>::inference(), std::vector<Ids>{{1}});
                 }),
                 "logits are not numbers"));
}

TEST_CASE("a shortlist holds for each member of an ensemble") {
  const auto a = small_model(19), b = wide_model(19);
  const auto ctx = Context<double>::inference();
  std::vector<std::vector<std::int32_t>> lists(23);
  for (std::size_t i = 0; i < lists.size(); ++i)
    lists[i] = {static_cast<std::int32_t>(4 + i % 5), static_cast<std::int32_t>(9 + i % 7)};
  SearchOptions options{.beam_size = 3, .max_length = 8};
  options.shortlist = std::make_shared<const Shortlist>(0, lists);
  const auto alone = generate(a, ctx, sources, options);
  const auto one = generate(Ensemble<Seq2SeqTransformer<double>>({{a}}), ctx, sources, options);
  const auto twice = generate(Ensemble<Seq2SeqTransformer<double>>({{a}, {a}}), ctx, sources, options);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    CHECK(one[i][0].ids == alone[i][0].ids);
    CHECK(one[i][0].log_probability == alone[i][0].log_probability);
    CHECK(twice[i][0].ids == alone[i][0].ids);
    CHECK(twice[i][0].log_probability == doctest::Approx(alone[i][0].log_probability).epsilon(1e-10));
  }
  // Of two models, the mean of their probabilities among the ids.
  const std::vector<Ids> source{sources[0]};
  SearchOptions first{.beam_size = 1, .max_length = 1};
  first.shortlist = options.shortlist;
  const auto found = generate(Ensemble<Seq2SeqTransformer<double>>({{a}, {b}}), ctx, source, first);
  auto ids = options.shortlist->choose(sources[0], 19);
  if (std::find(ids.begin(), ids.end(), 3) == ids.end()) ids.push_back(3);
  const auto p = uncached_log_probabilities(a, encode(a, source), {2}),
             q = uncached_log_probabilities(b, encode(b, source), {2});
  double sum_p = 0, sum_q = 0;
  for (const std::int32_t id : ids) {
    sum_p += std::exp(p.at({0, id}));
    sum_q += std::exp(q.at({0, id}));
  }
  double best = 0;
  for (const std::int32_t id : ids) {
    if (id > 2)
      best = std::max(best, (std::exp(p.at({0, id})) / sum_p + std::exp(q.at({0, id})) / sum_q) / 2);
  }
  CHECK(found[0][0].log_probability == doctest::Approx(std::log(best)).epsilon(1e-10));
}
