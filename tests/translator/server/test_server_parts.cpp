#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <locale>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "server_tools.hpp"
#include "translator/server/api/access.hpp"
#include "translator/server/api/jobs.hpp"
#include "translator/server/api/languages.hpp"
#include "translator/server/api/multipart.hpp"
#include "translator/server/api/request.hpp"
#include "translator/server/api/response.hpp"
#include "translator/server/http/metrics.hpp"
#include "translator/server/http/session.hpp"
#include "translator/server/models/registry.hpp"

namespace ef = eigenformer;
using namespace eigenformer::testing;

TEST_CASE("forms are read as browsers write them") {
  using Values = std::map<std::string, std::vector<std::string>>;
  CHECK(ef::detail::parse_form("") == Values{});
  CHECK(ef::detail::parse_form("q=a+b%20c%2Bd&&q=%C3%BC&empty=&alone&a%3Db=c=d") ==
        Values{{"q", {"a b c+d", "ü"}}, {"empty", {""}}, {"alone", {""}}, {"a=b", {"c=d"}}});
  for (const char* bad : {"q=%", "q=%4", "q=%g0", "q=%0g", "q=ab%"})
    CHECK_THROWS_AS(ef::detail::parse_form(bad), ef::HttpError);
  CHECK(ef::detail::parse_form("a&b&c", 3).size() == 3);
  CHECK_THROWS_AS(ef::detail::parse_form("a&b&c", 2), ef::HttpError);
}

TEST_CASE("languages of models") {
  CHECK(ef::detail::language_name("de") == "German");
  CHECK(ef::detail::language_name("tlh") == "tlh");
  const auto place = [](const char* text) {
    const ef::ModelPlace place = ef::parse_model_place(text);
    return place.source + " " + place.target + " " + place.folder.string();
  };
  CHECK(place("en-de=some/folder") == "en de some/folder");
  CHECK(place("en-zh_Hant=a=b") == "en zh_Hant a=b");
  CHECK(place("en-de") == "en de en-de");
  CHECK(place("models/opus-mt-en-de/") == "en de models/opus-mt-en-de/");
  CHECK(place("de-en=opus-mt-en-de") == "de en opus-mt-en-de");
  for (const char* bad : {"", "model", "model-int8", "models/en_de", "en-de=", "e-d=folder", "-en-"})
    CHECK_THROWS_AS(ef::parse_model_place(bad), ef::ValueError);
}

TEST_CASE("languages are detected among those that are asked about") {
  const std::vector<std::string> all = {"en", "de", "fr", "es", "it", "pt", "nl", "sv",
                                        "da", "pl", "cs", "fi", "hu", "ro", "tr", "ru",
                                        "uk", "el", "ja", "zh", "ko", "ar", "fa"};
  const auto best = [&](const char* text) { return ef::detail::detect_language(text, all).front().code; };
  CHECK(best("The old man and his dog are walking along the beach.") == "en");
  CHECK(best("Der alte Mann und sein Hund gehen am Strand entlang.") == "de");
  CHECK(best("Le vieil homme et son chien se promènent sur la plage.") == "fr");
  CHECK(best("El hombre y su perro están en la playa con una mujer.") == "es");
  CHECK(best("L'uomo e il suo cane sono sulla spiaggia con una donna.") == "it");
  CHECK(best("O homem e o seu cão não estão na praia com uma mulher.") == "pt");
  CHECK(best("De man en zijn hond zijn niet op het strand met een vrouw.") == "nl");
  CHECK(best("Mannen och hans hund är inte på stranden med en kvinna.") == "sv");
  CHECK(best("СТАРИК И ЕГО СОБАКА НЕ НА ПЛЯЖЕ, НО МЫ ЕГО ЗНАЕМ") == "ru");
  CHECK(best("Чоловік і його собака не на пляжі, але ми їх знаємо") == "uk");
  CHECK(best("ΓΕΙΑ ΣΟΥ ΚΟΣΜΕ") == "el");
  CHECK(best("犬が雪の中で遊んでいる。") == "ja");
  CHECK(best("两只狗在雪地里玩耍。") == "zh");
  CHECK(best("개 두 마리가 눈 속에서 놀고 있다.") == "ko");
  const std::vector<std::string> two = {"en", "de", "tlh"};
  // Of what it knows nothing it says so, and that of which it has no profile is left out.
  const auto nothing = ef::detail::detect_language("12345 !?", two);
  REQUIRE(nothing.size() == 2);
  CHECK(nothing[0].confidence == 50);
  CHECK(nothing[1].confidence == 50);
  CHECK(ef::detail::detect_language("ÜBER DEN WOLKEN", two).front().code == "de");
  CHECK(ef::detail::can_detect("no"));
  CHECK_FALSE(ef::detail::can_detect("tlh"));
}

TEST_CASE("models are loaded when they are first used and dropped when idle") {
  auto shared = std::make_shared<FakeBackend::Shared>();
  std::promise<void> slow;
  auto slowly = slow.get_future().share();
  int failures = 0, notices = 0;
  auto registry = std::make_unique<ef::detail::ModelRegistry>(
      std::vector<ef::ServedModel>{
          {"en", "de", [&] { return std::make_unique<FakeBackend>(shared); }},
          {"de", "en", [&, slowly] { return slowly.wait(), std::make_unique<FakeBackend>(shared); }},
          {"en", "fr",
           [&]() -> std::unique_ptr<ef::TranslationBackend> { throw std::runtime_error("broken"); }},
          {"de", "it", [] { return std::unique_ptr<ef::TranslationBackend>(); }},
      },
      std::chrono::milliseconds(50), [&](const ef::ServedModel&, bool, double) { ++notices; },
      [&](const ef::ServedModel& model, const std::exception_ptr&) {
        failures += model.target == "fr" ? 1 : 0;
      });
  using Lent = std::shared_ptr<ef::TranslationBackend>;
  const auto use = [&](std::size_t i) {
    auto promise = std::make_shared<std::promise<Lent>>();
    registry->use(i, [promise](Lent backend, std::exception_ptr error) {
      error ? promise->set_exception(error) : promise->set_value(std::move(backend));
    });
    return promise->get_future();
  };
  const auto alive = [&](int wanted) { return shared->wait_for([=](auto& s) { return s.alive == wanted; }); };
  CHECK(registry->find("en", "fr") == 2u);
  CHECK_FALSE(registry->find("fr", "en").has_value());
  CHECK(registry->loaded() == 0);
  CHECK_THROWS_AS((void)registry->model(4), ef::IndexError);
  CHECK_THROWS_AS(registry->use(4, {}), ef::IndexError);
  Lent first = use(0).get();
  CHECK(first == use(0).get());
  CHECK(registry->loaded() == 1);
  // A model that takes its time keeps nobody else waiting.
  auto waiting = use(1), also_waiting = use(1);
  CHECK(use(0).get() == first);
  CHECK(waiting.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
  slow.set_value();
  Lent second = waiting.get();
  CHECK(second == also_waiting.get());
  CHECK_THROWS_WITH(use(2).get(), "broken");
  CHECK_THROWS_WITH(use(2).get(), "broken");
  CHECK(failures == 2);
  CHECK_THROWS_WITH(use(3).get(), "[server] the load() of de-it returned null, expected a model");
  // What is in use stays, however long.
  second.reset();
  CHECK(alive(1));
  CHECK(registry->loaded() == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(registry->loaded() == 1);
  first.reset();
  CHECK(alive(0));
  first = use(0).get();
  CHECK(first != nullptr);
  // The end waits for the last user.
  std::thread later([lent = std::move(first)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    lent.reset();
  });
  registry.reset();
  CHECK(shared->alive == 0);
  CHECK(notices == 5);  // a model that goes with the registry is no notice
  later.join();
}

TEST_CASE("a bucket of requests fills again, and few clients are remembered") {
  ef::detail::ApiAccess access({}, 6000);  // a hundred a second
  for (int i = 0; i < 6000; ++i) access.count("a");
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    try {
      access.count("a");
    } catch (const ef::HttpError& error) {
      refused += error.status() == 429 ? 1 : 0;
    }
  }
  CHECK(refused > 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK_NOTHROW(access.count("a"));
  for (int i = 0; i < 25'000; ++i) access.count(std::to_string(i));
}

TEST_CASE("metrics keep the digits of a sum that has grown large, in any locale") {
  ef::detail::ServerMetrics metrics;
  ef::HttpRecord record;
  record.route = "/translate";
  record.status = 200;
  record.seconds = 2'000'000;
  metrics.request_over(record);
  record.seconds = 0.25;
  metrics.request_over(record);
  metrics.add_translated(1, 1'234'567);
  struct Grouped : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouped));
  const std::string text = metrics.text(1000, 0, 0);
  std::locale::global(before);
  for (const char* line :
       {"eigenformer_http_request_seconds_sum{route=\"/translate\"} 2000000.25\n",
        "eigenformer_http_request_seconds_bucket{route=\"/translate\",le=\"0.25\"} 1\n",
        "eigenformer_translated_characters_total 1234567\n", "eigenformer_translations_in_flight 1000\n"}) {
    CHECK_MESSAGE(text.find(line) != std::string::npos, line);
  }
}
