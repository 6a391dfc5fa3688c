#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <vector>

#include "eigenformer/data/corpus/shortlist.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "eigenformer/search/decoding/ensemble.hpp"
#include "search/every_text.hpp"
#include "search/search_tools.hpp"
#include "search/table_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const auto inference = Context<double>::inference();
constexpr SearchRule rules[] = {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2,
                                SearchRule::marian};

PhraseConstraints phrases(const std::vector<Ids>& list) {
  PhraseConstraints constraints;
  for (const Ids& ids : list) constraints.push_back({.forms = {ids}});
  return constraints;
}

// Token 6 goes on with a word, and all but 5 end within one.
std::shared_ptr<const detail::TokenEdges> edges(std::size_t vocabulary = 7) {
  detail::TokenEdges e{std::vector<bool>(vocabulary, false), std::vector<bool>(vocabulary, true)};
  e.begins_inside[6] = true;
  e.ends_inside[5] = false;
  return std::make_shared<const detail::TokenEdges>(e);
}

bool stands_at(const Ids& text, const Ids& form, std::size_t at, const detail::TokenEdges* e) {
  if (at + form.size() > text.size() ||
      !std::equal(form.begin(), form.end(), text.begin() + static_cast<std::ptrdiff_t>(at)))
    return false;
  const std::size_t after = at + form.size();
  return e == nullptr || ((at == 0 || !e->joined(text[at - 1], text[at])) &&
                          (after == text.size() || !e->joined(text[after - 1], text[after])));
}

bool meets(const Ids& text, const PhraseConstraint& constraint) {
  for (const Ids& form : constraint.forms) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (stands_at(text, form, i, constraint.edges.get())) return true;
    }
  }
  return std::any_of(constraint.initial_forms.begin(), constraint.initial_forms.end(),
                     [&](const Ids& form) { return stands_at(text, form, 0, constraint.edges.get()); });
}

std::vector<std::size_t> unmet(const Ids& text, const PhraseConstraints& constraints) {
  std::vector<std::size_t> places;
  for (std::size_t c = 0; c < constraints.size(); ++c) {
    if (!meets(text, constraints[c])) places.push_back(c);
  }
  return places;
}

std::vector<PhraseConstraints> small_constraints() {
  std::vector<PhraseConstraints> all = {
      phrases({{4}}),
      phrases({{5, 4}}),
      phrases({{4}, {5}}),
      phrases({{4, 5}, {5, 6}}),  // may share 5
      phrases({{4, 5}, {5}}),     // one within the other
      phrases({{4, 4}, {4}, {6}}),
      phrases({{4, 5, 4, 6}}),  // begins again within itself
      {{.forms = {{4, 4}, {5, 6, 5}, {6, 6}}}, {.forms = {{5}}}},
      {{.forms = {{6, 5}}, .initial_forms = {{4}}}},
  };
  PhraseConstraints whole = phrases({{4}, {5, 4}});
  for (PhraseConstraint& constraint : whole) constraint.edges = edges();
  all.push_back(whole);
  whole = {{.forms = {{6}, {4, 6}, {4}}, .edges = edges()}};
  all.push_back(whole);
  return all;
}

}  // namespace

TEST_CASE(
    "a beam that holds every text finds the best of those that contain the constraints, by every rule") {
  index_t changed = 0, shared = 0;
  const auto all_constraints = small_constraints();
  for (const SearchRule rule : rules) {
    for (const double alpha : {0.0, 1.0}) {
      // CTranslate2 without a length penalty ends when the best has ended.
      if (rule == SearchRule::ctranslate2 && alpha == 0) continue;
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        const TableModel<double> model(7, seed, 2);
        const Ids input = {static_cast<std::int32_t>(seed % 5)};
        SearchOptions options{.beam_size = 400, .max_length = 5, .length_penalty = alpha, .rule = rule};
        options.num_hypotheses = 5;
        std::vector<Text> all;
        enumerate(
            [&](const Ids& ids) {
              return softmax_of(model.next(input, after_begin(ids)),
                                rule == SearchRule::ctranslate2 ? Ids{0, 1, 2} : Ids{});
            },
            options, {}, 0, rule != SearchRule::gnmt, all);
        sort_by_score(all);
        for (std::size_t c = 0; c < all_constraints.size(); ++c) {
          const PhraseConstraints& constraints = all_constraints[c];
          std::vector<Text> allowed;
          for (const Text& text : all) {
            if (unmet(text.ids, constraints).empty()) allowed.push_back(text);
          }
          CAPTURE(static_cast<int>(rule));
          CAPTURE(alpha);
          CAPTURE(seed);
          CAPTURE(c);
          options.constraints = {constraints};
          const auto found = generate(model, inference, std::vector<Ids>{input}, options)[0];
          REQUIRE(found.size() == 5);
          const std::size_t most = std::min<std::size_t>(allowed.size(), 5);
          check_same({found.begin(), found.begin() + static_cast<std::ptrdiff_t>(most)}, allowed, most);
          for (const Hypothesis& h : found) CHECK(h.unmet == unmet(h.ids, constraints));
          changed += found[0].ids != all[0].ids ? 1 : 0;
          shared += c == 3 && found[0].ids.size() < 4 ? 1 : 0;
        }
      }
    }
  }
  CHECK(changed > 100);  // else constraints that are left out would not be noticed
  CHECK(shared > 0);     // 4 5 6
}

TEST_CASE("every constraint is met where the length has room for it, whatever the beam") {
  RandomGenerator rng(5);
  const auto draw = [&](std::int32_t first, std::int32_t last) {
    return first + static_cast<std::int32_t>(rng.uniform() * (last - first + 1));
  };
  for (int trial = 0; trial < 60; ++trial) {
    const TableModel<double> model(12, static_cast<std::uint64_t>(trial), 2.5);
    std::vector<Ids> inputs;
    SearchOptions options;
    std::size_t most = 0;
    for (std::int32_t i = 0; i < 3; ++i) {
      inputs.push_back({draw(0, 9)});
      PhraseConstraints constraints;
      std::size_t tokens = 0;
      for (std::int32_t c = draw(0, 3); c > 0; --c) {
        Ids form;
        for (std::int32_t k = draw(1, 3); k > 0; --k) form.push_back(draw(4, 11));
        if (form[0] == 6) form[0] = 7;  // a form that begins inside a word may need a token more
        tokens += form.size();
        constraints.push_back({.forms = {form}});
        if (draw(0, 1) == 0) constraints.back().forms.push_back({draw(4, 11), draw(4, 11), draw(4, 11)});
        if (draw(0, 1) == 0) constraints.back().edges = edges(12);
      }
      most = std::max(most, tokens);
      options.constraints.push_back(constraints);
    }
    options.force_end = draw(0, 1) == 0;
    options.max_length = static_cast<index_t>(most) + draw(0, 3) + 1;
    options.rule = rules[draw(0, 3)];
    options.beam_size = std::vector<index_t>{1, 2, 4, 6}[static_cast<std::size_t>(draw(0, 3))];
    if (options.beam_size > 2) options.num_hypotheses = 2;
    if (options.beam_size == 6) {
      options.num_beam_groups = 3;
      options.diversity_penalty = 0.7;
    }
    options.length_penalty = draw(0, 1);
    CAPTURE(trial);
    const auto found = generate(model, inference, inputs, options);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CAPTURE(i);
      const Hypothesis& h = found[i].front();
      CHECK(h.unmet.empty());
      CHECK(unmet(h.ids, options.constraints[i]).empty());
      SearchOptions alone = options;
      alone.constraints = {options.constraints[i]};
      CHECK(generate(model, inference, std::vector<Ids>{inputs[i]}, alone)[0].front().ids == h.ids);
      if (!options.constraints[i].empty()) continue;
      alone.constraints.clear();
      const auto without = generate(model, inference, std::vector<Ids>{inputs[i]}, alone)[0];
      REQUIRE(without.size() == found[i].size());
      for (std::size_t k = 0; k < without.size(); ++k) {
        CHECK(without[k].ids == found[i][k].ids);
        CHECK(without[k].score == found[i][k].score);  // the same bits
      }
    }
  }
}

TEST_CASE("what has no room is named, and the texts that meet the most come first") {
  const TableModel<double> model(9, 3, 2);
  for (const SearchRule rule : rules) {
    for (const bool force_end : {false, true}) {
      SearchOptions options{.beam_size = 4, .max_length = 4, .rule = rule, .force_end = force_end};
      options.num_hypotheses = 3;
      options.constraints = {phrases({{4, 5}, {6, 7}, {8, 4}})};
      const auto found = generate(model, inference, std::vector<Ids>{{2}}, options)[0];
      CAPTURE(static_cast<int>(rule));
      REQUIRE_FALSE(found.empty());
      std::size_t before = 0;
      for (const Hypothesis& h : found) {
        CHECK(h.unmet == unmet(h.ids, options.constraints[0]));
        CHECK_FALSE(h.unmet.empty());
        CHECK(h.unmet.size() >= before);
        before = h.unmet.size();
      }
    }
  }
}

TEST_CASE("constraints go before repeated n-grams, and what is forbidden goes before constraints") {
  const TableModel<double> model(9, 4, 1.5);
  SearchOptions options{.beam_size = 3, .max_length = 12};
  options.no_repeat_ngram_size = 1;
  options.constraints = {phrases({{4, 4, 5}})};
  const auto repeated = generate(model, inference, std::vector<Ids>{{2}}, options)[0][0];
  CHECK(unmet(repeated.ids, options.constraints[0]).empty());
  CHECK(std::count(repeated.ids.begin(), repeated.ids.end(), 5) == 1);  // others are not repeated
  options.no_repeat_ngram_size = 0;

  // One of two forms is forbidden: the other one comes. Both: the text does not wait for them.
  options.constraints = {{{.forms = {{1, 4}, {8, 8, 7}}}, {.forms = {{5, 1}}}}};
  const auto found = generate(model, inference, std::vector<Ids>{{2}}, options)[0][0];
  CHECK(found.finished);
  CHECK(found.unmet == std::vector<std::size_t>{1});
  CHECK(std::search(found.ids.begin(), found.ids.end(), options.constraints[0][0].forms[1].begin(),
                    options.constraints[0][0].forms[1].end()) != found.ids.end());

  options.constraints = {phrases({{4}})};
  options.forbidden_ids = {0, 1, 2, 5, 6, 7, 8};
  options.processors = {allow_only([](const Ids&) { return Ids{3}; })};
  const auto ended = generate(model, inference, std::vector<Ids>{{2}}, options)[0][0];
  CHECK(ended.ids.empty());
  CHECK(ended.unmet == std::vector<std::size_t>{0});
}

TEST_CASE("an input's prefix is part of its text, and the minimum length holds") {
  const TableModel<double> model(7, 6, 2);
  SearchOptions options{.beam_size = 300, .max_length = 4};
  options.constraints = {
      phrases({{4, 5}}), {{.forms = {{6, 6, 6}}, .initial_forms = {{5, 6}}}}, phrases({{4}})};
  options.prefixes = {{6, 4}, {5}, {5, 4, 6}};
  const std::vector<Ids> inputs = {{1}, {1}, {1}};
  const auto found = generate(model, inference, inputs, options);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Text> all, allowed;
    enumerate(
        [&](const Ids& ids) {
          Ids read = after_begin(options.prefixes[i]);
          read.insert(read.end(), ids.begin(), ids.end());
          return softmax_of(model.next(inputs[i], read));
        },
        options, {}, 0, false, all);
    for (const Text& text : all) {
      Ids whole = options.prefixes[i];
      whole.insert(whole.end(), text.ids.begin(), text.ids.end());
      if (unmet(whole, options.constraints[i]).empty()) allowed.push_back(text);
    }
    sort_by_score(allowed);
    CAPTURE(i);
    check_same(found[i], allowed, 1);
  }
  SearchOptions longer{.beam_size = 2, .max_length = 9, .min_length = 7};
  longer.constraints = {phrases({{4, 4}, {6, 5}})};
  const auto h = generate(model, inference, std::vector<Ids>{{2}}, longer)[0][0];
  CHECK(h.ids.size() >= 7);
  CHECK(unmet(h.ids, longer.constraints[0]).empty());
}

TEST_CASE("constraints with ensembles, shortlists and a model's batches") {
  const TableModel<double> a(7, 8, 2), b(7, 9, 2);
  SearchOptions options{.beam_size = 3, .max_length = 8};
  options.constraints = {phrases({{4, 6}, {5}})};
  const Ensemble<TableModel<double>> both({{a}, {b}});
  CHECK(generate(both, inference, std::vector<Ids>{{2}}, options)[0][0].unmet.empty());

  const auto model = small_model(19);
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {4, 3}, {9, 9, 8, 7, 3}};
  options = {.beam_size = 2, .max_length = 10};
  options.shortlist =
      std::make_shared<const Shortlist>(4, std::vector<std::vector<std::int32_t>>(23, Ids{7, 9}));
  options.constraints = {phrases({{15, 16}, {11}}), {}, phrases({{18}})};
  const auto found = generate(model, inference, std::span<const Ids>(sources), options, {.batch_size = 2});
  for (std::size_t i = 0; i < sources.size(); ++i)
    CHECK(unmet(found[i][0].ids, options.constraints[i]).empty());
}

TEST_CASE("impossible constraints are refused by name") {
  const TableModel<double> model(9, 1);
  const auto refusal = [&](const std::vector<PhraseConstraints>& constraints) {
    SearchOptions options;
    options.constraints = constraints;
    return message_of<ValueError>(
        [&] { (void)generate(model, inference, std::span<const Ids>(std::vector<Ids>{{1}}), options); });
  };
  CHECK(contains(refusal({{}, {}}), "2 lists of constraints, must be 1, one for each input, or none"));
  CHECK(contains(refusal({{{.forms = {}, .initial_forms = {{4}}}}}), "constraint 0 has no forms"));
  CHECK(contains(refusal({phrases({{4}, {}})}), "constraint 1 has a form of 0 ids, must have 1 to 64"));
  CHECK(contains(refusal({phrases({Ids(65, 4)})}), "a form of 65 ids"));
  CHECK(
      contains(refusal({phrases({{9}})}), "the id 9, must be at least 0 and below the vocabulary's size 9"));
  CHECK(contains(refusal({phrases({{5, 3}})}), "has the end symbol 3 in a form"));
  CHECK(contains(refusal({{{.forms = {{4}}, .edges = edges(7)}}}), "has edges of 7 and 7 ids, must be of 9"));
}
