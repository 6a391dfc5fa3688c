#include "translator/serving/line_translator.hpp"

#include <doctest/doctest.h>

#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/nn/adapters/lora.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"
#include "test_tools.hpp"
#include "translator/serving/translator.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Model = Seq2SeqTransformer<float>;

const std::vector<std::string> lines = {"a man walks", "", "the dog of a man walks and walks", "a dog",
                                        "of the man"};

std::shared_ptr<LoadedModel<Model>> random_translator(const char* kind = "word") {
  const ParallelCorpus corpus{{"a man walks the dog", "and of a dog"},
                              {"ein Mann geht mit dem Hund", "und größere Hunde € 😀"}};
  const TokenizerPair tokenizers = train_tokenizers({.kind = kind, .joint = false}, corpus);
  RandomGenerator rng(3);
  Model model({.source_vocab_size = tokenizers.source->vocabulary_size(),
               .target_vocab_size = tokenizers.target->vocabulary_size(),
               .layer = {.d_model = 36, .num_heads = 3, .dim_feedforward = 44},
               .encoder = {.num_layers = 2},
               .decoder = {.num_layers = 2},
               .max_length = 30},
              rng);
  auto loaded = std::make_shared<LoadedModel<Model>>(LoadedModel<Model>{{}, tokenizers, std::move(model)});
  for (float& w : loaded->model.own_projection.value().span()) w *= 3;
  loaded->description.model = loaded->model.options;
  return loaded;
}

// Greedy search, a beam with the n best, their scores and alignments, sampling, a diverse beam, and samples
// in the order of a utility.
std::vector<TextTranslatorOptions> ways(const TextTranslatorOptions& base) {
  std::vector<TextTranslatorOptions> all(5, base);
  for (TextTranslatorOptions& options : all) options.search.max_length = 9;
  all[0].search.beam_size = 1;
  all[1].search.num_hypotheses = 3;
  all[1].search.token_scores = true;
  all[1].alignment.emplace();
  all[2].search.sampling = Sampling{.seed = 5};
  all[2].search.num_hypotheses = 2;
  all[3].search.num_beam_groups = 2;
  all[3].search.diversity_penalty = 0.5;
  all[4].search.sampling = Sampling{};
  all[4].search.num_hypotheses = 3;
  all[4].utility = [](std::span<const std::string> texts) {
    std::vector<double> equal;
    for (const std::string& a : texts) {
      for (const std::string& b : texts) equal.push_back(a == b ? 1 : 0);
    }
    return equal;
  };
  return all;
}

bool same(const std::vector<std::vector<Translation>>& a, const std::vector<std::vector<Translation>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (std::size_t k = 0; k < a[i].size(); ++k) {
      const Translation &x = a[i][k], &y = b[i][k];
      if (x.text != y.text || x.score != y.score || x.log_probability != y.log_probability ||
          x.confidence != y.confidence || x.tokens.size() != y.tokens.size() || x.cut != y.cut ||
          x.in_parts != y.in_parts || x.expected_utility != y.expected_utility ||
          (x.alignment == nullptr) != (y.alignment == nullptr))
        return false;
      if (x.alignment != nullptr && x.alignment->links != y.alignment->links) return false;
    }
  }
  return true;
}

// Requests of 6 threads, with packed weights in a format or the model's own.
void compare_with_lone_translators(const Context<float>& ctx, const LoadedModel<Model>& loaded) {
  const TextTranslator<Model> base(loaded, ctx);
  const auto options = ways(base.options());
  std::vector<TextTranslator<Model>> alone;
  for (const auto& o : options) alone.push_back(base.with_options(o));
  Translator translator(base, {.workers = 2});
  int wrong = 0;
  std::mutex mutex;
  std::vector<std::thread> clients;
  for (std::size_t client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      for (std::size_t i = 0; i < 10; ++i) {
        const std::size_t way = (client + i) % options.size();
        TranslationRequest request{.options = options[way], .first = 7 * i};
        for (std::size_t k = 0; k <= (client + i) % 4; ++k)
          request.lines.push_back(lines[(client + 2 * i + k) % lines.size()]);
        if (i % 3 == 1) request.prefixes.assign(request.lines.size(), client % 2 == 0 ? "Hund" : "");
        const auto expected = alone[way].alternatives(request.lines, request.first, request.prefixes);
        const auto found = translator.alternatives(request);
        const std::lock_guard<std::mutex> lock(mutex);
        wrong += same(found, expected) ? 0 : 1;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  CHECK(wrong == 0);
  CHECK(translator.statistics().done == 60);
}

}  // namespace

TEST_CASE("requests of many threads have, bit for bit, the translations they have alone") {
  const auto loaded = random_translator();
  compare_with_lone_translators(Context<float>::inference(), *loaded);
  const auto int8 = pack_weights(loaded->model, WeightFormat::int8);
  compare_with_lone_translators(Context<float>::inference().with_packed_weights(int8), *loaded);
}

TEST_CASE("lines of several sentences and long ones are translated in parts, as they are alone") {
  const auto loaded = random_translator();
  std::string endless;
  for (int i = 0; i < 40; ++i) endless += i % 7 == 3 ? "of the man; " : "a dog ";
  const std::vector<std::string> hard = {"a man walks! the dog", endless, " ", "a dog! a man! a dog!"};
  const TextTranslator<Model> base(*loaded);
  Translator translator(base);
  for (const TextTranslatorOptions& options : ways(base.options())) {
    const auto expected = base.with_options(options).alternatives(hard, 3);
    REQUIRE(expected.size() == 4);
    CHECK(expected[1][0].in_parts);
    CHECK_FALSE(expected[1][0].cut);
    CHECK(same(translator.alternatives({.lines = hard, .options = options, .first = 3}), expected));
  }
  const std::vector<std::string> prefixes = {"Hund", "", "", "Mann"};
  CHECK(same(translator.alternatives({.lines = hard, .prefixes = prefixes}),
             base.alternatives(hard, 0, prefixes)));
  CHECK(translator.alternatives({.lines = {" ", ""}}).size() == 2);
  // Progress goes through the parts in their order.
  const TextTranslatorOptions greedy = ways(base.options())[0];
  std::mutex mutex;
  std::vector<std::string> text(hard.size());
  const auto found = translator.alternatives(
      {.lines = hard, .options = greedy, .on_progress = [&](const TranslationProgress& progress) {
         const std::lock_guard<std::mutex> lock(mutex);
         text.at(progress.line) = progress.text;
       }});
  for (std::size_t i = 0; i < hard.size(); ++i)
    CHECK(text[i] == detail::StableText::without_open_end(found[i][0].text));
}

TEST_CASE("a translator keeps its model alive, and gives nothing for blank lines") {
  auto loaded = random_translator();
  const TextTranslator<Model> lone(*loaded);
  const auto expected = lone.translate(lines);
  const LoadedModel<Model>& model = *loaded;
  Translator translator(TextTranslator<Model>(model), {}, std::move(loaded));
  const auto found = translator.translate(lines);
  REQUIRE(found.size() == lines.size());
  CHECK(found[1].text.empty());
  CHECK(found[2].text == expected[2].text);
  CHECK(translator.translate(lines[0]).text == expected[0].text);
  CHECK(translator.text_options().search.max_length == lone.options().search.max_length);
}

TEST_CASE("progress is what the text begins with, token by token where there is one hypothesis") {
  for (const char* kind : {"word", "char", "subword"}) {
    if (kind == std::string("subword") && !has_subword_tokenizer()) continue;
    const auto loaded = random_translator(kind);
    const TextTranslator<Model> base(*loaded);
    const auto options = ways(base.options());
    Translator translator(base);
    for (std::size_t way = 0; way < options.size(); ++way) {
      std::map<std::size_t, std::vector<TranslationProgress>> told;
      std::map<std::size_t, std::string> texts;
      int wrong = 0;
      TranslationRequest request{.lines = lines, .prefixes = std::vector<std::string>(lines.size())};
      request.prefixes[0] = "ein";
      request.options = options[way];
      request.on_progress = [&](const TranslationProgress& progress) {
        std::string& text = texts[progress.line];
        text += progress.added;
        wrong += text == progress.text && !progress.added.empty() ? 0 : 1;
        told[progress.line].push_back(progress);
      };
      const auto found = translator.alternatives(request);
      CAPTURE(kind);
      CAPTURE(way);
      CHECK(wrong == 0);
      if (way > 2) {
        CHECK(told.empty());
        continue;
      }
      CHECK(told.count(1) == 0);
      std::size_t steps = 0;
      for (const std::size_t i : {0, 2, 3, 4}) {
        CHECK(found[i][0].text.starts_with(texts[i]));
        steps += told[i].size();
        if (way == 1) continue;
        // All but what may be white space or a part of a character at the end.
        CHECK(texts[i] == detail::StableText::without_open_end(found[i][0].text));
        for (std::size_t k = 1; k < told[i].size(); ++k) CHECK(told[i][k].tokens > told[i][k - 1].tokens);
      }
      CHECK(steps > (way == 1 ? 0 : 4));
    }
  }
}

TEST_CASE("a text ends where its next token may change it") {
  const auto cut = [](std::string_view text) {
    return std::string(detail::StableText::without_open_end(text));
  };
  CHECK(cut("ein Hund") == "ein Hund");
  CHECK(cut("ein \xEF\xBF\xBD") == "ein");
  CHECK(cut("ein\xEF\xBF\xBD \xEF\xBF\xBD") == "ein");
  CHECK(cut("ein\xEF\xBF\xBDx") == "ein\xEF\xBF\xBDx");
  CHECK(cut("10 \xE2\x82\xAC") == "10 \xE2\x82\xAC");
  CHECK(cut("10\xE2\x82") == "10");
  CHECK(cut("10\xE2") == "10");
  CHECK(cut("\xF0\x9F\x98") == "");
  CHECK(cut("gr\xC3\xB6") == "gr\xC3\xB6");
  CHECK(cut("gr\xC3") == "gr");
  CHECK(cut("10 \xE2\x82") == "10");
  CHECK(cut("10 \xC3\xEF\xBF\xBD\n\xE2") == "10");
  CHECK(cut("") == "");
  detail::StableText text;
  CHECK(text.advance("ei") == "ei");
  CHECK(text.advance("ei ") == "");
  CHECK(text.advance("ein \xEF\xBF\xBD") == "n");
  CHECK(text.advance("ei") == "");
  CHECK(text.advance("anders und lang") == "");  // what was told stays
  CHECK(text.advance("ein Hund") == " Hund");
  CHECK(text.text() == "ein Hund");
}

TEST_CASE("what hypotheses have in common is fixed, the best that has ended included") {
  const auto ids = [](const std::vector<Hypothesis>& growing, const std::vector<Hypothesis>& finished,
                      bool sampling = false) {
    const auto fixed = detail::stable_ids({0, 1, 0, growing, finished}, sampling);
    return std::vector<std::int32_t>(fixed.begin(), fixed.end());
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(ids({{.ids = {5, 6, 7}}}, {}) == Ids{5, 6, 7});
  CHECK(ids({{.ids = {5, 6, 7}}, {.ids = {5, 6, 8}}, {.ids = {5, 9, 7}}}, {}) == Ids{5});
  CHECK(ids({{.ids = {5, 6, 7}}, {.ids = {5, 6, 8}}}, {{.ids = {5, 6}}, {.ids = {4}}}) == Ids{5, 6});
  CHECK(ids({{.ids = {5, 6, 7}}}, {{.ids = {4}}}) == Ids{});
  CHECK(ids({}, {{.ids = {4}}, {.ids = {5}}}) == Ids{4});
  CHECK(ids({{.ids = {5, 6}}, {.ids = {7}}}, {}, true) == Ids{5, 6});
  CHECK(ids({}, {}) == Ids{});
}

TEST_CASE("requests choose among adapters of one model, with the bits of models that have each alone") {
  const auto loaded = random_translator();
  const auto options = ways(text_translator_options(loaded->description)).front();
  // Two adapters, and what models with each of them translate.
  std::map<std::string, std::shared_ptr<const AdapterSet<float>>> sets;
  std::map<std::string, std::vector<std::vector<Translation>>> expected;
  expected[""] = TextTranslator<Model>(*loaded, options).alternatives(lines);
  for (const std::string name : {"formal", "legal"}) {
    RandomGenerator rng(name.size());
    add_lora(loaded->model, {.rank = 2, .alpha = 20, .targets = name == "legal" ? "*" : "q_proj,linear1"},
             rng);
    for (const auto& p : lora_parameters(loaded->model))
      rng.fill_normal(p->value.data(), p->value.numel(), 0, 0.3);
    expected[name] = TextTranslator<Model>(*loaded, options).alternatives(lines);
    sets[name] = remove_lora(loaded->model);
  }
  CHECK_FALSE(same(expected.at(""), expected.at("formal")));
  CHECK_FALSE(same(expected.at("legal"), expected.at("formal")));

  const TextTranslator<Model> base(*loaded, options);
  std::map<std::string, std::shared_ptr<const LineTranslator>> adapters;
  for (const auto& [name, set] : sets) adapters[name] = line_translator(base.with_adapters(set), loaded);
  CHECK(adapters.at("legal")->identity() != adapters.at("formal")->identity());
  CHECK(adapters.at("legal")->identity() == adapters.at("legal")->with_options(options)->identity());
  Translator translator(line_translator(base, loaded), {.workers = 2}, adapters);
  std::vector<std::thread> threads;
  std::mutex mutex;
  int right = 0;
  for (int round = 0; round < 3; ++round) {
    for (const std::string name : {"", "formal", "legal"}) {
      threads.emplace_back([&, name] {
        const auto found = translator.alternatives({.lines = lines, .adapter = name});
        const auto again = translator.alternatives({.lines = lines, .options = options, .adapter = name});
        const std::lock_guard<std::mutex> lock(mutex);
        right += same(found, expected.at(name)) && same(again, expected.at(name)) ? 1 : 0;
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 9);
  CHECK(contains(
      message_of<ValueError>([&] { (void)translator.alternatives({.lines = lines, .adapter = "new"}); }),
      "there is no adapter 'new'; there are 'formal', 'legal'"));
}
