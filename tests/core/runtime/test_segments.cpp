#include "eigenformer/core/runtime/segments.hpp"

#include <cstring>
#include <map>
#include <vector>

#include <doctest/doctest.h>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/runtime/storage.hpp"

using namespace eigenformer;
using detail::Segments;

namespace {

constexpr std::size_t page = Segments::page, mib = std::size_t{1} << 20;

char* take(Segments& segments, std::size_t bytes) {
  char* block = segments.allocate(bytes);
  if (block != nullptr) return block;
  REQUIRE(segments.grow(bytes));
  return segments.allocate(bytes);
}

}  // namespace

TEST_CASE("Segments: neighbours that are given back become one hole, in whatever order") {
  for (const auto& order :
       std::vector<std::vector<std::size_t>>{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    Segments segments;
    const std::size_t sizes[] = {3 * page, 5 * page, 2 * page};
    char* blocks[3];
    for (int i = 0; i < 3; ++i) blocks[i] = take(segments, sizes[i]);
    CHECK(blocks[1] == blocks[0] + sizes[0]);
    CHECK(blocks[2] == blocks[1] + sizes[1]);
    char* const after = take(segments, page);
    CHECK(segments.in_use() == 11 * page);
    for (const std::size_t i : order) segments.give_back(blocks[i], sizes[i]);
    CHECK(segments.in_use() == page);
    CHECK(segments.cached() == 10 * page);
    CHECK(take(segments, 10 * page) == blocks[0]);
    CHECK(segments.cached() == 0);
    segments.give_back(blocks[0], 10 * page);
    segments.give_back(after, page);
  }
}

TEST_CASE("Segments: the smallest hole with room is taken") {
  Segments segments;
  char* const large = take(segments, 9 * page);
  char* const wall = take(segments, page);
  char* const small = take(segments, 4 * page);
  char* const end = take(segments, page);
  segments.give_back(large, 9 * page);
  segments.give_back(small, 4 * page);
  CHECK(take(segments, 3 * page) == small);
  CHECK(take(segments, 2 * page) == large);
  segments.give_back(wall, page);
  CHECK(take(segments, 8 * page) == large + 2 * page);  // what was left of the large hole, and the wall
  segments.give_back(end, page);
}

TEST_CASE("Segments: memory that was used is taken before a smaller hole that was not") {
  Segments segments;
  char* const a = take(segments, 12 * mib);  // leaves 4 MiB of the first segment
  segments.give_back(a, 12 * mib);
  REQUIRE(segments.grow(17 * mib));
  char* const b = take(segments, 16 * mib);
  REQUIRE(b != nullptr);
  CHECK(segments.cached() == 0);  // b took the whole first segment, whose 12 MiB were used before
  char* const c = take(segments, 16 * mib);
  segments.give_back(b, 16 * mib);
  char* const d = take(segments, mib);  // the second segment has a hole of 1 MiB, which was not used
  CHECK(d == b);
  segments.give_back(c, 16 * mib);
  segments.give_back(d, mib);
}

TEST_CASE(
    "Segments: memory that was never used is not cached, and blocks of one segment do not reach into "
    "another") {
  Segments segments;
  char* const a = take(segments, 20 * mib);
  CHECK(segments.cached() == 0);
  REQUIRE(segments.grow(30 * mib));
  char* const b = segments.allocate(30 * mib);
  REQUIRE(b != nullptr);
  segments.give_back(a, 20 * mib);
  segments.give_back(b, 30 * mib);
  CHECK(segments.cached() == 50 * mib);
  char* const c = take(segments, 31 * mib);  // more than either, even where they happen to be neighbours
  std::memset(c, 1, 31 * mib);
  segments.give_back(c, 31 * mib);
}

TEST_CASE("Segments: trim gives whole segments back, and on Linux the pages of holes") {
  Segments segments;
  char* const a = take(segments, 16 * mib);  // a segment of its own
  REQUIRE(segments.grow(17 * mib));
  char* const b = segments.allocate(13 * mib);
  char* const c = segments.allocate(2 * mib);
  std::memset(b, 7, 13 * mib);
  std::memset(c, 7, 2 * mib);
  segments.give_back(a, 16 * mib);
  segments.give_back(b, 13 * mib);
  CHECK(segments.cached() == 29 * mib);
  segments.trim(29 * mib);
  CHECK(segments.cached() == 29 * mib);
  segments.trim(0);
#if defined(__linux__)
  CHECK(segments.cached() == 0);
#else
  CHECK(segments.cached() == 13 * mib);
#endif
  CHECK(c[0] == 7);  // what is in use is left alone
  CHECK(c[2 * mib - 1] == 7);
  CHECK(segments.in_use() == 2 * mib);
  char* const again = take(segments, 13 * mib);
  CHECK(again == b);
  std::memset(again, 5, 13 * mib);
  CHECK(c[0] == 7);
  segments.give_back(again, 13 * mib);
  segments.give_back(c, 2 * mib);
}

TEST_CASE("Segments: live blocks never overlap, and what is held stays near what is used") {
  Segments segments;
  RandomGenerator rng(3);
  std::map<char*, std::size_t> live;
  std::size_t bytes = 0, most = 0, held = 0;
  for (int i = 0; i < 4000; ++i) {
    if (live.size() < 40 || rng.uniform_int(2) == 0) {
      const std::size_t n = page * static_cast<std::size_t>(1 + rng.uniform_int(300));
      char* const block = take(segments, n);
      const auto next = live.lower_bound(block);
      if (next != live.end()) REQUIRE(block + n <= next->first);
      if (next != live.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second <= block);
      live[block] = n;
      bytes += n;
    } else {
      auto at = live.begin();
      std::advance(at, rng.uniform_int(static_cast<index_t>(live.size())));
      bytes -= at->second;
      segments.give_back(at->first, at->second);
      live.erase(at);
    }
    most = std::max(most, bytes);
    held = std::max(held, segments.in_use() + segments.cached());
    REQUIRE(segments.in_use() == bytes);
  }
  CHECK(held < most + most / 4);
  for (const auto& [block, n] : live) segments.give_back(block, n);
  CHECK(segments.in_use() == 0);
  segments.trim(0);
  CHECK(segments.cached() == 0);
}

TEST_CASE("MemoryPool: large blocks of one batch serve other lengths without growing the pool") {
  MemoryPool pool;
  const auto step = [&](std::size_t rows) {
    std::vector<std::shared_ptr<void>> kept;
    for (int layer = 0; layer < 6; ++layer) {
      kept.push_back(pool.allocate(rows * 2048));
      const auto passing = pool.allocate(rows * 2048);
      kept.push_back(pool.allocate(rows * 8192));
    }
  };
  step(2000);
  const PoolStatistics before = pool.statistics();
  CHECK(before.bytes_cached >= 6 * 2000 * (2048 + 8192));
  for (const std::size_t rows : {1999u, 1740u, 1201u, 1850u, 1622u, 2000u}) step(rows);
  const PoolStatistics after = pool.statistics();
  CHECK(after.system_allocations == before.system_allocations);
  CHECK(after.peak_bytes < before.peak_bytes + before.peak_bytes / 16);
  pool.set_byte_limit(5 * mib);
  CHECK(pool.statistics().bytes_cached <= 5 * mib);
  step(1500);
  CHECK(pool.statistics().bytes_cached <= 5 * mib);
  CHECK(pool.statistics().bytes_in_use == 0);
}
