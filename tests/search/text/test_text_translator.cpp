#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

const std::vector<std::string> lines = {"a man walks", "", "the dog of a man walks and walks", "a dog"};

LoadedModel<Seq2SeqTransformer<double>> small_translator(std::optional<InputPositions> positions = {},
                                                         index_t max_length = 30) {
  const ParallelCorpus corpus{{"a man walks the dog", "and of a dog"},
                              {"ein Mann geht mit dem Hund", "und Hund"}};
  const TokenizerPair tokenizers = train_tokenizers({.kind = "word", .joint = false}, corpus);
  RandomGenerator rng(3);
  Seq2SeqTransformer<double> model({.source_vocab_size = tokenizers.source->vocabulary_size(),
                                    .target_vocab_size = tokenizers.target->vocabulary_size(),
                                    .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20},
                                    .encoder = {.num_layers = 1},
                                    .decoder = {.num_layers = 1},
                                    .positions = positions,
                                    .max_length = max_length},
                                   rng);
  LoadedModel<Seq2SeqTransformer<double>> loaded{{}, tokenizers, std::move(model)};
  for (double& w : loaded.model.own_projection.value().span()) w *= 3;
  loaded.description.model = loaded.model.options;
  return loaded;
}

}  // namespace

TEST_CASE(
    "a translator gives the texts, scores and attention of what generate finds, and nothing for a blank "
    "line") {
  const auto loaded = small_translator();
  TextTranslatorOptions options = text_translator_options(loaded.description);
  options.search.max_length = 7;
  options.search.attention = true;
  const TextTranslator translator(loaded, options);
  const auto translations = translator.translate(lines);
  REQUIRE(translations.size() == 4);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK_FALSE(translations[i].cut);
    if (lines[i].empty()) {
      CHECK(translations[i].text.empty());
      CHECK(translations[i].attention == nullptr);
      continue;
    }
    auto ids = loaded.tokenizers.source->encode(lines[i]);
    ids.push_back(3);
    const auto found = generate(loaded.model, Context<double>::inference(),
                                std::vector<std::vector<std::int32_t>>{ids}, options.search)[0][0];
    CHECK(translations[i].text == loaded.tokenizers.target->decode(found.ids));
    CHECK(translations[i].score == found.score);
    CHECK(translations[i].log_probability == found.log_probability);
    REQUIRE(translations[i].attention != nullptr);
    CHECK(translations[i].attention->memory[0].dim(2) == static_cast<index_t>(ids.size()));
    CHECK(translator.translate(lines[i]).text == translations[i].text);
  }
  std::vector<std::string> texts;
  for (const auto& translation : translations) texts.push_back(translation.text);
  CHECK(translate(loaded, lines, options.search) == texts);
}

TEST_CASE(
    "alternatives are the n best with the log-probabilities of their tokens, scored pairs have the same") {
  const auto loaded = small_translator();
  TextTranslatorOptions options = text_translator_options(loaded.description);
  options.search.max_length = 7;
  options.search.num_hypotheses = 3;
  options.search.token_scores = true;
  const TextTranslator translator(loaded, options);
  const auto found = translator.alternatives(lines);
  REQUIRE(found.size() == 4);
  REQUIRE(found[1].size() == 1);
  CHECK(found[1][0].text.empty());
  for (const std::size_t i : {0, 2, 3}) {
    REQUIRE(found[i].size() == 3);
    CHECK(found[i][0].text == translator.translate(lines[i]).text);
    for (const Translation& t : found[i]) {
      CHECK(t.score <= found[i][0].score);
      double sum = 0;
      for (const TokenScore& token : t.tokens) sum += token.log_probability;
      CHECK(sum == doctest::Approx(t.log_probability).epsilon(1e-12));
      CHECK(t.confidence == sentence_confidence(t.words));
      CHECK(t.confidence <= 1);
    }
  }
  const std::vector<std::string> targets = {"ein Mann", "Hund", "", "geht mit dem Hund"};
  const auto scored = translator.score(lines, targets);
  CHECK(scored[1].tokens.empty());  // no word in the source
  CHECK(scored[2].tokens.empty());  // none in the target
  REQUIRE(scored[3].tokens.size() == 5);
  CHECK(scored[3].tokens[4].token == "</s>");
  CHECK(scored[3].words.size() == 4);
  const auto target = loaded.tokenizers.target->encode(targets[3]);
  auto source = loaded.tokenizers.source->encode(lines[3]);
  source.push_back(3);
  const std::vector<std::vector<std::int32_t>> input{source}, output{target};
  CHECK(scored[3].log_probability == score_targets(loaded.model, Context<double>::inference(),
                                                   std::span<const std::vector<std::int32_t>>(input),
                                                   std::span<const std::vector<std::int32_t>>(output))[0]
                                         .log_probability);
}

TEST_CASE("a translation begins with its line's prefix, alone and among others") {
  const auto loaded = small_translator();
  TextTranslatorOptions options = text_translator_options(loaded.description);
  options.search.max_length = 7;
  options.search.token_scores = true;
  const std::vector<std::string> prefixes = {"Hund geht", "", "", "mit"};
  const TextTranslator translator(loaded, options);
  const auto found = translator.translate(lines, 0, prefixes);
  CHECK(found[0].text.starts_with("Hund geht"));
  CHECK(found[0].words[0].confidence == 1);
  CHECK(found[0].words[1].confidence == 1);
  CHECK(found[1].text.empty());
  CHECK(found[2].text == translator.translate(lines[2]).text);
  CHECK(found[3].text.starts_with("mit"));
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(
        translator.translate(std::span(lines).subspan(i, 1), 0, std::span(prefixes).subspan(i, 1))[0].text ==
        found[i].text);
  options.search.sampling = Sampling{};
  options.search.max_length = 7;
  options.search.num_hypotheses = 3;
  const auto drawn = TextTranslator(loaded, options).alternatives(lines, 0, prefixes);
  REQUIRE(drawn[3].size() == 3);
  for (const Translation& t : drawn[3]) CHECK(t.text.starts_with("mit"));
  CHECK(contains(
      message_of<ValueError>([&] { (void)translator.translate(lines, 0, std::span(prefixes).first(2)); }),
      "2 prefixes, must be 4"));
}

TEST_CASE("a prefix takes room where there is little, and may not take all") {
  const auto loaded = small_translator(LearnedPositions{}, 5);
  const TextTranslator translator(loaded);
  const std::vector<std::string> prefixes = {"Hund geht mit", "", "", ""};
  const auto found = translator.translate(lines, 0, prefixes);
  CHECK(found[0].text.starts_with("Hund geht mit"));
  CHECK(found[3].text == translator.translate(lines[3]).text);
  CHECK(contains(
      message_of<ValueError>([&] {
        (void)translator.translate(lines, 0, std::vector<std::string>{"", "", "", "ein Mann geht mit dem"});
      }),
      "the prefix of line 4 has 5 tokens, must be fewer than 5"));
  CHECK(contains(
      message_of<ValueError>([&] { (void)translator.prepare(lines[3], 0, "ein Mann geht mit dem"); }),
      "the prefix has 5 tokens, must be fewer than 5"));
}

TEST_CASE("with a utility translations are ordered by what is expected of them") {
  const auto loaded = small_translator();
  TextTranslatorOptions options = text_translator_options(loaded.description);
  options.search.max_length = 7;
  options.search.num_hypotheses = 4;
  const auto plain = TextTranslator(loaded, options).alternatives(lines)[2];
  // 1 for a text of the reference's length, else 0.
  options.utility = [](std::span<const std::string> texts) {
    std::vector<double> all;
    for (const auto& h : texts) {
      for (const auto& r : texts) all.push_back(h.size() == r.size() ? 1 : 0);
    }
    return all;
  };
  const auto ordered = TextTranslator(loaded, options).alternatives(lines)[2];
  REQUIRE(ordered.size() == 4);
  double total = 0;
  for (const Translation& t : plain) total += std::exp(t.log_probability);
  for (std::size_t i = 0; i < 4; ++i) {
    double expected = 0;
    for (const Translation& t : plain) {
      if (t.text.size() == ordered[i].text.size()) expected += std::exp(t.log_probability) / total;
    }
    CHECK(ordered[i].expected_utility == doctest::Approx(expected).epsilon(1e-9));
    if (i > 0) CHECK(ordered[i].expected_utility <= ordered[i - 1].expected_utility);
  }
  options.search.sampling = Sampling{};
  options.search.max_length = 7;
  options.search.num_hypotheses = 6;
  const auto drawn = TextTranslator(loaded, options).alternatives(lines)[2];
  REQUIRE(drawn.size() == 6);
  for (const Translation& t : drawn) {
    const auto same = std::count_if(drawn.begin(), drawn.end(), [&](const Translation& other) {
      return other.text.size() == t.text.size();
    });
    CHECK(t.expected_utility == doctest::Approx(static_cast<double>(same) / 6));  // all count alike
  }
}

TEST_CASE("what is drawn for a line depends on its number and the seed, and not on the lines beside it") {
  const auto loaded = small_translator();
  TextTranslatorOptions options = text_translator_options(loaded.description);
  options.search.sampling = Sampling{};
  options.search.sampling->temperature = 2;
  options.search.max_length = 8;
  options.batching.batch_size = 2;
  const TextTranslator translator(loaded, options);
  const auto all = translator.translate(lines);
  const auto part = translator.translate(std::span(lines).subspan(2), 2);
  CHECK(part[0].text == all[2].text);
  CHECK(part[1].text == all[3].text);
  std::set<std::string> different;
  for (std::size_t first = 0; first < 20; ++first)
    different.insert(translator.translate(std::span(lines).subspan(2, 1), first)[0].text);
  CHECK(different.size() > 5);
}

TEST_CASE(
    "a line that is too long is translated in parts, and no translation is longer than the model has room "
    "for") {
  const auto loaded = small_translator(LearnedPositions{}, 5);
  CHECK(max_source_tokens(loaded.description) == 4);
  CHECK_THROWS_AS((void)source_ids(loaded.description.text, *loaded.tokenizers.source, "a dog", -1),
                  ValueError);
  for (const char* blank : {"", " \t", "\u200B", "\uFEFF"})
    CHECK(source_ids(loaded.description.text, *loaded.tokenizers.source, blank, 4).empty());
  const TextTranslator translator(loaded);
  CHECK(translator.options().search.max_length == 5);
  const auto translations = translator.translate(lines);
  for (const Translation& t : translations) CHECK_FALSE(t.cut);
  CHECK(translations[2].in_parts);
  CHECK_FALSE(translations[0].in_parts);
  const Translation first = translator.translate("the dog of a"),
                    second = translator.translate("man walks and walks");
  CHECK(translations[2].text == first.text + " " + second.text);
  CHECK(translations[2].log_probability == first.log_probability + second.log_probability);
  CHECK(translate(loaded, lines)[2] == translations[2].text);
  CHECK(translator.prepare(lines[2]).cut);
  CHECK(translator.alternatives(std::vector{translator.prepare(lines[2])})[0][0].cut);

  // The options' observer gets the numbers of lines, not of parts.
  std::set<std::size_t> seen;
  TextTranslatorOptions options = translator.options();
  options.search.observer = std::make_shared<const SearchObserver>([&](const SearchProgress& progress) {
    seen.insert(progress.input);
    return true;
  });
  (void)translator.with_options(options).translate(lines);
  CHECK(seen == std::set<std::size_t>{0, 2, 3});
}

TEST_CASE("bytes that are not UTF-8 are no reason to refuse a line, which is then not split") {
  const auto loaded = small_translator();
  const TextTranslator translator(loaded);
  const std::string line = "a man\xFF walks! the dog";
  CHECK(translator.translate(line).log_probability ==
        translator.alternatives(std::vector{translator.prepare(line)})[0][0].log_probability);
}

#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
TEST_CASE("a line of several sentences is translated one by one where the model's lines are sentences") {
  auto loaded = small_translator();
  const TextTranslator translator(loaded);
  const std::string line = " a man walks!  the dog of a man walks! ";
  const Translation first = translator.translate("a man walks!"),
                    second = translator.translate("the dog of a man walks!"),
                    all = translator.translate(line);
  CHECK(all.text == " " + first.text + "  " + second.text + " ");
  CHECK(all.log_probability == first.log_probability + second.log_probability);
  CHECK_FALSE(all.in_parts);
  CHECK(translate(loaded, {line, "a dog"}) == std::vector{all.text, translator.translate("a dog").text});

  // One sentence is what it is without splitting, white space included.
  TextTranslatorOptions options = translator.options();
  options.splitting = DocumentOptions{.layout = DocumentLayout::flow};
  const TextTranslator whole = translator.with_options(options);
  const auto same = [](const Translation& a, const Translation& b) {
    return a.text == b.text && a.score == b.score && a.log_probability == b.log_probability;
  };
  for (const std::string one : {"a man walks!", "  the dog.\t", "Dr. a", " "})
    CHECK(same(translator.translate(one), whole.translate(one)));
  const Translation unsplit = whole.translate(line);
  CHECK(same(unsplit, whole.alternatives(std::vector{whole.prepare(line)})[0][0]));
  CHECK_FALSE(same(unsplit, all));

  // The i-th best has the i-th best of each sentence; a prefix belongs to the first.
  options = translator.options();
  options.splitting.reset();
  options.search.num_hypotheses = 2;
  const TextTranslator two = translator.with_options(options);
  CHECK(two.alternatives(std::vector{line})[0][1].text ==
        " " + two.alternatives(std::vector<std::string>{"a man walks!"})[0][1].text + "  " +
            two.alternatives(std::vector<std::string>{"the dog of a man walks!"})[0][1].text + " ");
  const std::vector<std::string> given = {line}, prefix = {"Hund"};
  CHECK(two.alternatives(given, 0, prefix)[0][0].text.starts_with(" Hund"));

  // The model says it.
  loaded.description.text.lines_are_sentences = false;
  CHECK(same(TextTranslator(loaded).translate(line), unsplit));
  loaded.description.text.lines_are_sentences = true;
  CHECK(same(TextTranslator(loaded).translate(line), all));
}
#endif

TEST_CASE("a decoder-only model goes on from lines") {
  RandomGenerator rng(3);
  const ParallelCorpus corpus{{"a man walks the dog", "and of a dog"},
                              {"a man walks the dog", "and of a dog"}};
  const TokenizerPair tokenizers = train_tokenizers({.kind = "word", .joint = true}, corpus);
  LoadedModel<LanguageModel<double>> loaded{
      {},
      tokenizers,
      LanguageModel<double>({.vocab_size = tokenizers.source->vocabulary_size(),
                             .num_layers = 1,
                             .layer = {.d_model = 12, .num_heads = 3, .dim_feedforward = 20}},
                            rng)};
  loaded.description.model = loaded.model.options;
  loaded.description.text.source_prefix = {2};
  loaded.description.text.source_suffix = {};
  const TextTranslator translator(loaded);
  auto prompt = tokenizers.source->encode("a man");
  prompt.insert(prompt.begin(), 2);
  const auto found =
      generate(loaded.model, Context<double>::inference(), std::vector<std::vector<std::int32_t>>{prompt});
  CHECK(translator.translate("a man").text == tokenizers.target->decode(found[0][0].ids));
  // It goes on from the whole line.
  CHECK_FALSE(translator.options().splitting.has_value());
  const std::string two = "a man! a dog";
  CHECK(translator.translate(two).log_probability ==
        translator.alternatives(std::vector{translator.prepare(two)})[0][0].log_probability);
}

TEST_CASE("impossible options and missing tokenizers are refused by name") {
  auto loaded = small_translator();
  const auto refusal = [&](auto&& change) {
    TextTranslatorOptions options = text_translator_options(loaded.description);
    change(options);
    return message_of<ValueError>([&] { const TextTranslator translator(loaded, options); });
  };
  CHECK(contains(refusal([](auto& o) { o.search.beam_size = 0; }), "beam_size is 0, must be positive"));
  CHECK(contains(refusal([](auto& o) { o.search.length_penalty = -1; }), "length_penalty is -1"));
  CHECK(contains(refusal([](auto& o) { o.batching.batch_size = 0; }), "batch_size is 0, must be positive"));
  CHECK(contains(refusal([](auto& o) { o.search.sampling = Sampling{.top_p = 2}; }), "top_p is 2"));
  loaded.tokenizers = {};
  CHECK(contains(refusal([](auto&) {}), "[text_translator] the model has no tokenizers"));
}

TEST_CASE("the search of a model's conventions is that of its translator, with the conventions' ids") {
  auto loaded = small_translator();
  loaded.description.text.search = {{"rule", "marian"}, {"beam_size", 3}, {"word_penalty", 0.5}};
  loaded.description.text.target_prefix = {5};
  const SearchOptions options = TextTranslator(loaded).options().search;
  CHECK(options.rule == SearchRule::marian);
  CHECK(options.beam_size == 3);
  CHECK(options.word_penalty == 0.5);
  CHECK(options.max_length == SearchOptions{}.max_length);
  CHECK(options.prefix_ids == std::vector<std::int32_t>{5});
  loaded.description.text.search = {{"beams", 3}};
  CHECK(contains(message_of<ValueError>([&] { (void)search_options(loaded.description.text); }),
                 "'beams' is not an option"));
  loaded.description.text.search = {{"min_length", -3}};
  CHECK(contains(message_of<ValueError>([&] { const TextTranslator translator(loaded); }),
                 "min_length is -3, must not be negative"));
}

TEST_CASE("a model and tokenizers translate lines without a folder") {
  const auto loaded = small_translator();
  CHECK(translate(loaded.model, loaded.tokenizers, lines) == translate(loaded, lines));
  SearchOptions options = search_options(loaded.description.text);
  options.max_length = 3;
  CHECK(translate(loaded.model, loaded.tokenizers, lines, options) == translate(loaded, lines, options));
  CHECK(contains(message_of<ValueError>([&] { (void)translate(loaded.model, {}, lines); }),
                 "the model has no tokenizers"));
}

TEST_CASE("both sides of a scored pair are cut to what the model can read") {
  const auto loaded = small_translator({}, 6);
  const TextTranslator translator(loaded);
  const std::string target = "ein Mann geht mit dem Hund", longer = target + " und Hund";
  std::string longest;
  for (int i = 0; i < 20000; ++i) longest += longer + " ";
  const auto scored = translator.score(std::vector<std::string>{"a dog", "a dog", "a dog", longest},
                                       std::vector<std::string>{target, longer, longest, target});
  CHECK(scored[0].tokens.size() == 7);  // six and the end symbol
  CHECK_FALSE(scored[0].cut);
  for (const std::size_t i : {1U, 2U}) {
    CHECK(scored[i].cut);
    CHECK(scored[i].text == target);
    CHECK(scored[i].log_probability == scored[0].log_probability);
  }
  CHECK(scored[3].cut);
}

TEST_CASE("a translator is still whole after it was moved from") {
  const auto loaded = small_translator();
  TextTranslator translator(loaded);
  const TextTranslator taken = std::move(translator);
  CHECK(translator.translate("a dog").text == taken.translate("a dog").text);
}
