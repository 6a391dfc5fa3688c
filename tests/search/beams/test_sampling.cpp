#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "eigenformer/search/beams/sampling.hpp"
#include "eigenformer/search/decoding/ensemble.hpp"
#include "isa.hpp"
#include "search/language_tools.hpp"
#include "search/search_tools.hpp"
#include "search/table_model.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// Probabilities 0.4, 0.3, 0.2, 0.1 of ids 2, 0, 3, 1.
const std::vector<double> logits = {std::log(0.3), std::log(0.1), std::log(0.4), std::log(0.2)};

// The share of draws, evenly spread over [0, 1), that give each id.
std::array<double, 4> shares(const Sampling& options, const std::vector<double>& scores) {
  std::array<double, 4> share{};
  for (int i = 0; i < 10000; ++i) {
    const std::int32_t id = detail::draw_token<double>(scores, options, (i + 0.5) / 10000);
    share[static_cast<std::size_t>(id)] += 1.0 / 10000;
  }
  return share;
}

// Checks that each text and its log-probabilities are bit-identical for 1, 2, 3 and 8 samples of an input,
// and for an input alone.
template <class M>
void check_same_bits(const M& model, const std::vector<Ids>& inputs, SearchOptions o) {
  const auto ctx = Context<typename M::value_type>::inference();
  o.token_scores = true;
  o.num_hypotheses = 8;
  const auto all = draw(model, ctx, inputs, o);
  const auto check = [&](const std::vector<Hypothesis>& texts, std::size_t first_input) {
    const auto n = static_cast<std::size_t>(o.num_hypotheses);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Hypothesis& expected = all[(first_input + i / n) * 8 + i % n];
      CHECK(texts[i].ids == expected.ids);
      CHECK(texts[i].log_probability == expected.log_probability);
      CHECK(texts[i].token_log_probabilities == expected.token_log_probabilities);
    }
  };
  for (const index_t n : {1, 2, 3, 8}) {
    o.num_hypotheses = n;
    o.sampling->numbers.clear();
    check(draw(model, ctx, inputs, o), 0);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      o.sampling->numbers = {i};
      check(draw(model, ctx, std::vector<Ids>{inputs[i]}, o), i);
    }
  }
}

// An encoder-decoder with attention of this shape and sources of less and more than a tile of keys.
template <class T>
void check_attention_shape(index_t d_model, index_t heads, index_t key_heads) {
  RandomGenerator rng(5);
  LayerOptions layer{.d_model = d_model, .num_heads = heads, .dim_feedforward = 20};
  layer.attention.num_key_value_heads = key_heads;
  const auto make = [&] {
    return Seq2SeqTransformer<T>(
        {.source_vocab_size = 23, .layer = layer, .encoder = {.num_layers = 1}, .decoder = {.num_layers = 2}},
        rng);
  };
  const auto one = make(), other = make();
  std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}, {}};
  for (std::int32_t i = 0; i < 70; ++i) sources[2].push_back(4 + i % 19);
  const SearchOptions o{.sampling = Sampling{.temperature = 1.5, .seed = 4}, .max_length = 7};
  check_same_bits(one, sources, o);
  check_same_bits(Ensemble<Seq2SeqTransformer<T>>({{one}, {other}}), sources, o);
}

void check_shares(const Sampling& options, const std::array<double, 4>& expected,
                  const std::vector<double>& scores = logits) {
  const auto found = shares(options, scores);
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(found[i] - expected[i]) < 2e-4);
}

}  // namespace

TEST_CASE("a token is drawn as often as the model, the temperature, top_k and top_p say") {
  Sampling o;
  check_shares(o, {0.3, 0.1, 0.4, 0.2});
  o.temperature = 0.5;
  check_shares(o, {0.3, 1.0 / 30, 16.0 / 30, 4.0 / 30});
  o.temperature = 0;
  check_shares(o, {0, 0, 1, 0});
  o = {};
  o.top_k = 2;
  check_shares(o, {3.0 / 7, 0, 4.0 / 7, 0});
  o.top_k = 9;
  check_shares(o, {0.3, 0.1, 0.4, 0.2});
  o = {};
  o.top_p = 0.65;
  check_shares(o, {3.0 / 7, 0, 4.0 / 7, 0});
  o.top_p = 0.75;
  check_shares(o, {3.0 / 9, 0, 4.0 / 9, 2.0 / 9});
  o.top_p = 1e-9;
  check_shares(o, {0, 0, 1, 0});
  o.top_p = 0.9;
  o.top_k = 3;  // of these three 0.9 of 0.9 is 0.81: all of them
  check_shares(o, {3.0 / 9, 0, 4.0 / 9, 2.0 / 9});
  // Forbidden tokens.
  std::vector<double> some = logits;
  some[2] = -std::numeric_limits<double>::infinity();
  check_shares({}, {0.5, 1.0 / 6, 0, 1.0 / 3}, some);
}

TEST_CASE("min_p keeps the tokens that are at least so likely as a share of the likeliest") {
  Sampling o;
  o.min_p = 0.6;  // of 0.4: 0.24
  check_shares(o, {3.0 / 7, 0, 4.0 / 7, 0});
  o.min_p = 0.2;
  check_shares(o, {0.3, 0.1, 0.4, 0.2});
  o.min_p = 0.99;
  check_shares(o, {0, 0, 1, 0});
  // After the temperature: 0.16, 0.09, 0.04 and 0.01, of which 0.45 is 0.072.
  o.min_p = 0.45;
  o.temperature = 0.5;
  check_shares(o, {9.0 / 25, 0, 16.0 / 25, 0});
  o.temperature = 1;
  o.top_p = 0.65;  // two tokens; of 0.4 0.45 is 0.18, which would leave three
  check_shares(o, {3.0 / 7, 0, 4.0 / 7, 0});
  o.top_p = 0.95;  // four; min_p leaves three
  check_shares(o, {3.0 / 9, 0, 4.0 / 9, 2.0 / 9});
  o.min_p = 1;
  CHECK(contains(message_of<ValueError>([&] { o.validate(); }), "min_p is 1, must be in [0, 1)"));
}

TEST_CASE("several texts for an input: the first is what one alone is, and no text depends on their number") {
  const auto model = small_language_model(language_models().front());
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> prompts = {{2, 7, 8, 9}, {2}, {2, 5}};
  SearchOptions o{.sampling = Sampling{}};
  o.max_length = 12;
  o.min_length = 8;            // so that few texts are alike
  o.repetition_penalty = 1.3;  // which changes scores in place
  const auto one = draw(model, ctx, prompts, o);
  o.num_hypotheses = 5;
  const auto five = draw(model, ctx, prompts, o);
  o.num_hypotheses = 2;
  const auto two = draw(model, ctx, prompts, o);
  REQUIRE(five.size() == 15);
  REQUIRE(two.size() == 6);
  std::set<Ids> different;
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(five[5 * i].ids == one[i].ids);
    CHECK(five[5 * i].log_probability == doctest::Approx(one[i].log_probability).epsilon(1e-12));
    for (std::size_t k = 0; k < 2; ++k) CHECK(two[2 * i + k].ids == five[5 * i + k].ids);
    for (std::size_t k = 0; k < 5; ++k) different.insert(five[5 * i + k].ids);
  }
  CHECK(different.size() > 12);
  check_same_bits(model, prompts, o);
  o.num_hypotheses = 0;
  CHECK_THROWS_AS((void)draw(model, ctx, prompts, o), ValueError);
}

TEST_CASE("a text's log-probability has the same bits for any number of samples, on every path") {
  for_each_isa([] {
    check_attention_shape<float>(12, 3, 0);
    check_attention_shape<float>(20, 1, 0);
    check_attention_shape<float>(36, 4, 2);
    check_attention_shape<float>(72, 1, 0);
    check_attention_shape<double>(12, 2, 1);
  });
}

TEST_CASE("a drawn token comes with the model's own log probability, and may not end where it must not") {
  TableModel<double> model(4, 1);
  for (std::size_t i = 0; i < model.table.size(); ++i) model.table[i] = logits[i % 4];
  const auto drawn = [&](const SearchOptions& o) {
    return draw(model, Context<double>::inference(), std::vector<Ids>{{2}}, o)[0];
  };
  SearchOptions o{.sampling = Sampling{.temperature = 0.1, .top_k = 1}, .max_length = 1, .end_id = -1};
  o.forbidden_ids = {};
  CHECK(drawn(o).log_probability == doctest::Approx(std::log(0.4)));
  o.end_id = 2;
  CHECK(drawn(o).finished);
  o.min_length = 1;
  CHECK(drawn(o).ids == Ids{0});
  o.forbidden_ids = {0, 1, 2, 3};
  CHECK(drawn(o).ids.empty());
  // Equal logits: the lower id first.
  const std::vector<double> equal(4, 1.0);
  CHECK(detail::draw_token<double>(equal, {}, 0.0) == 0);
  CHECK(detail::draw_token<double>(equal, {}, 0.99) == 3);
}

TEST_CASE("a text depends on its prompt, its number and the seed, and not on the others") {
  int different = 0;
  for (const auto& options : language_models()) {
    const auto model = small_language_model(options);
    const auto ctx = Context<double>::inference();
    const std::vector<Ids> prompts = {{2, 7, 8, 9}, {2}, {2, 5}, {2}};
    SearchOptions o{.sampling = Sampling{.seed = 7}};
    o.max_length = 12;
    o.forbidden_ids = {0, 2};
    const auto texts = draw(model, ctx, prompts, o);
    REQUIRE(texts.size() == 4);
    for (std::size_t n = 1; n < 4; ++n) {
      const auto fewer = draw(
          model, ctx, std::vector<Ids>(prompts.begin(), prompts.begin() + static_cast<std::ptrdiff_t>(n)), o);
      for (std::size_t i = 0; i < n; ++i) {
        CHECK(fewer[i].ids == texts[i].ids);
        CHECK(fewer[i].log_probability == doctest::Approx(texts[i].log_probability));
      }
    }
    different += texts[1].ids != texts[3].ids ? 1 : 0;
    o.sampling->seed = 8;
    CHECK(draw(model, ctx, prompts, o)[0].ids != texts[0].ids);
    for (std::size_t i = 0; i < 4; ++i) {
      const auto& text = texts[i];
      CHECK(text.ids.size() <= 12);
      for (const std::int32_t id : text.ids) CHECK((id != 0 && id != 2 && id != 3));
      // What the model itself says of the text, without a cache.
      Ids whole = prompts[i];
      whole.insert(whole.end(), text.ids.begin(), text.ids.end());
      const auto layout = SequenceLayout::packed({static_cast<index_t>(whole.size())});
      const auto p = model.log_probabilities(ctx, model.decode(ctx, id_tensor(whole), layout)).value();
      double sum = 0;
      auto at = static_cast<index_t>(prompts[i].size()) - 1;
      for (const std::int32_t id : text.ids) sum += p.at({at++, id});
      if (text.finished) sum += p.at({at, 3});
      CHECK(text.log_probability == doctest::Approx(sum));
    }
  }
  // The same prompt under another number.
  CHECK(different >= 2);
}

TEST_CASE("temperature 0 is the likeliest token every time, and min_length puts the end off") {
  const auto model = small_language_model(language_models().front());
  const auto ctx = Context<double>::inference();
  SearchOptions o{.sampling = Sampling{.temperature = 0}};
  o.max_length = o.min_length = 9;
  const std::vector<Ids> prompts = {{2, 7}};
  const auto text = draw(model, ctx, prompts, o)[0];
  CHECK(text.ids.size() == 9);
  Ids whole = prompts[0];
  for (const std::int32_t id : text.ids) {
    const auto n = static_cast<index_t>(whole.size());
    const auto all = model(ctx, id_tensor(whole), SequenceLayout::packed({n})).value();
    std::int32_t best = 4;
    for (std::int32_t v = 4; v < 19; ++v) {
      if (all.at({n - 1, v}) > all.at({n - 1, best})) best = v;
    }
    CHECK(id == best);
    whole.push_back(id);
  }
}

TEST_CASE(
    "an encoder-decoder is sampled too: greedy as beam size 1, and sentences do not depend on each other") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}, {9, 10, 11, 12, 3}};
  const auto memory = encode(model, sources);
  SearchOptions o{.sampling = Sampling{.temperature = 0}};
  o.max_length = 10;
  const auto greedy = draw(model, ctx, sources, o);
  const auto beam = generate(model, ctx, sources, {.beam_size = 1, .max_length = 10});
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(greedy[i].ids == beam[i][0].ids);
    CHECK(greedy[i].log_probability == doctest::Approx(beam[i][0].log_probability));
  }
  o.sampling->temperature = 1.5;
  const auto texts = draw(model, ctx, sources, o);
  const auto one = draw(model, ctx, std::vector<Ids>{sources[0]}, o);
  CHECK(one[0].ids == texts[0].ids);
  const auto from_sources = draw(model, ctx, sources, o);
  for (std::size_t i = 0; i < 3; ++i) CHECK(from_sources[i].ids == texts[i].ids);
  // Several draws for one source.
  const std::vector<Ids> repeated(6, sources[1]);
  std::set<Ids> different;
  for (const auto& text : draw(model, ctx, repeated, o)) different.insert(text.ids);
  CHECK(different.size() > 2);
}

TEST_CASE("what is drawn does not depend on the batches, and has attention weights if they are asked for") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{8, 3}, {5, 6, 7, 3}, {9, 3}, {9, 10, 11, 12, 3}};
  SearchOptions o{.sampling = Sampling{.seed = 4}, .max_length = 10, .num_hypotheses = 2, .attention = true};
  const auto together = generate(model, ctx, std::span<const Ids>(sources), o);
  for (const index_t size : {1, 2, 5}) {
    const auto found = generate(model, ctx, std::span<const Ids>(sources), o, {.batch_size = size});
    for (std::size_t i = 0; i < sources.size(); ++i) {
      REQUIRE(found[i].size() == 2);
      for (std::size_t k = 0; k < 2; ++k) {
        CHECK(found[i][k].ids == together[i][k].ids);
        CHECK(found[i][k].log_probability == together[i][k].log_probability);
        const auto rows = static_cast<index_t>(found[i][k].ids.size()) + 1;
        REQUIRE(found[i][k].attention != nullptr);
        CHECK(found[i][k].attention->memory[1].shape() ==
              Shape{3, rows, static_cast<index_t>(sources[i].size())});
      }
    }
  }
}

TEST_CASE("parts of a list are drawn as the whole list is, with the numbers of their texts") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}, {9, 10, 11, 12, 3}};
  SearchOptions o{.sampling = Sampling{.temperature = 1.5, .seed = 4}, .max_length = 10};
  const auto all = draw(model, ctx, sources, o);
  o.sampling->numbers = {2, 0};
  const auto part = draw(model, ctx, std::vector<Ids>{sources[2], sources[0]}, o);
  CHECK(part[0].ids == all[2].ids);
  CHECK(part[1].ids == all[0].ids);
  CHECK(contains(message_of<ValueError>([&] { (void)draw(model, ctx, sources, o); }),
                 "2 numbers, must be 3, one for each input"));
}

TEST_CASE("a target sentence goes on from forced tokens, which may see one another in both directions") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}};
  for (const index_t prefix : {0, 3}) {
    const SearchOptions o{.sampling = Sampling{.temperature = 0},
                          .max_length = 10,
                          .prefix_ids = {9, 10},
                          .prefix_length = prefix};
    const auto drawn = draw(model, ctx, sources, o);
    const auto beam =
        generate(model, ctx, sources,
                 {.beam_size = 1, .max_length = 10, .prefix_ids = {9, 10}, .prefix_length = prefix});
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(drawn[i].ids == beam[i][0].ids);
      CHECK(drawn[i].log_probability == doctest::Approx(beam[i][0].log_probability));
    }
  }
  CHECK(contains(message_of<ValueError>([&] {
                   (void)draw(model, ctx, sources, {.sampling = Sampling{}, .prefix_ids = {4, 19}});
                 }),
                 "one of prefix_ids is 19, must be below the vocabulary's size 19"));
}

TEST_CASE("impossible sampling options and prompts are refused by name") {
  const auto model = small_language_model(language_models().front());
  const auto ctx = Context<double>::inference();
  const auto refusal = [&](auto&& change, const std::vector<Ids>& prompts = {{2}}) {
    SearchOptions o{.sampling = Sampling{}};
    change(o);
    return message_of<ValueError>([&] { (void)draw(model, ctx, prompts, o); });
  };
  CHECK(contains(refusal([](auto& o) { o.sampling->temperature = -1; }), "[sampling] temperature is -1"));
  CHECK(contains(refusal([](auto& o) { o.sampling->top_k = -1; }), "top_k is -1"));
  CHECK(contains(refusal([](auto& o) { o.sampling->top_p = 0; }), "top_p is 0"));
  CHECK(contains(refusal([](auto& o) { o.max_length = 0; }), "max_length is 0"));
  CHECK(contains(refusal([](auto& o) { o.min_length = 300; }),
                 "min_length is 300, must be at most max_length, which is 256"));
  CHECK(contains(refusal([](auto& o) { o.end_id = 19; }),
                 "end_id is 19, must be below the vocabulary's size 19"));
  CHECK(refusal([](auto&) {}, {{2}, {}}) == "[search] prompt 1 is empty, must have at least one token");
  CHECK(contains(refusal([](auto& o) { o.constraints = {{}}; }),
                 "[search] constraints is set together with sampling, expected beam search"));
  CHECK(contains(refusal([](auto& o) { o.coverage_penalty = 1; }), "coverage_penalty is set together with"));
  CHECK(contains(refusal([](auto& o) {
                   o.num_beam_groups = 2;
                   o.diversity_penalty = 1;
                 }),
                 "num_beam_groups is set together with"));
  CHECK(draw(model, ctx, std::vector<Ids>{}).empty());
}
