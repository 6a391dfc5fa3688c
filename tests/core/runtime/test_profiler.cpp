#include "eigenformer/core/runtime/profiler.hpp"

#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace eigenformer;

TEST_CASE("Profiler: off, it records nothing") {
  Profiler profiler;
  { const OpScope scope(profiler, "op"); }
  CHECK(profiler.report().empty());
  CHECK_FALSE(profiler.enabled());
}

TEST_CASE("Profiler: calls and work of an op add up, forward and backward apart") {
  Profiler profiler;
  profiler.start();
  for (int i = 0; i < 3; ++i) {
    const OpScope scope(profiler, "matmul");
    detail::work_counter().flops += 100;
    detail::work_counter().bytes += 8;
  }
  {
    const OpScope scope(profiler, "matmul", true);
    detail::work_counter().flops += 200;
  }
  profiler.stop();
  { const OpScope scope(profiler, "matmul"); }
  const auto report = profiler.report();
  REQUIRE(report.size() == 2);
  for (const OpProfile& p : report) {
    CHECK(p.op == "matmul");
    CHECK(p.calls == (p.backward ? 1 : 3));
    CHECK(p.flops == (p.backward ? 200 : 300));
    CHECK(p.bytes == (p.backward ? 0 : 24));
    CHECK(p.seconds >= 0);
  }
  profiler.clear();
  CHECK(profiler.report().empty());
}

TEST_CASE("Profiler: a nested op counts into the outer one only") {
  Profiler profiler;
  profiler.start();
  {
    const OpScope outer(profiler, "outer");
    const OpScope inner(profiler, "inner");
    detail::work_counter().flops += 5;
  }
  { const OpScope after(profiler, "after"); }
  const auto report = profiler.report();
  REQUIRE(report.size() == 2);
  for (const OpProfile& p : report) {
    CHECK(p.op != "inner");
    CHECK(p.flops == (p.op == "outer" ? 5 : 0));
  }
}

TEST_CASE("Profiler: the most expensive op comes first") {
  Profiler profiler;
  profiler.add("cheap", false, 0.1, 0, 0);
  profiler.add("dear", false, 0.3, 0, 0);
  profiler.add("middle", true, 0.2, 0, 0);
  const auto report = profiler.report();
  REQUIRE(report.size() == 3);
  CHECK(report[0].op == "dear");
  CHECK(report[1].op == "middle");
  CHECK(report[1].backward);
  CHECK(report[2].op == "cheap");
}

TEST_CASE("Profiler: threads report into one profile") {
  Profiler profiler;
  profiler.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const OpScope scope(profiler, "op");
        detail::work_counter().flops += 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto report = profiler.report();
  REQUIRE(report.size() == 1);
  CHECK(report[0].calls == 150);
  CHECK(report[0].flops == 150);
}
