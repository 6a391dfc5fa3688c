#include "translator/serving/translator.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "fake_lines.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

namespace {

using Clock = TranslationRequest::Clock;
using Status = RequestStatus;

// A translator of digits whose searches wait at a gate, in batches of at most 4 lines and 20 tokens.
struct Fixture {
  std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  std::shared_ptr<FakeLog> log = std::make_shared<FakeLog>();
  Outcomes outcomes;
  Translator translator;

  explicit Fixture(TranslatorOptions options = {.workers = 1})
      : translator(std::make_shared<FakeLines>(
                       gate, log, TextTranslatorOptions{.batching = {.batch_size = 4, .batch_tokens = 20}}),
                   options) {}
  ~Fixture() { gate->open(); }

  // A request whose outcome gets a number.
  Status submit(int number, TranslationRequest request) {
    return translator.submit(std::move(request), outcomes.handler(number));
  }
  // Closes the gate and lets a request get into a search.
  void block_with(TranslationRequest request, int number = 0) {
    gate->close();
    REQUIRE(submit(number, std::move(request)) == Status::accepted);
    gate->await(1);
  }
  std::vector<std::size_t> batches() {
    const std::lock_guard<std::mutex> lock(log->mutex);
    return log->batches;
  }
};

std::vector<std::string> texts(const TranslationOutcome& outcome) {
  std::vector<std::string> all;
  for (const auto& of_line : outcome.translations) all.push_back(of_line.front().text);
  return all;
}

}  // namespace

TEST_CASE("what arrives while a batch is translated is translated together, options of a kind each") {
  Fixture f;
  f.block_with({.lines = {"12"}});
  TextTranslatorOptions greedy;
  greedy.search.beam_size = 1;
  REQUIRE(f.submit(1, {.lines = {"1", "345"}}) == Status::accepted);
  REQUIRE(f.submit(2, {.lines = {"6"}, .options = greedy}) == Status::accepted);
  REQUIRE(f.submit(3, {.lines = {"7"}, .prefixes = {"80"}}) == Status::accepted);
  REQUIRE(f.submit(4, {.lines = {""}, .options = greedy}) == Status::accepted);
  const TranslatorStatistics now = f.translator.statistics();
  CHECK(now.waiting_requests == 4);
  CHECK(now.waiting_lines == 5);
  CHECK(now.waiting_tokens == 7);  // a blank line counts as one
  CHECK(now.running_lines == 1);
  CHECK_FALSE(f.translator.idle());
  f.gate->open();
  f.outcomes.await(5);
  CHECK(f.batches() == std::vector<std::size_t>{1, 3, 2});
  CHECK(texts(f.outcomes.of(1)) == std::vector<std::string>{"1", "345"});
  CHECK(texts(f.outcomes.of(2)) == std::vector<std::string>{"6"});
  CHECK(texts(f.outcomes.of(3)) == std::vector<std::string>{"807"});
  CHECK(texts(f.outcomes.of(4)) == std::vector<std::string>{""});
  CHECK(f.outcomes.of(1).source_tokens == 4);
  CHECK(f.outcomes.of(1).target_tokens == 4);
  CHECK(f.outcomes.of(1).waited <= f.outcomes.of(1).taken);
  f.translator.shutdown(ShutdownMode::finish);
  const TranslatorStatistics then = f.translator.statistics();
  CHECK(f.translator.idle());
  CHECK(then.waiting_requests + then.waiting_lines + then.waiting_tokens + then.running_lines == 0);
  CHECK(then.accepted == 5);
  CHECK(then.done == 5);
  CHECK(then.batches == 3);
  CHECK(then.lines == 6);
  CHECK(then.source_tokens == 9);
  CHECK(then.target_tokens == 8);
  CHECK(then.taken_seconds >= then.waited_seconds);
}

TEST_CASE("requests with one glossary may be in one batch, those with others are not") {
  Fixture f;
  f.block_with({.lines = {"12"}});
  TextTranslatorOptions one, other;
  one.glossary = std::make_shared<const Glossary>();
  other.glossary = std::make_shared<const Glossary>();
  REQUIRE(f.submit(1, {.lines = {"1"}, .options = one}) == Status::accepted);
  REQUIRE(f.submit(2, {.lines = {"2"}, .options = other}) == Status::accepted);
  REQUIRE(f.submit(3, {.lines = {"3"}, .options = one}) == Status::accepted);
  f.gate->open();
  f.outcomes.await(4);
  CHECK(f.batches() == std::vector<std::size_t>{1, 2, 1});
}

TEST_CASE("batches keep to their limits, and a long request lets short ones pass") {
  Fixture f;
  f.block_with({.lines = {"1"}});
  TranslationRequest big;
  for (int i = 0; i < 10; ++i) big.lines.push_back("123456");
  REQUIRE(f.submit(1, big) == Status::accepted);
  REQUIRE(f.submit(2, {.lines = {"1"}}) == Status::accepted);
  REQUIRE(f.submit(3, {.lines = {"2222222222222222222222222"}}) == Status::accepted);
  REQUIRE(f.submit(4, {.lines = {"3"}}) == Status::accepted);
  f.gate->open();
  f.outcomes.await(5);
  // 6 + 1, then no room for 25; 25 alone; 1 + 6 + 6 + 6; 3 x 6 twice; 2 x 6.
  CHECK(f.batches() == std::vector<std::size_t>{1, 2, 1, 4, 3, 3});
  const std::vector<int> order = f.outcomes.order();
  CHECK(order == std::vector<int>{0, 2, 3, 4, 1});
  CHECK(texts(f.outcomes.of(1)) == big.lines);
}

TEST_CASE("prepared lines are translated without being tokenized again") {
  Fixture f;
  PreparedLine first = f.translator.prepare("12"), second = f.translator.prepare("3");
  second.ids = {4, 5};
  REQUIRE(f.submit(0, {.prepared = {first, second}, .first = 7}) == Status::accepted);
  const TranslationOutcome outcome = f.outcomes.of(0);
  REQUIRE(outcome.status == Status::done);
  CHECK(outcome.translations.at(0).at(0).text == "12");
  CHECK(outcome.translations.at(1).at(0).text == "45");
  CHECK(outcome.source_tokens == 4);
  CHECK_THROWS_WITH_AS((void)f.submit(1, {.lines = {"1"}, .prepared = {first}}),
                       "[translator] a request has both lines and prepared lines, expected one of the two",
                       ValueError);
  CHECK_THROWS_AS((void)f.submit(2, {.prefixes = {"1"}, .prepared = {first}}), ValueError);
  CHECK_THROWS_AS((void)f.translator.prepare("1", "no such adapter"), ValueError);
}

TEST_CASE("a window lets the first request wait for others") {
  Fixture f({.window = 30, .workers = 1});
  for (int i = 0; i < 4; ++i)
    REQUIRE(f.submit(i, {.lines = {std::to_string(i)}}) == Status::accepted);  // the fourth fills the batch
  f.outcomes.await(4);
  CHECK(f.batches() == std::vector<std::size_t>{4});
  REQUIRE(f.submit(4, {.lines = {"4"}}) == Status::accepted);
  f.translator.shutdown(ShutdownMode::finish);  // does not wait for the window
  CHECK(f.outcomes.of(4).status == Status::done);
}

TEST_CASE("a request that is cancelled or past its deadline ends within the window") {
  Fixture f({.window = 30, .workers = 1});
  std::stop_source stop;
  REQUIRE(f.submit(0, {.lines = {"0"}, .deadline = Clock::now() + std::chrono::milliseconds(20)}) ==
          Status::accepted);
  const TranslationOutcome late = f.outcomes.of(0);
  CHECK(late.status == Status::deadline_exceeded);
  CHECK(late.taken.count() < 10);
  REQUIRE(f.submit(1, {.lines = {"1"}, .cancellation = stop.get_token()}) == Status::accepted);
  REQUIRE(f.submit(2, {.lines = {"2"}}) == Status::accepted);
  stop.request_stop();
  const TranslationOutcome stopped = f.outcomes.of(1);
  CHECK(stopped.status == Status::cancelled);
  CHECK(stopped.taken.count() < 10);
  CHECK(f.batches().empty());  // the other one still waits
  f.translator.shutdown(ShutdownMode::finish);
  CHECK(f.outcomes.of(2).status == Status::done);
}

TEST_CASE("a request is cancelled while it waits and while it is translated, and the others go on") {
  Fixture f;
  std::stop_source running, waiting, last;
  std::stop_token stopped = last.get_token();
  last.request_stop();
  f.gate->close();
  // One batch of two: the first to come blocks the worker alone.
  f.block_with({.lines = {"1"}});
  REQUIRE(f.submit(1, {.lines = {"111111"}, .cancellation = running.get_token()}) == Status::accepted);
  REQUIRE(f.submit(2, {.lines = {"222222"}}) == Status::accepted);
  f.gate->step();
  f.gate->await(2);
  REQUIRE(f.submit(3, {.lines = {"333"}, .cancellation = waiting.get_token()}) == Status::accepted);
  REQUIRE(f.submit(4, {.lines = {"444"}, .cancellation = stopped}) == Status::accepted);
  REQUIRE(f.submit(5, {.lines = {"555"}}) == Status::accepted);
  f.gate->step();
  f.gate->await(3);
  running.request_stop();
  waiting.request_stop();
  std::this_thread::sleep_for(
      std::chrono::milliseconds(6));  // requests that wait are not looked at each step
  f.gate->step();
  // Both end although their batch has not.
  const TranslationOutcome ended = f.outcomes.of(1);
  CHECK(ended.status == Status::cancelled);
  CHECK(ended.translations.empty());
  CHECK(ended.target_tokens == 1);
  CHECK(f.outcomes.of(3).status == Status::cancelled);
  CHECK(f.outcomes.of(4).status == Status::cancelled);
  CHECK(f.outcomes.size() == 4);
  f.gate->open();
  CHECK(texts(f.outcomes.of(2)) == std::vector<std::string>{"222222"});
  CHECK(texts(f.outcomes.of(5)) == std::vector<std::string>{"555"});
  f.translator.shutdown(ShutdownMode::finish);
  CHECK(f.batches() == std::vector<std::size_t>{1, 2, 1});
  CHECK(f.translator.statistics().cancelled == 3);
}

TEST_CASE("a deadline ends a request while it waits and while it is translated") {
  Fixture f;
  const auto soon = [] { return Clock::now() + std::chrono::milliseconds(20); };
  f.gate->close();
  REQUIRE(f.submit(0, {.lines = {"111"}, .deadline = Clock::now()}) == Status::accepted);
  CHECK(f.outcomes.of(0).status == Status::deadline_exceeded);
  CHECK(f.batches().empty());
  REQUIRE(f.submit(1, {.lines = {"111", "1"}, .deadline = soon()}) == Status::accepted);
  f.gate->await(1);
  REQUIRE(f.submit(2, {.lines = {"222"}, .deadline = soon()}) == Status::accepted);
  REQUIRE(f.submit(3, {.lines = {"333"}, .deadline = Clock::now() + std::chrono::hours(1)}) ==
          Status::accepted);
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  f.gate->step();
  CHECK(f.outcomes.of(1).status == Status::deadline_exceeded);
  CHECK(f.outcomes.of(2).status == Status::deadline_exceeded);
  f.gate->open();
  CHECK(f.outcomes.of(3).status == Status::done);
  CHECK(f.translator.statistics().deadline_exceeded == 3);
  CHECK_THROWS_WITH_AS((void)f.translator.alternatives({.lines = {"1"}, .deadline = Clock::now()}),
                       "[translator] the request's deadline passed before it was translated", RequestError);
}

TEST_CASE("a full queue refuses requests; one that it can never hold has a status of its own") {
  Fixture f({.queue_requests = 2, .queue_tokens = 10, .workers = 1});
  f.block_with({.lines = {"1"}});
  CHECK(f.submit(1, {.lines = {"12345"}}) == Status::accepted);
  CHECK(f.submit(2, {.lines = {"12345", "6"}}) == Status::queue_full);
  CHECK(f.submit(2, {.lines = {"12345678901"}}) == Status::too_large);
  CHECK(f.submit(2, {.lines = std::vector<std::string>(11)}) == Status::too_large);
  CHECK(f.submit(3, {.lines = {"1"}}) == Status::accepted);
  CHECK(f.submit(4, {.lines = {"1"}}) == Status::queue_full);
  try {
    (void)f.translator.translate("1");
    FAIL("the queue is full");
  } catch (const RequestError& error) {
    CHECK(error.status() == Status::queue_full);
    CHECK(std::string(error.what()) == "[translator] the queue is full; try again later");
  }
  f.gate->open();
  f.outcomes.await(3);
  CHECK(f.submit(4, {.lines = {"1"}}) == Status::accepted);
  f.translator.shutdown(ShutdownMode::finish);
  CHECK(f.submit(5, {.lines = {"1"}}) == Status::shut_down);
  CHECK(f.outcomes.size() == 4);
  CHECK(f.translator.statistics().refused == 6);
}

TEST_CASE("a batch that throws fails the requests that are to blame") {
  Fixture f;
  f.block_with({.lines = {"1"}});
  REQUIRE(f.submit(1, {.lines = {"11", "12"}}) == Status::accepted);
  REQUIRE(f.submit(2, {.lines = {"29"}}) == Status::accepted);
  REQUIRE(f.submit(3, {.lines = {"33"}}) == Status::accepted);
  f.gate->open();
  CHECK(texts(f.outcomes.of(1)) == std::vector<std::string>{"11", "12"});
  CHECK(texts(f.outcomes.of(3)) == std::vector<std::string>{"33"});
  CHECK(f.outcomes.of(1).target_tokens == 4);  // steps that were made again do not count again
  const TranslationOutcome failed = f.outcomes.of(2);
  CHECK(failed.status == Status::failed);
  CHECK_THROWS_WITH_AS(std::rethrow_exception(failed.error), "nine", std::runtime_error);
  CHECK_THROWS_WITH_AS((void)f.translator.translate("9"), "nine", std::runtime_error);
  CHECK(f.translator.translate("8").text == "8");
  CHECK(f.batches() == std::vector<std::size_t>{1, 4, 2, 1, 1, 1, 1});
}

TEST_CASE("handlers may submit and throw, progress that throws fails its request") {
  Fixture f;
  std::atomic<int> left{5};
  std::function<void(TranslationOutcome)> again = [&](const TranslationOutcome&) {
    const int number = --left;
    if (number > 0) (void)f.translator.submit({.lines = {"1"}}, again);
    if (number == 0) (void)f.submit(7, {.lines = {"1"}});
    throw std::runtime_error("dropped");
  };
  REQUIRE(f.translator.submit({.lines = {"1"}}, again) == Status::accepted);
  CHECK(f.outcomes.of(7).status == Status::done);
  f.block_with({.lines = {"1"}}, 0);
  REQUIRE(f.submit(1, {.lines = {"12"}, .on_progress = [](const TranslationProgress&) {
                         throw std::runtime_error("unwilling");
                       }}) == Status::accepted);
  std::string told;
  REQUIRE(f.submit(2, {.lines = {"345"}, .on_progress = [&](const TranslationProgress& progress) {
                         told += std::string(progress.added) + "|";
                       }}) == Status::accepted);
  f.gate->open();
  CHECK(f.outcomes.of(1).status == Status::failed);
  CHECK_THROWS_WITH(std::rethrow_exception(f.outcomes.of(1).error), "unwilling");
  CHECK(f.outcomes.of(2).status == Status::done);
  CHECK(told == "3|4|5|");
  std::atomic<int> refused{0};
  REQUIRE(f.translator.submit({.lines = {"1"}}, [&](const TranslationOutcome&) {
    for (const auto& wait :
         std::vector<std::function<void()>>{[&] { (void)f.translator.translate("1"); },
                                            [&] { f.translator.shutdown(ShutdownMode::finish); }}) {
      try {
        wait();
      } catch (const ValueError&) {
        ++refused;
      }
    }
  }) == Status::accepted);
  f.translator.shutdown(ShutdownMode::finish);
  CHECK(refused == 2);
}

TEST_CASE("a shutdown finishes what was accepted, or cancels it, also while another one waits") {
  SUBCASE("finish") {
    Fixture f;
    f.block_with({.lines = {"1"}});
    for (int i = 1; i < 7; ++i) REQUIRE(f.submit(i, {.lines = {"12"}}) == Status::accepted);
    std::thread stopping([&] { f.translator.shutdown(ShutdownMode::finish); });
    while (f.submit(9, {.lines = {"1"}}) == Status::accepted) {
    }
    f.gate->open();
    stopping.join();
    for (int i = 0; i < 7; ++i) CHECK(f.outcomes.of(i).status == Status::done);
    f.translator.shutdown(ShutdownMode::cancel);  // nothing is left to do
  }
  SUBCASE("cancel cuts finish short") {
    Fixture f;
    f.block_with({.lines = {std::string(100000, '1')}});  // more steps than the loop below makes
    for (int i = 1; i < 7; ++i) REQUIRE(f.submit(i, {.lines = {"12"}}) == Status::accepted);
    std::thread finishing([&] { f.translator.shutdown(ShutdownMode::finish); });
    std::thread cancelling([&] { f.translator.shutdown(ShutdownMode::cancel); });
    while (f.outcomes.size() < 7) {
      f.gate->step();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    f.gate->open();
    finishing.join();
    cancelling.join();
    CHECK(f.outcomes.of(0).status == Status::cancelled);
    CHECK(f.outcomes.of(6).status == Status::cancelled);
  }
  SUBCASE("the end of its life cancels") {
    Outcomes outcomes;
    const auto gate = std::make_shared<Gate>();
    gate->close();
    std::atomic<bool> over{false};
    std::thread stepping;
    {
      Translator translator(std::make_shared<FakeLines>(gate, std::make_shared<FakeLog>()));
      for (int i = 0; i < 3; ++i) {
        // More steps than are made until the search sees that it is cancelled.
        REQUIRE(translator.submit({.lines = {std::string(100000, '1')}}, outcomes.handler(i)) ==
                Status::accepted);
      }
      gate->await(1);
      stepping = std::thread([&] {
        while (!over) {
          gate->step();
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      });
    }
    over = true;
    stepping.join();
    for (int i = 0; i < 3; ++i) CHECK(outcomes.of(i).status == Status::cancelled);
  }
}

TEST_CASE("many threads with many requests each get their own answers, some of them cancelled") {
  Fixture f({.queue_requests = 8, .workers = 3});
  std::atomic<int> right{0}, wrong{0}, refused{0}, cancelled{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 6; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 40; ++i) {
        const std::string line = std::to_string(10000 + 1000 * c + i), digits = [&] {
          std::string s = line;
          std::replace(s.begin(), s.end(), '9', '8');
          return s;
        }();
        std::stop_source stop;
        if (i % 10 == 0) stop.request_stop();
        try {
          const auto found =
              f.translator.alternatives({.lines = {digits, digits + "1"}, .cancellation = stop.get_token()});
          ++(found[0][0].text == digits && found[1][0].text == digits + "1" ? right : wrong);
        } catch (const RequestError& error) {
          ++(error.status() == Status::queue_full ? refused : cancelled);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  CHECK(wrong == 0);
  CHECK(right + refused + cancelled == 240);
  CHECK(cancelled <= 24);
  CHECK(right > 0);
  const TranslatorStatistics statistics = f.translator.statistics();
  CHECK(statistics.done == static_cast<std::uint64_t>(right));
  CHECK(statistics.cancelled == static_cast<std::uint64_t>(cancelled));
}

TEST_CASE(
    "a worker alone has all threads, several have a share each, and one worker for each thread is enough") {
  const ThreadScope scope(4);
  Fixture f(TranslatorOptions{});
  const auto threads = [&] {
    const std::lock_guard<std::mutex> lock(f.log->mutex);
    return f.log->threads;
  };
  f.block_with({.lines = {"1"}}, 0);
  CHECK(threads() == std::vector<int>{4});
  for (int i = 1; i < 5; ++i) {
    REQUIRE(f.submit(i, {.lines = {"1"}}) == Status::accepted);
    if (i < 4) f.gate->await(i + 1);
  }
  CHECK(threads() == std::vector<int>{4, 2, 1, 1});
  CHECK(f.translator.statistics().waiting_requests == 1);  // the fifth, without a worker
  f.gate->open();
  f.outcomes.await(5);
  while (f.translator.statistics().running_batches > 0) std::this_thread::yield();
  f.gate->close();
  REQUIRE(f.submit(5, {.lines = {"1"}}) == Status::accepted);
  f.gate->await(6);
  CHECK(threads().back() == 4);
}

TEST_CASE("workers divide the lines that wait, but into batches of four or more") {
  const ThreadScope scope(4);
  Fixture f(TranslatorOptions{});
  REQUIRE(f.submit(0, {.lines = {"1", "2", "3", "4", "5", "6"}}) == Status::accepted);
  f.outcomes.await(1);
  std::vector<std::size_t> batches = f.batches();
  std::sort(batches.begin(), batches.end());
  CHECK(batches == std::vector<std::size_t>{2, 4});
}

TEST_CASE("impossible requests and options are refused with a reason") {
  Fixture f;
  const auto refuse = [&](TranslationRequest request) { (void)f.submit(0, std::move(request)); };
  CHECK_THROWS_WITH_AS(refuse({}), "[translator] a request has no lines, must have at least one", ValueError);
  CHECK_THROWS_WITH_AS(refuse({.lines = {"1", "2"}, .prefixes = {"1"}}),
                       "[translator] there are 1 prefixes, must be 2, one for each input, or none",
                       ValueError);
  CHECK_THROWS_AS(refuse({.lines = {"1"}, .prefixes = {"12345"}}), ValueError);
  TextTranslatorOptions options;
  options.search.beam_size = 0;
  CHECK_THROWS_AS(refuse({.lines = {"1"}, .options = options}), ValueError);
  options.search = {.prefixes = {{4}}};
  CHECK_THROWS_WITH_AS(refuse({.lines = {"1"}, .options = options}),
                       "[translator] a request's options have prefixes, expected them in the request",
                       ValueError);
  options.search = {.constraints = {{}}};
  CHECK_THROWS_WITH_AS(refuse({.lines = {"1"}, .options = options}),
                       "[translator] a request's options have constraints, expected a glossary", ValueError);
  options.search = {.observer =
                        std::make_shared<const SearchObserver>([](const SearchProgress&) { return true; })};
  CHECK_THROWS_WITH_AS(refuse({.lines = {"1"}, .options = options}),
                       "[translator] a request's options have an observer, expected on_progress", ValueError);
  options.search = {};
  options.search.sampling = Sampling{.numbers = {1}};
  CHECK_THROWS_WITH_AS(refuse({.lines = {"1"}, .options = options}),
                       "[translator] a request's options have numbers, expected the request's `first`",
                       ValueError);
  CHECK_THROWS_WITH_AS((void)f.translator.submit({.lines = {"1"}}, nullptr),
                       "[translator] the handler of a request is null, must be callable", ValueError);
  CHECK(f.translator.idle());
  CHECK_THROWS_WITH_AS(Translator(std::shared_ptr<const LineTranslator>()),
                       "[translator] the LineTranslator is null, expected one that exists", ValueError);
  const auto lines = std::make_shared<FakeLines>(f.gate, f.log);
  CHECK_THROWS_AS(Translator(lines, {.workers = -1}), ValueError);
  CHECK_THROWS_AS(Translator(lines, {.window = -1}), ValueError);
  CHECK_THROWS_WITH_AS(Translator(lines, {.window = 61}),
                       "[translator] window is 61 seconds, must be at most 60", ValueError);
}
