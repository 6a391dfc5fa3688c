#include "eigenformer/search/beams/options.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/search/beams/generate.hpp"
#include "search/search_tools.hpp"
#include "search/table_model.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Ids = std::vector<std::int32_t>;
const std::vector<Ids> inputs = {{4, 3}, {5, 6, 3}, {7, 3}, {8, 9, 4, 3}};

void check_same(const std::vector<Hypothesis>& a, const std::vector<Hypothesis>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].ids == b[i].ids);
    CHECK(a[i].log_probability == b[i].log_probability);
    CHECK(a[i].score == b[i].score);
    CHECK(a[i].finished == b[i].finished);
  }
}

}  // namespace

TEST_CASE("an observer sees each step of a search, and what it ends leaves the others as they are") {
  const TableModel<double> model(13, 4);
  const auto ctx = Context<double>::inference();
  struct Case {
    index_t beam, groups;
    SearchRule rule;
  };
  for (const Case& c : std::vector<Case>{{1, 1, SearchRule::gnmt},
                                         {4, 1, SearchRule::gnmt},
                                         {4, 2, SearchRule::gnmt},
                                         {4, 1, SearchRule::huggingface},
                                         {4, 1, SearchRule::ctranslate2},
                                         {4, 1, SearchRule::marian}}) {
    const index_t beam = c.beam, groups = c.groups;
    CAPTURE(beam);
    CAPTURE(groups);
    CAPTURE(static_cast<int>(c.rule));
    SearchOptions options{.beam_size = beam,
                          .max_length = 12,
                          .min_length = 4,
                          .rule = c.rule,
                          .num_beam_groups = groups,
                          .diversity_penalty = groups > 1 ? 0.7 : 0.0,
                          .num_hypotheses = beam};
    const auto alone = generate(model, ctx, std::span<const Ids>(inputs), options);
    std::mutex mutex;
    std::map<std::pair<std::size_t, index_t>, index_t> steps;  // of each input and group
    int wrong = 0;
    const auto watch = [&](const SearchProgress& progress) {
      const std::lock_guard<std::mutex> lock(mutex);
      wrong += ++steps[{progress.input, progress.group}] == progress.step ? 0 : 1;
      for (const Hypothesis& h : progress.growing)
        wrong += static_cast<index_t>(h.ids.size()) == progress.step ? 0 : 1;
      for (const Hypothesis& h : progress.finished)
        wrong += static_cast<index_t>(h.ids.size()) <= progress.step ? 0 : 1;
      return true;
    };
    options.observer = std::make_shared<const SearchObserver>(watch);
    const auto watched = generate(model, ctx, std::span<const Ids>(inputs), options, {.batch_size = 3});
    for (std::size_t i = 0; i < inputs.size(); ++i) check_same(watched[i], alone[i]);
    CHECK(wrong == 0);
    CHECK(steps.size() == inputs.size() * static_cast<std::size_t>(groups));
    for (const auto& [place, step] : steps) CHECK(step >= 4);
    // Inputs 1 and 3 end after two steps, with texts of two tokens.
    options.observer = std::make_shared<const SearchObserver>(
        [](const SearchProgress& progress) { return progress.input % 2 == 0 || progress.step < 2; });
    const auto ended = generate(model, ctx, std::span<const Ids>(inputs), options);
    check_same(ended[0], alone[0]);
    check_same(ended[2], alone[2]);
    for (const std::size_t i : {1, 3}) {
      REQUIRE_FALSE(ended[i].empty());
      for (const Hypothesis& h : ended[i]) {
        CHECK(h.ids.size() == 2);
        CHECK_FALSE(h.finished);
      }
    }
    options.observer = std::make_shared<const SearchObserver>([](const SearchProgress& progress) -> bool {
      throw std::runtime_error("input " + std::to_string(progress.input));
    });
    CHECK_THROWS_AS(generate(model, ctx, std::span<const Ids>(inputs), options), std::runtime_error);
  }
}

TEST_CASE("an observer sees each token that is drawn, and what it ends leaves the others as they are") {
  const TableModel<double> model(13, 4);
  const auto ctx = Context<double>::inference();
  for (const index_t samples : {1, 3}) {
    CAPTURE(samples);
    const auto n = static_cast<std::size_t>(samples);
    SearchOptions options{
        .sampling = Sampling{.seed = 3}, .max_length = 12, .min_length = 3, .num_hypotheses = samples};
    const auto alone = draw(model, ctx, std::span<const Ids>(inputs), options);
    std::vector<Hypothesis> last(alone.size());
    std::vector<index_t> steps(inputs.size());
    options.observer = std::make_shared<const SearchObserver>([&](const SearchProgress& progress) {
      REQUIRE(progress.growing.size() == n);
      CHECK(progress.finished.empty());
      CHECK(progress.step == ++steps[progress.input]);
      std::copy(progress.growing.begin(), progress.growing.end(),
                last.begin() + static_cast<std::ptrdiff_t>(progress.input * n));
      return true;
    });
    const auto watched = draw(model, ctx, std::span<const Ids>(inputs), options);
    check_same(watched, alone);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CHECK(last[i].ids == alone[i].ids);
      CHECK(last[i].finished == alone[i].finished);
    }
    options.observer = std::make_shared<const SearchObserver>(
        [](const SearchProgress& progress) { return progress.input != 1 || progress.step < 2; });
    const auto ended = draw(model, ctx, std::span<const Ids>(inputs), options);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      if (i / n == 1) {
        CHECK(ended[i].ids == Ids(alone[i].ids.begin(), alone[i].ids.begin() + 2));
      } else {
        CHECK(ended[i].ids == alone[i].ids);
      }
    }
  }
}
