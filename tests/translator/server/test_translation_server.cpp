#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "server_tools.hpp"
#include "translator/server/page/page.hpp"

namespace ef = eigenformer;
using namespace eigenformer::testing;
using json = nlohmann::json;

namespace {

std::string field(const Client::Answer& answer, const char* name) { return std::string(answer[name]); }

// How often a text is in another.
std::size_t count(const std::string& all, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = all.find(what, at)) != std::string::npos; at += what.size()) ++found;
  return found;
}

}  // namespace

TEST_CASE("translate: text and list, JSON and form, alternatives, html, details") {
  TestServer server;
  CHECK(server.json(translate("Hello")) == json{{"translatedText", "[Hello]"}});
  CHECK(server.json(translate(json{"a", "b", ""})) == json{{"translatedText", {"[a]", "[b]", "[]"}}});
  CHECK(server.json(translate("a", {{"alternatives", 2}, {"format", "html"}})) ==
        json{{"translatedText", "<a]"}, {"alternatives", {"a0", "a1"}}});
  CHECK(server.json(translate(json{"a", "b"}, {{"alternatives", 1}})) ==
        json{{"translatedText", {"[a]", "[b]"}}, {"alternatives", {{"a0"}, {"b0"}}}});
  CHECK(server.json(translate("a", {{"details", 1}})).contains("details"));
  CHECK_FALSE(server.json(translate("a", {{"details", 0}})).contains("details"));
  CHECK(server.json(translate("a", {{"details", true}})).at("details") ==
        json{{"source", {"a"}}, {"target", {{{"text", "[a]"}, {"confidence", 0.5}, {"source", {0}}}}}});
  const std::string form = "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n";
  CHECK(server.json(post("/translate", "q=gr%C3%BCn+%26+rot&source=de&target=en&alternatives=1", form)) ==
        json{{"translatedText", "[grün & rot]"}, {"alternatives", {"grün & rot0"}}});
  CHECK(server.json(post("/translate", "q=a&q=b&source=de&target=en", form)).at("translatedText") ==
        json{"[a]", "[b]"});
  // What is in its language already stays as it is.
  CHECK(server.json(translate("Hello", {{"target", "en"}})) == json{{"translatedText", "Hello"}});
}

TEST_CASE("translate: the language of the text") {
  TestServer server;
  const json answer = server.json(
      translate("Die Frau und der Mann sind nicht auf dem Bild.", {{"source", "auto"}, {"target", "en"}}));
  CHECK(answer.at("detectedLanguage").at("language") == "de");
  CHECK(answer.at("detectedLanguage").at("confidence") > 90);
  CHECK(answer.at("translatedText") == "[Die Frau und der Mann sind nicht auf dem Bild.]");
  CHECK(server.json(post("/detect", R"({"q": "The man is in the house"})")).at(0).at("language") == "en");
  TestServer one({}, {{"en", "de"}});
  const json german = one.json(post("/detect", R"({"q": "Der Mann ist nicht in dem Haus."})"));
  CHECK(german.at(0).at("language") == "de");
  CHECK(german.at(0).at("confidence") > 90);
  CHECK(one.json(post("/detect", R"({"q": "La femme est dans la maison avec son chien"})"))
            .at(0)
            .at("language") == "fr");
  CHECK(one.json(translate("The man is in the house", {{"source", "auto"}})).at("translatedText") ==
        "[The man is in the house]");
  // What is in the target language already stays, what is in another one is not taken for English.
  const json same = one.json(translate("Der Mann ist nicht in dem Haus.", {{"source", "auto"}}));
  CHECK(same.at("translatedText") == "Der Mann ist nicht in dem Haus.");
  CHECK(same.at("detectedLanguage").at("language") == "de");
  CHECK(one.json(translate("La femme est dans la maison avec son chien", {{"source", "auto"}}), 400)
            .at("error") ==
        "German (de) is not available as a target language from French (fr), the detected language of the "
        "text");
  // Tags, scripts and styles are no evidence.
  const json page =
      one.json(translate("<p class='der die das und ist nicht'>The man is in the house</p>"
                         "<script>der die das und ist nicht auf dem</script>",
                         {{"source", "auto"}, {"format", "html"}}));
  CHECK(page.at("detectedLanguage").at("language") == "en");
  // Without evidence, it is the model's language.
  CHECK(one.json(translate("Jane 12345", {{"source", "auto"}})).at("detectedLanguage").at("language") ==
        "en");
  CHECK(one.json(translate("Der Mann", {{"source", "auto"}, {"target", "xx"}}), 400).at("error") ==
        "xx is not supported");
  CHECK(one.json(translate("Der Mann", {{"source", "de"}, {"target", "de"}})).at("translatedText") ==
        "Der Mann");
  TestServer unknown({}, {{"xx", "de"}, {"en", "de"}});
  CHECK(unknown.json(post("/detect", R"({"q": "The man"})"), 400).at("error").get<std::string>().find("xx") !=
        std::string::npos);
}

TEST_CASE("languages, settings, health, metrics, the page") {
  TestServer server({}, {{"en", "de"}, {"en", "fr"}});
  CHECK(server.json(get("/languages")) ==
        json{{{"code", "en"}, {"name", "English"}, {"targets", {"de", "fr"}}},
             {{"code", "de"}, {"name", "German"}, {"targets", json::array()}},
             {{"code", "fr"}, {"name", "French"}, {"targets", json::array()}}});
  const json settings = server.json(get("/frontend/settings"));
  CHECK(settings.at("charLimit") == 100'000);
  CHECK(settings.at("maxAlternatives") == 8);
  CHECK(settings.at("keyRequired") == false);
  CHECK(settings.at("language").at("target") == json{{"code", "de"}, {"name", "German"}});
  CHECK(server.json(get("/health")) == json{{"status", "ok"}});
  server.json(translate("Hello"));
  const std::string metrics = server.ask(get("/metrics")).body();
  CHECK(metrics.find("eigenformer_translated_texts_total 1\n") != std::string::npos);
  CHECK(metrics.find("eigenformer_translated_characters_total 5\n") != std::string::npos);
  CHECK(metrics.find("eigenformer_models_loaded 1\n") != std::string::npos);
  CHECK(metrics.find("eigenformer_http_requests_total{route=\"/translate\",status=\"200\"} 1\n") !=
        std::string::npos);
  CHECK(metrics.find("eigenformer_http_request_seconds_count{route=\"/translate\"} 1\n") !=
        std::string::npos);
  for (const char* path : {"/", "/page.css", "/page.js"}) {
    const auto answer = server.ask(get(path));
    CHECK(answer.result_int() == 200);
    CHECK(field(answer, "Content-Security-Policy").find("default-src 'none'; script-src 'self'") == 0);
    // Nothing of another host.
    CHECK(answer.body().find("://") == std::string::npos);
  }
  const auto head = [&] {
    Client client = server.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    return client.rest();
  }();
  CHECK(head.find("Content-Length: " + std::to_string(std::string(ef::detail::page_html).size())) !=
        std::string::npos);
  CHECK(head.ends_with("\r\n\r\n"));
}

TEST_CASE("translate: adapters are listed and requests name one of them") {
  TestServer server({}, {{"en", "de"}, {"de", "en"}}, {"legal", "formal"});
  CHECK(server.json(translate("a", {{"adapter", "legal"}})).at("translatedText") == "legal[a]");
  CHECK(server.json(translate("a", {{"adapter", "formal"}})).at("translatedText") == "formal[a]");
  for (const json& none : {json(""), json(nullptr)})
    CHECK(server.json(translate("a", {{"adapter", none}})).at("translatedText") == "[a]");
  CHECK(server.json(translate("a", {{"adapter", "new"}}), 400).at("error") ==
        "there is no adapter new of en-de; there are: legal, formal");
  CHECK(server.json(translate("a", {{"adapter", "legal"}, {"source", "de"}, {"target", "en"}}), 400)
            .at("error") == "there is no adapter legal of de-en; it has none");
  CHECK(server.json(translate("a", {{"adapter", 1}}), 400).at("error") ==
        "Invalid request: adapter must be a text");
  // A text that needs no model needs no adapter.
  CHECK(server.json(translate("a", {{"adapter", "legal"}, {"target", "en"}})).at("translatedText") == "a");
  const json languages = server.json(get("/languages"));
  CHECK(languages.at(0).at("adapters") == json{{"de", {"legal", "formal"}}});
  CHECK_FALSE(languages.at(1).contains("adapters"));
  const auto records = server.records();
  CHECK(records.front().note == "en-de texts=1 bytes=1 adapter=legal");

  const auto refused = [](std::vector<std::string> adapters) {
    try {
      TestServer with({}, {{"en", "de"}}, std::move(adapters));
    } catch (const ef::ValueError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused({"a", "b", "a"}).find("two adapters 'a'") != std::string::npos);
  CHECK(refused({""}).find("an adapter without a name") != std::string::npos);
}

TEST_CASE("what is refused, and how") {
  ef::ServerOptions options;
  options.max_body = 2000;
  options.max_texts = 3;
  options.max_characters = 100;
  options.max_line_characters = 60;
  options.max_alternatives = 4;
  TestServer server(options);
  const auto error = [&](const std::string& request, unsigned status) {
    return server.json(request, status).at("error").get<std::string>();
  };
  CHECK(error(post("/translate", "{\"q\": \"a\""), 400) == "Invalid request: the body is not a JSON object");
  CHECK(error(post("/translate", "[1]"), 400) == "Invalid request: the body is not a JSON object");
  CHECK(error(post("/translate", "{\"q\": \"\xff\", \"source\": \"en\", \"target\": \"de\"}"), 400) != "");
  CHECK(error(post("/translate", R"({"source": "en", "target": "de"})"), 400) ==
        "Invalid request: missing q parameter");
  CHECK(error(post("/translate", R"({"q": "a", "target": "de"})"), 400) ==
        "Invalid request: missing source parameter");
  CHECK(error(translate(3), 400) == "Invalid request: q must be a text or a list of texts");
  CHECK(error(translate(json{"a", 3}), 400) == "Invalid request: q must be a text or a list of texts");
  CHECK(error(translate("a", {{"source", "xx"}}), 400) == "xx is not supported");
  CHECK(error(translate("a", {{"target", "xx"}}), 400) == "xx is not supported as a target of en");
  CHECK(error(translate("a", {{"source", "xx"}, {"target", "xx"}}), 400) != "");
  CHECK(error(translate("a", {{"format", "pdf"}}), 400) == "Invalid request: format must be text or html");
  CHECK(error(translate("a", {{"alternatives", "two"}}), 400) ==
        "Invalid request: alternatives must be a whole number");
  CHECK(error(translate("a", {{"alternatives", 1.5}}), 400) ==
        "Invalid request: alternatives must be a whole number");
  for (const json& number :
       {json(5), json(-1), json("5"), json("99999999999999999999"), json(18446744073709551615u)})
    CHECK(error(translate("a", {{"alternatives", number}}), 422) == "alternatives must be from 0 to 4");
  CHECK(error(translate("a", {{"stream", "maybe"}}), 400) == "Invalid request: stream must be true or false");
  CHECK(error(translate(json{"a", "b", "c", "d"}), 422) == "q has 4 texts, at most 3 are allowed");
  CHECK(error(translate(json{std::string(60, 'a'), std::string(41, 'a')}), 422) ==
        "the request has 101 characters, at most 100 are allowed");
  CHECK(error(translate("a\n" + std::string(61, 'a')), 422) ==
        "a line has 61 characters, at most 60 are allowed");
  CHECK(error(translate(std::string(2000, 'a')), 413) == "the body has more than 2000 bytes");
  CHECK(error(post("/translate", "q=a", "Content-Type: text/plain\r\n"), 415) != "");
  CHECK(error(post("/translate", "q=%zz", "Content-Type: application/x-www-form-urlencoded\r\n"), 400) != "");
  CHECK(error(post("/translate", "q=%ff", "Content-Type: application/x-www-form-urlencoded\r\n"), 400) ==
        "Invalid request: the form is not UTF-8");
  CHECK(error(get("/nothing"), 404) == "Not found");
  CHECK(error(get("/translate"), 405) == "/translate does not support the method GET");
  CHECK(field(server.ask(get("/translate")), "Allow") == "POST, OPTIONS");
  CHECK(error(get("/health", "", "DELETE"), 405) != "");
  CHECK(error(translate("full"), 503) == "the queue is full");
  // What a model says of its failure may be anything.
  CHECK(error(translate("fail"), 500) == "the translation failed");
}

TEST_CASE("malformed HTTP is refused or cut off, and harms nobody else") {
  ef::ServerOptions options;
  options.max_body = 1000;
  TestServer server(options);
  const auto answer_to = [&](const std::string& bytes) {
    Client client = server.connect();
    client.send(bytes);
    return client.rest();
  };
  for (const std::string bad :
       {"HELLO\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n", "POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        "POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    CAPTURE(bad);
    CHECK(answer_to(bad).find("HTTP/1.1 400 Bad Request\r\n") == 0);
  }
  CHECK(answer_to("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(20'000, 'a') + "\r\n\r\n")
            .find("HTTP/1.1 431") == 0);
  // A body that is larger than it says, or than is allowed.
  const std::string chunked = "POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  CHECK(answer_to(chunked + "800\r\n" + std::string(2048, 'a') + "\r\n0\r\n\r\n").find("HTTP/1.1 413") == 0);
  CHECK(answer_to("POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999\r\n\r\n")
            .find("HTTP/1.1 413") == 0);
  // What could be read as another request behind a proxy.
  for (const std::string coding : {"gzip", "identity", "chunked, gzip", "gzip, chunked", "xchunked"}) {
    CAPTURE(coding);
    const std::string all = answer_to("POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: " + coding +
                                      "\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(all.find("HTTP/1.1 501 Not Implemented\r\n") == 0);
    CHECK(all.find("HTTP/1.1", 8) == std::string::npos);
  }
  CHECK(answer_to("POST /translate HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n\r\n")
            .find("HTTP/1.1 415") == 0);
  // One that waits to be told.
  CHECK(
      answer_to("POST /translate HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n")
          .find("HTTP/1.1 413") == 0);
  Client patient = server.connect();
  const std::string body = R"({"q": "a", "source": "en", "target": "de"})";
  patient.send(
      "POST /translate HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nExpect: "
      "100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  patient.send(body);
  const std::string rest = patient.rest();
  CHECK(rest.find("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n") == 0);
  CHECK(server.json(translate("Hello")).at("translatedText") == "[Hello]");
}

TEST_CASE("a target may be a complete URL, as proxies send it") {
  TestServer server;
  const auto answer_to = [&](const std::string& target) {
    Client client = server.connect();
    client.send("GET " + target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    return client.rest();
  };
  CHECK(answer_to("http://a:5000/health?x=/y").find("HTTP/1.1 200 OK\r\n") == 0);
  CHECK(answer_to("HTTPS://a/health").find("HTTP/1.1 200 OK\r\n") == 0);
  for (const char* page : {"http://a", "http://a?x=/health"}) {
    CAPTURE(page);
    CHECK(answer_to(page).find("text/html") != std::string::npos);
  }
  for (const char* bad : {"http:/health", "ftp://a/health", "a/health"}) {
    CAPTURE(bad);
    CHECK(answer_to(bad).find("HTTP/1.1 404") == 0);
  }
}

TEST_CASE("connections: kept, pipelined, half closed, slow, too many") {
  ef::ServerOptions options;
  options.read_seconds = 1;
  options.max_connections = 3;
  TestServer server(options);
  {
    Client client = server.connect();
    for (const char* text : {"a", "b", "c"}) {
      client.send(translate(text));
      CHECK(json::parse(client.answer().body()).at("translatedText") == std::string("[") + text + "]");
    }
    client.send(translate("d") + get("/health") + translate("e"));
    CHECK(client.answer().body().find("[d]") != std::string::npos);
    CHECK(client.answer().body().find("ok") != std::string::npos);
    CHECK(client.answer().body().find("[e]") != std::string::npos);
    client.half_close();
    CHECK(client.rest() == "");
  }
  {
    Client client = server.connect();
    client.send("GET /health HTTP/1.0\r\n\r\n");
    CHECK(client.rest().find("{\"status\":\"ok\"}") != std::string::npos);
  }
  {  // A client that has sent all it wants to is answered.
    Client client = server.connect();
    client.send(translate("Hello"));
    client.half_close();
    CHECK(client.rest().find("[Hello]") != std::string::npos);
  }
  {  // Its request will never be whole.
    Client client = server.connect();
    client.send("POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
    client.half_close();
    CHECK(client.rest() == "");
  }
  const auto began = std::chrono::steady_clock::now();
  Client idle = server.connect(), header = server.connect(), body = server.connect();
  header.send("GET / HT");
  body.send("POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  Client fourth = server.connect();
  CHECK(fourth.rest().find("HTTP/1.1 503") == 0);
  CHECK(idle.rest() == "");
  CHECK(header.rest() == "");
  CHECK(body.rest() == "");
  CHECK(std::chrono::steady_clock::now() - began > std::chrono::milliseconds(900));
  CHECK(server.ask(get("/health")).result_int() == 200);
}

TEST_CASE("clients that go away cancel what they asked for; those that come get their turn") {
  ef::ServerOptions options;
  options.max_requests = 2;
  TestServer server(options);
  Client first = server.connect(), second = server.connect();
  first.send(translate("wait"));
  second.send(translate("wait", {{"stream", true}}));
  CHECK(server.shared->wait_for([](auto& s) { return s.waiting == 2; }));
  const auto full = server.ask(translate("a"));
  CHECK(full.result_int() == 503);
  CHECK(field(full, "Retry-After") == "1");
  CHECK(server.ask(get("/health")).result_int() == 200);
  first.close();
  second.close();
  CHECK(server.shared->wait_for([](auto& s) { return s.cancelled == 2; }));
  unsigned status = 503;
  for (int i = 0; i < 200 && status == 503; ++i) {
    status = server.ask(translate("a")).result_int();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(status == 200);
  CHECK(server.ask(get("/metrics")).body().find("{route=\"/translate\",status=\"499\"} 2\n") !=
        std::string::npos);
}

TEST_CASE("an answer that takes too long is an error, streamed or not") {
  ef::ServerOptions options;
  options.answer_seconds = 1;
  TestServer server(options);
  Client stream = server.connect();
  stream.send(translate("wait", {{"stream", true}}));
  const auto late = server.ask(translate("wait"));
  CHECK(late.result_int() == 503);
  CHECK(json::parse(late.body()).at("error") == "the answer took longer than 1 seconds");
  CHECK(late["Retry-After"] == "1");
  CHECK(stream.answer().body() ==
        "event: error\ndata: {\"error\":\"the answer took longer than 1 seconds\"}\n\n\n");
  CHECK(server.shared->wait_for([](auto& s) { return s.cancelled == 2; }));
}

TEST_CASE("streams of server-sent events") {
  TestServer server;
  Client client = server.connect();
  client.send(translate("steps", {{"stream", true}, {"alternatives", 1}}));
  const auto answer = client.answer();
  CHECK(field(answer, "Content-Type") == "text/event-stream");
  CHECK(answer.body() ==
        "event: partial\ndata: {\"index\":0,\"text\":\"one\"}\n\n"
        "event: partial\ndata: {\"index\":0,\"text\":\"one two\"}\n\n"
        "event: done\ndata: {\"alternatives\":[\"steps0\"],\"translatedText\":\"[steps]\"}\n\n");
  // The connection goes on, and what fails is said.
  client.send(translate("fail", {{"stream", true}}));
  CHECK(client.answer().body() == "event: error\ndata: {\"error\":\"the translation failed\"}\n\n\n");
  client.send(translate("Hello", {{"stream", true}, {"target", "en"}}));
  CHECK(client.answer().body() == "event: done\ndata: {\"translatedText\":\"Hello\"}\n\n");
  Client old = server.connect();
  std::string request = translate("a", {{"stream", true}});
  request.replace(request.find("HTTP/1.1"), 8, "HTTP/1.0");
  old.send(request);
  const std::string rest = old.rest();
  CHECK(rest.find("chunked") == std::string::npos);
  CHECK(rest.ends_with("\r\n\r\nevent: done\ndata: {\"translatedText\":\"[a]\"}\n\n"));
}

TEST_CASE("API keys") {
  ef::ServerOptions options;
  options.host = "0.0.0.0";
  CHECK_THROWS_WITH_AS(options.validate(), doctest::Contains("api_keys must have a key"), ef::ValueError);
  options.api_keys = {"short"};
  CHECK_THROWS_AS(options.validate(), ef::ValueError);
  options.api_keys = {"a key of mine", "another key"};
  TestServer server(options);
  CHECK(server.json(translate("a"), 401).at("error") == "an API key is required");
  CHECK(server.json(translate("a", {{"api_key", "a key of mind"}}), 403).at("error") == "Invalid API key");
  CHECK(server.json(translate("a", {{"api_key", "a key of mine, and more"}}), 403).at("error") ==
        "Invalid API key");
  CHECK(server.json(translate("a", {{"api_key", 3}}), 400).at("error") ==
        "Invalid request: api_key must be a text");
  CHECK(server.json(translate("a", {{"api_key", "another key"}})).at("translatedText") == "[a]");
  CHECK(server
            .json(post("/translate", R"({"q": "a", "source": "en", "target": "de"})",
                       "Authorization: bearer a key of mine\r\nContent-Type: application/json\r\n"))
            .at("translatedText") == "[a]");
  CHECK(server.ask(post("/detect", R"({"q": "a"})")).result_int() == 401);
  CHECK(server.ask(get("/metrics")).result_int() == 401);
  CHECK(server.ask(get("/metrics", "Authorization: Bearer another key\r\n")).result_int() == 200);
  for (const char* path : {"/", "/health", "/languages", "/frontend/settings"})
    CHECK(server.ask(get(path)).result_int() == 200);
  CHECK(server.json(get("/frontend/settings")).at("keyRequired") == true);
}

TEST_CASE("requests a minute, of each key by itself") {
  ef::ServerOptions options;
  options.requests_per_minute = 2;
  options.api_keys = {"a key of mine", "another key"};
  TestServer server(options);
  const json mine = {{"api_key", "a key of mine"}}, other = {{"api_key", "another key"}};
  CHECK(server.ask(translate("a", mine)).result_int() == 200);
  CHECK(server.ask(translate("a", mine)).result_int() == 200);
  const auto refused = server.ask(translate("a", mine));
  CHECK(refused.result_int() == 429);
  CHECK(std::stoi(field(refused, "Retry-After")) >= 1);
  CHECK(std::stoi(field(refused, "Retry-After")) <= 31);
  CHECK(server.ask(translate("a", other)).result_int() == 200);
}

TEST_CASE("only listed origins may read answers") {
  const std::string here = "Origin: https://here.example\r\n", there = "Origin: https://there.example\r\n";
  {
    TestServer server;
    const auto answer = server.ask(get("/languages", here));
    CHECK(answer.result_int() == 200);
    CHECK(field(answer, "Access-Control-Allow-Origin") == "");
    const auto preflight = server.ask(get("/translate", here, "OPTIONS"));
    CHECK(preflight.result_int() == 204);
    CHECK(field(preflight, "Access-Control-Allow-Methods") == "");
  }
  ef::ServerOptions options;
  options.cors_origins = {"https://here.example"};
  TestServer server(options);
  CHECK(field(server.ask(get("/languages", here)), "Access-Control-Allow-Origin") == "https://here.example");
  CHECK(field(server.ask(get("/nothing", here)), "Access-Control-Allow-Origin") == "https://here.example");
  const std::string in_json = here + "Content-Type: application/json\r\n";
  for (const auto& [request, status] :
       {std::pair{post("/translate", std::string(3 << 20, 'a'), in_json), 413},
        {get("/languages", here + "X: " + std::string(20000, 'a') + "\r\n"), 431},
        {post("/translate", "{", in_json), 400},
        {post("/translate", R"({"q": "fail", "source": "en", "target": "de"})", in_json), 500}}) {
    const auto answer = server.ask(request);
    CHECK(answer.result_int() == status);
    CHECK(field(answer, "Access-Control-Allow-Origin") == "https://here.example");
    CHECK(field(answer, "Vary") == "Origin");
  }
  CHECK(field(server.ask(get("/languages", there)), "Access-Control-Allow-Origin") == "");
  const auto preflight = server.ask(get("/translate", here, "OPTIONS"));
  CHECK(preflight.result_int() == 204);
  CHECK(field(preflight, "Access-Control-Allow-Methods") == "POST, OPTIONS");
  CHECK(field(preflight, "Access-Control-Allow-Headers") == "Content-Type, Authorization");
}

TEST_CASE("many clients at once each get their own answers") {
  ef::ServerOptions options;
  options.io_threads = 2;
  TestServer server(options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        Client client = server.connect();
        const std::string text = std::to_string(t) + "/" + std::to_string(i);
        client.send(translate(text, {{"stream", i % 3 == 0}}));
        if (i % 5 == 4) continue;  // gone
        if (count(client.answer().body(), "\"[" + text + "]\"") != 1) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a server that stops answers what it has accepted, and nothing after that") {
  TestServer server;
  Client kept = server.connect(), waiting = server.connect(), beginning = server.connect();
  kept.send(get("/health"));
  CHECK(kept.answer().result_int() == 200);
  waiting.send(translate("wait"));
  const std::string request = translate("Hello");
  beginning.send(request.substr(0, 20));
  CHECK(server.shared->wait_for([](auto& s) { return s.waiting == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::thread stopping([&] { server.server->stop(); });
  CHECK(kept.rest() == "");
  CHECK_THROWS(server.connect());
  beginning.send(request.substr(20));
  const auto late = beginning.answer();
  CHECK(late.body() == "{\"translatedText\":\"[Hello]\"}\n");
  CHECK(field(late, "Connection") == "close");
  server.let_go();
  CHECK(waiting.answer().body() == "{\"translatedText\":\"[wait]\"}\n");
  stopping.join();
}

TEST_CASE("stopping ends after its time, and so does a server that is destroyed at work") {
  ef::ServerOptions options;
  options.stop_seconds = 1;
  TestServer server(options);
  Client waiting = server.connect();
  waiting.send(translate("wait"));
  CHECK(server.shared->wait_for([](auto& s) { return s.waiting == 1; }));
  server.server->stop();
  CHECK(server.shared->wait_for([](auto& s) { return s.cancelled == 1; }));
  CHECK(waiting.rest() == "");
  auto other = std::make_unique<TestServer>();
  Client client = other->connect();
  client.send(translate("wait"));
  CHECK(other->shared->wait_for([](auto& s) { return s.waiting == 1; }));
  other.reset();
  CHECK(client.rest() == "");
}

TEST_CASE("records say what was asked for without the texts") {
  TestServer server;
  server.ask(translate(json{"secret", "text"}));
  server.ask(get("/secret?q=secret"));
  // A record follows its answer.
  for (int i = 0; i < 200 && server.records().size() < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto records = server.records();
  REQUIRE(records.size() == 2);
  CHECK(records[0].client == "127.0.0.1");
  CHECK(records[0].method == "POST");
  CHECK(records[0].route == "/translate");
  CHECK(records[0].note == "en-de texts=2 bytes=10");
  CHECK(records[0].status == 200);
  CHECK(records[1].route == "");
  CHECK(records[1].note == "");
  CHECK(records[1].status == 404);
}

TEST_CASE("options and models that cannot be") {
  const auto make = [](ef::ServerOptions options, std::vector<std::string> sources) {
    options.port = 0;
    std::vector<ef::ServedModel> models;
    for (const std::string& source : sources) models.push_back({source, "de", nullptr});
    ef::TranslationServer server(options, models);
  };
  CHECK_THROWS_AS(make({}, {}), ef::ValueError);
  CHECK_THROWS_WITH_AS(make({}, {"en", "en"}), doctest::Contains("two models translate en-de"),
                       ef::ValueError);
  CHECK_THROWS_AS(make({.host = "example.org"}, {"en"}), ef::ValueError);
  CHECK_THROWS_AS(make({.host = "192.0.2.1", .api_keys = {"a key of mine"}}, {"en"}), ef::IoError);
  CHECK_THROWS_AS(make({.io_threads = 65}, {"en"}), ef::ValueError);
  CHECK_THROWS_AS(make({.max_body = 0}, {"en"}), ef::ValueError);
  ef::ServerOptions port;
  port.port = 65536;
  CHECK_THROWS_AS(port.validate(), ef::ValueError);
}
