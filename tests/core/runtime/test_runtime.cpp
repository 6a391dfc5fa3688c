#include "eigenformer/core/runtime/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/fork_tools.hpp"
#include "test_tools.hpp"

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::in_child;
using eigenformer::testing::limit_memory;
using eigenformer::testing::message_of;

namespace {

/// An executor that runs everything in the caller, last task first, and counts.
class BackwardsExecutor final : public Executor {
 public:
  explicit BackwardsExecutor(int threads) : threads_(threads) {}
  int threads() const override { return threads_; }
  void run(index_t count, TaskRef task) override {
    ++loops;
    for (index_t i = count; i-- > 0;) task(i);
  }
  int loops = 0;

 private:
  int threads_;
};

std::vector<int> visits(index_t n, index_t grain) {
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
  parallel_for(n, grain, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
  });
  std::vector<int> counts;
  for (const auto& s : seen) counts.push_back(s);
  return counts;
}

}  // namespace

TEST_CASE("parallel_for: covers 0 .. n once, for any number of threads and any grain") {
  for (const int threads : {1, 2, 3}) {
    const ThreadScope scope(threads);
    for (const index_t n : {0, 1, 2, 7, 100, 1001}) {
      for (const index_t grain : {-3, 0, 1, 3, 64, 5000}) {
        CHECK(visits(n, grain) == std::vector<int>(static_cast<std::size_t>(n), 1));
      }
    }
  }
}

TEST_CASE("parallel_for: a negative count runs nothing, a grain not exceeded stays in one piece") {
  const ThreadScope scope(3);
  int calls = 0;
  parallel_for(-5, 1, [&](index_t, index_t) { ++calls; });
  CHECK(calls == 0);
  parallel_for(64, 64, [&](index_t begin, index_t end) {
    ++calls;
    CHECK(begin == 0);
    CHECK(end == 64);
  });
  CHECK(calls == 1);
}

TEST_CASE("parallel_for: numbers next to the largest do not wrap") {
  constexpr index_t most = std::numeric_limits<index_t>::max();
  const ThreadScope scope(2);
  for (const index_t grain : {most / 2, most / 2 + 1, most / 9, most - 1}) {
    std::mutex mutex;
    std::vector<std::pair<index_t, index_t>> ranges;
    parallel_for(most, grain, [&](index_t begin, index_t end) {
      const std::lock_guard<std::mutex> lock(mutex);
      ranges.emplace_back(begin, end);
    });
    std::sort(ranges.begin(), ranges.end());
    CHECK(ranges.front().first == 0);
    CHECK(ranges.back().second == most);
    for (std::size_t i = 1; i < ranges.size(); ++i) CHECK(ranges[i].first == ranges[i - 1].second);
  }
}

TEST_CASE("parallel_for: no range is smaller than the grain, but the last") {
  const ThreadScope scope(3);
  std::atomic<bool> small{false};
  parallel_for(1000, 90, [&](index_t begin, index_t end) {
    if (end != 1000 && end - begin < 90) small = true;
  });
  CHECK_FALSE(small);
}

TEST_CASE("parallel_for: an exception reaches the caller with its type, and the threads go on working") {
  for (const int threads : {1, 2, 3}) {
    const ThreadScope scope(threads);
    for (int round = 0; round < 20; ++round) {
      const std::string message = message_of<ValueError>([] {
        parallel_for(100, 1, [](index_t begin, index_t end) {
          for (index_t i = begin; i < end; ++i) {
            if (i == 37) throw ValueError("test", "element 37 is bad");
          }
        });
      });
      CHECK(message == "[test] element 37 is bad");
    }
    CHECK(visits(100, 1) == std::vector<int>(100, 1));
  }
}

TEST_CASE("parallel_for: when every range throws, one exception arrives, and only after all have ended") {
  const ThreadScope scope(3);
  std::atomic<int> inside{0};
  bool caught = false;
  try {
    parallel_for(100, 1, [&](index_t, index_t) {
      ++inside;
      std::this_thread::yield();
      --inside;
      throw std::runtime_error("range");
    });
  } catch (const std::runtime_error& error) {
    caught = std::string(error.what()) == "range";
    CHECK(inside == 0);
  }
  CHECK(caught);
}

TEST_CASE("parallel_for: nested loops run in the thread they are in, and the outer ones stay parallel") {
  const ThreadScope scope(3);
  std::atomic<bool> moved{false};
  std::atomic<int> total{0};
  for (int round = 0; round < 2; ++round) {
    parallel_for(12, 1, [&](index_t begin, index_t end) {
      for (index_t i = begin; i < end; ++i) {
        const auto here = std::this_thread::get_id();
        parallel_for(50, 1, [&](index_t b, index_t e) {
          if (std::this_thread::get_id() != here || b != 0 || e != 50) moved = true;
          total += static_cast<int>(e - b);
        });
      }
    });
  }
  CHECK_FALSE(moved);
  CHECK(total == 2 * 12 * 50);
}

TEST_CASE("parallel_for: an exception in a nested loop does not leave later loops serial") {
  const auto executor = std::make_shared<BackwardsExecutor>(2);
  const ThreadScope scope(executor);
  CHECK_THROWS_AS(parallel_for(10, 1,
                               [](index_t, index_t) {
                                 parallel_for(10, 1,
                                              [](index_t, index_t) { throw std::runtime_error("inner"); });
                               }),
                  std::runtime_error);
  const int before = executor->loops;
  CHECK(visits(10, 1) == std::vector<int>(10, 1));
  CHECK(executor->loops == before + 1);
}

TEST_CASE("parallel_for: calls from several user threads at once") {
  const int kept = Runtime::instance().threads();
  Runtime::instance().set_threads(3);
  std::vector<std::thread> users;
  std::atomic<int> wrong{0};
  for (int u = 0; u < 4; ++u) {
    users.emplace_back([&] {
      for (int round = 0; round < 30; ++round) {
        if (visits(200, 3) != std::vector<int>(200, 1)) ++wrong;
      }
    });
  }
  Runtime::instance().set_threads(2);  // while they run: calls under way finish as they began
  for (auto& user : users) user.join();
  CHECK(wrong == 0);
  CHECK(Runtime::instance().threads() == 2);
  Runtime::instance().set_threads(kept);
}

TEST_CASE("Runtime: a caller's executor runs the loops, in its own order") {
  const auto executor = std::make_shared<BackwardsExecutor>(2);
  const int kept = Runtime::instance().threads();
  Runtime::instance().set_executor(executor);
  CHECK(Runtime::instance().threads() == 2);
  CHECK(visits(100, 1) == std::vector<int>(100, 1));
  CHECK(executor->loops == 1);
  Runtime::instance().set_executor(nullptr);
  CHECK(Runtime::instance().threads() == Runtime::default_threads());
  Runtime::instance().set_threads(kept);
}

TEST_CASE("Runtime: an executor without threads of its own is not asked") {
  const auto executor = std::make_shared<BackwardsExecutor>(1);
  const ThreadScope scope(executor);
  CHECK(visits(100, 1) == std::vector<int>(100, 1));
  CHECK(executor->loops == 0);
}

TEST_CASE("ThreadScope: overrides for its thread and its lifetime only, and nests") {
  const int outside = Runtime::instance().threads();
  {
    const ThreadScope three(3);
    CHECK(Runtime::instance().threads() == 3);
    {
      const ThreadScope one(1);
      CHECK(Runtime::instance().threads() == 1);
      int elsewhere = 0;
      std::thread([&] { elsewhere = Runtime::instance().threads(); }).join();
      CHECK(elsewhere == outside);
    }
    CHECK(Runtime::instance().threads() == 3);
  }
  CHECK(Runtime::instance().threads() == outside);
}

TEST_CASE("Runtime: numbers of threads that cannot be") {
  CHECK(message_of<ValueError>([] { Runtime::instance().set_threads(0); }) ==
        "[runtime] threads is 0, must be at least 1");
  CHECK_THROWS_AS(Runtime::instance().set_threads(-2), ValueError);
  CHECK_THROWS_AS(ThreadScope(std::shared_ptr<Executor>()), ValueError);
  CHECK(Runtime::default_threads() >= 1);
}

#if EIGENFORMER_TEST_MEMORY_LIMIT
TEST_CASE("Runtime: set_threads that the system refuses throws and leaves the threads as they were") {
  CHECK(in_child([] {
          Runtime::instance().set_threads(2);
          if (!limit_memory(std::size_t{60} << 20U)) return false;
          const std::string message = message_of<ValueError>([] { Runtime::instance().set_threads(300); });
          return contains(message, "cannot start 300 threads") && Runtime::instance().threads() == 2 &&
                 visits(100, 1) == std::vector<int>(100, 1);
        }) == 0);
}
#endif

// The address sanitizer's allocator does not unlock itself in the child of a process that was allocating.
#if EIGENFORMER_TEST_FORK && !defined(EIGENFORMER_ADDRESS_SANITIZER)
TEST_CASE("Runtime: a forked child runs loops, sets threads and takes memory, whatever other threads did") {
  const int kept = Runtime::instance().threads();
  Runtime::instance().set_threads(3);
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  users.emplace_back([&] {
    while (!stop) (void)Runtime::instance().pool().allocate(1000);
  });
  users.emplace_back([&] {
    while (!stop) visits(50, 1);
  });
  users.emplace_back([&] {
    while (!stop) Runtime::instance().profiler().add("op", false, 0, 0, 0);
  });
  const std::vector<int> once(100, 1);
  for (int round = 0; round < 50; ++round) {
    CHECK(in_child([&] {
            Runtime& runtime = Runtime::instance();
            const bool inherited = runtime.threads() == 3 && visits(100, 1) == once;
            runtime.set_threads(2);
            runtime.profiler().clear();
            return inherited && runtime.threads() == 2 && visits(100, 1) == once &&
                   runtime.pool().allocate(1000) != nullptr;
          }) == 0);
    CHECK(in_child([&] {
            Runtime::instance().set_executor(nullptr);
            return visits(100, 1) == once;
          }) == 0);
  }
  stop = true;
  for (auto& user : users) user.join();
  Runtime::instance().set_threads(kept);
}

TEST_CASE("ThreadScope: one that began before a fork works in the child, and ends there") {
  auto scope = std::make_unique<ThreadScope>(3);
  CHECK(in_child([&] {
          const bool right = visits(100, 1) == std::vector<int>(100, 1);
          scope.reset();
          return right && visits(100, 1) == std::vector<int>(100, 1);
        }) == 0);
}
#endif
