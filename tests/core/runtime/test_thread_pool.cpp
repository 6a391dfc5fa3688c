#include "eigenformer/core/runtime/thread_pool.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
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

/// Whether a pool runs every one of 100 tasks once. The tests that use it are not compiled for all
/// sanitizers.
[[maybe_unused]] bool works(ThreadPool& pool) {
  std::vector<std::atomic<int>> runs(100);
  auto task = [&](index_t i) { ++runs[static_cast<std::size_t>(i)]; };
  pool.run(100, TaskRef(task));
  for (const auto& n : runs) {
    if (n != 1) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("ThreadPool: every task runs exactly once") {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (const index_t count : {0, 1, 2, 5, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      auto task = [&](index_t i) { ++runs[static_cast<std::size_t>(i)]; };
      pool.run(count, TaskRef(task));
      bool once = true;
      for (const auto& n : runs) once = once && n == 1;
      CHECK(once);
    }
  }
}

TEST_CASE("ThreadPool: fewer than one thread counts as one") {
  ThreadPool pool(0);
  CHECK(pool.threads() == 1);
  const auto caller = std::this_thread::get_id();
  bool here = true;
  auto task = [&](index_t) { here = here && std::this_thread::get_id() == caller; };
  pool.run(10, TaskRef(task));
  CHECK(here);
}

TEST_CASE("ThreadPool: what tasks wrote is visible when run returns") {
  ThreadPool pool(3);
  std::vector<index_t> out(1000);
  for (index_t round = 0; round < 300; ++round) {
    auto task = [&](index_t i) { out[static_cast<std::size_t>(i)] = i + round; };
    pool.run(1000, TaskRef(task));
    bool right = true;
    for (index_t i = 0; i < 1000; ++i) right = right && out[static_cast<std::size_t>(i)] == i + round;
    REQUIRE(right);
  }
}

TEST_CASE("ThreadPool: several callers share the workers") {
  ThreadPool pool(3);
  std::atomic<index_t> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        auto task = [&](index_t i) { total += i; };
        pool.run(20, TaskRef(task));
      }
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(total == 4 * 50 * 190);
}

TEST_CASE("ThreadPool: a task may start another loop on the pool without deadlock") {
  ThreadPool pool(2);
  std::atomic<int> inner{0};
  auto outer = [&](index_t) {
    auto task = [&](index_t) { ++inner; };
    pool.run(5, TaskRef(task));
  };
  pool.run(8, TaskRef(outer));
  CHECK(inner == 40);
}

TEST_CASE("ThreadPool: sleeping workers wake, and pools come and go") {
  ThreadPool pool(2);
  std::atomic<int> runs{0};
  auto task = [&](index_t) { ++runs; };
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    pool.run(16, TaskRef(task));
  }
  CHECK(runs == 48);
  for (int i = 0; i < 20; ++i) {
    ThreadPool brief(3);
    brief.run(4, TaskRef(task));
  }
  CHECK(runs == 48 + 80);
}

TEST_CASE("ThreadPool: tasks of one loop run on more than one thread") {
  ThreadPool pool(2);
  std::atomic<int> started{0};
  std::atomic<bool> gave_up{false};
  // Each of the two tasks waits for the other, which can only end when they run at once.
  auto task = [&](index_t) {
    ++started;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (started < 2 && !gave_up) {
      if (std::chrono::steady_clock::now() > limit) gave_up = true;
      std::this_thread::yield();
    }
  };
  pool.run(2, TaskRef(task));
  CHECK_FALSE(gave_up);
}

#if EIGENFORMER_TEST_MEMORY_LIMIT
TEST_CASE("ThreadPool: a pool whose threads cannot all start throws, and says that threads are meant") {
  for (const std::size_t megabytes : {0, 4, 20, 60, 200}) {
    CAPTURE(megabytes);
    const int result = in_child([&] {
      if (!limit_memory(megabytes << 20U)) return false;
      const std::string message = message_of<ValueError>([] { ThreadPool pool(300); });
      ThreadPool alone(1);
      return contains(message, "[runtime] cannot start 300 threads: the system allows only ") && works(alone);
    });
    CHECK(result == 0);
  }
}
#endif

#if EIGENFORMER_TEST_FORK
TEST_CASE("ThreadPool: a forked child has fresh threads, and destroys what it inherited") {
  auto pool = std::make_unique<ThreadPool>(3);
  REQUIRE(works(*pool));
  for (int round = 0; round < 10; ++round) {
    CHECK(in_child([&] { return pool->threads() == 3 && works(*pool); }) == 0);
    CHECK(in_child([&] {
            pool.reset();
            return true;
          }) == 0);
    // A child's child.
    CHECK(in_child([&] { return works(*pool) && in_child([&] { return works(*pool); }) == 0; }) == 0);
  }
  CHECK(works(*pool));
}

TEST_CASE("ThreadPool: a child that is forked while other threads use the pool has fresh threads") {
  ThreadPool pool(3);
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int u = 0; u < 2; ++u) {
    users.emplace_back([&] {
      while (!stop) works(pool);
    });
  }
  for (int round = 0; round < 30; ++round) CHECK(in_child([&] { return works(pool); }) == 0);
  stop = true;
  for (auto& user : users) user.join();
}

TEST_CASE("ThreadPool: in a child several threads may be the first to use an inherited pool") {
  ThreadPool pool(3);
  CHECK(in_child([&] {
          std::atomic<int> right{0};
          std::vector<std::thread> users;
          for (int u = 0; u < 4; ++u) users.emplace_back([&] { right += works(pool) ? 1 : 0; });
          for (auto& user : users) user.join();
          return right == 4;
        }) == 0);
}
#endif
