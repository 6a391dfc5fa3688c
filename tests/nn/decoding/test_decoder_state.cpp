#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "search/search_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// The decoder's output for one whole target sequence, without a cache.
Tensor<double> uncached(const Seq2SeqTransformer<double>& model, const Memory<double>& memory,
                        std::int32_t sequence, const Ids& target) {
  const Memory<double> one(memory.rows, memory.layout, {sequence});
  return model
      .decode(Context<double>::inference(), id_tensor(target),
              SequenceLayout::packed({static_cast<index_t>(target.size())}), one)
      .value();
}

// A single query sums its scores in another order than a tile of them.
void check_row(const Tensor<double>& actual, index_t actual_row, const Tensor<double>& expected,
               index_t expected_row) {
  for (index_t j = 0; j < expected.dim(-1); ++j) {
    const double a = actual.data()[actual_row * actual.dim(-1) + j],
                 e = expected.data()[expected_row * expected.dim(-1) + j];
    CHECK(std::abs(a - e) <= 1e-13 * std::max(1.0, std::abs(e)));
  }
}

}  // namespace

TEST_CASE("decoding token by token gives what decoding at once gives") {
  for (const bool norm_first : {false, true}) {
    const auto model = small_model(19, norm_first);
    const auto memory = encode(model, {{5, 6, 7, 3}, {8, 3}});
    const Ids targets[] = {{2, 7, 8, 9, 10, 11, 4}, {2, 12, 12, 4, 18, 5, 6}};
    DecoderState<double> decoder = model.begin(Context<double>::inference(), memory);
    for (std::size_t t = 0; t < 7; ++t) {
      const auto y = decoder.step(id_tensor({targets[0][t], targets[1][t]})).value();
      for (std::int32_t b = 0; b < 2; ++b) {
        check_row(y, b, uncached(model, memory, b, targets[b]), static_cast<index_t>(t));
      }
    }
    CHECK(decoder.lengths()[0] == 7);
  }
}

TEST_CASE("several tokens at once continue a cache") {
  const auto model = small_model(19);
  const auto memory = encode(model, {{5, 6, 7, 3}, {8, 9, 10, 11, 3}});
  const Ids targets[] = {{2, 7, 8, 9, 10, 11}, {2, 12, 12, 4, 18, 5}};
  DecoderState<double> decoder = model.begin(Context<double>::inference(), memory);
  const auto first = decoder.step(Tensor<std::int32_t>::from({2, 2}, {2, 7, 2, 12})).value();
  const auto second = decoder.step(Tensor<std::int32_t>::from({2, 3}, {8, 9, 10, 12, 4, 18})).value();
  const auto third = decoder.step(id_tensor({11, 5})).value();
  for (std::int32_t b = 0; b < 2; ++b) {
    const auto expected = uncached(model, memory, b, targets[b]);
    for (index_t t = 0; t < 2; ++t) check_row(first, b * 2 + t, expected, t);
    for (index_t t = 0; t < 3; ++t) check_row(second, b * 3 + t, expected, 2 + t);
    check_row(third, b, expected, 5);
  }
}

TEST_CASE("a hypothesis has the same bits alone and beside others of its sentence") {
  const auto model = small_model(19);
  const auto memory = encode(model, {{5, 6, 7, 3}, {8, 9, 10, 11, 3}});
  const auto decoded = [&](std::initializer_list<std::int32_t> first, std::vector<std::int32_t> parents) {
    DecoderState<double> decoder = model.begin(Context<double>::inference(), memory);
    decoder.step(id_tensor({2, 2}));
    decoder.reorder(parents);
    return decoder.step(id_tensor(Ids(first))).value();
  };
  const Tensor<double> alone = decoded({7, 8}, {0, 1});
  const Tensor<double> beside = decoded({9, 7, 10, 8, 11}, {0, 0, 0, 1, 1});
  const auto same = [&](index_t row, index_t expected) {
    const index_t d = alone.dim(-1);
    return std::equal(beside.data() + row * d, beside.data() + (row + 1) * d, alone.data() + expected * d);
  };
  CHECK(same(1, 0));
  CHECK(same(3, 1));
  CHECK_FALSE(same(0, 0));
}

TEST_CASE("re-ordered hypotheses go on as if each had been decoded by itself") {
  const auto model = small_model(19);
  const auto memory = encode(model, {{5, 6, 7, 3}, {8, 3}});
  DecoderState<double> decoder = model.begin(Context<double>::inference(), memory);
  std::vector<Ids> hypotheses = {{2}, {2}};
  std::vector<std::int32_t> sequences = {0, 1};
  RandomGenerator rng(4);
  const std::vector<std::vector<std::int32_t>> parents = {
      {0, 0, 0, 1, 1}, {4, 0, 0, 2, 3}, {1, 1, 0}, {2, 2, 2, 2, 0, 1, 1}, {6, 5, 4, 3, 2, 1, 0}};
  for (std::size_t step = 0; step <= parents.size(); ++step) {
    Ids last;
    for (const Ids& h : hypotheses) last.push_back(h.back());
    const auto y = decoder.step(id_tensor(last)).value();
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      check_row(y, static_cast<index_t>(i), uncached(model, memory, sequences[i], hypotheses[i]),
                static_cast<index_t>(hypotheses[i].size()) - 1);
    }
    if (step == parents.size()) break;
    decoder.reorder(parents[step]);
    std::vector<Ids> next;
    std::vector<std::int32_t> next_sequences;
    for (const std::int32_t parent : parents[step]) {
      next.push_back(hypotheses[static_cast<std::size_t>(parent)]);
      next.back().push_back(static_cast<std::int32_t>(4 + rng.uniform_int(15)));
      next_sequences.push_back(sequences[static_cast<std::size_t>(parent)]);
    }
    hypotheses = next;
    sequences = next_sequences;
  }
}

TEST_CASE("a long sequence outgrows the first cache") {
  const auto model = small_model(19);
  const auto memory = encode(model, {{5, 6, 7, 3}});
  DecoderState<double> decoder = model.begin(Context<double>::inference(), memory);
  Ids target;
  Tensor<double> last;
  for (int t = 0; t < 150; ++t) {
    target.push_back(static_cast<std::int32_t>(t == 0 ? 2 : 4 + t % 15));
    last = decoder.step(id_tensor({target.back()})).value();
  }
  check_row(last, 0, uncached(model, memory, 0, target), 149);
}

TEST_CASE("misuse of a decoder's state is refused") {
  const auto model = small_model(19);
  const auto memory = encode(model, {{5, 3}, {6, 3}});
  Tape<double> tape;
  CHECK_THROWS_AS((void)model.begin(Context<double>::checking(tape), memory), ValueError);
  DecoderState<double> decoder = model.begin(Context<double>::inference(), memory);
  CHECK_THROWS_WITH_AS((void)decoder.step(id_tensor({2, 2, 2})),
                       "[decoder_state] ids of shape (3,) must be (2) or (2, n), a row for each sequence",
                       ShapeError);
  CHECK_THROWS_AS((void)decoder.step(id_tensor({2, 19})), IndexError);
  const std::vector<std::int32_t> parents = {2};
  CHECK_THROWS_AS(decoder.reorder(parents), IndexError);
}
