#include <doctest/doctest.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server_tools.hpp"
#include "translator/server/models/translator_backend.hpp"
#include "translator/text/word_alignments.hpp"

namespace ef = eigenformer;

namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (const ef::ByteSpan& span : ef::detail::word_spans(line)) words.emplace_back(span.of(line));
  return words;
}

std::string upper(std::string word) {
  for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return word;
}

/// Translates a line to its words in capitals, the last one first, a word a step. A line of "wait" has a step
/// more for every millisecond until it is stopped. The k-th alternative has k question marks. A line of more
/// than `longest` bytes is too long for it.
class Backwards final : public ef::LineTranslator {
 public:
  explicit Backwards(ef::TextTranslatorOptions options = {}, std::string end = "", std::size_t longest = 1000,
                     std::shared_ptr<std::vector<std::string>> tokenized = nullptr)
      : options_(std::move(options)),
        end_(std::move(end)),
        longest_(longest),
        tokenized_(std::move(tokenized)) {}
  const ef::TextTranslatorOptions& options() const override { return options_; }
  std::shared_ptr<const ef::LineTranslator> with_options(ef::TextTranslatorOptions options) const override {
    options.search.validate();
    return std::make_shared<Backwards>(std::move(options), end_, longest_, tokenized_);
  }
  const void* identity() const noexcept override { return end_.empty() ? nullptr : this; }
  ef::PreparedLine prepare(const std::string& line, std::uint64_t, const std::string&) const override {
    if (line == "fail") throw ef::ValueError("test", "cannot be read");
    if (tokenized_ != nullptr) tokenized_->push_back(line);
    ef::PreparedLine prepared;
    prepared.text = line;
    prepared.cut = line.size() > longest_;
    prepared.ids.assign(line.size(), 1);
    return prepared;
  }
  std::vector<std::vector<ef::Translation>> alternatives(
      std::span<const ef::PreparedLine> lines,
      std::shared_ptr<const ef::SearchObserver> observer) const override {
    std::vector<std::vector<ef::Translation>> all(lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      ef::Hypothesis found;
      const std::size_t count = words_of(lines[i].text).size();
      bool goes_on = true;
      for (std::size_t t = 0; goes_on && (t < count || lines[i].text == "wait"); ++t) {
        if (t < count) found.ids.push_back(1);
        goes_on = (*observer)(
            {i, static_cast<ef::index_t>(t) + 1, 0, std::span<const ef::Hypothesis>(&found, 1), {}});
        if (t >= count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      for (ef::index_t k = 0; k < options_.search.num_hypotheses; ++k)
        all[i].push_back(translation(lines[i].text, static_cast<std::size_t>(k)));
    }
    return all;
  }
  std::string text_of(const ef::PreparedLine& line, std::span<const std::int32_t> ids) const override {
    std::string text;
    const auto words = words_of(line.text);
    for (std::size_t i = 0; i < ids.size(); ++i)
      text += (i == 0 ? "" : " ") + upper(words[words.size() - 1 - i]);
    return text;
  }

 private:
  ef::Translation translation(const std::string& line, std::size_t rank) const {
    ef::Translation result;
    ef::TextAlignment alignment;
    alignment.source = ef::detail::word_spans(line);
    const auto words = words_of(line);
    for (std::size_t i = words.size(); i-- > 0;) {
      if (!result.text.empty()) result.text += ' ';
      const std::string word = upper(words[i]);
      const auto target = static_cast<std::uint32_t>(alignment.target.size());
      alignment.target.push_back({result.text.size(), result.text.size() + word.size()});
      alignment.links.emplace_back(static_cast<std::uint32_t>(i), target);
      result.text += word;
      if (options_.search.token_scores)
        result.words.push_back({word, options_.confidence.slope / static_cast<double>(1 + i)});
    }
    result.text += end_ + std::string(rank, '?');
    if (options_.alignment)
      result.alignment = std::make_shared<const ef::TextAlignment>(std::move(alignment));
    return result;
  }

  ef::TextTranslatorOptions options_;
  std::string end_;  // of every translation
  std::size_t longest_;
  std::shared_ptr<std::vector<std::string>> tokenized_;  // what prepare() was called with; null: not kept
};

struct Answer {
  std::vector<ef::TranslatedText> texts;
  std::vector<std::string> partials;
};

/// Waits for a task. Throws what it fails with.
Answer translate(ef::TranslationBackend& backend, ef::TranslationTask task) {
  Answer answer;
  std::promise<std::vector<ef::TranslatedText>> promise;
  (void)backend.start(
      std::move(task),
      {.partial = [&](std::size_t, std::string text) { answer.partials.push_back(std::move(text)); },
       .done = [&](std::vector<ef::TranslatedText> texts) { promise.set_value(std::move(texts)); },
       .failed = [&](const std::exception_ptr& why) { promise.set_exception(why); }});
  answer.texts = promise.get_future().get();
  return answer;
}

std::unique_ptr<ef::TranslatorBackend> make_backend(const ef::TranslatorOptions& options = {}) {
  return std::make_unique<ef::TranslatorBackend>(
      std::make_shared<Backwards>(ef::TextTranslatorOptions{}, "", 30), true, ef::DocumentOptions{}, options);
}

}  // namespace

TEST_CASE("texts of lines keep their white space, blank ones need no model") {
  const auto backend = make_backend();
  const auto texts = translate(*backend, {.texts = {" a b\n\nc\td ", "", " \n"}}).texts;
  REQUIRE(texts.size() == 3);
  CHECK(texts[0].text == " B A\n\nC\tD ");
  CHECK(texts[0].alternatives.empty());
  CHECK(texts[0].words.empty());
  CHECK(texts[1].text == "");
  CHECK(texts[2].text == " \n");
  CHECK(translate(*backend, {.texts = {"", "  "}}).texts.at(1).text == "  ");
#if defined(EIGENFORMER_WITH_ICU) && EIGENFORMER_WITH_ICU
  // Lines are split into sentences where the translator splits its own.
  ef::TextTranslatorOptions splits;
  splits.splitting =
      ef::DocumentOptions{.splitter = std::make_shared<const ef::SentenceSplitter>(ef::SentenceOptions{})};
  ef::TranslatorBackend sentences(std::make_shared<Backwards>(splits, "", 30), true);
  CHECK(translate(sentences, {.texts = {"a b! c d!"}}).texts[0].text == "B! A D! C");
  CHECK(translate(*backend, {.texts = {"a b! c d!"}}).texts[0].text == "D! C B! A");
#endif
  // A line that is too long is cut and comes whole.
  CHECK(translate(*backend, {.texts = {"one two three four five six seven eight"}}).texts[0].text ==
        "SIX FIVE FOUR THREE TWO ONE EIGHT SEVEN");
}

TEST_CASE("each sentence is tokenized once") {
  const auto tokenized = std::make_shared<std::vector<std::string>>();
  ef::TranslatorBackend backend(std::make_shared<Backwards>(ef::TextTranslatorOptions{}, "", 30, tokenized),
                                true);
  CHECK(translate(backend, {.texts = {" a b\nc\na b", "c"}}).texts.at(0).text == " B A\nC\nB A");
  CHECK(*tokenized == std::vector<std::string>{"a b", "c"});
}

TEST_CASE("alternatives, words, confidences and alignments") {
  const auto backend = make_backend();
  const auto text =
      translate(*backend, {.texts = {" a b\nc "}, .alternatives = 2, .details = true}).texts.at(0);
  CHECK(text.text == " B A\nC ");
  CHECK(text.alternatives == std::vector<std::string>{" B A?\nC? ", " B A??\nC?? "});
  CHECK(text.source_words == std::vector<std::string>{" a", " b", "\nc "});
  REQUIRE(text.words.size() == 3);
  CHECK(text.words[0].text == " B");
  CHECK(text.words[0].confidence == 0.5);
  CHECK(text.words[0].sources == std::vector<std::uint32_t>{1});
  CHECK(text.words[1].text == " A");
  CHECK(text.words[1].confidence == 1);
  CHECK(text.words[1].sources == std::vector<std::uint32_t>{0});
  CHECK(text.words[2].text == "\nC ");
  CHECK(text.words[2].sources == std::vector<std::uint32_t>{2});
}

TEST_CASE("alternatives widen the beam to whole groups of a diverse search") {
  ef::TextTranslatorOptions diverse;
  diverse.search.beam_size = 4;
  diverse.search.num_beam_groups = 2;
  diverse.search.diversity_penalty = 0.5;
  ef::TranslatorBackend backend(std::make_shared<Backwards>(diverse), true);
  const auto text = translate(backend, {.texts = {"a"}, .alternatives = 4}).texts.at(0);
  CHECK(text.text == "A");
  CHECK(text.alternatives.size() == 4);
}

TEST_CASE("markup stays, at the words that it stood at") {
  const auto backend = make_backend();
  const auto answer =
      translate(*backend, {.texts = {"<p>a <b>b</b></p>\n<p>c &amp; d</p>", "<br>", "e"}, .html = true});
  CHECK(answer.texts.at(0).text == "<p><b>B</b> A</p>\n<p>D &amp; C</p>");
  CHECK(answer.texts.at(1).text == "<br>");
  CHECK(answer.texts.at(2).text == "E");
  CHECK(answer.partials.empty());
}

TEST_CASE("progress of a text, the last of which is no more than the translation") {
  const auto backend = make_backend();
  const Answer answer = translate(*backend, {.texts = {"x y z\nw"}});
  REQUIRE_FALSE(answer.partials.empty());
  CHECK(answer.partials.front() == "Z\n");
  for (const std::string& partial : answer.partials) CHECK(partial.size() <= answer.texts[0].text.size());
}

TEST_CASE("a task is translated with the adapter that it names, and by that one's options") {
  ef::TextTranslatorOptions own;
  own.confidence.slope = 0.5;
  ef::TranslatorBackend backend(std::make_shared<Backwards>(), true, ef::DocumentOptions{},
                                ef::TranslatorOptions{}, {{"legal", std::make_shared<Backwards>(own, "!")}});
  CHECK(translate(backend, {.texts = {"a b\nc"}}).texts.at(0).text == "B A\nC");
  CHECK(translate(backend, {.texts = {"a b\nc"}, .adapter = "legal"}).texts.at(0).text == "B A!\nC!");
  CHECK(translate(backend, {.texts = {"a"}, .details = true}).texts.at(0).words.at(0).confidence == 1);
  CHECK(translate(backend, {.texts = {"a"}, .details = true, .adapter = "legal"})
            .texts.at(0)
            .words.at(0)
            .confidence == 0.5);
  CHECK_THROWS_AS(translate(backend, {.texts = {"a"}, .adapter = "new"}), ef::ValueError);
}

TEST_CASE("tasks are cancelled, fail, and are refused where there is no room") {
  ef::TranslatorOptions options;
  options.queue_requests = 1;
  options.queue_tokens = 100;
  const auto backend = make_backend(options);
  CHECK_THROWS_AS(translate(*backend, {.texts = {"fail"}}), ef::ValueError);
  std::string much;
  for (int i = 0; i < 60; ++i) much += "word\n";
  try {
    translate(*backend, {.texts = {much}});
    FAIL("it was taken");
  } catch (const ef::HttpError& error) {
    CHECK(error.status() == 422);
  }
  std::promise<void> failed;
  const auto cancel =
      backend->start({.texts = {"wait"}}, {.done = [](std::vector<ef::TranslatedText>) {},
                                           .failed = [&](const std::exception_ptr&) { failed.set_value(); }});
  cancel();
  failed.get_future().wait();
  CHECK(translate(*backend, {.texts = {"a b"}}).texts.at(0).text == "B A");
}

TEST_CASE("500 requests of many clients, some cancelled, malformed or too large, get the right answers") {
  namespace testing = ef::testing;
  ef::ServerOptions options;
  options.port = 0;
  options.max_body = 2000;
  const auto load = [] {
    return std::make_unique<ef::TranslatorBackend>(
        std::make_shared<Backwards>(), true, ef::DocumentOptions{}, ef::TranslatorOptions{.workers = 2},
        std::map<std::string, std::shared_ptr<const ef::LineTranslator>>{
            {"legal", std::make_shared<Backwards>(ef::TextTranslatorOptions{}, "!")}});
  };
  ef::TranslationServer server(options, {{"en", "de", load, {"legal"}}});
  server.start();
  constexpr int clients = 10, requests = 50;
  std::atomic<int> right{0}, wrong{0}, refused{0}, gone{0};
  const auto ask = [&](testing::Client& kept, std::mt19937& random, const std::string& a,
                       const std::string& b) {
    const auto kind = random() % 100;
    if (kind < 6) {
      testing::Client leaving(server.port());
      leaving.send(testing::translate(kind == 0 ? "wait" : a, {{"stream", kind % 2 == 0}}));
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 5));
      leaving.close();
      ++gone;
    } else if (kind < 15) {
      const auto [request, status] = kind < 9 ? std::pair(std::string("HELLO\r\n\r\n"), 400U)
                                     : kind < 12
                                         ? std::pair(testing::post("/translate", "{\"q\": "), 400U)
                                         : std::pair(testing::translate(std::string(3000, 'a')), 413U);
      testing::Client bad(server.port());
      bad.send(request);
      ++(bad.answer().result_int() == status ? refused : wrong);
    } else {
      const bool legal = kind < 40, stream = kind % 10 == 0;
      const auto own = stream ? std::make_unique<testing::Client>(server.port()) : nullptr;
      testing::Client& client = stream ? *own : kept;
      client.send(
          testing::translate(a + " " + b + " c", {{"adapter", legal ? "legal" : ""}, {"stream", stream}}));
      const auto answer = client.answer();
      const std::string expected =
          "\"translatedText\":\"C " + upper(b) + " " + upper(a) + (legal ? "!" : "") + "\"";
      const bool found = answer.result_int() == 200 && answer.body().find(expected) != std::string::npos &&
                         (answer.body().find("event: done") != std::string::npos) == stream;
      ++(found ? right : wrong);
    }
  };
  const auto client = [&](int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    try {
      testing::Client kept(server.port());
      for (int i = 0; i < requests; ++i)
        ask(kept, random, "a" + std::to_string(number), "b" + std::to_string(i));
    } catch (const boost::system::system_error&) {  // no answer came
      ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int k = 0; k < clients; ++k) threads.emplace_back(client, k);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
  CHECK(right.load() + refused.load() + gone.load() == clients * requests);
  CHECK(refused.load() > 0);
  CHECK(gone.load() > 0);
  // What was cancelled ends, too: "wait" would go on for ever.
  const auto in_flight = [&] {
    testing::Client asking(server.port());
    asking.send(testing::get("/metrics"));
    const std::string metrics = asking.answer().body();
    return metrics.find("eigenformer_translations_in_flight 0\n") == std::string::npos;
  };
  for (int i = 0; i < 1000 && in_flight(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK_FALSE(in_flight());
  server.stop();
}
