#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "examples/program.hpp"
#include "folders.hpp"

using namespace eigenformer::testing;

namespace {

const std::string known = (fixtures_folder() / "translation_model").string();

bool is_built_in() {
  return run("translator", {"serve", "--help"}).out.find("--api-key-file") != std::string::npos;
}

/// A server of the known model, at a port of the system's choice.
class Server {
 public:
  explicit Server(const std::vector<std::string>& more = {}, const std::string& model = "en-de=" + known) {
    std::vector<std::string> arguments = {"serve", "--model", model, "--port", "0", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    program = std::make_unique<Program>("translator", arguments);
    const std::string before = "listening on http://127.0.0.1:";
    REQUIRE(program->says(before));
    REQUIRE(program->says("/\n"));
    const std::string err = program->err();
    port_ = static_cast<std::uint16_t>(std::stoi(err.substr(err.find(before) + before.size())));
  }

  /// All of the answer to a request, after which the connection ends.
  std::string ask(const std::string& head, const std::string& body = "") const {
    const int connection = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    const std::string request =
        head + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n" +
        "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    REQUIRE(::send(connection, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size()));
    std::string answer(1 << 20, '\0');
    std::size_t size = 0;
    for (ssize_t more; (more = ::recv(connection, answer.data() + size, answer.size() - size, 0)) > 0;)
      size += static_cast<std::size_t>(more);
    ::close(connection);
    return answer.substr(0, size);
  }

  std::unique_ptr<Program> program;

 private:
  std::uint16_t port_ = 0;
};

}  // namespace

TEST_CASE("serve translates as translate does, counts, logs no texts, and ends when told") {
  if (!is_built_in()) return;
  const std::string expected =
      lines_of(run("translator", {"translate", "--model", known}, "I see the dog.\n").out).at(0);
  Server server;
  const std::string answer =
      server.ask("POST /translate", R"({"q": ["I see the dog.", ""], "source": "en", "target": "de"})");
  CHECK(answer.find("HTTP/1.1 200 OK\r\n") == 0);
  CHECK(answer.find("\r\n\r\n{\"translatedText\":[\"" + expected + "\",\"\"]}\n") != std::string::npos);
  const std::string details = server.ask(
      "POST /translate",
      R"({"q": "I see the dog.", "source": "en", "target": "de", "alternatives": 2, "details": true, "stream": true})");
  CHECK(details.find("event: partial\n") != std::string::npos);
  CHECK(details.find("event: done\n") != std::string::npos);
  CHECK(details.find("\"source\":[\"I\",\" see\",\" the\",\" dog.\"]") != std::string::npos);
  const std::string html = server.ask(
      "POST /translate",
      R"({"q": "<p>I see <b>the dog.</b></p>", "source": "en", "target": "de", "format": "html"})");
  CHECK(html.find("<p>") != std::string::npos);
  CHECK(html.find("</b>") != std::string::npos);
  CHECK(server.ask("GET /metrics").find("eigenformer_translated_texts_total 4\n") != std::string::npos);
  CHECK(server.ask("GET /no/page?q=dog").find("HTTP/1.1 404") == 0);
  server.program->signal(SIGTERM);
  const Ended ended = server.program->wait();
  CHECK(ended.code == 0);
  CHECK(ended.out == "");
  CHECK(ended.err.find(" 127.0.0.1 POST /translate 200 ") != std::string::npos);
  CHECK(ended.err.find(" 127.0.0.1 GET /no/page 404 ") != std::string::npos);
  CHECK(ended.err.find("dog") == std::string::npos);
  CHECK(ended.err.find("stopped\n") != std::string::npos);
}

TEST_CASE("serve splits a text into sentences as translate does, and not with --no-split-sentences") {
  if (!is_built_in()) return;
  const std::string text = "I see the dog. We paint the cat.",
                    request = R"({"q": ")" + text + R"(", "source": "en", "target": "de"})";
  const auto translated = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"translate", "--model", known};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return lines_of(run("translator", arguments, text + "\n").out).at(0);
  };
  const auto served = [&](const std::vector<std::string>& more) {
    const std::string answer = Server(more).ask("POST /translate", request), key = "{\"translatedText\":\"";
    REQUIRE(answer.find(key) != std::string::npos);
    const std::size_t begin = answer.find(key) + key.size();
    return answer.substr(begin, answer.find('"', begin) - begin);
  };
  CHECK(served({}) == translated({}));
  CHECK(served({"--no-split-sentences"}) == translated({"--no-split-sentences"}));
  CHECK(served({}) != served({"--no-split-sentences"}));
}

TEST_CASE("serve translates with the adapter that a request names, as translate does") {
  if (!is_built_in()) return;
  const TemporaryFolder folder;
  const auto in_folder = [&](const std::string& name) { return (folder.path() / name).string(); };
  const std::string base = in_folder("base"), source = folder.write("source", "the dog\na tree\n").string();
  REQUIRE(run("translator", {"import", "--from", (fixtures_folder() / "checkpoints" / "hf_marian").string(),
                             "--model", base})
              .code == 0);
  std::vector<std::string> arguments, expected;
  for (const std::string name : {"", "formal", "legal"}) {
    std::vector<std::string> translate = {"translate", "--model",   base, "--max-length",
                                          "12",        "--threads", "1"};
    if (!name.empty()) {
      const std::string target =
          folder.write(name + ".de", name == "legal" ? "Baum Baum\nVogel\n" : "der Hund\nein Baum\n")
              .string();
      const Ended trained = run("translator", {"train",
                                               "--init-from",
                                               base,
                                               "--model",
                                               in_folder(name),
                                               "--source",
                                               source,
                                               "--target",
                                               target,
                                               "--lora-rank",
                                               "4",
                                               "--lora-targets",
                                               "*",
                                               "--warmup",
                                               "0",
                                               "--learning-rate",
                                               "0.05",
                                               "--max-steps",
                                               "3",
                                               "--threads",
                                               "1"});
      REQUIRE_MESSAGE(trained.code == 0, trained.err);
      arguments.insert(arguments.end(), {"--adapter", name + "=" + in_folder(name)});
      translate.insert(translate.end(), {"--adapter", in_folder(name)});
    }
    expected.push_back(lines_of(run("translator", translate, "the dog\n").out).at(0));
  }
  CHECK(expected[0] != expected[1]);
  CHECK(expected[1] != expected[2]);
  std::vector<std::string> given = arguments;
  given.insert(given.end(), {"--max-length", "12"});
  Server server(given, "en-de=" + base);
  const auto ask = [&](const std::string& adapter) {
    return server.ask("POST /translate",
                      R"({"q": "the dog", "source": "en", "target": "de", "adapter": ")" + adapter + "\"}");
  };
  const std::string names[] = {"", "formal", "legal"};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string answer = ask(names[i]);
    CHECK_MESSAGE(answer.find("{\"translatedText\":\"" + expected[i] + "\"}\n") != std::string::npos, answer);
  }
  CHECK(ask("new").find("there is no adapter new of en-de; there are: formal, legal") != std::string::npos);
  CHECK(server.ask("GET /languages").find("\"adapters\":{\"de\":[\"formal\",\"legal\"]}") !=
        std::string::npos);

  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"serve", "--port", "0", "--model"});
    const Ended ended = run("translator", more);
    CHECK(ended.code == 1);
    return ended.err;
  };
  const std::string own = "en-de=" + base, legal = in_folder("legal");
  CHECK(refused({own, "--adapter", "legal=" + legal, "--adapter", "legal=" + legal})
            .find("the adapter 'legal' is given already") != std::string::npos);
  CHECK(refused({own, "--adapter", "legal=" + legal, "--adapter", legal})
            .find("one adapter has a name and another has none") != std::string::npos);
  CHECK(refused({own, "--model", "de-en=" + base, "--adapter", "legal=" + legal})
            .find("does not say whose adapter it is") != std::string::npos);
  CHECK(refused({own, "--adapter", "fr-de:legal=" + legal}).find("no model translates fr-de") !=
        std::string::npos);
  CHECK(refused({own, "--adapter", "legal=" + base}).find("is not an adapter folder") != std::string::npos);
  CHECK(refused({"en-de=" + known, "--adapter", "en-de:legal=" + legal}).find("[adapter]") !=
        std::string::npos);
}

TEST_CASE("serve refuses to start with what cannot be") {
  if (!is_built_in()) return;
  TemporaryFolder folder;
  const auto refused = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"serve", "--port", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run("translator", arguments);
    CHECK(ended.code == 1);
    return ended.err;
  };
  CHECK(refused({"--model", "en-de=" + known, "--host", "0.0.0.0"}).find("give --api-key-file") !=
        std::string::npos);
  CHECK(refused({"--model", "en-de=" + known, "--host", "here"}).find("must be an address") !=
        std::string::npos);
  const std::string no_keys = folder.write("keys", "# none\n").string();
  CHECK(refused({"--model", "en-de=" + known, "--api-key-file", no_keys}).find("has no key") !=
        std::string::npos);
  CHECK(refused({"--model", known}).find("does not name its languages") != std::string::npos);
  CHECK(refused({"--model", "en-de=" + folder.path().string()}).find("options.json") != std::string::npos);
  CHECK(refused({"--model", "en-de=" + known, "--model", "en-de=" + known})
            .find("two models translate en-de") != std::string::npos);
  CHECK(refused({"--model", "en-de=" + known, "--max-body", "0"}).find("max_body is 0") != std::string::npos);
  CHECK(refused({"--model", "en-de=" + known, "--workers", "-1"}).find("workers is -1") != std::string::npos);
}
