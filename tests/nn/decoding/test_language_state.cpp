#include <doctest/doctest.h>

#include <vector>

#include "eigenformer/nn/decoding/decoder_state.hpp"
#include "fixtures.hpp"
#include "search/language_tools.hpp"
#include "search/search_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("prompts of different lengths and token after token give what the whole text gives") {
  for (const auto& options : language_models()) {
    const auto model = small_language_model(options);
    const auto ctx = Context<double>::inference();
    const std::vector<Ids> texts = {{2, 7, 8, 9, 10, 11}, {2, 12, 4, 18}, {5, 5, 6, 7, 8, 9, 10}};
    DecoderState<double> decoder = model.begin(ctx, 3);
    // The first tokens at once, then one of each, then what is left, some of them several at once.
    const std::vector<std::vector<index_t>> plan = {{3, 1, 4}, {1, 1, 1}, {2, 0, 2}, {0, 2, 0}};
    std::vector<index_t> done(3, 0);
    for (const auto& counts : plan) {
      Ids ids;
      for (std::size_t b = 0; b < 3; ++b) {
        for (index_t i = 0; i < counts[b]; ++i)
          ids.push_back(texts[b][static_cast<std::size_t>(done[b] + i)]);
      }
      const auto y = decoder.step(id_tensor(ids), counts).value();
      index_t row = 0;
      for (std::size_t b = 0; b < 3; ++b) {
        const auto length = static_cast<index_t>(texts[b].size());
        const auto whole = model.decode(ctx, id_tensor(texts[b]), SequenceLayout::packed({length})).value();
        check_close(y.rows(row, counts[b]), whole.rows(done[b], counts[b]), 1e-12);
        row += counts[b];
        done[b] += counts[b];
      }
    }
    CHECK(std::vector<index_t>(decoder.lengths().begin(), decoder.lengths().end()) ==
          std::vector<index_t>{6, 4, 7});
  }
}

TEST_CASE("re-ordered texts go on as if each had been decoded by itself") {
  const auto model = small_language_model(language_models().front());
  const auto ctx = Context<double>::inference();
  DecoderState<double> decoder = model.begin(ctx, 2);
  std::vector<Ids> texts = {{2, 7, 8}, {2}};
  (void)decoder.step(id_tensor({2, 7, 8, 2}), std::vector<index_t>{3, 1});
  const std::vector<std::vector<std::int32_t>> parents = {{0, 1, 1, 0}, {3, 2, 1}, {1, 1, 0, 2, 2}};
  for (std::size_t step = 0; step < parents.size(); ++step) {
    std::vector<Ids> next;
    Ids last;
    for (std::size_t i = 0; i < parents[step].size(); ++i) {
      next.push_back(texts[static_cast<std::size_t>(parents[step][i])]);
      last.push_back(static_cast<std::int32_t>(4 + (i + 3 * step) % 15));
      next.back().push_back(last.back());
    }
    texts = next;
    decoder.reorder(parents[step]);
    const auto y = decoder.step(id_tensor(last)).value();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto n = static_cast<index_t>(texts[i].size());
      const auto whole = model.decode(ctx, id_tensor(texts[i]), SequenceLayout::packed({n})).value();
      check_close(y.rows(static_cast<index_t>(i), 1), whole.rows(n - 1, 1), 1e-12);
    }
  }
}

TEST_CASE("a language model's state says what does not fit") {
  const auto model = small_language_model(language_models().front());
  const auto ctx = Context<double>::inference();
  DecoderState<double> decoder = model.begin(ctx, 2);
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)decoder.step(id_tensor({2, 3, 4}));
                 }),
                 "ids of shape (3,) must be (2) or (2, n), a row for each sequence"));
  CHECK(contains(message_of<IndexError>([&] {
                   decoder.reorder(std::vector<std::int32_t>{0, 2});
                 }),
                 "parent 2 does not exist, there are 2 sequences"));
  Tape<double> tape;
  CHECK(contains(message_of<ValueError>([&] { (void)model.begin(Context<double>::checking(tape), 1); }),
                 "must be an inference context"));
}
