#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "eigenformer/search/beams/sample_token.hpp"
#include "eigenformer/search/beams/sampling.hpp"
#include "eigenformer/search/decoding/ensemble.hpp"
#include "isa.hpp"
#include "search/language_tools.hpp"
#include "search/search_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

// Probabilities 0.4, 0.3, 0.2, 0.1 of ids 2, 0, 3, 1.
const std::vector<double> logits = {std::log(0.3), std::log(0.1), std::log(0.4), std::log(0.2)};

SamplingOptions free_options() {
  SamplingOptions o;
  o.forbidden_ids = {};
  o.end_id = -1;
  return o;
}

// The share of draws, evenly spread over [0, 1), that give each id.
std::array<double, 4> shares(const SamplingOptions& options) {
  std::array<double, 4> share{};
  for (int i = 0; i < 10000; ++i) {
    const SampledToken token = sample_token<double>(logits, options, (i + 0.5) / 10000);
    share[static_cast<std::size_t>(token.id)] += 1.0 / 10000;
  }
  return share;
}

// Checks that each text and its log-probabilities are bit-identical for 1, 2, 3 and 8 samples of an input,
// and for an input alone.
template <class M>
void check_same_bits(const M& model, const std::vector<Ids>& inputs, SamplingOptions o) {
  const auto ctx = Context<typename M::value_type>::inference();
  o.token_scores = true;
  o.num_samples = 8;
  const auto all = sample(model, ctx, inputs, o);
  const auto check = [&](const std::vector<Hypothesis>& texts, std::size_t first_input) {
    const auto n = static_cast<std::size_t>(o.num_samples);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Hypothesis& expected = all[(first_input + i / n) * 8 + i % n];
      CHECK(texts[i].ids == expected.ids);
      CHECK(texts[i].log_probability == expected.log_probability);
      CHECK(texts[i].token_log_probabilities == expected.token_log_probabilities);
    }
  };
  for (const index_t n : {1, 2, 3, 8}) {
    o.num_samples = n;
    o.numbers.clear();
    check(sample(model, ctx, inputs, o), 0);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      o.numbers = {i};
      check(sample(model, ctx, std::vector<Ids>{inputs[i]}, o), i);
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
  const SamplingOptions o{.temperature = 1.5, .seed = 4, .max_length = 7};
  check_same_bits(one, sources, o);
  check_same_bits(Ensemble<Seq2SeqTransformer<T>>({{one}, {other}}), sources, o);
}

void check_shares(const SamplingOptions& options, const std::array<double, 4>& expected) {
  const auto found = shares(options);
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(found[i] - expected[i]) < 2e-4);
}

}  // namespace

TEST_CASE("a token is drawn as often as the model, the temperature, top_k and top_p say") {
  auto o = free_options();
  check_shares(o, {0.3, 0.1, 0.4, 0.2});
  o.temperature = 0.5;
  check_shares(o, {0.3, 1.0 / 30, 16.0 / 30, 4.0 / 30});
  o.temperature = 0;
  check_shares(o, {0, 0, 1, 0});
  o = free_options();
  o.top_k = 2;
  check_shares(o, {3.0 / 7, 0, 4.0 / 7, 0});
  o.top_k = 9;
  check_shares(o, {0.3, 0.1, 0.4, 0.2});
  o = free_options();
  o.top_p = 0.65;
  check_shares(o, {3.0 / 7, 0, 4.0 / 7, 0});
  o.top_p = 0.75;
  check_shares(o, {3.0 / 9, 0, 4.0 / 9, 2.0 / 9});
  o.top_p = 1e-9;
  check_shares(o, {0, 0, 1, 0});
  o.top_p = 0.9;
  o.top_k = 3;  // of these three 0.9 of 0.9 is 0.81: all of them
  check_shares(o, {3.0 / 9, 0, 4.0 / 9, 2.0 / 9});
  o = free_options();
  o.forbidden_ids = {2};
  check_shares(o, {0.5, 1.0 / 6, 0, 1.0 / 3});
}

TEST_CASE("min_p keeps the tokens that are at least so likely as a share of the likeliest") {
  auto o = free_options();
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
  SamplingOptions o;
  o.max_length = 12;
  o.min_length = 8;            // so that few texts are alike
  o.repetition_penalty = 1.3;  // which changes scores in place
  const auto one = sample(model, ctx, prompts, o);
  o.num_samples = 5;
  const auto five = sample(model, ctx, prompts, o);
  o.num_samples = 2;
  const auto two = sample(model, ctx, prompts, o);
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
  o.num_samples = 0;
  CHECK_THROWS_AS((void)sample(model, ctx, prompts, o), ValueError);
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
  auto o = free_options();
  o.temperature = 0.1;
  o.top_k = 1;
  CHECK(sample_token<double>(logits, o, 0.99).log_probability == doctest::Approx(std::log(0.4)));
  o.end_id = 2;
  CHECK(sample_token<double>(logits, o, 0.5).id == 2);
  CHECK(sample_token<double>(logits, o, 0.5, false).id == 0);
  o.forbidden_ids = {0, 1, 2, 3};
  CHECK(contains(message_of<ValueError>([&] { (void)sample_token<double>(logits, o, 0.5); }),
                 "every one of the 4 ids is forbidden"));
  CHECK(contains(message_of<ValueError>(
                     [&] { (void)sample_token<double>(std::span<const double>(), free_options(), 0.5); }),
                 "there are no logits, expected one for each id"));
  // Equal logits: the lower id first.
  const std::vector<double> equal(4, 1.0);
  CHECK(sample_token<double>(equal, free_options(), 0.0).id == 0);
  CHECK(sample_token<double>(equal, free_options(), 0.99).id == 3);
}

TEST_CASE("a text depends on its prompt, its number and the seed, and not on the others") {
  int different = 0;
  for (const auto& options : language_models()) {
    const auto model = small_language_model(options);
    const auto ctx = Context<double>::inference();
    const std::vector<Ids> prompts = {{2, 7, 8, 9}, {2}, {2, 5}, {2}};
    SamplingOptions o;
    o.max_length = 12;
    o.seed = 7;
    o.forbidden_ids = {0, 2};
    const auto texts = sample(model, ctx, prompts, o);
    REQUIRE(texts.size() == 4);
    for (std::size_t n = 1; n < 4; ++n) {
      const auto fewer = sample(
          model, ctx, std::vector<Ids>(prompts.begin(), prompts.begin() + static_cast<std::ptrdiff_t>(n)), o);
      for (std::size_t i = 0; i < n; ++i) {
        CHECK(fewer[i].ids == texts[i].ids);
        CHECK(fewer[i].log_probability == doctest::Approx(texts[i].log_probability));
      }
    }
    different += texts[1].ids != texts[3].ids ? 1 : 0;
    o.seed = 8;
    CHECK(sample(model, ctx, prompts, o)[0].ids != texts[0].ids);
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
  SamplingOptions o;
  o.temperature = 0;
  o.max_length = o.min_length = 9;
  const std::vector<Ids> prompts = {{2, 7}};
  const auto text = sample(model, ctx, prompts, o)[0];
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
  SamplingOptions o;
  o.temperature = 0;
  o.max_length = 10;
  const auto greedy = sample(model, ctx, sources, o);
  const auto beam = beam_search(model, ctx, sources, {.beam_size = 1, .max_length = 10});
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(greedy[i].ids == beam[i][0].ids);
    CHECK(greedy[i].log_probability == doctest::Approx(beam[i][0].log_probability));
  }
  o.temperature = 1.5;
  const auto texts = sample(model, ctx, sources, o);
  const auto one = sample(model, ctx, std::vector<Ids>{sources[0]}, o);
  CHECK(one[0].ids == texts[0].ids);
  const auto from_sources = sample(model, ctx, sources, o);
  for (std::size_t i = 0; i < 3; ++i) CHECK(from_sources[i].ids == texts[i].ids);
  // Several draws for one source.
  const std::vector<Ids> repeated(6, sources[1]);
  std::set<Ids> different;
  for (const auto& text : sample(model, ctx, repeated, o)) different.insert(text.ids);
  CHECK(different.size() > 2);
}

TEST_CASE("parts of a list are drawn as the whole list is, with the numbers of their texts") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}, {9, 10, 11, 12, 3}};
  SamplingOptions o{.temperature = 1.5, .seed = 4, .max_length = 10};
  const auto all = sample(model, ctx, sources, o);
  o.numbers = {2, 0};
  const auto part = sample(model, ctx, std::vector<Ids>{sources[2], sources[0]}, o);
  CHECK(part[0].ids == all[2].ids);
  CHECK(part[1].ids == all[0].ids);
  CHECK(contains(message_of<ValueError>([&] { (void)sample(model, ctx, sources, o); }),
                 "2 numbers, must be 3, one for each input"));
}

TEST_CASE("a target sentence goes on from forced tokens, which may see one another in both directions") {
  const auto model = small_model(19);
  const auto ctx = Context<double>::inference();
  const std::vector<Ids> sources = {{5, 6, 7, 3}, {8, 3}};
  for (const index_t prefix : {0, 3}) {
    const SamplingOptions o{
        .temperature = 0, .max_length = 10, .prefix_ids = {9, 10}, .prefix_length = prefix};
    const auto drawn = sample(model, ctx, sources, o);
    const auto beam =
        beam_search(model, ctx, sources,
                    {.beam_size = 1, .max_length = 10, .prefix_ids = {9, 10}, .prefix_length = prefix});
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(drawn[i].ids == beam[i][0].ids);
      CHECK(drawn[i].log_probability == doctest::Approx(beam[i][0].log_probability));
    }
  }
  CHECK(contains(message_of<ValueError>([&] {
                   (void)sample(model, ctx, sources, {.prefix_ids = {4, 19}});
                 }),
                 "one of prefix_ids is 19, must be below the vocabulary's size 19"));
}

TEST_CASE("impossible sampling options and prompts are refused by name") {
  const auto model = small_language_model(language_models().front());
  const auto ctx = Context<double>::inference();
  const auto refusal = [&](auto&& change, const std::vector<Ids>& prompts = {{2}}) {
    SamplingOptions o;
    change(o);
    return message_of<ValueError>([&] { (void)sample(model, ctx, prompts, o); });
  };
  CHECK(contains(refusal([](auto& o) { o.temperature = -1; }), "[sampling] temperature is -1"));
  CHECK(contains(refusal([](auto& o) { o.top_k = -1; }), "top_k is -1"));
  CHECK(contains(refusal([](auto& o) { o.top_p = 0; }), "top_p is 0"));
  CHECK(contains(refusal([](auto& o) { o.max_length = 0; }), "max_length is 0"));
  CHECK(contains(refusal([](auto& o) { o.min_length = 300; }),
                 "min_length is 300, must be at most max_length, which is 256"));
  CHECK(contains(refusal([](auto& o) { o.end_id = 19; }),
                 "end_id is 19, must be below the vocabulary's size 19"));
  CHECK(refusal([](auto&) {}, {{2}, {}}) == "[sampling] prompt 1 is empty, must have at least one token");
  CHECK(sample(model, ctx, std::vector<Ids>{}).empty());
}
