#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "eigenformer/search/beams/generate.hpp"
#include "search/language_tools.hpp"
#include "search/search_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

Tensor<double> whole(const LanguageModel<double>& model, const Ids& text, index_t prefix = 0) {
  return model
      .decode(Context<double>::inference(), id_tensor(text),
              SequenceLayout::packed({static_cast<index_t>(text.size())}),
              prefix == 0 ? AttentionMask::none() : AttentionMask::prefix({prefix}))
      .value();
}

}  // namespace

TEST_CASE("sampling after prompts that see themselves follows the model that was given the prefix") {
  const auto model = small_language_model(language_models().front());
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> prompts = {{2, 7, 8, 9}, {2, 12}};
  bool differs = false;
  for (const index_t prefix : {0, 3, 100}) {
    const SearchOptions options{
        .sampling = Sampling{.temperature = 0}, .max_length = 5, .end_id = -1, .prefix_length = prefix};
    const auto found = draw(model, ctx, std::span<const Ids>(prompts), options);
    for (std::size_t i = 0; i < 2; ++i) {
      Ids text = prompts[i];
      double log_probability = 0;
      for (const std::int32_t id : found[i].ids) {
        const auto rows =
            whole(model, text, std::min<index_t>(prefix, static_cast<index_t>(prompts[i].size())));
        const auto p = model.log_probabilities(ctx, Var<double>(rows.rows(rows.dim(0) - 1, 1))).value();
        log_probability += p.at({0, id});
        for (std::int32_t other = 3; other < 19; ++other) CHECK(p.at({0, id}) >= p.at({0, other}));
        text.push_back(id);
      }
      CHECK(found[i].ids.size() == 5);
      CHECK(found[i].log_probability == doctest::Approx(log_probability).epsilon(1e-10));
    }
    const auto causal = draw(model, ctx, std::span<const Ids>(prompts),
                             {.sampling = Sampling{.temperature = 0}, .max_length = 5, .end_id = -1});
    differs = differs || causal[0].log_probability != found[0].log_probability;
  }
  CHECK(differs);
  CHECK(contains(message_of<ValueError>(
                     [&] { (void)draw(model, ctx, prompts, {.sampling = Sampling{}, .prefix_length = -1}); }),
                 "prefix_length is -1, must not be negative"));
}

TEST_CASE("beam search after forced tokens that see one another") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}};
  const auto memory = encode(model, sources);
  SearchOptions options{.beam_size = 2, .max_length = 6, .prefix_ids = {9, 10}, .prefix_length = 3};
  const auto found = generate(model, ctx, sources, options);
  options.prefix_length = 0;
  CHECK(generate(model, ctx, sources, options)[0][0].log_probability != found[0][0].log_probability);
  for (std::size_t s = 0; s < 2; ++s) {
    const Hypothesis& h = found[s][0];
    Ids target = {2, 9, 10};
    target.insert(target.end(), h.ids.begin(), h.ids.end());
    const Memory<double> one(memory.rows, memory.layout, {static_cast<std::int32_t>(s)});
    const auto n = static_cast<index_t>(target.size());
    const auto decoded = model.decode(ctx, id_tensor(target), SequenceLayout::packed({n}), one,
                                      {.target = AttentionMask::prefix({3})});
    const auto p = model.log_probabilities(ctx, decoded).value();
    double sum = h.finished ? p.at({n - 1, options.end_id}) : 0;
    for (index_t t = 3; t < n; ++t) sum += p.at({t - 1, target[static_cast<std::size_t>(t)]});
    CHECK(h.log_probability == doctest::Approx(sum).epsilon(1e-10));
  }
  options.prefix_length = 4;
  CHECK(contains(message_of<ValueError>([&] { (void)generate(model, ctx, sources, options); }),
                 "prefix_length is 4, must be at most 3, the begin_id and the prefix_ids"));
}

TEST_CASE("max_length counts prefix_ids, which may leave no room for a text") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}};
  for (const SearchRule rule :
       {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2, SearchRule::marian}) {
    for (const index_t most : {1, 2, 3, 5}) {
      SearchOptions options{.beam_size = 2, .max_length = most, .rule = rule};
      options.prefix_ids = {9, 10};
      options.num_hypotheses = 2;
      options.forbidden_ids = {options.end_id};  // every text is cut
      const auto room = static_cast<std::size_t>(std::max<index_t>(0, most - 2));
      for (const auto& texts : generate(model, ctx, sources, options)) {
        REQUIRE(!texts.empty());
        for (const Hypothesis& h : texts) CHECK(h.ids.size() == room);
        CHECK(std::isfinite(texts[0].score));
      }
      options.num_beam_groups = 2;
      options.diversity_penalty = 0.5;
      options.max_length_factor = 9;
      for (const auto& texts : generate(model, ctx, sources, options))
        for (const Hypothesis& h : texts) CHECK(h.ids.size() == room);
      SearchOptions sampling{.sampling = Sampling{}, .max_length = most, .num_hypotheses = 2, .end_id = -1};
      sampling.prefix_ids = {9, 10};
      for (const double factor : {0.0, 9.0}) {
        sampling.max_length_factor = factor;
        const auto texts = draw(model, ctx, std::span<const Ids>(sources), sampling);
        REQUIRE(texts.size() == 4);
        for (const Hypothesis& h : texts) CHECK(h.ids.size() == room);
      }
      // An input's own prefix is not counted.
      sampling.prefixes = {{7}, {8, 8}};
      for (const Hypothesis& h : draw(model, ctx, std::span<const Ids>(sources), sampling))
        CHECK(h.ids.size() == room);
    }
  }
}

TEST_CASE("inputs with prefixes of their own are searched and sampled as alone with prefix_ids") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}, {9, 4, 4, 11, 12, 3}, {10, 9, 3}};
  const std::vector<Ids> prefixes = {{7}, {}, {9, 10, 11}, {8, 8}};
  for (const SearchRule rule : {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2}) {
    SearchOptions options{.beam_size = 3, .max_length = 7, .length_penalty = 0.8, .rule = rule};
    options.prefix_ids = {6};
    options.prefixes = prefixes;
    options.num_hypotheses = 2;
    const auto found = generate(model, ctx, std::span<const Ids>(sources), options, {.batch_size = 3});
    SearchOptions sampling{.sampling = Sampling{}, .max_length = 7};
    sampling.prefix_ids = {6};
    sampling.prefixes = prefixes;
    sampling.num_hypotheses = 2;
    const auto drawn = draw(model, ctx, std::span<const Ids>(sources), sampling);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const std::vector<Ids> one{sources[i]};
      SearchOptions alone = options;
      alone.prefixes = {};
      alone.prefix_ids.insert(alone.prefix_ids.end(), prefixes[i].begin(), prefixes[i].end());
      alone.max_length += static_cast<index_t>(prefixes[i].size());  // which counts prefix_ids only
      const auto expected = generate(model, ctx, one, alone)[0];
      REQUIRE(found[i].size() == expected.size());
      for (std::size_t h = 0; h < expected.size(); ++h) {
        CHECK(found[i][h].ids == expected[h].ids);
        CHECK(found[i][h].score == doctest::Approx(expected[h].score).epsilon(1e-12));
      }
      SearchOptions sampled = sampling;
      sampled.prefixes = {};
      sampled.prefix_ids = alone.prefix_ids;
      sampled.max_length = alone.max_length;
      sampled.sampling->numbers = {i};
      const auto texts = draw(model, ctx, std::span<const Ids>(one), sampled);
      REQUIRE(texts.size() == 2);
      for (std::size_t k = 0; k < 2; ++k) CHECK(drawn[2 * i + k].ids == texts[k].ids);
    }
  }
  SearchOptions wrong;
  wrong.prefixes = {{7}};
  CHECK(contains(message_of<ValueError>([&] { (void)generate(model, ctx, sources, wrong); }),
                 "1 prefixes, must be 4, one for each input, or none"));
  wrong.prefixes = {{7}, {19}, {}, {}};
  CHECK(contains(message_of<ValueError>([&] { (void)generate(model, ctx, sources, wrong); }),
                 "one of a text's prefix is 19, must be below the vocabulary's size 19"));
}
