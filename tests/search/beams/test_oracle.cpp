#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "eigenformer/search/beams/generate.hpp"
#include "eigenformer/search/decoding/ensemble.hpp"
#include "search/every_text.hpp"
#include "search/search_tools.hpp"
#include "search/table_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// Never ends a search before max_length.
struct Patient : BeamRule {
  double score(double log_probability, index_t length, const SearchOptions& options) const override {
    return GnmtRule().score(log_probability, length, options);
  }
  bool done(const detail::BeamState&, const SearchOptions&) const override { return false; }
};

// Diverse beam search in plain loops over all continuations.
std::vector<Text> plain_diverse(const TableModel<double>& model, const Ids& input,
                                const SearchOptions& options) {
  struct Growing {
    Ids ids;
    double log_probability = 0, diversity = 0;
  };
  const auto groups = static_cast<std::size_t>(options.num_beam_groups);
  const auto width = static_cast<std::size_t>(options.beam_size) / groups;
  std::vector<std::vector<Growing>> growing(groups, std::vector<Growing>(1));
  std::vector<std::size_t> ended(groups);
  std::vector<Text> found;
  for (index_t length = 1; length <= options.max_length; ++length) {
    std::vector<std::int32_t> taken;
    for (std::size_t g = 0; g < groups; ++g) {
      auto& group = growing[g];
      struct Next {
        Growing text;
        std::int32_t id;
      };
      std::vector<Next> all;
      for (const Growing& from : group) {
        const auto p = softmax_of(model.next(input, after_begin(from.ids)));
        for (std::int32_t id = 3; id < model.vocabulary; ++id) {
          const auto times = static_cast<double>(std::count(taken.begin(), taken.end(), id));
          all.push_back({{from.ids, from.log_probability + std::log(p[static_cast<std::size_t>(id)]),
                          from.diversity + options.diversity_penalty * times},
                         id});
        }
      }
      std::sort(all.begin(), all.end(), [](const Next& a, const Next& b) {
        return a.text.log_probability - a.text.diversity > b.text.log_probability - b.text.diversity;
      });
      std::vector<Growing> kept;
      for (std::size_t i = 0; i < all.size() && i < 2 * width && kept.size() < width; ++i) {
        Growing& text = all[i].text;
        if (all[i].id == 3) {
          if (i >= width) continue;
          found.push_back({text.ids, text.log_probability,
                           detail::hypothesis_score(text.log_probability, length, options), true});
          ++ended[g];
        } else {
          text.ids.push_back(all[i].id);
          kept.push_back(text);
        }
        taken.push_back(all[i].id);
        if (width == 1) break;  // greedy, and over with an end symbol
      }
      group = kept;
    }
  }
  for (std::size_t g = 0; g < groups; ++g) {
    if (ended[g] >= width) continue;  // as many as the group could give
    for (const Growing& text : growing[g]) {
      found.push_back({text.ids, text.log_probability,
                       detail::hypothesis_score(text.log_probability, options.max_length, options), false});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Text& a, const Text& b) {
    return a.ended != b.ended ? a.ended : a.score > b.score;
  });
  std::set<std::pair<Ids, bool>> seen;
  std::vector<Text> once;
  for (const Text& text : found) {
    if (seen.insert({text.ids, text.ended}).second) once.push_back(text);
  }
  return once;
}

}  // namespace

TEST_CASE("the n best of a beam that holds every text are the n best of all texts, by every rule") {
  for (const SearchRule rule : {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2}) {
    for (const double alpha : {0.0, 0.6, 1.0, 2.0}) {
      // CTranslate2 without a length penalty ends when the best has ended.
      if (rule == SearchRule::ctranslate2 && alpha == 0) continue;
      for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const TableModel<double> model(6, seed, 2);
        const Ids input = {static_cast<std::int32_t>(seed % 5)};
        SearchOptions options{.beam_size = 50, .max_length = 5, .length_penalty = alpha, .rule = rule};
        options.num_hypotheses = 6;
        std::vector<Text> all;
        const auto next = [&](const Ids& ids) {
          return softmax_of(model.next(input, after_begin(ids)),
                            rule == SearchRule::ctranslate2 ? Ids{0, 1, 2} : Ids{});
        };
        enumerate(next, options, {}, 0, rule != SearchRule::gnmt, all);
        sort_by_score(all);
        CAPTURE(static_cast<int>(rule));
        CAPTURE(alpha);
        CAPTURE(seed);
        check_same(generate(model, Context<double>::inference(), std::vector<Ids>{input}, options)[0], all,
                   6);
      }
    }
  }
}

TEST_CASE("with a coverage penalty a wide beam finds the best of all texts, each with its own coverage") {
  index_t reordered = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const auto model = small_model(7, false, seed);
    const std::vector<Ids> sources = {{5, 6, 7, 3}};
    const auto memory = encode(model, sources);
    for (const double alpha : {0.0, 1.0}) {
      SearchOptions options{.beam_size = 64, .max_length = 4, .length_penalty = alpha};
      options.coverage_penalty = 0.7;
      options.num_hypotheses = 4;
      std::vector<Text> all;
      const auto next = [&](const Ids& ids) {
        const auto p = uncached_log_probabilities(model, memory, after_begin(ids));
        std::vector<double> row;
        for (index_t id = 0; id < p.dim(1); ++id) row.push_back(std::exp(p.at({p.dim(0) - 1, id})));
        return row;
      };
      enumerate(next, options, {}, 0, false, all);
      sort_by_score(all);
      const Ids without = all.front().ids;
      for (Text& text : all) {
        // Equation 15, from the weights of the last of the decoder's two layers, with three heads.
        const AttentionMaps maps =
            attention_maps(model, Context<double>::inference(), sources[0], text.ids, 2);
        for (index_t s = 0; s < 4; ++s) {
          double attention = 0;
          for (index_t t = 0; t <= static_cast<index_t>(text.ids.size()); ++t) {
            for (index_t h = 0; h < 3; ++h)
              attention += static_cast<double>(maps.memory[1].at({h, t, s})) / 3;
          }
          text.score += 0.7 * std::log(std::min(attention, 1.0));
        }
      }
      sort_by_score(all);
      reordered += all.front().ids != without ? 1 : 0;
      CAPTURE(seed);
      CAPTURE(alpha);
      check_same(generate(model, Context<double>::inference(), sources, options)[0], all, 4);
    }
  }
  CHECK(reordered > 0);  // else the penalty shows nothing
}

TEST_CASE(
    "coverage: attention above 1 counts as 1, none is very bad, and the end's row only where it ended") {
  AttentionMaps maps;
  // Two heads, two tokens and the end, three source tokens; the first layer does not count.
  maps.memory.push_back(Tensor<float>::ones({2, 3, 3}));
  maps.memory.push_back(
      Tensor<float>::from({2, 3, 3}, {1, 0, 0, 0.5F, 0.5F, 0, 0, 0, 1, 0, 1, 0, 0.5F, 0.5F, 0, 0, 1, 0}));
  // Without the end: 0.5 + 0.5, 0.5 + 0.5 and 0; with it: 1, 1.5 and 0.5.
  CHECK(detail::coverage_log(maps, true) == doctest::Approx(std::log(0.5)));
  CHECK(detail::coverage_log(maps, false) < -80);
  CHECK(std::isfinite(detail::coverage_log(maps, false)));
  CHECK(contains(message_of<ValueError>([] { (void)detail::coverage_log(AttentionMaps{}, true); }),
                 "no attention to the source, expected at least one layer"));
}

TEST_CASE("a coverage penalty needs attention weights") {
  const TableModel<double> model(9, 1);
  CHECK(contains(message_of<ValueError>([&] {
                   (void)generate(model, Context<double>::inference(), std::vector<Ids>{{1}},
                                  {.coverage_penalty = 0.2});
                 }),
                 "a coverage penalty is set, but there is no function attention_maps"));
}

TEST_CASE("diverse beams are those of plain loops over all continuations") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const TableModel<double> model(9, seed, 1.5);
    const Ids input = {static_cast<std::int32_t>(seed % 7)};
    for (const auto& split : {std::pair<index_t, index_t>{2, 2}, {4, 2}, {6, 3}, {4, 4}}) {
      const index_t beam = split.first, groups = split.second;
      for (const double penalty : {0.1, 0.8, 5.0}) {
        SearchOptions options{.beam_size = beam, .max_length = 7, .length_penalty = 0.8};
        options.num_beam_groups = groups;
        options.diversity_penalty = penalty;
        options.num_hypotheses = beam;
        options.own_rule = std::make_shared<Patient>();
        CAPTURE(seed);
        CAPTURE(beam);
        CAPTURE(groups);
        CAPTURE(penalty);
        const auto found =
            generate(model, Context<double>::inference(), std::vector<Ids>{{3, 3}, input, {1}}, options)[1];
        const auto expected = plain_diverse(model, input, options);
        check_same(found, expected, std::min(expected.size(), static_cast<std::size_t>(beam)));
      }
    }
  }
}

TEST_CASE("diverse beams that hold every text find the n best of all texts, whatever the penalty") {
  for (const double penalty : {0.5, 50.0}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      const TableModel<double> model(6, seed, 2);
      SearchOptions options{.beam_size = 128, .max_length = 5};
      options.num_beam_groups = 2;
      options.diversity_penalty = penalty;
      options.num_hypotheses = 6;
      std::vector<Text> all;
      enumerate([&](const Ids& ids) { return softmax_of(model.next({4}, after_begin(ids))); }, options, {}, 0,
                false, all);
      sort_by_score(all);
      CAPTURE(seed);
      check_same(generate(model, Context<double>::inference(), std::vector<Ids>{{4}}, options)[0], all, 6);
    }
  }
}

TEST_CASE("groups that pay dearly begin with different tokens, and group 0 is a beam search of its own") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const TableModel<double> model(9, seed, 1.5);
    SearchOptions options{.beam_size = 4, .max_length = 9};
    options.num_beam_groups = 4;
    options.diversity_penalty = 1000;
    options.num_hypotheses = 4;
    const auto found = generate(model, Context<double>::inference(), std::vector<Ids>{{1}}, options)[0];
    REQUIRE(found.size() == 4);
    std::set<std::int32_t> firsts;
    for (const Hypothesis& h : found) firsts.insert(h.ids.empty() ? 3 : h.ids[0]);
    CHECK(firsts.size() == 4);
    const auto greedy = generate(model, Context<double>::inference(), std::vector<Ids>{{1}},
                                 {.beam_size = 1, .max_length = 9})[0][0];
    CHECK(std::any_of(found.begin(), found.end(), [&](const Hypothesis& h) { return h.ids == greedy.ids; }));
  }
}

TEST_CASE("impossible groups are refused by name") {
  const auto refusal = [](const SearchOptions& options) {
    return message_of<ValueError>([&] { options.validate(); });
  };
  CHECK(contains(refusal({.beam_size = 4, .num_beam_groups = 3, .diversity_penalty = 1}),
                 "beam_size is 4, must be divisible by num_beam_groups, which is 3"));
  CHECK(contains(refusal({.diversity_penalty = 0.5}),
                 "num_beam_groups is 1 and diversity_penalty is 0.5, expected num_beam_groups above 1 with "
                 "diversity_penalty above 0, or 1 with 0"));
  CHECK(contains(refusal({.num_beam_groups = 2}),
                 "expected num_beam_groups above 1 with diversity_penalty above 0, or 1 with 0"));
  CHECK(contains(refusal({.coverage_penalty = -1}), "coverage_penalty is -1, must not be negative"));
}

TEST_CASE("an ensemble's search finds the best of all texts by the mean of its models' probabilities") {
  for (const SearchRule rule : {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2}) {
    for (std::uint64_t seed = 1; seed <= 15; ++seed) {
      const TableModel<double> a(6, seed, 2), b(6, seed + 100, 2), c(6, seed + 200, 1);
      const Ensemble<TableModel<double>> ensemble({{a}, {b}, {c}});
      const Ids input = {static_cast<std::int32_t>(seed % 5)};
      SearchOptions options{.beam_size = 50, .max_length = 5, .rule = rule};
      options.num_hypotheses = 4;
      const auto next = [&](const Ids& ids) {
        const Ids read = after_begin(ids);
        const auto p = softmax_of(a.next(input, read)), q = softmax_of(b.next(input, read)),
                   r = softmax_of(c.next(input, read));
        std::vector<double> mean;
        for (std::size_t i = 0; i < p.size(); ++i) mean.push_back(std::log((p[i] + q[i] + r[i]) / 3));
        return softmax_of(mean, rule == SearchRule::ctranslate2 ? Ids{0, 1, 2} : Ids{});
      };
      std::vector<Text> all;
      enumerate(next, options, {}, 0, rule != SearchRule::gnmt, all);
      sort_by_score(all);
      CAPTURE(static_cast<int>(rule));
      CAPTURE(seed);
      check_same(generate(ensemble, Context<double>::inference(), std::vector<Ids>{input}, options)[0], all,
                 4);
    }
  }
}

TEST_CASE("a word penalty counts for each token before the length divides, by every rule") {
  for (const SearchRule rule :
       {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2, SearchRule::marian}) {
    for (const double penalty : {-0.7, 0.4}) {
      for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        const TableModel<double> model(6, seed, 2);
        const Ids input = {static_cast<std::int32_t>(seed % 5)};
        SearchOptions options{.beam_size = 64, .max_length = 5, .length_penalty = 0.6, .rule = rule};
        options.word_penalty = penalty;
        options.num_hypotheses = 6;
        std::vector<Text> all;
        const auto next = [&](const Ids& ids) {
          return softmax_of(model.next(input, after_begin(ids)),
                            rule == SearchRule::ctranslate2 ? Ids{0, 1, 2} : Ids{});
        };
        enumerate(next, options, {}, 0, rule != SearchRule::gnmt, all);
        for (Text& text : all) {
          const double length = static_cast<double>(text.ids.size()) + (text.ended ? 1 : 0);
          const double divisor = std::pow(rule == SearchRule::gnmt ? (5 + length) / 6 : length, 0.6);
          text.score = (text.log_probability - penalty * length) / divisor;
        }
        sort_by_score(all);
        CAPTURE(static_cast<int>(rule));
        CAPTURE(penalty);
        CAPTURE(seed);
        check_same(generate(model, Context<double>::inference(), std::vector<Ids>{input}, options)[0], all,
                   6);
      }
    }
  }
}

TEST_CASE("max_length_factor limits each text by the length of its own input") {
  const TableModel<double> model(9, 3, 0.2);
  const std::vector<Ids> inputs = {{1, 2, 3, 4, 5, 6, 7}, {4}, {8, 8, 8}, {}};
  for (const SearchRule rule : {SearchRule::gnmt, SearchRule::marian}) {
    for (const bool force_end : {false, true}) {
      for (const double factor : {0.1, 0.5, 1.0, 1.4, 1e300}) {
        SearchOptions options{.beam_size = 3, .max_length = 6, .rule = rule, .force_end = force_end};
        options.num_hypotheses = 3;
        options.max_length_factor = factor;
        const auto found = generate(model, Context<double>::inference(), inputs, options);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          SearchOptions alone = options;
          alone.max_length_factor = 0;
          const double tokens = std::ceil(factor * static_cast<double>(inputs[i].size()));
          alone.max_length = static_cast<index_t>(std::clamp(tokens, 1.0, 6.0));
          const auto expected =
              generate(model, Context<double>::inference(), std::vector<Ids>{inputs[i]}, alone)[0];
          REQUIRE(found[i].size() == expected.size());
          for (std::size_t h = 0; h < expected.size(); ++h) {
            CHECK(found[i][h].ids == expected[h].ids);
            CHECK(found[i][h].score == expected[h].score);
            CHECK(found[i][h].finished == expected[h].finished);
          }
        }
      }
    }
  }
  SearchOptions drawn{
      .sampling = Sampling{}, .max_length = 6, .max_length_factor = 0.5, .forbidden_ids = {0, 1, 2, 3}};
  const auto texts = draw(model, Context<double>::inference(), inputs, drawn);
  CHECK(texts[0].ids.size() == 4);
  CHECK(texts[1].ids.size() == 1);
  CHECK(texts[2].ids.size() == 2);
  CHECK(texts[3].ids.size() == 1);
}

TEST_CASE("patience searches on after a beam's worth has ended, and finds no worse a text") {
  index_t better = 0;
  for (const SearchRule rule : {SearchRule::gnmt, SearchRule::ctranslate2}) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      const TableModel<double> model(8, seed, 1.5);
      SearchOptions options{.beam_size = 2, .max_length = 9, .length_penalty = 1.5, .rule = rule};
      const auto best = [&] {
        return generate(model, Context<double>::inference(), std::vector<Ids>{{2}}, options)[0][0].score;
      };
      const double usual = best();
      options.patience = 6;
      const double patient = best();
      CHECK(patient >= usual);
      better += patient > usual ? 1 : 0;
    }
  }
  CHECK(better > 0);
  for (const SearchRule rule : {SearchRule::huggingface, SearchRule::marian}) {
    SearchOptions options{.rule = rule};
    options.patience = 2;
    CHECK(contains(message_of<ValueError>([&] { options.validate(); }),
                   "patience is 2, must be 1 with the rule"));
  }
}
