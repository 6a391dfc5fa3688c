#include "eigenformer/core/runtime/storage.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/resource.h>
#endif

#include <doctest/doctest.h>

#include "eigenformer/core/runtime/runtime.hpp"
#include "eigenformer/core/tensor/tensor.hpp"
#include "test_tools.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EIGENFORMER_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define EIGENFORMER_TEST_SANITIZED 1
#endif
#endif

using namespace eigenformer;
using eigenformer::testing::contains;
using eigenformer::testing::message_of;

TEST_CASE("MemoryPool: blocks are aligned and as large as asked for") {
  MemoryPool pool;
  for (const std::size_t bytes :
       {0u, 1u, 63u, 64u, 65u, 127u, 129u, 191u, 193u, 1000u, 4097u, 65537u, 1234567u}) {
    const auto block = pool.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(block.get()) % MemoryPool::alignment == 0);
    std::memset(block.get(), 0xAB, bytes);
    CHECK(pool.statistics().bytes_in_use >= bytes);
    CHECK(pool.statistics().bytes_in_use <= bytes + bytes / 4 + 2 * MemoryPool::alignment);
  }
  CHECK(pool.statistics().bytes_in_use == 0);
  pool.trim();
}

TEST_CASE("MemoryPool: a block given back serves the next request of its size") {
  MemoryPool pool;
  void* first = nullptr;
  {
    const auto block = pool.allocate(1000);
    first = block.get();
  }
  CHECK(pool.statistics().bytes_cached >= 1000);
  const auto again = pool.allocate(990);
  CHECK(again.get() == first);
  CHECK(pool.statistics().system_allocations == 1);
  CHECK(pool.statistics().reuses == 1);
  CHECK(pool.statistics().bytes_cached == 0);
  pool.trim();
}

TEST_CASE("MemoryPool: two live blocks never overlap") {
  MemoryPool pool;
  std::vector<std::shared_ptr<void>> blocks;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 1; i <= 40; ++i) {
      blocks.push_back(pool.allocate(i * 37));
      std::memset(blocks.back().get(), static_cast<int>(i), i * 37);
    }
    bool intact = true;
    for (std::size_t i = 1; i <= 40; ++i) {
      const auto* p = static_cast<const unsigned char*>(blocks[i - 1].get());
      for (std::size_t k = 0; k < i * 37; ++k) intact = intact && p[k] == i;
    }
    CHECK(intact);
    blocks.clear();
  }
  CHECK(pool.statistics().bytes_in_use == 0);
  pool.trim();
}

TEST_CASE("MemoryPool: a request takes a larger block of up to 1.5 times its size, not more") {
  MemoryPool pool;
  pool.allocate(12000).reset();
  {
    const auto close = pool.allocate(9000);
    CHECK(pool.statistics().reuses == 1);
    CHECK(pool.statistics().bytes_in_use >=
          12000);  // the whole block counts, so that nothing is lost when it returns
  }
  CHECK(pool.statistics().bytes_in_use == 0);
  const auto far = pool.allocate(5000);
  CHECK(pool.statistics().reuses == 1);
  CHECK(pool.statistics().system_allocations == 2);
}

TEST_CASE("MemoryPool: varying sizes stop asking the system once they have been seen") {
  MemoryPool pool;
  const auto step = [&](std::size_t length) {
    const auto a = pool.allocate(length * 1024);
    const auto b = pool.allocate(length * 4096);
    const auto c = pool.allocate(length * 512);
  };
  for (std::size_t length = 10; length < 80; ++length) step(length);
  const auto before = pool.statistics().system_allocations;
  for (std::size_t length = 79; length >= 10; --length) step(length);
  CHECK(pool.statistics().system_allocations == before);
  pool.trim();
}

TEST_CASE("MemoryPool: the byte limit bounds what is kept, and trim lowers it") {
  MemoryPool pool;
  pool.set_byte_limit(100000);
  {
    std::vector<std::shared_ptr<void>> blocks;
    for (int i = 0; i < 20; ++i) blocks.push_back(pool.allocate(20000));
  }
  CHECK(pool.statistics().bytes_cached <= 100000);
  CHECK(pool.statistics().bytes_cached >= 60000);
  pool.trim(50000);
  CHECK(pool.statistics().bytes_cached <= 50000);
  pool.trim();
  CHECK(pool.statistics().bytes_cached == 0);
  pool.allocate(20000).reset();
  pool.set_byte_limit(0);
  CHECK(pool.statistics().bytes_cached == 0);
  pool.allocate(20000).reset();
  CHECK(pool.statistics().bytes_cached == 0);
}

TEST_CASE("MemoryPool: the peak counts live and cached bytes and can be reset") {
  MemoryPool pool;
  pool.allocate(100000).reset();
  CHECK(pool.statistics().peak_bytes >= 100000);
  pool.trim();
  pool.reset_peak();
  CHECK(pool.statistics().peak_bytes == 0);
}

TEST_CASE("MemoryPool: blocks may be given back by another thread") {
  MemoryPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&pool, t] {
      std::vector<std::shared_ptr<void>> kept;
      for (std::size_t i = 0; i < 300; ++i) {
        kept.push_back(pool.allocate(64 + (i * 97 + static_cast<std::size_t>(t) * 31) % 5000));
        if (kept.size() > 10) kept.erase(kept.begin());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(pool.statistics().bytes_in_use == 0);
  CHECK(pool.statistics().reuses + pool.statistics().system_allocations == 900);
  pool.trim();
}

TEST_CASE("MemoryPool: an impossible size is an Error with its bytes, and leaves the pool as it was") {
  const PoolStatistics before = Runtime::instance().pool().statistics();
  const std::string message = message_of<Error>([] { (void)Tensor<double>(Shape{index_t{1} << 55}); });
  CHECK(message == "[storage] cannot allocate 288230376151711744 bytes");
  const PoolStatistics after = Runtime::instance().pool().statistics();
  CHECK(after.bytes_in_use == before.bytes_in_use);
  CHECK(after.system_allocations == before.system_allocations);
}

#if defined(__linux__) && !defined(EIGENFORMER_TEST_SANITIZED)
TEST_CASE("MemoryPool: running out of memory says how much was wanted beside how much") {
  rlimit old{};
  REQUIRE(getrlimit(RLIMIT_AS, &old) == 0);
  rlimit lowered = old;
  lowered.rlim_cur = rlim_t{1} << 40;
  REQUIRE(setrlimit(RLIMIT_AS, &lowered) == 0);
  MemoryPool pool;
  const auto held = pool.allocate(4096);
  pool.allocate(8192).reset();
  const std::string message = message_of<Error>([&] { (void)pool.allocate(std::size_t{1} << 43); });
  setrlimit(RLIMIT_AS, &old);
  CHECK(message == "[storage] out of memory: cannot allocate 8796093022208 bytes, with 4096 bytes in use");
  CHECK(pool.statistics().bytes_in_use == 4096);
  CHECK(pool.statistics().bytes_cached == 0);  // what was kept for reuse was given up first
  CHECK(pool.statistics().peak_bytes == 4096 + 8192);
  CHECK(pool.statistics().system_allocations == 2);
}
#endif

#ifdef EIGENFORMER_ADDRESS_SANITIZER
TEST_CASE("MemoryPool: the address sanitizer knows where a block ends, and that it was given back") {
  MemoryPool pool;
  for (const std::size_t bytes : {std::size_t{12}, std::size_t{400}, MemoryPool::large + 4}) {
    CAPTURE(bytes);
    for (int round = 0; round < 2; ++round) {
      auto block = pool.allocate(bytes);
      const auto* begin = static_cast<const char*>(block.get());
      CHECK_FALSE(__asan_address_is_poisoned(begin));
      CHECK_FALSE(__asan_address_is_poisoned(begin + bytes - 1));
      CHECK(__asan_address_is_poisoned(begin + bytes));
      block.reset();
      CHECK(__asan_address_is_poisoned(begin + bytes - 1));
    }
  }
}
#endif
