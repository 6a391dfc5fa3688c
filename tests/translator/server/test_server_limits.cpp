#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "eigenformer/core/runtime/segments.hpp"
#include "server_tools.hpp"
#include "translator/training/process_memory.hpp"

namespace ef = eigenformer;
using namespace eigenformer::testing;

namespace {

const std::string chunked = "POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Sends `begin`, and then `more` until 100 MB are sent or the connection is closed; the answer.
std::string flood(Client& client, const std::string& begin, const std::string& more) {
  constexpr std::size_t most = 100'000'000;
  std::string block;
  while (block.size() < 64 * 1024) block += more;
  try {
    client.send(begin);
    for (std::size_t sent = 0; sent < most; sent += block.size()) client.send(block);
  } catch (const boost::system::system_error&) {
    // The server has closed the connection.
  }
  return client.rest();
}

std::size_t threads() {
  using Folder = std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(Folder("/proc/self/task"), Folder()));
}

/// Whether there are so many threads; the system may show one for a moment after its end.
bool are_threads(std::size_t count) {
  for (int i = 0; i < 500 && threads() != count; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return threads() == count;
}

}  // namespace

TEST_CASE("100 MB in any part of a request: little memory, the fitting status, and others are served") {
  ef::ServerOptions options;
  options.write_seconds = 1;
  options.api_keys = {"a key of mine"};
  TestServer server(options);
  const std::string line(1000, 'a'), field = "X-" + line + ": " + line + "\r\n";
  struct Flood {
    const char* what;
    std::string begin, more, status;
  };
  const std::vector<Flood> floods = {
      {"a request line", "GET /", line, "414"},
      {"a method", "", "G", "414"},
      {"a header field", "GET / HTTP/1.1\r\nHost: a\r\nX: ", line, "431"},
      {"header fields", "GET / HTTP/1.1\r\nHost: a\r\n", field, "431"},
      {"short header fields", "GET / HTTP/1.1\r\nHost: a\r\n", "a:\r\n", "431"},
      {"a body", "POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n", line, "413"},
      {"chunks", chunked, "3e8\r\n" + line + "\r\n", "413"},
      {"a chunk", chunked + "5f5e100\r\n", line, "413"},
      {"zeros of a chunk's size", chunked, "0", "431"},
      {"an extension of a chunk", chunked + "1;", line, "431"},
      {"extensions of a chunk", chunked + "1", ";" + line + "=\"a b\"", "431"},
      {"extensions of chunks", chunked, "1;" + line + "\r\na\r\n", "413"},
      {"a trailer field", chunked + "0\r\nX: ", line, "431"},
      {"trailer fields", chunked + "0\r\n", field, "431"},
      {"short trailer fields", chunked + "0\r\n", "a:\r\n", "431"},
      {"pipelined requests", "", get("/page.js"), "200"},
  };
  std::string fields;
  for (int i = 0; i < 127; ++i) fields += "a: b\r\n";
  CHECK(server.ask(get("/health", fields)).result_int() == 200);  // and Host
  CHECK(server.ask(get("/health", fields + "a: b\r\n")).result_int() == 431);
#ifdef EIGENFORMER_ADDRESS_SANITIZER
  constexpr std::size_t allowance = std::size_t{300} << 20;  // it keeps up to 256 MB of what was freed
#else
  constexpr std::size_t allowance = std::size_t{32} << 20;
#endif
  REQUIRE(ef::detail::resident_bytes().has_value());
  const std::size_t before = *ef::detail::resident_bytes();
  for (const Flood& each : floods) {
    CAPTURE(each.what);
    // Several clients at a time, so that what one of them costs shows.
    std::vector<std::string> answers(4);
    std::vector<std::thread> clients;
    for (std::string& answer : answers)
      clients.emplace_back([&] {
        Client client = server.connect();
        answer = flood(client, each.begin, each.more);
      });
    CHECK(server.ask(get("/health")).result_int() == 200);
    for (std::thread& client : clients) client.join();
    for (const std::string& answer : answers) CHECK(answer.find("HTTP/1.1 " + each.status) == 0);
    CHECK(*ef::detail::resident_bytes() < before + allowance);
  }
  for (int i = 0; i < 500 && server.ask(get("/metrics", "Authorization: Bearer a key of mine\r\n"))
                                     .body()
                                     .find("eigenformer_connections 1\n") == std::string::npos;
       ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(server.ask(get("/metrics", "Authorization: Bearer a key of mine\r\n"))
            .body()
            .find("eigenformer_connections 1\n") != std::string::npos);
}

TEST_CASE("a client that sends a byte now and then has no more time than others") {
  ef::ServerOptions options;
  options.read_seconds = 1;
  TestServer server(options);
  std::vector<std::thread> clients;
  std::atomic<int> closed{0};
  for (const std::string& begin :
       {std::string("GET /"), std::string("GET / HTTP/1.1\r\nX: "),
        std::string("POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"), chunked + "1;",
        chunked + "ff\r\n", chunked + "0\r\nX: "}) {
    clients.emplace_back([&, begin] {
      Client client = server.connect();
      client.send(begin);
      const auto began = std::chrono::steady_clock::now();
      try {
        while (std::chrono::steady_clock::now() - began < std::chrono::seconds(10)) {
          client.send("a");
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
      } catch (const boost::system::system_error&) {
        ++closed;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  CHECK(closed == 6);
}

TEST_CASE("fields of a trailer change nothing of the request") {
  ef::ServerOptions options;
  options.api_keys = {"a key of mine"};
  TestServer server(options);
  const std::string body = R"({"q": "a", "source": "en", "target": "de"})";
  const auto ask = [&](const std::string& header, const std::string& trailer) {
    return server.ask("POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" + header +
                      "\r\n2a\r\n" + body + "\r\n0\r\n" + trailer + "\r\n");
  };
  const std::string key = "Authorization: Bearer a key of mine\r\n",
                    type = "Content-Type: application/json\r\n";
  CHECK(ask(key + type, "X: a\r\n").result_int() == 200);
  CHECK(ask(type, key).result_int() == 401);
  CHECK(ask(key, type).result_int() == 415);
}

TEST_CASE("what a proxy could read as two requests is refused") {
  TestServer server;
  const std::string post = "POST /translate HTTP/1.1\r\nHost: a\r\n",
                    next = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string chunks = "Transfer-Encoding: chunked\r\n";
  for (const std::string& bad :
       {"POST /translate HTTP/1.0\r\n" + chunks + "\r\n0\r\n\r\n" + next,
        post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next,
        post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + next,
        post + "Content-Length: 5, 5\r\n\r\nabcde" + next,
        post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde" + next,
        post + "Content-Length: +5\r\n\r\nabcde" + next, post + "Content-Length: -1\r\n\r\n" + next,
        post + "Content-Length: 0x5\r\n\r\nabcde" + next,
        post + "Content-Length: 18446744073709551621\r\n\r\nabcde" + next,
        post + "Content-Length : 5\r\n\r\nabcde" + next,
        post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + next,
        post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + next,
        post + "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n" + next,
        post + "X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next,
        post + std::string("X: a\0b\r\n\r\n", 10) + next,
        std::string("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 28)}) {
    CAPTURE(bad);
    Client client = server.connect();
    client.send(bad);
    client.half_close();
    const std::string answer = client.rest();
    const bool refused = answer.find(" 400 ") == 8 || answer.find(" 413 ") == 8;
    CHECK_MESSAGE(refused, answer.substr(0, 100));
    CHECK(answer.find("HTTP/1.", 8) == std::string::npos);
  }
}

TEST_CASE("records of requests without a route have the method and the path, escaped") {
  TestServer server;
  const auto record = [&](const std::string& request) {
    const std::size_t known = server.records().size();
    server.ask(request);
    for (int i = 0; i < 500 && server.records().size() == known; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto records = server.records();
    return records.size() == known ? ef::HttpRecord{} : records.back();
  };
  const ef::HttpRecord missing = record(get("/no/page?q=secret", "", "PUT"));
  CHECK(missing.method == "PUT");
  CHECK(missing.path == "/no/page");
  CHECK(missing.route == "");
  CHECK(missing.status == 404);
  CHECK(record(get("/\xC3\xA4\x1B[31m\"\\")).path == "");  // a control character is not HTTP
  CHECK(record(get("/\xC3\xA4[31m\"\\")).path == "/%C3%A4[31m%22%5C");
  const ef::HttpRecord longer = record(get("/" + std::string(5000, 'a'), "", std::string(100, 'M')));
  CHECK(longer.path.size() <= 204);
  CHECK(longer.path.ends_with("aaa..."));
  CHECK(longer.method.size() <= 36);
  CHECK(record("POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n").path ==
        "/translate");
}

TEST_CASE("a start that fails half way leaves no thread behind, and can be repeated") {
  ef::ServerOptions options;
  options.port = 0;
  options.io_threads = 32;
  ef::TranslationServer server(options, {{"en", "de", nullptr}});
  const std::size_t before = threads();
  // There is room for the stacks of three threads.
  pthread_attr_t attributes, large;
  REQUIRE(pthread_getattr_default_np(&attributes) == 0);
  REQUIRE(pthread_getattr_default_np(&large) == 0);
  REQUIRE(pthread_attr_setstacksize(&large, std::size_t{1} << 30) == 0);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit unlimited{};
  REQUIRE(::getrlimit(RLIMIT_AS, &unlimited) == 0);
  const rlimit limit{pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + (std::size_t{7} << 29),
                     unlimited.rlim_max};
  for (int i = 0; i < 3; ++i) {
    REQUIRE(pthread_setattr_default_np(&large) == 0);
    REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK_THROWS_AS(server.start(), std::system_error);
    REQUIRE(::setrlimit(RLIMIT_AS, &unlimited) == 0);
    REQUIRE(pthread_setattr_default_np(&attributes) == 0);
    CHECK(are_threads(before));
  }
  server.start();
  CHECK(are_threads(before + 32));
  Client client(server.port());
  client.send(get("/health"));
  CHECK(client.answer().result_int() == 200);
  CHECK_THROWS_AS(server.start(), ef::ValueError);
  // A server whose port is taken leaves nothing, either.
  ef::ServerOptions taken = options;
  taken.port = server.port();
  for (int i = 0; i < 3; ++i)
    CHECK_THROWS_AS(ef::TranslationServer(taken, {{"en", "de", nullptr}}), ef::IoError);
  CHECK(are_threads(before + 32));
  client.send(get("/health"));
  CHECK(client.answer().result_int() == 200);
}
