#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "eigenformer/search/beams/generate.hpp"
#include "search/search_tools.hpp"
#include "search/table_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Ids = std::vector<std::int32_t>;
constexpr double forbidden = -std::numeric_limits<double>::infinity();

std::vector<double> random_scores(RandomGenerator& rng, index_t n) {
  std::vector<double> scores(static_cast<std::size_t>(n));
  rng.fill_normal(scores.data(), n, 0, 2);
  return scores;
}

Ids random_ids(RandomGenerator& rng, index_t length, index_t vocabulary) {
  Ids ids;
  for (index_t i = 0; i < length; ++i) ids.push_back(static_cast<std::int32_t>(rng.uniform_int(vocabulary)));
  return ids;
}

// Runs the processors of some options on random texts and compares with expected(scores, prompt, generated),
// in float too.
template <class Expected>
void check_processors(const SearchOptions& options, Expected&& expected) {
  const detail::ProcessorList processors(options);
  RandomGenerator rng(5);
  for (int round = 0; round < 200; ++round) {
    const index_t vocabulary = 5 + rng.uniform_int(4);
    const Ids prompt = random_ids(rng, 1 + rng.uniform_int(4), vocabulary),
              generated = random_ids(rng, rng.uniform_int(9), vocabulary);
    const std::vector<double> given = random_scores(rng, vocabulary);
    std::vector<double> scores = given;
    const LogitsStep step{0, static_cast<index_t>(generated.size()), prompt, generated, false};
    processors(step, std::span<double>(scores));
    const std::vector<double> wanted = expected(given, prompt, generated);
    CHECK(scores == wanted);
    std::vector<float> single(given.begin(), given.end());
    processors(step, std::span<float>(single));
    for (std::size_t i = 0; i < single.size(); ++i) {
      CHECK((single[i] == static_cast<float>(wanted[i]) ||
             std::abs(static_cast<double>(single[i]) - wanted[i]) < 1e-5));
    }
  }
}

}  // namespace

TEST_CASE("forbidden ids and the minimum length, beside plain loops") {
  check_processors({.forbidden_ids = {1, 4, 100, -1}}, [](std::vector<double> x, const Ids&, const Ids&) {
    x[1] = x[4] = forbidden;
    return x;
  });
  check_processors({.min_length = 3, .end_id = 2, .forbidden_ids = {}},
                   [](std::vector<double> x, const Ids&, const Ids& generated) {
                     if (generated.size() < 3) x[2] = forbidden;
                     return x;
                   });
}

TEST_CASE("no n tokens in a row twice, beside a loop over all of them") {
  for (const index_t n : {1, 2, 3, 4}) {
    const SearchOptions options{.no_repeat_ngram_size = n, .forbidden_ids = {}};
    check_processors(options, [n](std::vector<double> x, Ids all, const Ids& generated) {
      all.insert(all.end(), generated.begin(), generated.end());
      std::set<Ids> seen;
      const auto size = static_cast<std::size_t>(n);
      for (std::size_t i = 0; i + size <= all.size(); ++i) {
        seen.insert(Ids(all.begin() + static_cast<std::ptrdiff_t>(i),
                        all.begin() + static_cast<std::ptrdiff_t>(i + size)));
      }
      for (std::size_t id = 0; id < x.size() && all.size() + 1 >= size; ++id) {
        Ids gram(all.end() - static_cast<std::ptrdiff_t>(size - 1), all.end());
        gram.push_back(static_cast<std::int32_t>(id));
        if (seen.count(gram) > 0) x[id] = forbidden;
      }
      return x;
    });
  }
}

TEST_CASE("repetition penalty, beside a loop over the vocabulary") {
  for (const double penalty : {1.3, 0.5}) {
    const SearchOptions options{.repetition_penalty = penalty, .forbidden_ids = {}};
    check_processors(options, [penalty](std::vector<double> x, const Ids& prompt, const Ids& generated) {
      for (std::size_t id = 0; id < x.size(); ++id) {
        bool came = false;
        for (const Ids* ids : {&prompt, &generated})
          came = came || std::count(ids->begin(), ids->end(), static_cast<std::int32_t>(id)) > 0;
        if (came) x[id] = x[id] < 0 ? x[id] * penalty : x[id] / penalty;
      }
      return x;
    });
  }
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    CHECK(contains(message_of<ValueError>([&] { SearchOptions{.repetition_penalty = bad}.validate(); }),
                   bad > 0 ? "repetition_penalty is inf, must be finite" : "must be positive"));
  }
}

TEST_CASE("a function that allows ids, beside a plain loop") {
  SearchOptions even{.forbidden_ids = {}};
  even.processors = {allow_only([](const Ids& ids) { return ids.size() % 2 == 0 ? Ids{0, 2, 4} : Ids{}; })};
  check_processors(even, [](std::vector<double> x, const Ids&, const Ids& generated) {
    for (std::size_t id = 0; id < x.size(); ++id) {
      if (id % 2 != 0 || id > 4 || generated.size() % 2 != 0) x[id] = forbidden;
    }
    return x;
  });
}

TEST_CASE(
    "a search forces, allows, penalises and forbids as its processors say, by every rule and when drawing") {
  const TableModel<float> model(9, 3, 1.5);
  const auto ctx = Context<float>::inference();
  const std::vector<Ids> inputs = {{1}, {2, 3}, {4}, {5, 5}};
  const auto all_texts = [&](auto&& change) {
    std::vector<Ids> texts;
    for (const SearchRule rule : {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2}) {
      for (const index_t beam : {1, 3}) {
        SearchOptions options{.beam_size = beam, .max_length = 8, .rule = rule};
        change(options);
        for (const auto& found : generate(model, ctx, inputs, options)) texts.push_back(found[0].ids);
      }
    }
    SearchOptions sampling{.sampling = Sampling{}, .max_length = 8};
    change(sampling);
    for (const auto& text : draw(model, ctx, inputs, sampling)) texts.push_back(text.ids);
    return texts;
  };
  const auto plain = all_texts([](auto&) {});
  for (const Ids& ids : all_texts([](auto& o) {
         o.processors = {allow_only([](const Ids& ids) {
           const Ids first = {6, 4, 8};
           return ids.size() < 3 ? Ids{first[ids.size()]} : Ids{0, 1, 2, 3, 4, 5, 6, 7, 8};
         })};
       })) {
    CHECK(Ids(ids.begin(), ids.begin() + 3) == Ids{6, 4, 8});
  }
  for (const Ids& ids : all_texts([](auto& o) {
         o.processors = {allow_only([](const Ids& ids) { return ids.size() < 5 ? Ids{4, 7} : Ids{3}; })};
       })) {
    CHECK(ids.size() == 5);
    CHECK(std::all_of(ids.begin(), ids.end(), [](std::int32_t id) { return id == 4 || id == 7; }));
  }
  CHECK(all_texts([](auto& o) { o.repetition_penalty = 5; }) != plain);
  for (const Ids& ids : all_texts([](auto& o) { o.no_repeat_ngram_size = 1; })) {
    CHECK(std::set<std::int32_t>(ids.begin(), ids.end()).size() == ids.size());
  }
  for (const Ids& ids : all_texts([](auto& o) { o.min_length = 6; })) CHECK(ids.size() >= 6);
  // Nothing allowed: a text ends where it is, without the end symbol.
  for (const Ids& ids : all_texts([](auto& o) {
         o.processors = {allow_only([](const Ids& ids) { return ids.size() < 2 ? Ids{5} : Ids{}; })};
       })) {
    CHECK(ids == Ids{5, 5});
  }
}

TEST_CASE("a text of a beam that may not go on is kept, as one that was cut off") {
  const TableModel<double> model(9, 3, 1.5);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> inputs = {{1}, {2, 3}, {4}, {5, 5}};
  // The texts 4; 5 6; 7 8 5 with or without an end symbol; and beginnings of the last.
  const auto trie = [](bool ends) {
    return allow_only([ends](const Ids& ids) -> Ids {
      if (ids.empty()) return {4, 5, 7};
      if (ids.size() == 1) return ids[0] == 4 ? Ids{} : ids[0] == 5 ? Ids{6} : Ids{8};
      if (ids.size() == 2) return ids[0] == 5 ? Ids{} : Ids{5};
      return ids.size() == 3 && ends ? Ids{3} : Ids{};
    });
  };
  for (const SearchRule rule :
       {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2, SearchRule::marian}) {
    for (const bool ends : {false, true}) {
      CAPTURE(static_cast<int>(rule));
      CAPTURE(ends);
      SearchOptions options{.beam_size = 3, .max_length = 8, .rule = rule, .num_hypotheses = 3};
      options.processors = {trie(ends)};
      for (const auto& found : generate(model, ctx, inputs, options)) {
        std::set<Ids> texts;
        for (const Hypothesis& h : found) {
          texts.insert(h.ids);
          const auto length = static_cast<index_t>(h.ids.size()) + (h.finished ? 1 : 0);
          CHECK(h.score == doctest::Approx(detail::hypothesis_score(h.log_probability, length, options)));
          CHECK(h.finished == (ends && h.ids.size() == 3));
        }
        CHECK(texts == std::set<Ids>{{4}, {5, 6}, {7, 8, 5}});
        // Those cut off come last by the rule gnmt and compete by the others.
        if (rule == SearchRule::gnmt && ends) CHECK(found[0].finished);
        for (std::size_t i = rule == SearchRule::gnmt && ends ? 2 : 1; i < found.size(); ++i)
          CHECK(found[i - 1].score >= found[i].score);
      }
    }
  }
}

TEST_CASE("processors are called in their order, the options' own first, and are told where a text stands") {
  const TableModel<double> model(9, 3, 1.5);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> inputs = {{1}, {2, 3, 4}, {4, 4}};
  const auto first = logits_processor([](const LogitsStep&, auto scores) { scores[5] = 3; });
  const auto doubled = logits_processor([](const LogitsStep&, auto scores) { scores[5] *= 2; });
  std::mutex mutex;
  std::vector<double> seen;
  std::set<std::pair<std::size_t, index_t>> places;
  bool normalised = false;
  const auto look = logits_processor([&](const LogitsStep& step, auto scores) {
    const std::lock_guard lock(mutex);
    seen.push_back(static_cast<double>(scores[5]));
    places.emplace(step.input, step.step);
    normalised = step.normalised;
    CHECK(step.prompt.size() == 2);
    CHECK(step.prompt[0] == 2);
    CHECK(step.prompt[1] == 7);
    CHECK(step.generated.size() == static_cast<std::size_t>(step.step));
    // Forbidden ids come later.
    CHECK(scores[0] > -std::numeric_limits<double>::infinity());
  });
  SearchOptions options{.beam_size = 2, .max_length = 4, .min_length = 3, .prefix_ids = {7}};
  options.processors = {first, doubled, look};
  const auto found = generate(model, ctx, inputs, options, {.batch_size = 1});
  CHECK(std::all_of(seen.begin(), seen.end(), [](double x) { return x == 6; }));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(places.count({i, 0}) == 1);
    CHECK(found[i][0].ids == Ids{5, 5, 5});
    // 6 each: log-probabilities that a processor changed are not normalised again.
    CHECK(found[i][0].log_probability == doctest::Approx(18));
  }
  CHECK(normalised);
  options.rule = SearchRule::ctranslate2;
  for (const auto& hypotheses : generate(model, ctx, inputs, options))
    CHECK(hypotheses[0].log_probability < 0);
  CHECK_FALSE(normalised);
  options.processors = {doubled, first, look};
  seen.clear();
  (void)generate(model, ctx, inputs, options);
  CHECK(std::all_of(seen.begin(), seen.end(), [](double x) { return x == 3; }));
}

TEST_CASE("a processor that is null or makes NaN is an error that says so") {
  const TableModel<float> model(9, 3);
  const auto ctx = Context<float>::inference();
  const std::vector<Ids> inputs = {{1}, {2}};
  const auto message = [&](std::shared_ptr<const LogitsProcessor> processor, SearchRule rule) {
    SearchOptions options{.max_length = 4, .rule = rule};
    options.forbidden_ids = {};  // what a processor makes of a forbidden id does not count
    options.processors = {std::move(processor)};
    return message_of<ValueError>([&] { (void)generate(model, ctx, inputs, options); });
  };
  const auto nan = [](std::size_t id) {
    return logits_processor([id](const LogitsStep& step, auto scores) {
      if (step.input == 1) scores[id] = std::numeric_limits<float>::quiet_NaN();
    });
  };
  for (const SearchRule rule : {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2}) {
    for (const std::size_t id : {0, 6, 8}) {
      CHECK(contains(
          message(nan(id), rule),
          "[search] scores are not numbers after a logits processor, for input 1 at step 0, NaN for id " +
              std::to_string(id)));
    }
    CHECK(contains(message(nullptr, rule), "processors[0] is null"));
  }
  SearchOptions options{.sampling = Sampling{}};
  options.processors = {nan(6)};
  CHECK(contains(message_of<ValueError>([&] { (void)draw(model, ctx, inputs, options); }),
                 "[search] scores are not numbers after a logits processor, for input 1 at step 0"));
}

TEST_CASE("scores of a search whose processors change values, by every rule") {
  const TableModel<double> model(9, 4, 1.5);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> inputs = {{1}, {2, 3}, {4}};
  const auto bonus = [](std::size_t id) { return 0.25 * static_cast<double>(id % 4); };
  // -log of the sum of exponentials.
  const auto shift = [](const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += std::exp(v);
    return -std::log(sum);
  };
  for (const SearchRule rule :
       {SearchRule::gnmt, SearchRule::huggingface, SearchRule::ctranslate2, SearchRule::marian}) {
    CAPTURE(static_cast<int>(rule));
    SearchOptions options{.beam_size = 2, .max_length = 5, .rule = rule};
    options.forbidden_ids = {};
    options.processors = {logits_processor([&](const LogitsStep&, auto scores) {
      using N = std::remove_reference_t<decltype(scores[0])>;
      for (std::size_t id = 0; id < scores.size(); ++id) scores[id] += static_cast<N>(bonus(id));
    })};
    const auto found = generate(model, ctx, inputs, options);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Hypothesis& h = found[i][0];
      Ids ids = h.ids;
      if (h.finished) ids.push_back(options.end_id);
      double sum = 0;
      Ids text = {options.begin_id};
      for (const std::int32_t id : ids) {
        std::vector<double> x = model.next(inputs[i], text);
        const auto at = static_cast<std::size_t>(id);
        // Normalised before processing, by CTranslate2 after it.
        if (rule != SearchRule::ctranslate2) {
          sum += x[at] + shift(x) + bonus(at);
        } else {
          for (std::size_t k = 0; k < x.size(); ++k) x[k] += bonus(k);
          sum += x[at] + shift(x);
        }
        text.push_back(id);
      }
      CHECK(h.log_probability == doctest::Approx(sum));
    }
  }
}
