#include <doctest/doctest.h>

#include <numeric>
#include <vector>

#include "eigenformer/search/beams/target_scores.hpp"
#include "search/language_tools.hpp"
#include "search/search_tools.hpp"
#include "search/table_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}, {4, 4, 9, 11, 12, 3}, {10, 3}};

}  // namespace

TEST_CASE("logits of another width than the vocabulary are refused") {
  struct Narrow : TableModel<double> {
    using TableModel<double>::TableModel;
    Var<double> logits(const Context<double>&, const Var<double>& rows) const {
      return Var<double>(Tensor<double>::zeros(Shape{rows.dim(0), vocabulary - 2}));
    }
  };
  const std::vector<Ids> inputs = {{5}}, targets = {{8}};
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)score_targets(Narrow(9, 1), Context<double>::inference(),
                                       std::span<const Ids>(inputs), std::span<const Ids>(targets));
                 }),
                 "the model's logits have shape (2, 7), must be (2, 9)"));
}

TEST_CASE("targets get the log-probabilities of an uncached forward pass, whatever the batches") {
  const auto model = small_model(19);
  RandomGenerator rng(4);
  std::vector<Ids> inputs, targets;
  for (index_t i = 0; i < 90; ++i) {
    inputs.push_back(sources[static_cast<std::size_t>(i % 4)]);
    Ids target;  // none is a target, too: its end symbol
    for (index_t t = 0; t < i % 7; ++t) target.push_back(static_cast<std::int32_t>(4 + rng.uniform_int(15)));
    targets.push_back(target);
  }
  SearchOptions options;
  for (const Ids& forced : {Ids{}, Ids{9, 10}}) {
    options.prefix_ids = forced;
    const auto all = score_targets(model, Context<double>::inference(), std::span<const Ids>(inputs),
                                   std::span<const Ids>(targets), options);
    const auto apart = score_targets(model, Context<double>::inference(), std::span<const Ids>(inputs),
                                     std::span<const Ids>(targets), options, {.batch_size = 1});
    REQUIRE(all.size() == 90);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto memory = encode(model, {inputs[i]});
      Ids read = {2};
      read.insert(read.end(), forced.begin(), forced.end());
      const auto first = static_cast<index_t>(read.size()) - 1;
      read.insert(read.end(), targets[i].begin(), targets[i].end());
      const auto p = uncached_log_probabilities(model, memory, read);
      Ids expected = targets[i];
      expected.push_back(3);
      REQUIRE(all[i].token_log_probabilities.size() == expected.size());
      double sum = 0;
      for (std::size_t t = 0; t < expected.size(); ++t) {
        const double value = p.at({first + static_cast<index_t>(t), expected[t]});
        CHECK(all[i].token_log_probabilities[t] == doctest::Approx(value).epsilon(1e-10));
        sum += value;
      }
      CHECK(all[i].log_probability == doctest::Approx(sum).epsilon(1e-10));
      CHECK(apart[i].log_probability == all[i].log_probability);
    }
  }
}

TEST_CASE("what a search and a sample say of their tokens is what scoring the texts says") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const auto check = [&](const std::vector<Hypothesis>& texts, const Ids& source) {
    for (const Hypothesis& h : texts) {
      const std::vector<Ids> input{source}, target{h.ids};
      const TargetScore score =
          score_targets(model, ctx, std::span<const Ids>(input), std::span<const Ids>(target))[0];
      REQUIRE(h.token_log_probabilities.size() == h.ids.size() + (h.finished ? 1 : 0));
      for (std::size_t t = 0; t < h.token_log_probabilities.size(); ++t)
        CHECK(h.token_log_probabilities[t] ==
              doctest::Approx(score.token_log_probabilities[t]).epsilon(1e-9));
      CHECK(std::accumulate(h.token_log_probabilities.begin(), h.token_log_probabilities.end(), 0.0) ==
            doctest::Approx(h.log_probability).epsilon(1e-12));
    }
  };
  SearchOptions search{.beam_size = 4, .max_length = 9};
  search.num_hypotheses = 4;
  CHECK(generate(model, ctx, sources, search)[0][0].token_log_probabilities.empty());
  search.token_scores = true;
  const auto found = generate(model, ctx, sources, search);
  for (std::size_t i = 0; i < sources.size(); ++i) check(found[i], sources[i]);
  SearchOptions sampling{.sampling = Sampling{}};
  sampling.max_length = 9;
  sampling.token_scores = true;
  sampling.num_hypotheses = 3;
  const auto drawn = draw(model, ctx, std::span<const Ids>(sources), sampling);
  REQUIRE(drawn.size() == 12);
  for (std::size_t i = 0; i < drawn.size(); ++i) check({drawn[i]}, sources[i / 3]);
}

TEST_CASE("a decoder-only model scores what goes on from a prompt") {
  const auto model = small_language_model(language_models().front());
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> prompts = {{2, 7, 8}, {2}}, targets = {{9, 10}, {11}};
  const auto scores = score_targets(model, ctx, std::span<const Ids>(prompts), std::span<const Ids>(targets));
  const Ids whole = {2, 7, 8, 9, 10};
  const auto p =
      model.log_probabilities(ctx, model.decode(ctx, id_tensor(whole), SequenceLayout::packed({5}))).value();
  CHECK(scores[0].token_log_probabilities[0] == doctest::Approx(p.at({2, 9})).epsilon(1e-10));
  CHECK(scores[0].token_log_probabilities[1] == doctest::Approx(p.at({3, 10})).epsilon(1e-10));
  CHECK(scores[0].token_log_probabilities[2] == doctest::Approx(p.at({4, 3})).epsilon(1e-10));
}

TEST_CASE("pairs that do not fit are refused") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> targets = {{5}, {19}};
  CHECK(contains(message_of<ValueError>([&] {
                   (void)score_targets(model, ctx, std::span<const Ids>(sources),
                                       std::span<const Ids>(targets));
                 }),
                 "4 inputs and 2 targets, expected equal numbers"));
  CHECK(contains(message_of<IndexError>([&] {
                   (void)score_targets(model, ctx, std::span<const Ids>(sources).first(2),
                                       std::span<const Ids>(targets));
                 }),
                 "target 1 has the id 19"));
}
