#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "eigenformer/nn/decoding/decoder_state.hpp"
#include "fixtures.hpp"
#include "nn/attention_variants.hpp"
#include "search/language_tools.hpp"
#include "search/search_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

/// Every kind of positions and heads that scores know of, as language models, with a window where one is
/// given.
std::vector<std::pair<std::string, LanguageModelOptions>> variants(index_t window) {
  std::vector<std::pair<std::string, LanguageModelOptions>> all;
  for (const auto& variant : attention_variants()) {
    const Seq2SeqOptions& o = variant.second;
    LanguageModelOptions options{.vocab_size = 19, .num_layers = 2, .layer = o.layer};
    options.positions = o.positions;
    options.max_length = o.max_length;
    if (window != 0) options.layer.attention.window = window;
    all.emplace_back(variant.first, options);
  }
  return all;
}

Ids text_of(RandomGenerator& rng, index_t length) {
  Ids ids;
  for (index_t i = 0; i < length; ++i) ids.push_back(static_cast<std::int32_t>(4 + rng.uniform_int(15)));
  return ids;
}

Tensor<double> whole(const LanguageModel<double>& model, const Ids& text, index_t prefix = 0) {
  return model
      .decode(Context<double>::inference(), id_tensor(text),
              SequenceLayout::packed({static_cast<index_t>(text.size())}),
              prefix == 0 ? AttentionMask::none() : AttentionMask::prefix({prefix}))
      .value();
}

}  // namespace

TEST_CASE(
    "what a window has left behind leaves the cache, and the results stay: beams, chunks, every variant") {
  for (const auto& variant : variants(5)) {
    CAPTURE(variant.first);
    const auto model = small_language_model(variant.second);
    DecoderState<double> decoder = model.begin(Context<double>::inference(), 2);
    RandomGenerator rng(3);
    std::vector<Ids> texts(2);
    const auto step = [&](const std::vector<index_t>& counts) {
      Ids ids;
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const Ids more = text_of(rng, counts[i]);
        texts[i].insert(texts[i].end(), more.begin(), more.end());
        ids.insert(ids.end(), more.begin(), more.end());
      }
      const auto y = decoder.step(id_tensor(ids), counts).value();
      index_t row = 0;
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const auto length = static_cast<index_t>(texts[i].size());
        check_close(y.rows(row, counts[i]), whole(model, texts[i]).rows(length - counts[i], counts[i]),
                    1e-12);
        row += counts[i];
      }
    };
    const auto reorder = [&](const std::vector<std::int32_t>& parents) {
      decoder.reorder(parents);
      std::vector<Ids> next;
      for (const std::int32_t parent : parents) next.push_back(texts[static_cast<std::size_t>(parent)]);
      texts = next;
    };
    step({11, 2});
    step({1, 1});
    reorder({1, 0, 0});
    for (int i = 0; i < 20; ++i) step({1, 1, 1});
    reorder({2, 0, 1, 1});
    step({3, 1, 7, 1});
    for (int i = 0; i < 9; ++i) step({1, 1, 1, 1});
    reorder({3});
    for (int i = 0; i < 20; ++i) step({1});
    CHECK(decoder.lengths()[0] == static_cast<index_t>(texts[0].size()));
  }
}

TEST_CASE("the cache of a windowed decoder is bounded by the window, and not by the length") {
  auto options = variants(0).front().second;
  const auto bytes_after = [&](index_t window, index_t prompt, index_t tokens, index_t sequences) {
    options.layer.attention.window = window;
    const auto model = small_language_model(options);
    DecoderState<double> decoder = model.begin(Context<double>::inference(), sequences);
    const auto all = [&](index_t x) { return std::vector<index_t>(static_cast<std::size_t>(sequences), x); };
    (void)decoder.step(Tensor<std::int32_t>::full({sequences * prompt}, 5), all(prompt));
    std::size_t most = 0;
    for (index_t i = 0; i < tokens; ++i) {
      (void)decoder.step(Tensor<std::int32_t>::full({sequences}, 6));
      most = std::max(most, decoder.cache_bytes());
    }
    CHECK(decoder.lengths()[0] == prompt + tokens);
    return most;
  };
  // Two layers of keys and values of 12 features: rows of 8 bytes each.
  constexpr std::size_t row = 2 * 2 * 12 * 8;
  for (const index_t sequences : {1, 3}) {
    const std::size_t windows = static_cast<std::size_t>(sequences) * 8;
    for (const index_t prompt : {1, 150}) {
      const std::size_t few = bytes_after(8, prompt, 40, sequences),
                        many = bytes_after(8, prompt, 400, sequences);
      CHECK(many == few);
      // At most twice what two windows and a step take, and the table of row numbers.
      CHECK(many <= 4 * (windows + static_cast<std::size_t>(sequences)) * row + 512 * windows);
    }
    CHECK(bytes_after(0, 1, 400, sequences) > 400 * static_cast<std::size_t>(sequences) * row);
  }
}

TEST_CASE("rows that re-ordering leaves to no one are used again") {
  const auto model = small_language_model(variants(0).front().second);
  DecoderState<double> decoder = model.begin(Context<double>::inference(), 1);
  (void)decoder.step(id_tensor({2}));
  // Of four continuations of one text one goes on, again and again.
  for (index_t i = 0; i < 100; ++i) {
    decoder.reorder(std::vector<std::int32_t>{0, 0, 0, 0});
    (void)decoder.step(id_tensor({4, 5, 6, 7}));
    decoder.reorder(std::vector<std::int32_t>{static_cast<std::int32_t>(i % 4)});
  }
  Ids text = {2};
  for (index_t i = 0; i < 100; ++i) text.push_back(static_cast<std::int32_t>(4 + i % 4));
  text.push_back(9);
  check_close(decoder.step(id_tensor({9})).value(), whole(model, text).rows(101, 1), 1e-12);
  CHECK(decoder.cache_bytes() < 300 * 2 * 2 * 12 * 8);
}

TEST_CASE("weights are shown for all keys, zero for those that a window has left behind") {
  RandomGenerator rng(1);
  auto options = attention_variants().back().second;
  const Seq2SeqTransformer<double> model(options, rng);
  const auto ctx = Context<double>::inference();
  const auto memory = encode(model, {{5, 6, 7, 3}});
  DecoderState<double> decoder = model.begin(ctx, memory);
  const Ids target = {2, 7, 8, 9, 10, 11, 12, 13};
  DecoderMaps<double> expected, maps;
  (void)model.decode(ctx, id_tensor(target), SequenceLayout::packed({8}), memory, {}, &expected);
  const std::size_t without = model.begin(ctx, memory).cache_bytes();
  for (index_t t = 0; t < 8; ++t) {
    (void)decoder.step(id_tensor({target[static_cast<std::size_t>(t)]}), &maps);
    CHECK(maps.target[1].shape() == Shape{1, 3, 1, t + 1});
    for (index_t h = 0; h < 3; ++h) {
      for (index_t j = 0; j <= t; ++j) {
        CHECK(std::abs(maps.target[1].value().at({0, h, 0, j}) -
                       expected.target[1].value().at({0, h, t, j})) < 1e-12);
      }
    }
  }
  CHECK(decoder.cache_bytes() > without);
}

TEST_CASE("a prompt whose first tokens see one another: cached as uncached, for every variant") {
  for (const index_t window : {0, 5}) {
    for (const auto& variant : variants(window)) {
      CAPTURE(variant.first);
      const auto model = small_language_model(variant.second);
      DecoderState<double> decoder = model.begin(Context<double>::inference(), 3);
      std::vector<Ids> texts = {{2, 7, 8, 9, 10, 11}, {2, 12, 4, 18}, {5}};
      const std::vector<index_t> prefix = {4, 4, 0};
      Ids ids;
      for (const Ids& text : texts) ids.insert(ids.end(), text.begin(), text.end());
      auto y = decoder.step(id_tensor(ids), std::vector<index_t>{6, 4, 1}, prefix).value();
      index_t row = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        const auto n = static_cast<index_t>(texts[i].size());
        check_close(y.rows(row, n), whole(model, texts[i], prefix[i]), 1e-12);
        row += n;
      }
      // Crossing, then two tokens at once, then one at a time.
      decoder.reorder(std::vector<std::int32_t>{1, 0, 0});
      texts = {texts[1], texts[0], texts[0]};
      y = decoder.step(id_tensor({13, 14, 15, 16, 17, 18}), std::vector<index_t>{2, 2, 2}).value();
      for (std::size_t i = 0; i < 3; ++i) {
        const auto first = static_cast<std::int32_t>(13 + 2 * i);
        texts[i].insert(texts[i].end(), {first, first + 1});
        const auto n = static_cast<index_t>(texts[i].size());
        check_close(y.rows(static_cast<index_t>(2 * i), 2), whole(model, texts[i], 4).rows(n - 2, 2), 1e-12);
      }
      for (std::int32_t t = 0; t < 4; ++t) {
        y = decoder.step(id_tensor({5 + t, 6 + t, 7 + t})).value();
        for (std::size_t i = 0; i < 3; ++i) {
          texts[i].push_back(static_cast<std::int32_t>(5 + t + static_cast<std::int32_t>(i)));
          const auto n = static_cast<index_t>(texts[i].size());
          check_close(y.rows(static_cast<index_t>(i), 1), whole(model, texts[i], 4).rows(n - 1, 1), 1e-12);
        }
      }
    }
  }
}

TEST_CASE("a prefix comes in one step, one for each sequence, and linear attention has none") {
  const auto ctx = Context<double>::inference();
  const auto model = small_language_model(language_models().front());
  DecoderState<double> decoder = model.begin(ctx, 2);
  const auto error = [&](std::vector<index_t> counts, std::vector<index_t> prefix) {
    index_t rows = 0;
    for (const index_t n : counts) rows += n;
    return message_of<ValueError>(
        [&] { (void)decoder.step(Tensor<std::int32_t>::full({rows}, 5), counts, prefix); });
  };
  CHECK(contains(
      error({3, 2}, {3, 3}),
      "prefix of sequence 1 is 3 tokens, which must all be fed in the first step; this step has 2 tokens"));
  CHECK(contains(error({3, 2}, {-1, 0}), "prefix of sequence 0 is -1 long, must not be negative"));
  (void)decoder.step(id_tensor({5, 6, 7}), std::vector<index_t>{1, 2}, {0, 2});
  CHECK(contains(error({3, 2}, {2, 0}),
                 "prefix of sequence 0 is 2 tokens, which must all be fed in the first step; this step has 3 "
                 "tokens from position 1 on"));
  CHECK(contains(message_of<ShapeError>([&] {
                   (void)decoder.step(id_tensor({5, 6}), std::vector<index_t>{1, 1}, {1});
                 }),
                 "1 prefix lengths must be 2"));
  const auto linear = small_language_model(language_models()[3]);
  DecoderState<double> other = linear.begin(ctx, 1);
  CHECK(contains(message_of<ValueError>([&] {
                   (void)other.step(id_tensor({5, 6}), std::vector<index_t>{2}, {2});
                 }),
                 "linear attention has no prefix"));
}

TEST_CASE("a cache of fewer than no sequences is refused") {
  CHECK_THROWS_AS(detail::KeyValueCache<double>(-1), ValueError);
  CHECK(detail::KeyValueCache<double>(0).sequences() == 0);
}

TEST_CASE("a cache takes one count for each sequence, and rows of the step only") {
  detail::KeyValueCache<double> cache(2);
  const auto begin = [&](std::vector<index_t> counts) { return [&cache, counts] { cache.begin(counts); }; };
  CHECK(contains(message_of<ShapeError>(begin({1})), "1 counts must be 2, one for each sequence"));
  CHECK(contains(message_of<ShapeError>(begin({1, 1, 1})), "3 counts must be 2, one for each sequence"));
  CHECK(contains(message_of<ValueError>(begin({3, -1})),
                 "sequence 1 gets -1 tokens, must not be fewer than none"));
  cache.begin(std::vector<index_t>{2, 1});
  const auto rows = [](index_t n, index_t d) { return Var<double>(Tensor<double>::full({n, d}, 0.5)); };
  const auto ctx = Context<double>::inference();
  const auto model = small_language_model(language_models().front());
  const MultiHeadAttention<double>& attention = model.decoder.layers.front().self_attn;
  for (const index_t n : {2, 4}) {
    CAPTURE(n);
    const std::string expected = "must be (3, D): the rows of the step that begin() began";
    CHECK(contains(message_of<ShapeError>([&] { (void)cache.window(0, rows(n, 4), 3); }), expected));
    CHECK(contains(message_of<ShapeError>([&] { (void)cache.recurrence(0, rows(3, 4), rows(n, 4)); }),
                   expected));
    CHECK(contains(message_of<ShapeError>([&] { (void)cache.recurrence(0, rows(n, 4), rows(3, 4)); }),
                   expected));
    const Var<double> x = rows(n, attention.options.d_model);
    CHECK(contains(message_of<ShapeError>([&] { (void)cache.attend(ctx, 0, attention, x); }), expected));
  }
  CHECK(contains(message_of<ShapeError>([&] { (void)cache.recurrence(0, rows(3, 4), rows(3, 5)); }),
                 "must have the same shape"));
  CHECK(contains(message_of<ValueError>([&] { (void)cache.window(0, rows(3, 4), 0); }),
                 "a window of 0 rows must have at least 1"));
  CHECK(cache.window(0, rows(3, 4), 3).shape() == Shape{3, 3, 4});
}
